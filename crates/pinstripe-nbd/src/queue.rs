//! The queue of one connection's requests that wait for a worker.
//!
//! Waking a thread costs more than many requests do. So at most one worker is being woken at a
//! time; when that worker has its job and there is another job, it wakes the next worker. If
//! requests are quick, a few workers carry out all of them; if each takes long, all workers are
//! soon awake.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::memory::Buffer;
use crate::protocol::Request;
use pinstripe_base::sync::{lock, wait};

/// The most requests that may wait; beyond that, no more are received from the socket.
const JOBS: usize = 256;

/// A request with its memory: the bytes to write, or room for the bytes to read.
pub(super) struct Job {
    pub request: Request,
    pub buffer: Option<Buffer>,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<RequestsState>,
    /// Notifies workers that there is a job, or that the queue is closed.
    work: Condvar,
    /// Notifies the reader that the queue has room.
    room: Condvar,
}

#[derive(Default)]
struct RequestsState {
    jobs: VecDeque<Job>,
    idle: usize,
    /// Whether a worker was notified that does not run yet.
    is_waking: bool,
    is_closed: bool,
}

impl Queue {
    /// Adds a job; waits until the queue has room. Returns whether there are more jobs than waiting
    /// workers.
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

    /// Returns the next job; waits for one, and returns `None` when the queue is closed and empty.
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

    /// Wakes a worker if there is a job for it and no other worker is being woken.
    fn wake_one(&self, mut state: MutexGuard<'_, RequestsState>) {
        if !state.jobs.is_empty() && state.idle > 0 && !state.is_waking {
            state.is_waking = true;
            drop(state);
            self.work.notify_one();
        }
    }

    /// Lets the workers end when all jobs are done.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.work.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, RequestsState> {
        lock(&self.state)
    }
}
