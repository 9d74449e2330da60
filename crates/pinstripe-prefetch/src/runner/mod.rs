//! Fetches units of a source, before their readers ask or for them, within one budget of bytes.
//!
//! A unit is what the source fetches at once, such as a block of a file or a record of a pack.
//! Units are shared by all readers. Lock order: `state`, then the result of a unit; no lock is held
//! while the source is called.
//!
//! Invariants: bytes are charged when a unit is requested, not when it arrives, and charged bytes
//! never exceed the budget. A read is never blocked by a full budget: its unit is then fetched
//! outside of the budget; a read never waits for units that have no reader. A unit is fetched by
//! one thread at a time, and all readers that want it get the result of that thread.
//!
//! A caller that knows its reads in advance needs no planner: it pins units in the order of its
//! plan, and waits while the budget is full of other units that it pinned and has not read. A
//! pinned unit is fetched once, whether the fetch succeeds or fails, and is kept until its last pin
//! is released.

#![allow(clippy::disallowed_methods, reason = "threads of this module wait for slow sources")]

mod cell;
mod pinned;
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
pub use pinned::{EndOnDrop, Pinned};
pub use state::BudgetUsage;
use state::{Pinning, State};

/// A source from which units are fetched.
pub trait FetchSource: Send + Sync {
    /// Names a unit.
    type Key: Copy + Eq + Hash + Send + Sync + 'static;
    /// The type of the units.
    type Unit: Send + Sync + 'static;

    /// Fetches a unit; this may take long, and many threads call it at once.
    ///
    /// # Errors
    /// Fails with the errors of the source.
    fn fetch(&self, key: Self::Key) -> Result<Self::Unit>;

    /// The bytes that a unit takes in memory, if the number given with the request was only an
    /// estimate.
    fn bytes(&self, _unit: &Self::Unit) -> Option<u64> {
        None
    }
}

/// A unit that is wanted before a reader asks for it.
#[derive(Debug, Clone)]
pub struct Ahead<K> {
    /// Names it.
    pub key: K,
    /// The bytes that the unit takes in memory.
    pub bytes: u64,
    /// The object whose planner requested the unit, and the range that it planned.
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
    /// Notifies threads that there is something to fetch, or that the runner ends.
    work: Condvar,
    /// Notifies callers that there may be room for a pin, or that the runner ends.
    unpinned: Condvar,
}

impl<S: FetchSource + 'static> Runner<S> {
    /// A runner with a budget of bytes, and this many threads for prefetching.
    pub fn new(source: S, budget: u64, threads: usize) -> Self {
        let shared = Shared::new(source, budget);
        let threads = (0..threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.run())
            })
            .collect();
        Runner { shared, threads }
    }
}

impl<S: FetchSource> Runner<S> {
    /// Passes a runner to `body`, and ends its threads before it returns; for a source that is
    /// borrowed.
    pub fn scoped<R>(
        source: S,
        budget: u64,
        threads: usize,
        body: impl FnOnce(&Runner<S>) -> R,
    ) -> R {
        std::thread::scope(|scope| {
            let shared = Shared::new(source, budget);
            for _ in 0..threads {
                let shared = Arc::clone(&shared);
                scope.spawn(move || shared.run());
            }
            // Dropped when `body` ends, be it by a panic; that ends the threads.
            body(&Runner { shared, threads: Vec::new() })
        })
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.shared.source
    }

    /// Whether a unit is present, in flight or absent; this may change at any time.
    pub fn presence(&self, key: &S::Key) -> Presence {
        lock(&self.shared.state).presence(key)
    }

    /// Returns a unit of this length to a reader, which waits for it.
    ///
    /// # Errors
    /// Fails with the errors of the source. Errors are not kept: the next reader fetches again.
    pub fn get(&self, key: S::Key, bytes: u64) -> Result<Arc<S::Unit>> {
        let (cell, is_ours) = lock(&self.shared.state).demand(key, bytes);
        if is_ours {
            self.shared.fill(key, &cell);
        }
        cell.wait()
    }

    /// Requests units that will be read. Units for which there is no room are left out.
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

    /// Reserves a place for a unit of this length that will certainly be read, if there is room for
    /// it now. The unit is fetched when it is [started](Self::start) or read.
    pub fn try_pin(&self, key: S::Key, bytes: u64) -> Option<Pinned<'_, S>> {
        let pinning = lock(&self.shared.state).pin(key, bytes);
        (pinning != Pinning::NoRoom).then(|| Pinned::new(self, key, bytes, pinning))
    }

    /// Like [`try_pin`](Self::try_pin), but waits until there is room. Other threads must release
    /// the pins that take the room: pins of the caller itself must be held by other threads that
    /// have started.
    pub fn pin(&self, key: S::Key, bytes: u64) -> Pinned<'_, S> {
        let mut state = lock(&self.shared.state);
        let pinning = loop {
            match state.pin(key, bytes) {
                Pinning::NoRoom => state = wait(&self.shared.unpinned, state),
                pinning => break pinning,
            }
        };
        drop(state);
        Pinned::new(self, key, bytes, pinning)
    }

    /// Begins to fetch pinned units, in this order.
    pub fn start(&self, keys: impl IntoIterator<Item = S::Key>) {
        let mut state = lock(&self.shared.state);
        let mut queued = 0;
        for key in keys {
            queued += usize::from(state.start(key));
        }
        drop(state);
        for _ in 0..queued {
            self.shared.work.notify_one();
        }
    }

    /// Ends prefetching, and wakes callers that wait for room. Reads continue.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Returns a guard that ends the runner when it is dropped: when the caller returns, or panics.
    pub fn end_on_drop(&self) -> EndOnDrop<'_, S> {
        EndOnDrop::new(self)
    }

    /// Cancels units that will not be read; units in flight still arrive, and are then dropped
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

    /// The present usage of the budget.
    pub fn usage(&self) -> BudgetUsage {
        lock(&self.shared.state).usage()
    }
}

impl<S: FetchSource> Shared<S> {
    fn new(source: S, budget: u64) -> Arc<Self> {
        // With a budget of nothing a plan would have no limit at all.
        let state = Mutex::new(State::new(budget.max(1)));
        Arc::new(Shared { source, state, work: Condvar::new(), unpinned: Condvar::new() })
    }

    fn end(&self) {
        lock(&self.state).end();
        self.work.notify_all();
        self.unpinned.notify_all();
    }

    fn unpin(&self, key: &S::Key) {
        if lock(&self.state).unpin(key) {
            self.unpinned.notify_all();
        }
    }

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

    /// Fetches a unit that was assigned to this thread.
    fn fill(&self, key: S::Key, cell: &Arc<Cell<S::Unit>>) {
        let mut bytes = None;
        let is_unit = cell.filled_by(|| {
            let unit = self.source.fetch(key)?;
            bytes = self.source.bytes(&unit);
            Ok(unit)
        });
        let mut state = lock(&self.state);
        if let Some(bytes) = bytes {
            state.charge(&key, cell, bytes);
        }
        state.arrived(&key, cell, is_unit);
    }
}

impl<S: FetchSource> Drop for Runner<S> {
    fn drop(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
