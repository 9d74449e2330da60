//! The progress of a plan, which another thread can watch, and the means to stop the plan.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;

/// The stage of the execution of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunStage {
    /// The name of the stage: `preparing`, `warming up`, `measuring`.
    pub label: String,
    /// The variant that is running; empty if none is.
    pub variant: String,
    /// The unit counted in addition to bytes per second, as in `entries/s`; empty if there is no
    /// such unit.
    pub unit: String,
    /// Runs made so far.
    pub runs: u64,
    /// The smallest number of runs.
    pub runs_at_least: u64,
    /// The time left.
    pub remaining: Remaining,
}

/// The remaining time of a plan, as far as it can be estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remaining {
    /// The shortest remaining time, for the runs that are made in any case.
    pub at_least: Option<Duration>,
    /// For plans in which the number of runs depends on their results.
    pub at_most: Option<Duration>,
}

/// The things counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedUnit {
    /// The total is a number of bytes that are moved.
    Bytes,
    /// The total is a number of items that are processed.
    Items,
}

/// The work to be done, and the work done before.
struct Goal {
    moved: u64,
    bytes: u64,
    began: Instant,
}

/// The ledger that counts the progress of an operation of the library.
struct OperationLedger {
    monitor: Arc<Monitor>,
    counter: Counter,
    tally: CountedUnit,
}

/// The progress of a plan, shared by the measuring threads and the watching thread.
pub struct Live {
    stop: Arc<AtomicBool>,
    bytes: AtomicU64,
    items: AtomicU64,
    goal: Mutex<Option<Goal>>,
    /// The ledger of an operation of the library that is running now, whose counts are added.
    ledger: Mutex<Option<OperationLedger>>,
    /// The current stage, and when it was entered.
    stage: Mutex<(RunStage, Instant)>,
}

impl Live {
    /// Creates the progress of a plan, which the flag `stop` stops.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Live {
            stop,
            bytes: AtomicU64::new(0),
            items: AtomicU64::new(0),
            goal: Mutex::default(),
            ledger: Mutex::default(),
            stage: Mutex::new((RunStage::default(), Instant::now())),
        }
    }

    /// Whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The flag that requests a stop.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Returns an error if a stop was requested.
    ///
    /// # Errors
    /// [`Kind::Interrupted`].
    pub fn check(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(Error::new(
                Kind::Interrupted,
                "the measurement was interrupted; its results until then are kept",
            )),
            false => Ok(()),
        }
    }

    /// Counts bytes that were moved, of any kind.
    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts processed items: entries or rows.
    pub fn counted(&self, items: u64) {
        self.items.fetch_add(items, Ordering::Relaxed);
    }

    /// Adds the counts of an operation of the library while the operation runs.
    pub fn counting<R>(
        &self,
        tally: CountedUnit,
        counter: Counter,
        operation: impl FnOnce(&Monitor) -> R,
    ) -> R {
        let monitor = Arc::new(Monitor::default());
        *lock(&self.ledger) =
            Some(OperationLedger { monitor: Arc::clone(&monitor), counter, tally });
        let result = operation(&monitor);
        // Under the lock, so that no reader counts it twice or not at all.
        let mut ledger = lock(&self.ledger);
        self.counter(tally).fetch_add(monitor.get(counter), Ordering::Relaxed);
        *ledger = None;
        result
    }

    fn counter(&self, tally: CountedUnit) -> &AtomicU64 {
        match tally {
            CountedUnit::Bytes => &self.bytes,
            CountedUnit::Items => &self.items,
        }
    }

    fn so_far(&self, tally: CountedUnit) -> u64 {
        let ledger = lock(&self.ledger);
        let ledger = ledger.as_ref().filter(|it| it.tally == tally);
        let counted = ledger.map_or(0, |it| it.monitor.get(it.counter));
        self.counter(tally).load(Ordering::Relaxed) + counted
    }

    /// Bytes moved so far.
    pub fn bytes(&self) -> u64 {
        self.so_far(CountedUnit::Bytes)
    }

    /// Items processed so far.
    pub fn items(&self) -> u64 {
        self.so_far(CountedUnit::Items)
    }

    /// Sets the number of bytes that the current step will move.
    pub fn set_total(&self, bytes: u64) {
        let (moved, began) = (self.bytes(), Instant::now());
        *lock(&self.goal) = Some(Goal { moved, bytes, began });
    }

    /// The estimated time left, from the rate so far; `None` if the total is unknown.
    pub fn left(&self) -> Option<Duration> {
        let moved = self.bytes();
        let goal = lock(&self.goal);
        let goal = goal.as_ref()?;
        let done = moved.saturating_sub(goal.moved);
        let share = goal.bytes.saturating_sub(done) as f64 / done as f64;
        (done > 0).then(|| goal.began.elapsed().mul_f64(share))
    }

    /// Sets the current stage.
    pub fn enter(&self, stage: RunStage) {
        *lock(&self.goal) = None;
        *lock(&self.stage) = (stage, Instant::now());
    }

    /// The current stage, with the time left.
    pub fn stage(&self) -> RunStage {
        let (stage, entered) = lock(&self.stage).clone();
        let now = |left: Option<Duration>| left.map(|it| it.saturating_sub(entered.elapsed()));
        let Remaining { at_least, at_most } = stage.remaining;
        RunStage {
            remaining: Remaining { at_least: now(at_least), at_most: now(at_most) },
            ..stage
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ledger_counts_is_seen_while_it_counts_and_once_afterwards() {
        let live = Live::new(Arc::default());
        live.moved(5);
        live.counting(CountedUnit::Bytes, Counter::ReadBytes, |monitor| {
            monitor.add(Counter::ReadBytes, 7);
            assert_eq!((live.bytes(), live.items()), (12, 0));
        });
        live.counting(CountedUnit::Items, Counter::WalkedEntries, |monitor| {
            monitor.add(Counter::WalkedEntries, 3);
            assert_eq!((live.bytes(), live.items()), (12, 3));
        });
        live.counted(1);
        assert_eq!((live.bytes(), live.items()), (12, 4));
    }

    #[test]
    fn what_is_left_follows_from_what_was_moved() {
        let live = Live::new(Arc::default());
        assert_eq!(live.left(), None);
        live.set_total(100);
        assert_eq!(live.left(), None, "nothing was moved yet");
        live.moved(100);
        assert_eq!(live.left(), Some(Duration::ZERO));
        live.enter(RunStage::default());
        assert_eq!(live.left(), None);
    }
}
