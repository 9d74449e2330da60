//! The thread that writes rows to the members.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::VolumeSettings;
use super::counters::Counts;
use super::measured::MeasuredThreads;
use super::schedule::{FlusherInputs, FlusherTask, WorkPace};
use super::state::{IDLE_POLL, VolumeState};
use crate::engine::{Array, BATCH_ROWS, Flusher, Step, WorkReport};
use crate::executor::Executor;
use crate::limits::REPORTS;
use crate::ranked::{Rank, Ranked, RankedMutex};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// The state that the thread and all callers share.
pub(super) struct Shared {
    pub place: PathBuf,
    pub array: Arc<Array>,
    pub state: Arc<VolumeState>,
    pub pool: Arc<MeasuredThreads>,
    pub counts: Counts,
    flusher: RankedMutex<Flusher>,
    /// The last reports of ended work, each with its number.
    reports: Mutex<VecDeque<(u64, WorkReport)>>,
    /// Slices of pending work in the last seconds: the time when each ended, and the bytes that it
    /// moved of each member.
    slices: Mutex<VecDeque<(Duration, u64)>>,
    /// The origin of all times.
    began: Instant,
}

impl Shared {
    pub fn new(place: PathBuf, mut flusher: Flusher, settings: VolumeSettings) -> Self {
        let array = Arc::clone(flusher.array());
        array.set_timer(clock::since_first_asked);
        let pool = Arc::new(MeasuredThreads::default());
        flusher.set_executor(Arc::clone(&pool) as Arc<dyn Executor>);
        let counts = Counts::new(Arc::clone(flusher.tally()));
        let state = Arc::new(VolumeState::new(settings));
        let own = Arc::clone(&state);
        array.on_bad_block(move || own.found_work());
        let flusher = RankedMutex::new(Rank::Flusher, flusher);
        let (reports, slices) = Default::default();
        let began = clock::monotonic();
        Shared { place, array, state, pool, counts, flusher, reports, slices, began }
    }

    pub fn now(&self) -> Duration {
        clock::monotonic() - self.began
    }

    /// Calls `act` with the flusher, between two batches.
    pub fn with<T>(&self, act: impl FnOnce(&mut Flusher) -> T) -> T {
        let _lease = FlusherLease::take(&self.state);
        act(&mut self.flusher())
    }

    /// Closes the array cleanly, after the thread has ended.
    pub fn close(&self) -> Result<()> {
        self.state.error().map_or(Ok(()), Err)?;
        self.flusher().close()
    }

    /// The body of the thread; returns after a stop.
    pub fn run(&self) {
        let _guard = PanicGuard(&self.state);
        let mut pace = WorkPace::default();
        // When to check for work again, after there was none.
        let mut again = Duration::ZERO;
        let mut absent = self.array.absent();
        let mut has_worked = false;
        // Bytes counted so far, and the time since which the next ones are written, without the
        // time that the thread rested.
        let (mut counted, mut since) = (0, Duration::ZERO);
        loop {
            let asked = self.now();
            let task = self.state.next(|has_work| {
                let now = self.now();
                pace.observe(now, self.counts.user_bytes());
                let wanted_at = || self.array.wants_work().then_some(again);
                let work_at = if has_work { Some(pace.next()) } else { wanted_at() };
                let gathered = self.array.dirty_stats();
                FlusherInputs { gathered, now, sync: None, work_at, has_worked }
            });
            has_worked = task == FlusherTask::Work;
            since += self.now() - asked;
            let mut has_work = false;
            let done = match task {
                FlusherTask::End => return,
                FlusherTask::Sync(up_to) => {
                    // Read before the lock: all earlier writes are covered.
                    let now = self.now();
                    let synced = self.flusher().sync_since(now);
                    self.once(up_to, synced)
                }
                FlusherTask::Flush(before) => self.flusher().flush(before, BATCH_ROWS).map(drop),
                FlusherTask::Work => self.work(&mut pace, &mut again).map(|more| has_work = more),
            };
            let drained = self.array.drained_bytes();
            if drained > counted {
                let now = self.now();
                self.state.drained(drained - counted, now.saturating_sub(since));
                (counted, since) = (drained, now);
            }
            // A spare may take the slot of a member that failed in this task.
            has_work |= std::mem::replace(&mut absent, self.array.absent()) != absent;
            self.state.did(task, done, has_work);
        }
    }

    /// If blocks could not be stored, returns that error only to the waiting syncs, and lets the
    /// array continue.
    fn once(&self, up_to: u64, synced: Result<()>) -> Result<()> {
        match synced {
            Err(error) if error.kind() == Kind::Corrupt => {
                self.state.fail_syncs(up_to, &error);
                Ok(())
            }
            synced => synced,
        }
    }

    /// Does a slice of pending work. Returns whether there may be more pending work.
    fn work(&self, pace: &mut WorkPace, again: &mut Duration) -> Result<bool> {
        let began = self.now();
        let settings = self.state.settings();
        let step = self.flusher().step(pace.slice_bytes(began, &settings))?;
        // A caller or a spare may have added a member.
        self.array.set_timer(clock::since_first_asked);
        let bytes = match step {
            Step::Idle => {
                *again = began + IDLE_POLL;
                return Ok(false);
            }
            Step::Done(report) => {
                self.keep(report);
                return Ok(true);
            }
            Step::Moved { bytes } => bytes,
        };
        let now = self.now();
        pace.observe(now, self.counts.user_bytes());
        pace.moved(began, now, bytes, &settings);
        let mut slices = lock(&self.slices);
        slices.push_back((now, bytes));
        while slices.front().is_some_and(|(at, _)| *at + RATE_WINDOW < now) {
            slices.pop_front();
        }
        Ok(true)
    }

    /// Bytes of each member that pending work moved per second in the last seconds.
    pub(crate) fn work_rate(&self) -> u64 {
        let (slices, now) = (lock(&self.slices), self.now());
        let recent = || slices.iter().filter(|(at, _)| *at + RATE_WINDOW >= now);
        let Some((first, _)) = recent().next() else { return 0 };
        // The first slice marks the start of the interval, unless it is the only one.
        let bytes: u64 = recent().skip(usize::from(recent().count() > 1)).map(|it| it.1).sum();
        (bytes as f64 / (now - *first).max(RATE_TIME_MIN).as_secs_f64()) as u64
    }

    pub fn keep(&self, report: WorkReport) {
        let mut reports = lock(&self.reports);
        let number = reports.back().map_or(0, |(number, _)| number + 1);
        if reports.len() == REPORTS {
            reports.pop_front();
        }
        reports.push_back((number, report));
    }

    /// The last reports of pending work.
    pub fn reports(&self) -> Vec<(u64, WorkReport)> {
        let reports = lock(&self.reports);
        reports.iter().cloned().collect()
    }

    fn flusher(&self) -> Ranked<MutexGuard<'_, Flusher>> {
        self.flusher.lock()
    }
}

/// The time over which the rate of pending work is measured.
const RATE_WINDOW: Duration = Duration::from_secs(3);
/// The least time over which a rate is measured.
const RATE_TIME_MIN: Duration = Duration::from_millis(100);

/// Exclusive use of the flusher by another thread; released even on panic.
struct FlusherLease<'a>(&'a VolumeState);

impl<'a> FlusherLease<'a> {
    fn take(state: &'a VolumeState) -> Self {
        state.enter();
        FlusherLease(state)
    }
}

impl Drop for FlusherLease<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Wakes all waiting threads with an error if the flusher's thread panics.
struct PanicGuard<'a>(&'a VolumeState);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "the array's flusher thread panicked";
            self.0.did(FlusherTask::End, Err(Error::new(Kind::Io, what)), false);
        }
    }
}
