//! Splits the marks of all shards into segments of columns with constant marks.

use std::ops::Range;

use super::{CLASSES, Class, Mark};
use crate::geometry::RowMap;
use crate::set::ShardSet;

/// A run of columns in which the classes of every shard stay the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub column: Range<u32>,
    /// The method is chosen for all segments of a window together.
    pub window: u32,
    classes: [ShardSet; CLASSES],
}

impl Segment {
    /// The shards that have a class.
    pub fn class(&self, class: Class) -> ShardSet {
        self.classes[class as usize]
    }
}

/// Turns marks into segments, in reused memory.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The ends of marks, as numbers that sort by column.
    events: Vec<u64>,
    /// The segments by column; windows with nothing to do are left out.
    pub segments: Vec<Segment>,
}

/// The class of an event that changes no class and only ends a segment.
const CUT: u64 = CLASSES as u64;

impl Sweep {
    /// With a granule, segments end at its multiples, and a window is one granule; without one,
    /// each segment is its own window.
    pub fn cut(&mut self, row: &RowMap, marks: &[Mark], granule: Option<u32>) {
        self.events.clear();
        for mark in marks.iter().filter(|mark| !mark.column.is_empty()) {
            debug_assert!(mark.shard < row.shards() && mark.column.end <= row.len(), "{mark:?}");
            let at = |column: u32| {
                u64::from(column) << 16 | (mark.class as u64) << 8 | mark.shard as u64
            };
            self.events.extend([at(mark.column.start), at(mark.column.end)]);
            if let Some(granule) = granule
                && matches!(mark.class, Class::Dirty | Class::Partial)
            {
                let end = mark.column.end.div_ceil(granule).saturating_mul(granule).min(row.len());
                let inner = (mark.column.start / granule * granule..end).step_by(granule as usize);
                self.events.extend(inner.chain([end]).map(|at| u64::from(at) << 16 | CUT << 8));
            }
        }
        self.events.sort_unstable();
        self.walk(granule);
    }

    fn walk(&mut self, granule: Option<u32>) {
        self.segments.clear();
        let mut classes = [ShardSet::EMPTY; CLASSES];
        let mut start = 0;
        for &event in &self.events {
            let column = (event >> 16) as u32;
            let busy = |class: Class| !classes[class as usize].is_empty();
            let wanted = busy(Class::Dirty) || busy(Class::Partial) || busy(Class::Wanted);
            if column > start && (wanted || granule.is_some()) {
                let window = granule.map_or(self.segments.len() as u32, |granule| start / granule);
                self.segments.push(Segment { column: start..column, window, classes });
            }
            start = column;
            let class = (event >> 8 & 0xff) as usize;
            if let Some(set) = classes.get_mut(class) {
                *set = set.flip(ShardSet::one((event & 0xff) as usize));
            }
        }
    }
}
