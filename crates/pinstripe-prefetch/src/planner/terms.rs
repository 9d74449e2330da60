//! The input and the output of a planner.

use std::ops::Range;

/// The limits of a planner.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of the object.
    pub object: u64,
    /// Bytes of a record of a sequential stream, which should be the size of one fetch from the
    /// source.
    pub record: u64,
    /// The most records of one stream that are planned and not read.
    pub window: u32,
    /// The most bytes of all streams that are planned and not read: the memory for this object.
    pub total: u64,
}

/// Whether a read found its bytes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// They were there.
    Ready,
    /// The bytes were in flight, and the reader waits for them.
    InFlight,
    /// The bytes were not requested.
    Absent,
}

/// A program's hint about its reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// Reads are sequential from the next read on.
    Sequential,
    /// Reads are unpredictable: nothing more is planned until another hint.
    Random,
    /// Reads are of records of `length` bytes, with `distance` bytes from the beginning of one
    /// record to that of the next.
    Stride {
        /// Bytes of a record.
        length: u64,
        /// Bytes from the beginning of one record to that of the next; negative for backwards.
        distance: i64,
    },
    /// The ranges that will be read, in this order. Ranges beyond the window are not prefetched.
    WillNeed(Vec<Range<u64>>),
    /// None of the planned ranges is wanted any more.
    DontNeed,
}

/// What to fetch and to drop after a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchPlan {
    /// Ranges to be fetched, the most urgent first.
    pub fetch: Vec<Range<u64>>,
    /// Ranges that were planned before and are no longer wanted.
    pub drop: Vec<Range<u64>>,
}

/// The pattern of a stream, and its progress.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamStatus {
    /// Bytes from one record to the next; negative for backwards.
    pub stride: i64,
    /// Bytes of a record.
    pub record: u64,
    /// The number of records that are planned and not read.
    pub ahead: u32,
    /// Records read.
    pub used: u64,
}

/// Counts since the object was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Bytes read.
    pub read: u64,
    /// Bytes planned.
    pub planned: u64,
    /// Bytes that were planned, and dropped unread.
    pub wasted: u64,
    /// The number of records read that were planned before and present.
    pub hits: u64,
    /// The number of records read that were planned before and still in flight.
    pub stalls: u64,
}
