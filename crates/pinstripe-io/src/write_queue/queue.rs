//! The jobs of a write queue: waiting, in progress, and failed.
//!
//! Invariants: jobs are taken in the order given; a sync is taken only when no earlier write is in
//! progress; after the first error, no job is added or taken.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::Traffic;
use crate::device::WriteBuf;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::{lock, wait};

/// One write.
pub(super) struct Write {
    pub offset: u64,
    pub buf: WriteBuf,
}

/// The next step of a worker.
pub(super) enum Job {
    Write(Write),
    /// Makes all earlier writes durable and reports the result.
    Sync(Sender<Result<()>>),
}

/// Whether a worker waits if the queue has no job for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenEmpty {
    Wait,
    Look,
}

pub(super) struct Queue {
    most: usize,
    state: Mutex<QueueState>,
    /// Notifies writers that there is room, or that the write queue has ended.
    room: Condvar,
    /// Notifies workers that there is a job, or that the write queue has ended.
    work: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    writing: usize,
    syncing: usize,
    closed: bool,
    error: Option<Error>,
    written_bytes: u64,
    busy: Duration,
    busy_since: Option<Instant>,
}

impl Queue {
    /// A queue in which at most `most` writes wait.
    pub fn new(most: usize) -> Self {
        Queue {
            most: most.max(1),
            state: Mutex::default(),
            room: Condvar::new(),
            work: Condvar::new(),
        }
    }

    /// Adds a write; waits until there is room. After an error, returns the write with the write queue's
    /// error.
    pub fn push(&self, write: Write) -> Result<(), (Write, Error)> {
        let mut state = self.state();
        while state.jobs.len() >= self.most && state.error.is_none() {
            state = wait(&self.room, state);
        }
        if let Some(error) = &state.error {
            return Err((write, error.duplicate()));
        }
        state.jobs.push_back(Job::Write(write));
        debug_assert!(state.error.is_none(), "nothing is taken in after an error");
        self.work.notify_one();
        Ok(())
    }

    /// Adds a sync after all writes so far. After an error, no answer comes.
    pub(crate) fn push_sync(&self) -> Receiver<Result<()>> {
        let (answer, receiver) = bounded(1);
        let mut state = self.state();
        if state.error.is_none() {
            state.jobs.push_back(Job::Sync(answer));
            self.work.notify_one();
        }
        receiver
    }

    /// The next job; `None` if the queue is closed and empty, or if it is empty now and the caller
    /// does not wait.
    pub fn next(&self, patience: WhenEmpty) -> Option<Job> {
        let mut state = self.state();
        loop {
            match state.jobs.front() {
                Some(Job::Sync(_)) if state.writing > 0 => {}
                Some(_) => {
                    let job = state.jobs.pop_front();
                    state.begin(matches!(job, Some(Job::Sync(_))));
                    self.room.notify_one();
                    return job;
                }
                None if state.closed => return None,
                None => {}
            }
            if patience == WhenEmpty::Look {
                return None;
            }
            state = wait(&self.work, state);
        }
    }

    /// Records that a write is done.
    pub fn wrote(&self, bytes: u64) {
        let mut state = self.state();
        debug_assert!(state.writing > 0, "a write that is done was begun");
        state.written_bytes += bytes;
        state.writing -= 1;
        state.rest();
        if state.writing == 0 {
            // A sync may have waited for this, and writes behind it for the sync.
            self.work.notify_all();
        }
    }

    /// Records that a sync is done.
    pub fn synced(&self) {
        let mut state = self.state();
        debug_assert!(state.syncing > 0, "a sync that is done was begun");
        state.syncing -= 1;
        state.rest();
    }

    /// Ends the write queue with `error`, unless an earlier error has ended it; returns the jobs that will
    /// not be done.
    pub fn fail(&self, error: Error) -> VecDeque<Job> {
        let mut state = self.state();
        state.error.get_or_insert(error);
        self.room.notify_all();
        self.work.notify_all();
        std::mem::take(&mut state.jobs)
    }

    /// Lets the workers end when no job is left.
    pub fn close(&self) {
        self.state().closed = true;
        self.work.notify_all();
    }

    /// The first error of the write queue, if there was one.
    pub fn error(&self) -> Option<Error> {
        self.state().error.as_ref().map(Error::duplicate)
    }

    pub fn traffic(&self) -> Traffic {
        let state = self.state();
        let now = state.busy_since.map_or(Duration::ZERO, |since| clock::monotonic() - since);
        Traffic {
            written_bytes: state.written_bytes,
            busy: state.busy + now,
            queued: state.jobs.len(),
            writing: state.writing,
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }
}

impl QueueState {
    fn begin(&mut self, is_sync: bool) {
        debug_assert!(!is_sync || self.writing == 0, "a sync begins after the writes before it");
        if self.writing + self.syncing == 0 {
            self.busy_since = Some(clock::monotonic());
        }
        *(if is_sync { &mut self.syncing } else { &mut self.writing }) += 1;
    }

    fn rest(&mut self) {
        if self.writing + self.syncing == 0
            && let Some(since) = self.busy_since.take()
        {
            self.busy += clock::monotonic() - since;
        }
    }
}
