//! Decides which adjacent records are fetched together, without any I/O.
//!
//! A short read from a disk costs no more than its length, and decoders wait less for it: so each
//! record on a disk is a span of its own. A read from a bucket costs a round trip and a paid
//! request, so what a plan needs of a pack is divided into few spans of about the same length.

use crate::pipeline::limits::{SPAN_GAP_BYTES, SPAN_TASKS, SPANS_AHEAD};
use crate::store::packs::{Reach, RecordPlace};

/// How records are joined into spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanTerms {
    /// The approximate largest length of a span; `None` makes each record a span of its own.
    most_bytes: Option<u64>,
}

/// Records that are fetched together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Span<'p> {
    /// The range of all records, including the bytes between them.
    pub place: RecordPlace,
    /// The records, in the order of the pack.
    pub records: &'p [RecordPlace],
}

impl SpanTerms {
    /// Returns the terms for members with this reach, and this much memory for prefetched data.
    pub(super) fn new(reach: Option<Reach>, room_bytes: u64) -> Self {
        let most_bytes = reach.map(|reach| reach.span_bytes.min(room_bytes / SPANS_AHEAD));
        SpanTerms { most_bytes }
    }

    /// Whether a span may have several records.
    pub(super) fn are_joined(self) -> bool {
        self.most_bytes.is_some()
    }

    /// The largest number of records that may wait for a decoder. The bytes of queued tasks are
    /// limited separately.
    pub(super) fn tasks_queued(self, fetchers: usize) -> usize {
        if self.are_joined() { SPAN_TASKS } else { 4 * fetchers }
    }

    /// Joins records, which are sorted and distinct, into spans.
    pub(super) fn spans(self, records: &[RecordPlace]) -> Vec<Span<'_>> {
        let Some(most_bytes) = self.most_bytes else {
            return records.chunks(1).map(|one| Span { place: one[0], records: one }).collect();
        };
        let is_near = |left: &RecordPlace, right: &RecordPlace| {
            left.pack == right.pack && right.offset.saturating_sub(end(left)) <= SPAN_GAP_BYTES
        };
        records.chunk_by(is_near).flat_map(|run| cut(run, most_bytes)).collect()
    }
}

/// Divides a run of adjacent records into spans of about the same length: spans of the largest
/// length would leave a short one at the end, which costs as much as a long one.
fn cut(mut run: &[RecordPlace], most_bytes: u64) -> Vec<Span<'_>> {
    let mut spans = Vec::new();
    while let (Some(first), Some(last)) = (run.first(), run.last()) {
        let left = end(last) - first.offset;
        let target = left.div_ceil(left.div_ceil(most_bytes.max(1)));
        let is_within = |it: &&RecordPlace| it.offset - first.offset < target;
        let (records, rest) = run.split_at(run.iter().take_while(is_within).count().max(1));
        let bytes = records.last().map_or(0, |it| end(it) - first.offset);
        let place = RecordPlace { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), ..*first };
        spans.push(Span { place, records });
        run = rest;
    }
    spans
}

fn end(record: &RecordPlace) -> u64 {
    record.offset + u64::from(record.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::units::MIB;

    const FAR: SpanTerms = SpanTerms { most_bytes: Some(6 * MIB) };

    /// Records of these lengths, each so far behind the one before it.
    fn records(pack: u32, of: impl IntoIterator<Item = (u64, u32)>) -> Vec<RecordPlace> {
        let mut offset = 0;
        let mut place = |(gap, bytes)| {
            let place = RecordPlace { pack, offset: offset + gap, bytes };
            offset = end(&place);
            place
        };
        of.into_iter().map(&mut place).collect()
    }

    fn lengths(spans: &[Span<'_>]) -> Vec<(usize, u32)> {
        spans.iter().map(|span| (span.records.len(), span.place.bytes)).collect()
    }

    #[test]
    fn near_members_give_record_by_record() {
        let records = records(1, [(0, 100), (0, 200)]);
        let near = SpanTerms::new(None, 64 * MIB);
        assert_eq!(lengths(&near.spans(&records)), [(1, 100), (1, 200)]);
        assert!(!near.are_joined());
    }

    #[test]
    fn a_pack_is_cut_into_equal_spans_and_none_is_left_over() {
        // As in a pack of 16 MiB: 53 records of 300 kB.
        let records = records(1, (0..53).map(|_| (0, 300_000)));
        let spans = FAR.spans(&records);
        assert_eq!(lengths(&spans), [(18, 5_400_000), (18, 5_400_000), (17, 5_100_000)]);
        let starts: Vec<_> = spans.iter().map(|span| span.place.offset).collect();
        assert_eq!(starts, [0, 5_400_000, 10_800_000]);
    }

    #[test]
    fn packs_and_wide_gaps_part_and_narrow_ones_do_not() {
        let gap = SPAN_GAP_BYTES;
        let mut all = records(1, [(7, 10), (gap, 10), (gap + 1, 10)]);
        all.extend(records(2, [(0, 10)]));
        let spans = FAR.spans(&all);
        assert_eq!(lengths(&spans), [(2, 20 + gap as u32), (1, 10), (1, 10)]);
        assert_eq!(spans[0].place.offset, 7);
    }

    #[test]
    fn a_long_record_is_a_span_and_every_record_is_in_one() {
        let all = records(1, [(0, 20 << 20), (0, 1), (0, 9 << 20), (0, 1 << 20)]);
        for most in [0, 1, MIB, 6 * MIB, u64::MAX] {
            let spans = SpanTerms { most_bytes: Some(most) }.spans(&all);
            let joined: Vec<_> = spans.iter().flat_map(|span| span.records).copied().collect();
            assert_eq!(joined, all, "{most}");
        }
        assert!(FAR.spans(&[]).is_empty());
    }

    #[test]
    fn little_memory_makes_short_spans() {
        let reach = Some(Reach { reads: 16, span_bytes: 6 * MIB });
        assert_eq!(SpanTerms::new(reach, 64 * MIB), FAR);
        assert_eq!(SpanTerms::new(reach, 8 * MIB).most_bytes, Some(MIB));
    }
}
