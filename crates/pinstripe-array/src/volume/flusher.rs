//! The thread that puts rows on the members.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::VolumeSettings;
use super::counters::Counts;
use super::state::{FlusherInputs, FlusherTask, IDLE_POLL, VolumeState};
use super::thread_pool::ThreadPool;
use crate::engine::{Array, BATCH_ROWS, Flusher, Step, WorkReport};
use crate::executor::Executor;
use crate::limits::{LONG_STEP_BYTES, REPORTS, STEP_BYTES};
use crate::ranked::{Rank, Ranked, RankedMutex};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// The part that the thread and all callers share.
pub(super) struct Shared {
    pub place: PathBuf,
    pub array: Arc<Array>,
    pub state: Arc<VolumeState>,
    pub pool: Arc<ThreadPool>,
    pub counts: Counts,
    flusher: RankedMutex<Flusher>,
    /// The last outcomes of pending work, each with its number.
    reports: Mutex<VecDeque<(u64, WorkReport)>>,
    /// The origin of all times.
    began: Instant,
}

impl Shared {
    pub fn new(place: PathBuf, mut flusher: Flusher, settings: VolumeSettings) -> Self {
        let array = Arc::clone(flusher.array());
        array.set_timer(clock::since_first_asked);
        let pool = Arc::new(ThreadPool::default());
        flusher.set_executor(Arc::clone(&pool) as Arc<dyn Executor>);
        let counts = Counts::new(Arc::clone(flusher.tally()));
        let state = Arc::new(VolumeState::new(settings));
        let own = Arc::clone(&state);
        array.on_bad_block(move || own.found_work());
        let flusher = RankedMutex::new(Rank::Flusher, flusher);
        let (reports, began) = (Mutex::default(), clock::monotonic());
        Shared { place, array, state, pool, counts, flusher, reports, began }
    }

    pub fn now(&self) -> Duration {
        clock::monotonic() - self.began
    }

    /// Runs a closure with the flusher, between two batches.
    pub fn with<T>(&self, act: impl FnOnce(&mut Flusher) -> T) -> T {
        let _lease = FlusherLease::take(&self.state);
        act(&mut self.flusher())
    }

    /// Closes the array in order; the thread has ended.
    pub fn close(&self) -> Result<()> {
        self.state.error().map_or(Ok(()), Err)?;
        self.flusher().close()
    }

    /// The body of the thread, which ends with a stop.
    pub fn run(&self) {
        let _guard = PanicGuard(&self.state);
        let mut pace = Pace::default();
        let mut absent = self.array.absent();
        loop {
            let task = self.state.next(|| FlusherInputs {
                gathered: self.array.dirty_stats(),
                now: self.now(),
                work_at: pace.next,
                wanted_at: self.array.wants_work().then_some(pace.again),
            });
            let mut has_work = false;
            let done = match task {
                FlusherTask::End => return,
                FlusherTask::Sync(up_to) => {
                    // Taken before the lock: all that was written until now is covered.
                    let now = self.now();
                    let synced = self.flusher().sync_since(now);
                    self.once(up_to, synced)
                }
                FlusherTask::Flush(before) => self.flusher().flush(before, BATCH_ROWS).map(drop),
                FlusherTask::Work => self.work(&mut pace).map(|more| has_work = more),
            };
            // A spare may take the slot of a member that failed in this task.
            has_work |= std::mem::replace(&mut absent, self.array.absent()) != absent;
            self.state.did(task, done, has_work);
        }
    }

    /// Returns blocks that could not be stored as an error of the waiting syncs only: the array
    /// goes on.
    fn once(&self, up_to: u64, synced: Result<()>) -> Result<()> {
        match synced {
            Err(error) if error.kind() == Kind::Corrupt => {
                self.state.fail_syncs(up_to, &error);
                Ok(())
            }
            synced => synced,
        }
    }

    /// Does a slice of pending work. Returns whether there may be more.
    fn work(&self, pace: &mut Pace) -> Result<bool> {
        let before = self.now();
        if before > pace.next + RECENT {
            pace.users = self.counts.user_bytes();
        }
        // A short slice while users are active: they wait for no more than that.
        let most_bytes = match self.counts.user_bytes() == pace.users {
            true => LONG_STEP_BYTES,
            false => STEP_BYTES,
        };
        let step = self.flusher().step(most_bytes)?;
        // A caller or a spare may have added a member.
        self.array.set_timer(clock::since_first_asked);
        let bytes = match step {
            Step::Idle => {
                pace.again = before + IDLE_POLL;
                return Ok(false);
            }
            Step::Done(report) => {
                self.keep(report);
                return Ok(true);
            }
            Step::Moved { bytes } => bytes,
        };
        let settings = self.state.settings();
        let users = self.counts.user_bytes();
        let limit = match users == pace.users {
            true => settings.speed_limit_max,
            false => settings.speed_limit_min,
        };
        pace.users = users;
        pace.next = before + Duration::from_secs_f64(bytes as f64 / limit as f64);
        Ok(true)
    }

    fn keep(&self, report: WorkReport) {
        let mut reports = lock(&self.reports);
        let number = reports.back().map_or(0, |(number, _)| number + 1);
        if reports.len() == REPORTS {
            reports.pop_front();
        }
        reports.push_back((number, report));
    }

    /// The last outcomes of pending work.
    pub fn reports(&self) -> Vec<(u64, WorkReport)> {
        let reports = lock(&self.reports);
        reports.iter().cloned().collect()
    }

    fn flusher(&self) -> Ranked<MutexGuard<'_, Flusher>> {
        self.flusher.lock()
    }
}

/// The times at which pending work goes on.
#[derive(Default)]
struct Pace {
    next: Duration,
    /// When to ask again for work, after there was none to do.
    again: Duration,
    /// Bytes moved by users at the end of the last slice, if that is recent: more mean that users
    /// are active.
    users: u64,
}

/// Older activity is ignored.
const RECENT: Duration = Duration::from_millis(100);

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
