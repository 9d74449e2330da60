//! Groups streams of reads by their pattern.

use super::status::StreamFigures;

/// The streams of a file that have the same pattern.
pub(super) struct StreamGroup {
    /// The distance from one record to the next; negative for backwards.
    pub stride_bytes: String,
    /// The length of a record.
    pub record_bytes: String,
    /// The number of streams in the group.
    pub streams: u64,
    /// The number of records that are prefetched for all streams of the group together.
    pub window: u64,
    /// The number of records that were read in these streams.
    pub used: u64,
}

/// One group for each pattern, ordered by the first stream of each group.
pub(super) fn grouped(streams: &[StreamFigures]) -> Vec<StreamGroup> {
    let mut patterns: Vec<(i64, u64)> = Vec::new();
    for stream in streams {
        let pattern = (stream.stride_bytes, stream.record_bytes);
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    let group = |(stride, record): (i64, u64)| {
        let is_of = |it: &&StreamFigures| (it.stride_bytes, it.record_bytes) == (stride, record);
        let of = || streams.iter().filter(is_of);
        StreamGroup {
            stride_bytes: stride.to_string(),
            record_bytes: record.to_string(),
            streams: of().count() as u64,
            window: of().map(|it| u64::from(it.ahead)).sum(),
            used: of().map(|it| it.used).sum(),
        }
    };
    patterns.into_iter().map(group).collect()
}
