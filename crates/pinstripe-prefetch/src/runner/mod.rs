//! Fetches units of a source, ahead of their readers or for them, within one budget of bytes.
//!
//! A unit is what the source fetches at once: a block of a file, a record of a pack. Units are
//! shared by all readers. Lock order: `state`, then the result of a unit; no lock is held while the
//! source is asked.
//!
//! Invariants: bytes are charged when a unit is asked for, not when it arrives, and what is charged
//! never exceeds the budget; a read that was asked for always goes on, without a place in the
//! budget where there is none; it never waits behind units without a reader; a unit is fetched
//! by one thread at a time, and all who want it get that thread's answer.

#![allow(clippy::disallowed_methods, reason = "threads wait for slow sources")]

mod cell;
mod state;
#[cfg(test)]
mod tests;

use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use pinstripe_base::error::Result;
use pinstripe_base::sync::{lock, wait};

use crate::planner::Presence;
use cell::Cell;
pub use state::BudgetUsage;
use state::State;

/// Something that units are fetched from.
pub trait FetchSource: Send + Sync + 'static {
    /// Names a unit.
    type Key: Copy + Eq + Hash + Send + Sync + 'static;
    /// What is fetched.
    type Unit: Send + Sync + 'static;

    /// Fetches a unit; may take long, and is called by many threads at once.
    ///
    /// # Errors
    /// Those of the source.
    fn fetch(&self, key: Self::Key) -> Result<Self::Unit>;
}

/// A unit that is wanted before it is read.
#[derive(Debug, Clone)]
pub struct Ahead<K> {
    /// Names it.
    pub key: K,
    /// The bytes that it takes in memory.
    pub bytes: u64,
    /// The object whose planner asked for it, and the range that it planned.
    pub origin: (u64, Range<u64>),
}

/// Fetches units.
pub struct Runner<S: FetchSource> {
    shared: Arc<Shared<S>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<S: FetchSource> {
    source: S,
    state: Mutex<State<S::Key, S::Unit>>,
    /// There is something to fetch, or the end has come.
    work: Condvar,
}

impl<S: FetchSource> Runner<S> {
    /// A runner with so many bytes, and so many threads that fetch what is not read yet.
    pub fn new(source: S, budget: u64, threads: usize) -> Self {
        let state = Mutex::new(State::new(budget));
        let shared = Arc::new(Shared { source, state, work: Condvar::new() });
        let threads = (0..threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.run())
            })
            .collect();
        Runner { shared, threads }
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.shared.source
    }

    /// Whether a unit is there, on its way or neither; the state may change at once.
    pub fn found(&self, key: &S::Key) -> Presence {
        lock(&self.shared.state).found(key)
    }

    /// A unit of so many bytes, for a reader who waits for it.
    ///
    /// # Errors
    /// Those of the source. They are not kept: the next reader asks again.
    pub fn get(&self, key: S::Key, bytes: u64) -> Result<Arc<S::Unit>> {
        let (cell, is_ours) = lock(&self.shared.state).demand(key, bytes);
        if is_ours {
            self.shared.fill(key, &cell);
        }
        cell.wait()
    }

    /// Asks for units that will be read. Those for which there is no room are left out.
    pub fn ahead(&self, wanted: impl IntoIterator<Item = Ahead<S::Key>>) {
        let mut state = lock(&self.shared.state);
        let mut queued = 0;
        for ahead in wanted {
            queued += usize::from(state.ahead(ahead));
        }
        drop(state);
        for _ in 0..queued {
            self.shared.work.notify_one();
        }
    }

    /// Takes back units that will not be read; those that are on their way arrive, and are dropped
    /// first.
    pub fn unwanted(&self, object: u64, ranges: &[Range<u64>]) {
        if !ranges.is_empty() {
            lock(&self.shared.state).unwanted(object, ranges);
        }
    }

    /// The planned ranges of an object that were dropped unread since the last call.
    pub fn take_dropped(&self, object: u64) -> Vec<Range<u64>> {
        lock(&self.shared.state).take_dropped(object)
    }

    /// What the budget holds.
    pub fn usage(&self) -> BudgetUsage {
        lock(&self.shared.state).usage()
    }
}

impl<S: FetchSource> Shared<S> {
    fn run(&self) {
        loop {
            let mut state = lock(&self.state);
            let (key, cell) = loop {
                if state.is_over() {
                    return;
                }
                match state.next() {
                    Some(next) => break next,
                    None => state = wait(&self.work, state),
                }
            };
            drop(state);
            self.fill(key, &cell);
        }
    }

    /// Fetches a unit that this thread alone was given.
    fn fill(&self, key: S::Key, cell: &Arc<Cell<S::Unit>>) {
        let fetched = cell.filled_by(|| self.source.fetch(key));
        lock(&self.state).arrived(&key, cell, fetched);
    }
}

impl<S: FetchSource> Drop for Runner<S> {
    fn drop(&mut self) {
        lock(&self.shared.state).end();
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
