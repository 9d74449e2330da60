//! Requests of one connection that wait for a worker.
//!
//! Waking a thread costs more than many a request. So one worker at a time is being woken; when it
//! has its job and sees another, it wakes the next one. As long as requests take no time, few
//! workers do all of them; when each takes long, all are soon awake.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::memory::Buffer;
use crate::protocol::Request;
use pinstripe_base::sync::{lock, wait};

/// Requests that may wait; then no more are taken from the socket.
const JOBS: usize = 256;

/// A request with its memory: the bytes to write, or room for those that are read.
pub(super) struct Job {
    pub request: Request,
    pub buffer: Option<Buffer>,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<RequestsState>,
    /// Notifies workers: there is a job, or the queue is closed.
    work: Condvar,
    /// Notifies the reader: there is room.
    room: Condvar,
}

#[derive(Default)]
struct RequestsState {
    jobs: VecDeque<Job>,
    idle: usize,
    /// A worker was notified and does not run yet.
    is_waking: bool,
    is_closed: bool,
}

impl Queue {
    /// Adds a job; waits for room. Says whether there are more jobs than workers that wait.
    pub fn push(&self, job: Job) -> bool {
        let mut state = self.state();
        while state.jobs.len() >= JOBS {
            state = wait(&self.room, state);
        }
        state.jobs.push_back(job);
        let (jobs, idle) = (state.jobs.len(), state.idle);
        self.wake_one(state);
        jobs > idle
    }

    /// The next job; waits for one, and gets none when it has ended.
    pub fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                if state.jobs.len() + 1 == JOBS {
                    self.room.notify_one();
                }
                self.wake_one(state);
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state.idle += 1;
            state = wait(&self.work, state);
            state.idle -= 1;
            state.is_waking = false;
        }
    }

    /// Wakes a worker if there is a job for it and no other is in flight.
    fn wake_one(&self, mut state: MutexGuard<'_, RequestsState>) {
        if !state.jobs.is_empty() && state.idle > 0 && !state.is_waking {
            state.is_waking = true;
            drop(state);
            self.work.notify_one();
        }
    }

    /// Lets the workers end when all is done.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.work.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, RequestsState> {
        lock(&self.state)
    }
}
