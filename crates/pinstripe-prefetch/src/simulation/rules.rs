//! Read-ahead rules: this crate's planner, a known plan, a fixed depth, and small models of the
//! documented rules of other systems.

use std::ops::Range;

use super::{RECORD, Rule};
use crate::planner::{Bounds, Presence, ReadPlanner};

/// Ours.
pub struct Ours {
    planner: ReadPlanner,
    unwanted: Vec<u64>,
}

impl Ours {
    /// The planner without hints, for an object of `records`, with at most `window` of them ahead
    /// of a stream, and at most `total` in all.
    pub fn new(records: u64, window: u32, total: u32) -> Self {
        let bounds = Bounds {
            object: records * RECORD,
            record: RECORD,
            window,
            total: u64::from(total) * RECORD,
        };
        Ours { planner: ReadPlanner::new(bounds), unwanted: Vec::new() }
    }
}

fn records(ranges: &[Range<u64>]) -> impl Iterator<Item = u64> + '_ {
    ranges.iter().flat_map(|range| range.start / RECORD..range.end.div_ceil(RECORD))
}

impl Rule for Ours {
    fn read(&mut self, now: u64, record: u64, found: Presence) -> Vec<u64> {
        let plan = self.planner.read(now, record * RECORD..(record + 1) * RECORD, found);
        self.unwanted.extend(records(&plan.drop));
        records(&plan.fetch).collect()
    }

    fn dropped(&mut self, record: u64) {
        self.planner.dropped(&(record * RECORD..(record + 1) * RECORD));
    }

    fn take_unwanted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unwanted)
    }
}

/// The next records of a known plan, up to `depth` ahead.
pub struct KnownPlan<'p> {
    plan: &'p [u64],
    at: usize,
    issued: usize,
    depth: usize,
}

impl<'p> KnownPlan<'p> {
    /// A reader that announces its reads in advance.
    pub fn new(plan: &'p [u64], depth: usize) -> Self {
        KnownPlan { plan, at: 0, issued: 0, depth }
    }
}

impl Rule for KnownPlan<'_> {
    fn read(&mut self, _: u64, _: u64, _: Presence) -> Vec<u64> {
        self.at += 1;
        let from = self.issued.max(self.at).min(self.plan.len());
        self.issued = (self.at + self.depth).min(self.plan.len()).max(from);
        self.plan[from..self.issued].to_vec()
    }
}

/// The rule of Linux's page cache (mm/readahead.c): a window that doubles while reads are
/// sequential; the next window is read when the reader reaches a mark. A window has at most `most`
/// records.
pub struct Doubling {
    last: Option<u64>,
    window: u64,
    end: u64,
    most: u64,
}

impl Doubling {
    /// The state for a file without reads.
    pub fn new(most: u64) -> Self {
        Doubling { last: None, window: 0, end: 0, most }
    }
}

impl Rule for Doubling {
    fn read(&mut self, _: u64, record: u64, _: Presence) -> Vec<u64> {
        let follows = self.last.is_some_and(|last| last + 1 == record);
        self.last = Some(record);
        if !follows {
            (self.window, self.end) = (0, record + 1);
            return Vec::new();
        }
        // The mark: where the last window begins.
        if self.window > 0 && record + self.window < self.end {
            return Vec::new();
        }
        self.window = (2 * self.window).clamp(2, self.most);
        let from = self.end.max(record + 1);
        self.end = from + self.window;
        (from..self.end).collect()
    }
}

/// The rule of Lustre (llite/rw.c): one stride per handle, forwards only, used from the second
/// equal gap on; the window grows by one record for each read that fits.
pub struct OneStride {
    last: Option<u64>,
    gap: u64,
    equal: u32,
    window: u64,
    end: u64,
    most: u64,
}

impl OneStride {
    /// The state for a handle without reads.
    pub fn new(most: u64) -> Self {
        OneStride { last: None, gap: 0, equal: 0, window: 0, end: 0, most }
    }
}

impl Rule for OneStride {
    fn read(&mut self, _: u64, record: u64, _: Presence) -> Vec<u64> {
        let gap = self.last.map_or(0, |last| record.saturating_sub(last));
        self.last = Some(record);
        if gap == 0 || gap != self.gap {
            (self.gap, self.equal, self.window, self.end) = (gap, 0, 0, record);
            return Vec::new();
        }
        self.equal += 1;
        self.window = (self.window + 1).min(self.most);
        let from = self.end.max(record) + gap;
        let to = record + self.window * gap;
        self.end = self.end.max(to);
        (from..=to).step_by(gap as usize).collect()
    }
}

/// The rule of mountpoint-s3: one cursor per handle; the window doubles when the reader finds its
/// queue empty; a forward seek of at most four records is waited for, any other seek starts again.
pub struct OneCursor {
    next: u64,
    window: u64,
    end: u64,
    most: u64,
}

impl OneCursor {
    /// The state for a handle without reads.
    pub fn new(most: u64) -> Self {
        OneCursor { next: 0, window: 1, end: 0, most }
    }
}

impl Rule for OneCursor {
    fn read(&mut self, _: u64, record: u64, found: Presence) -> Vec<u64> {
        const SEEK_MAX: u64 = 4;
        if record < self.next || record > self.next + SEEK_MAX {
            (self.window, self.end) = (1, record + 1);
        } else if found != Presence::Ready {
            self.window = (2 * self.window).min(self.most);
        }
        self.next = record + 1;
        let from = self.end.max(record + 1);
        self.end = from.max(record + 1 + self.window);
        (from..self.end).collect()
    }
}
