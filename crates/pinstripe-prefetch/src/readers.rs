//! The planners of all objects that are read, by object number.
//!
//! Invariant: at most [`OBJECTS_MAX`] objects are remembered; the planner of the object that was
//! read least recently is removed first, and soon finds its streams again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pinstripe_base::clock::{monotonic, since};
use pinstripe_base::sync::lock;

use crate::planner::{Bounds, FetchPlan, Hint, Presence, ReadCounts, ReadPlanner, StreamStatus};

/// The most objects whose readers are remembered.
const OBJECTS_MAX: usize = 4096;

/// The readers of all objects.
#[derive(Debug)]
pub struct Readers {
    objects: Mutex<HashMap<u64, Arc<ReaderObject>>>,
    began: Instant,
    reads: AtomicU64,
}

#[derive(Debug)]
struct ReaderObject {
    planner: Mutex<ReadPlanner>,
    /// The number of the most recent read.
    last: AtomicU64,
}

/// The known facts about the readers of one object.
#[derive(Debug, Clone)]
pub struct ReadersOfObject {
    /// The object.
    pub object: u64,
    /// The streams, most recently read first.
    pub streams: Vec<StreamStatus>,
    /// The counts of the object's reads and plans, since the object is remembered.
    pub counts: ReadCounts,
    /// The number of bytes that are planned and neither read nor dropped.
    pub outstanding: u64,
}

impl Default for Readers {
    fn default() -> Self {
        Readers { objects: Mutex::default(), began: monotonic(), reads: AtomicU64::new(0) }
    }
}

impl Readers {
    /// Processes a read, after ranges that were `dropped` before they were read; returns what to
    /// fetch together with it.
    pub fn read(
        &self,
        object: u64,
        bounds: Bounds,
        range: Range<u64>,
        found: Presence,
        dropped: &[Range<u64>],
    ) -> FetchPlan {
        let object = self.object(object, bounds);
        let mut planner = lock(&object.planner);
        for dropped in dropped {
            planner.dropped(dropped);
        }
        planner.read(since(self.began).as_nanos() as u64, range, found)
    }

    /// Processes a program's hint about its reads from an offset on.
    pub fn hint(&self, object: u64, bounds: Bounds, hint: Hint, next: u64) -> FetchPlan {
        lock(&self.object(object, bounds).planner).hint(hint, next)
    }

    /// The readers of at most `most` objects, beginning with the object that was read last.
    pub fn report(&self, most: usize) -> Vec<ReadersOfObject> {
        let objects = lock(&self.objects);
        let mut latest: Vec<(u64, u64, Arc<ReaderObject>)> = objects
            .iter()
            .map(|(number, it)| (it.last.load(Ordering::Relaxed), *number, Arc::clone(it)))
            .collect();
        drop(objects);
        latest.sort_by_key(|(last, number, _)| (u64::MAX - last, *number));
        let report = |(_, object, it): (u64, u64, Arc<ReaderObject>)| {
            let planner = lock(&it.planner);
            let (streams, counts) = (planner.statuses(), planner.counts());
            ReadersOfObject { object, streams, counts, outstanding: planner.outstanding() }
        };
        latest.into_iter().take(most).map(report).collect()
    }

    fn object(&self, number: u64, bounds: Bounds) -> Arc<ReaderObject> {
        let turn = self.reads.fetch_add(1, Ordering::Relaxed);
        let mut objects = lock(&self.objects);
        if objects.len() >= OBJECTS_MAX && !objects.contains_key(&number) {
            forget_idle(&mut objects);
        }
        let new = || {
            let planner = Mutex::new(ReadPlanner::new(bounds));
            Arc::new(ReaderObject { planner, last: AtomicU64::new(turn) })
        };
        let object = Arc::clone(objects.entry(number).or_insert_with(new));
        object.last.store(turn, Ordering::Relaxed);
        debug_assert!(objects.len() <= OBJECTS_MAX, "no more objects are remembered than may be");
        object
    }
}

/// Forgets the half of the objects that was read least recently, so that this is seldom necessary.
fn forget_idle(objects: &mut HashMap<u64, Arc<ReaderObject>>) {
    let mut turns: Vec<u64> = objects.values().map(|it| it.last.load(Ordering::Relaxed)).collect();
    let half = turns.len() / 2;
    let middle = *turns.select_nth_unstable(half).1;
    objects.retain(|_, it| it.last.load(Ordering::Relaxed) >= middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { object: 1 << 30, record: 1 << 20, window: 64, total: 64 << 20 };

    #[test]
    fn each_object_has_streams_of_its_own() {
        let readers = Readers::default();
        for record in 0..8u64 {
            for (object, stride) in [(5, 1), (6, 17)] {
                let at = (record * stride) << 20;
                readers.read(object, BOUNDS, at..at + (1 << 20), Presence::Absent, &[]);
            }
        }
        let report = readers.report(10);
        assert_eq!(report.iter().map(|it| it.object).collect::<Vec<_>>(), [6, 5]);
        assert_eq!(report[0].streams[0].stride, 17 << 20);
        assert_eq!(report[1].streams[0].stride, 1 << 20);
        assert_eq!(report[0].counts.read, 8 << 20);
        assert_eq!(readers.report(1).len(), 1);
    }

    #[test]
    fn the_objects_that_were_read_last_are_remembered() {
        let readers = Readers::default();
        for object in 0..3 * OBJECTS_MAX as u64 {
            readers.read(object, BOUNDS, 0..4096, Presence::Absent, &[]);
        }
        let report = readers.report(usize::MAX);
        assert!(report.len() <= OBJECTS_MAX);
        assert_eq!(report[0].object, 3 * OBJECTS_MAX as u64 - 1);
    }
}
