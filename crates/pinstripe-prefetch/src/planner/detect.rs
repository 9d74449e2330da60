//! Finds streams: combines a read that belongs to no stream with the reads before it.

use std::ops::Range;

use super::recent::Sighting;
use super::stream::{Place, Progression, Stream};
use super::{FetchPlan, ReadPlanner};

/// The longest record for which a stride is followed; a longer one counts as a sequential run.
const STRIDE_RECORD_MAX: u64 = 16 << 20;
/// The least number of streams with the same stride that make it the usual stride, if no other
/// stride has more.
const USUAL_MIN: usize = 2;
/// The number of earlier reads that are examined, when a stride becomes usual, for streams with
/// this stride.
const ADOPTED_MAX: usize = 24;

impl ReadPlanner {
    /// When a stride has become the usual one, begins streams with this stride from earlier reads
    /// that did not belong to a stream.
    pub(super) fn adopt(&mut self, plan: &mut FetchPlan) {
        let usual = self.usual_stride();
        if std::mem::replace(&mut self.adopted, usual) == usual || !self.credit.is_good() {
            return;
        }
        let Some(stride) = usual.filter(|&stride| stride != self.bounds.record as i64) else {
            return;
        };
        let alone: Vec<Range<u64>> = (self.recent.runs().take(ADOPTED_MAX))
            .filter(|range| range.end - range.start <= stride.unsigned_abs())
            .filter(|range| {
                self.streams.iter().all(|stream| {
                    stream.stride() != stride
                        || stream.place(range) == Place::Elsewhere && !stream.has(range)
                })
            })
            .collect();
        for range in alone {
            let progression =
                Progression { base: range.start, stride, record: range.end - range.start };
            let mut stream = Stream::new(progression, self.recent.now());
            stream.consume(&range, self.recent.now());
            let planned = stream.plan(1, self.room(), self.bounds.object, &mut plan.fetch);
            self.counts.planned += planned;
            self.add(stream, plan);
        }
    }

    /// The stream that a read begins, if any.
    pub(super) fn find(&self, range: &Range<u64>, sighting: Sighting) -> Option<Progression> {
        let record = self.bounds.record;
        let usual = self.usual_stride();
        let is_open = |stream: &&Stream| !stream.is_confirmed() && usual != Some(stream.stride());
        let open = self.streams.iter().filter(is_open).count();
        let credit = self.credit.less(open / 2);
        if sighting.is_continued {
            let needed = credit.reads_of_a_run();
            return (sighting.reads >= needed)
                .then(|| Progression::sequential(sighting.start, record));
        }
        let recent = &self.recent;
        // Runs in order need no guess: their second read tells.
        let Some(usual) = usual.filter(|&stride| stride != record as i64) else {
            return (recent.stride(range, |_| credit.points(), STRIDE_RECORD_MAX))
                .or_else(|| credit.is_good().then(|| recent.frequent(range, STRIDE_RECORD_MAX))?)
                .or_else(|| recent.dense(record));
        };
        // One record is enough for a stream of the usual stride where plans have fared well; one of
        // another stride has to show more, since streams side by side are equally far apart.
        let length = range.end - range.start;
        let alone = Progression { base: range.start, stride: usual, record: length };
        let is_daring = credit.is_full() && length <= usual.unsigned_abs();
        let points = |stride: i64| match stride == usual {
            true => credit.points() - 1,
            false => credit.points() + 1,
        };
        (is_daring.then_some(alone))
            .or_else(|| recent.stride(range, points, STRIDE_RECORD_MAX))
            .or_else(|| recent.dense(record))
    }

    /// The stride that most streams have, if there are several streams with it.
    pub(super) fn usual_stride(&self) -> Option<i64> {
        let strides =
            || self.streams.iter().filter(|stream| stream.is_confirmed()).map(Stream::stride);
        let alike = |stride| strides().filter(|&other| other == stride).count();
        strides()
            .find(|&stride| alike(stride) >= USUAL_MIN && 2 * alike(stride) > strides().count())
    }
}
