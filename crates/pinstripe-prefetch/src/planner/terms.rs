//! The input and the output of a planner.

use std::ops::Range;

/// The bounds of a planner.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of the object.
    pub object: u64,
    /// Bytes of a record of a sequential stream: what one fetch of the source should bring.
    pub record: u64,
    /// Records planned and not read, of one stream.
    pub window: u32,
    /// Bytes planned and not read, of all streams: what the memory for this object holds.
    pub total: u64,
}

/// The way in which a read found its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// They were there.
    Ready,
    /// They were in flight, and the reader waits for them.
    InFlight,
    /// They were not asked for.
    Absent,
}

/// What a program says about its reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// In order from the next read on.
    Sequential,
    /// Nothing is foreseeable: no more is planned until another hint.
    Random,
    /// Records of `length` bytes, `distance` bytes from the beginning of one to that of the next.
    Stride {
        /// Bytes of a record.
        length: u64,
        /// Bytes from one beginning to the next; negative for backwards.
        distance: i64,
    },
    /// These ranges will be read, in this order. Those beyond the window are left to their reads.
    WillNeed(Vec<Range<u64>>),
    /// Nothing that was planned is wanted any more.
    DontNeed,
}

/// What to do after a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchPlan {
    /// To be fetched, the most urgent first.
    pub fetch: Vec<Range<u64>>,
    /// Planned before and not wanted any more.
    pub drop: Vec<Range<u64>>,
}

/// The pattern that was found last, and how it goes.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamStatus {
    /// Bytes from record to record; negative backwards.
    pub stride: i64,
    /// Bytes of a record.
    pub record: u64,
    /// Records planned and not read.
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
    /// Bytes planned, and dropped unread.
    pub wasted: u64,
    /// Records read that were planned before and there.
    pub hits: u64,
    /// Records read that were planned before and in flight.
    pub stalls: u64,
}
