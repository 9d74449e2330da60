//! What the flusher's thread is told, and what it tells: who waits for what.
//!
//! Invariants: nobody waits for anything that will not come: an error or a stop wakes everybody; a sync is
//! done when one that began after it was asked for has ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::VolumeSettings;
use crate::array::engine::Gathered;
use crate::error::{Error, Kind, Result};

/// How often the flusher's thread looks for work that nobody told it of: what readers found damaged.
pub(super) const LOOK: Duration = Duration::from_secs(1);

pub(super) struct State {
    inner: Mutex<Inner>,
    /// Told to the flusher's thread: there is something to do.
    work: Condvar,
    /// Told to all others: something was done.
    done: Condvar,
    /// Whether the flusher's thread waits, so that writers need not lock to let it be.
    rests: AtomicBool,
    /// Whether there is an error or it was stopped, and the limit of dirty bytes: for writers as well.
    is_over: AtomicBool,
    cache_bytes: AtomicU64,
}

struct Inner {
    settings: VolumeSettings,
    /// How many syncs were asked for, and how many of these are done.
    syncs_wanted: u64,
    syncs_done: u64,
    /// Syncs whose callers wait, by number, and why the one that covered each failed though the array
    /// goes on. Each caller takes its own out.
    syncs_waiting: BTreeMap<u64, Option<Error>>,
    /// Threads that use the flusher, or want to.
    guests: usize,
    /// Whether the flusher may have pending work, and whether it is at it.
    has_work: bool,
    is_working: bool,
    /// Nothing is dirty that anybody wrote before the flusher looked last.
    is_clean: bool,
    error: Option<Error>,
    is_stopping: bool,
}

/// What the flusher's thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// A sync, which answers for all that were asked for up to this number.
    Sync(u64),
    /// A batch of rows that are full or as old as this.
    Flush(Duration),
    /// A slice of pending work.
    Work,
    /// Nothing any more.
    End,
}

/// What to decide the next task by.
pub(super) struct Situation {
    pub gathered: Gathered,
    pub now: Duration,
    /// When pending work may go on, if there is any.
    pub work_at: Duration,
    /// When to begin what the array itself knows is to be done.
    pub wanted_at: Option<Duration>,
}

impl State {
    pub fn new(settings: VolumeSettings) -> Self {
        let inner = Inner {
            settings,
            syncs_wanted: 0,
            syncs_done: 0,
            syncs_waiting: BTreeMap::new(),
            guests: 0,
            has_work: true,
            is_working: false,
            is_clean: false,
            error: None,
            is_stopping: false,
        };
        let (work, done, rests, is_over) = Default::default();
        let cache_bytes = AtomicU64::new(settings.cache_bytes);
        State { inner: Mutex::new(inner), work, done, rests, is_over, cache_bytes }
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

    /// Whether anything may be written.
    pub fn check(&self) -> Result<()> {
        match self.is_over.load(Ordering::Relaxed) {
            true => self.lock().check(),
            false => Ok(()),
        }
    }

    /// Says what waits to be written after a write. Waits while that is too much; `dirty` tells how much it
    /// is then.
    pub fn wrote(&self, gathered: &Gathered, dirty: impl Fn() -> u64) -> Result<()> {
        // The flusher's thread says that it rests before it looks at the cache for the last time, and what was
        // written stands in the cache already: one of both sees the other.
        if self.rests.load(Ordering::SeqCst) {
            let inner = self.lock();
            let is_much = gathered.bytes > inner.settings.cache_bytes / 2;
            if inner.is_clean || gathered.has_full || is_much {
                self.work.notify_one();
            }
        }
        if gathered.bytes < self.cache_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut inner = self.lock();
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

    /// Says why all syncs fail that are not done yet, up to this one.
    pub fn fail_syncs(&self, up_to: u64, error: &Error) {
        let mut inner = self.lock();
        let not_done = inner.syncs_done + 1..=up_to;
        for (_, failure) in inner.syncs_waiting.range_mut(not_done) {
            *failure = Some(error.duplicate());
        }
    }

    pub fn wait_idle(&self) -> Result<()> {
        let mut inner = self.lock();
        // What was written before the call has to be seen by the flusher first.
        inner.is_clean = false;
        inner.has_work = true;
        self.work.notify_one();
        while !inner.is_clean || inner.has_work || inner.is_working {
            inner.check()?;
            inner = self.wait(inner);
        }
        Ok(())
    }

    /// Says that somebody wants the flusher: the thread lets it go after the batch.
    pub fn enter(&self) {
        self.lock().guests += 1;
    }

    /// Says that he is done with it, and may have changed anything.
    pub fn leave(&self) {
        let mut inner = self.lock();
        inner.guests -= 1;
        inner.has_work = true;
        inner.error = None;
        self.is_over.store(inner.is_stopping, Ordering::Relaxed);
        self.work.notify_one();
    }

    pub fn stop(&self) {
        self.lock().is_stopping = true;
        self.is_over.store(true, Ordering::Relaxed);
        self.work.notify_one();
        self.done.notify_all();
    }

    /// Waits for something to do.
    pub fn next(&self, look: impl Fn() -> Situation) -> Task {
        let mut inner = self.lock();
        loop {
            self.rests.store(true, Ordering::SeqCst);
            let situation = look();
            let wait = match inner.decide(&situation) {
                Ok(task) => {
                    // Whoever brings more work meanwhile says so, and is not overheard.
                    inner.is_working = task == Task::Work;
                    inner.has_work &= task != Task::Work;
                    self.rests.store(false, Ordering::SeqCst);
                    return task;
                }
                Err(wait) => wait,
            };
            inner.is_clean = situation.gathered.bytes == 0;
            self.done.notify_all();
            inner = match wait {
                None => self.work.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let waited = self.work.wait_timeout(inner, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Says what became of a task, and whether there may be work now.
    pub fn did(&self, task: Task, result: Result<()>, has_work: bool) {
        let mut inner = self.lock();
        inner.is_working = false;
        inner.has_work |= has_work;
        match (task, result) {
            (Task::Sync(up_to), Ok(())) => inner.syncs_done = up_to,
            (_, Ok(())) => {}
            (_, Err(error)) => {
                inner.error = Some(error);
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
        self.done.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.done.wait(inner).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn check(&self) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.duplicate());
        }
        match self.is_stopping {
            true => Err(Error::new(Kind::Usage, "the array was stopped")),
            false => Ok(()),
        }
    }

    /// What to do, or how long to wait for something.
    fn decide(&self, situation: &Situation) -> Result<Task, Option<Duration>> {
        let Situation { gathered, now, work_at, wanted_at } = situation;
        if self.is_stopping {
            return Ok(Task::End);
        }
        if self.guests > 0 || self.error.is_some() {
            return Err(None);
        }
        if self.syncs_wanted > self.syncs_done {
            return Ok(Task::Sync(self.syncs_wanted));
        }
        if gathered.bytes > self.settings.cache_bytes / 2 {
            return Ok(Task::Flush(Duration::MAX));
        }
        let due_at = gathered.oldest.map(|oldest| oldest.saturating_add(self.settings.deadline));
        if gathered.has_full || due_at.is_some_and(|at| at <= *now) {
            return Ok(Task::Flush(now.saturating_sub(self.settings.deadline)));
        }
        let work_at = if self.has_work { Some(*work_at) } else { *wanted_at };
        if work_at.is_some_and(|at| at <= *now) {
            return Ok(Task::Work);
        }
        let next = [due_at, work_at].into_iter().flatten().min();
        let wait = next.map_or(LOOK, |at| at.saturating_sub(*now));
        Err(Some(wait.min(LOOK)))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn idle() -> Situation {
        let gathered = Gathered { bytes: 0, has_full: false, oldest: None };
        Situation { gathered, now: Duration::ZERO, work_at: Duration::ZERO, wanted_at: None }
    }

    /// Of two syncs that overlap and fail, the error of the first was lost when the second failed
    /// before its caller woke.
    #[test]
    fn every_sync_that_failed_is_told_to_its_caller() {
        const ROUNDS: usize = 10_000;
        let state = State::new(VolumeSettings::default());
        let told = thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let task = state.next(idle);
                    match task {
                        Task::End => return,
                        Task::Sync(up_to) => {
                            state.fail_syncs(up_to, &Error::new(Kind::Corrupt, "lost"));
                        }
                        Task::Flush(_) | Task::Work => {}
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
