//! The state that the flusher's thread shares with all callers: settings, pending syncs, errors,
//! and the two condvars on which they wait for each other.
//!
//! Invariants: no thread waits for an event that cannot happen, since an error or a stop wakes all
//! waiting threads. A sync has ended when a flusher's sync that began after the call has ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, MutexGuard};
use std::time::Duration;

use super::VolumeSettings;
use super::schedule::{FlusherInputs, FlusherTask};
use super::writer_pace::{WriterPace, is_paced};
use crate::engine::DirtyStats;
use crate::ranked::{Rank, Ranked, RankedMutex};
use pinstripe_base::error::{Error, Kind, Result};

/// The interval at which pending work that could not begin is tried again.
pub(super) const IDLE_POLL: Duration = Duration::from_secs(1);

pub(super) struct VolumeState {
    inner: RankedMutex<StateInner>,
    /// Wakes the flusher's thread when there is something to do.
    work: Condvar,
    /// Wakes all other threads when the flusher has done something.
    done: Condvar,
    /// Whether the flusher's thread is waiting: only then does a writer take the lock.
    rests: AtomicBool,
    /// Copies of shared state that writers read without the lock: whether there was an error or a
    /// stop, and the limit of dirty bytes.
    is_over: AtomicBool,
    cache_bytes: AtomicU64,
}

struct StateInner {
    settings: VolumeSettings,
    pace: WriterPace,
    /// The number of requested syncs.
    syncs_wanted: u64,
    /// The number of requested syncs that have ended.
    syncs_done: u64,
    /// Syncs whose callers wait, by number; each has the error of the flush that covered it, if the
    /// array continues after that error. Each caller removes its own sync.
    syncs_waiting: BTreeMap<u64, Option<Error>>,
    /// The number of threads that use the flusher or wait for it.
    leases: usize,
    /// Whether the flusher may have pending work.
    has_work: bool,
    /// Whether the flusher is doing pending work.
    is_working: bool,
    /// Whether nothing was dirty at the flusher's last check.
    is_clean: bool,
    error: Option<Error>,
    is_stopping: bool,
}

impl VolumeState {
    pub fn new(settings: VolumeSettings) -> Self {
        let inner = StateInner {
            settings,
            pace: WriterPace::default(),
            syncs_wanted: 0,
            syncs_done: 0,
            syncs_waiting: BTreeMap::new(),
            leases: 0,
            has_work: true,
            is_working: false,
            is_clean: false,
            error: None,
            is_stopping: false,
        };
        let (work, done, rests, is_over) = Default::default();
        let cache_bytes = AtomicU64::new(settings.cache_bytes);
        VolumeState {
            inner: RankedMutex::new(Rank::Volume, inner),
            work,
            done,
            rests,
            is_over,
            cache_bytes,
        }
    }

    pub fn settings(&self) -> VolumeSettings {
        self.lock().settings
    }

    pub fn change(&self, settings: VolumeSettings) {
        self.lock().settings = settings;
        self.cache_bytes.store(settings.cache_bytes, Ordering::Relaxed);
        self.work.notify_one();
        self.done.notify_all();
    }

    pub fn error(&self) -> Option<Error> {
        self.lock().error.as_ref().map(Error::duplicate)
    }

    /// Fails after the array failed or was stopped.
    pub fn check(&self) -> Result<()> {
        match self.is_over.load(Ordering::Relaxed) {
            true => self.lock().check(),
            false => Ok(()),
        }
    }

    /// After a write of `bytes`, wakes the flusher if it should act. Makes the writer wait for its
    /// turn if much is dirty, and while the limit is exceeded; `dirty` returns the number of dirty
    /// bytes.
    pub fn wrote(
        &self,
        bytes: u64,
        gathered: &DirtyStats,
        now: impl Fn() -> Duration,
        dirty: impl Fn() -> u64,
    ) -> Result<()> {
        // The flusher sets `rests` before its last check of the cache, and the write is in the
        // cache before this check of `rests`: so at least one of the two threads sees the other's
        // write.
        if self.rests.load(Ordering::SeqCst) {
            let inner = self.lock();
            let is_much = gathered.bytes > inner.settings.cache_bytes / 2;
            if inner.is_clean || gathered.has_full || is_much {
                self.work.notify_one();
            }
        }
        if !is_paced(gathered.bytes, self.cache_bytes.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let mut inner = self.lock();
        let limit = inner.settings.cache_bytes;
        let turn = inner.pace.turn(now(), bytes, gathered.bytes, limit).unwrap_or_default();
        loop {
            let left = turn.saturating_sub(now());
            if left.is_zero() || !is_paced(dirty(), inner.settings.cache_bytes) {
                break;
            }
            inner.check()?;
            inner = inner.wait_timeout(&self.done, left);
        }
        while dirty() >= inner.settings.cache_bytes {
            inner.check()?;
            self.work.notify_one();
            inner = self.wait(inner);
        }
        Ok(())
    }

    pub fn sync(&self) -> Result<()> {
        let mut inner = self.lock();
        inner.check()?;
        inner.syncs_wanted += 1;
        let own = inner.syncs_wanted;
        inner.syncs_waiting.insert(own, None);
        self.work.notify_one();
        let mut ended = Ok(());
        while inner.syncs_done < own && ended.is_ok() {
            inner = self.wait(inner);
            if inner.syncs_done < own {
                ended = inner.check();
            }
        }
        let failure = inner.syncs_waiting.remove(&own).flatten();
        ended.and(failure.map_or(Ok(()), Err))
    }

    /// Stores the error for all unfinished syncs up to this number.
    pub(crate) fn fail_syncs(&self, up_to: u64, error: &Error) {
        let mut inner = self.lock();
        let not_done = inner.syncs_done + 1..=up_to;
        for (_, failure) in inner.syncs_waiting.range_mut(not_done) {
            *failure = Some(error.duplicate());
        }
    }

    pub fn wait_idle(&self) -> Result<()> {
        let mut inner = self.lock();
        // The flusher has to check again: it may have missed writes before this call.
        inner.is_clean = false;
        inner.has_work = true;
        self.work.notify_one();
        while !inner.is_clean || inner.has_work || inner.is_working {
            inner.check()?;
            inner = self.wait(inner);
        }
        Ok(())
    }

    /// Announces a caller that needs the flusher: the flusher's thread releases the flusher after
    /// the current batch.
    pub fn enter(&self) {
        self.lock().leases += 1;
    }

    /// Ends that use. Ends a caller's use of the flusher. The caller may have changed anything, so
    /// a failed array tries again.
    pub fn leave(&self) {
        let mut inner = self.lock();
        inner.leases -= 1;
        inner.has_work = true;
        inner.error = None;
        self.is_over.store(inner.is_stopping, Ordering::Relaxed);
        self.work.notify_one();
    }

    /// Announces work found by a thread that does not have the flusher.
    pub(crate) fn found_work(&self) {
        self.lock().has_work = true;
        self.work.notify_one();
    }

    pub fn stop(&self) {
        self.lock().is_stopping = true;
        self.is_over.store(true, Ordering::Relaxed);
        self.work.notify_one();
        self.done.notify_all();
    }

    /// Waits for the next task. The argument of `look` says whether there may be pending work.
    pub fn next(&self, mut look: impl FnMut(bool) -> FlusherInputs) -> FlusherTask {
        let mut inner = self.lock();
        loop {
            self.rests.store(true, Ordering::SeqCst);
            let inputs = look(inner.has_work);
            let wait = match inner.decide(inputs) {
                Ok(task) => {
                    // Work added meanwhile sets `has_work` again, so it is not lost.
                    inner.is_working = task == FlusherTask::Work;
                    inner.has_work &= task != FlusherTask::Work;
                    self.rests.store(false, Ordering::SeqCst);
                    return task;
                }
                Err(wait) => wait,
            };
            inner.is_clean = inputs.gathered.bytes == 0;
            self.done.notify_all();
            inner = match wait {
                None => inner.wait(&self.work),
                Some(wait) => inner.wait_timeout(&self.work, wait),
            };
        }
    }

    /// Records how many bytes the flusher wrote to the members, and how long that took.
    pub fn drained(&self, bytes: u64, took: Duration) {
        self.lock().pace.drained(bytes, took);
    }

    /// Records the result of a task, and whether there may be pending work now.
    pub fn did(&self, task: FlusherTask, result: Result<()>, has_work: bool) {
        let mut inner = self.lock();
        inner.is_working = false;
        inner.has_work |= has_work;
        match (task, result) {
            (FlusherTask::Sync(up_to), Ok(())) => inner.syncs_done = up_to,
            (_, Ok(())) => {}
            (_, Err(error)) => {
                inner.error = Some(error);
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
        self.done.notify_all();
    }

    fn lock(&self) -> Ranked<MutexGuard<'_, StateInner>> {
        self.inner.lock()
    }

    fn wait<'a>(
        &self,
        inner: Ranked<MutexGuard<'a, StateInner>>,
    ) -> Ranked<MutexGuard<'a, StateInner>> {
        inner.wait(&self.done)
    }
}

impl StateInner {
    fn check(&self) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.duplicate());
        }
        match self.is_stopping {
            true => Err(Error::new(Kind::Usage, "the array was stopped")),
            false => Ok(()),
        }
    }

    /// Returns the next task, or how long to wait for one, where `None` means until a notification
    /// (a write, a sync, the end of a caller's use, or a damaged block).
    fn decide(&self, mut inputs: FlusherInputs) -> Result<FlusherTask, Option<Duration>> {
        if self.is_stopping {
            return Ok(FlusherTask::End);
        }
        // A caller that uses the flusher holds it; after an error only a caller can help.
        if self.leases > 0 || self.error.is_some() {
            return Err(None);
        }
        inputs.sync = (self.syncs_wanted > self.syncs_done).then_some(self.syncs_wanted);
        inputs.decide(&self.settings)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn idle(_: bool) -> FlusherInputs {
        FlusherInputs {
            gathered: DirtyStats::default(),
            now: Duration::ZERO,
            sync: None,
            work_at: None,
            has_worked: false,
        }
    }

    /// Of two syncs that overlap and fail, the error of the first was lost when the second failed
    /// before its caller woke.
    #[test]
    fn every_sync_that_failed_is_told_to_its_caller() {
        const ROUNDS: usize = 10_000;
        let state = VolumeState::new(VolumeSettings::default());
        let told = thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let task = state.next(idle);
                    match task {
                        FlusherTask::End => return,
                        FlusherTask::Sync(up_to) => {
                            state.fail_syncs(up_to, &Error::new(Kind::Corrupt, "lost"));
                        }
                        FlusherTask::Flush(_) | FlusherTask::Work => {}
                    }
                    state.did(task, Ok(()), false);
                }
            });
            let failures = || (0..ROUNDS).filter(|_| state.sync().is_err()).count();
            let callers = [(); 2].map(|()| scope.spawn(failures));
            let told = callers.map(|caller| caller.join().unwrap());
            state.stop();
            told
        });
        assert_eq!(told, [ROUNDS; 2]);
    }
}
