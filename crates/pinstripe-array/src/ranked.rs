//! Locks with a rank. A thread takes locks in the order of their ranks only, so that no two threads
//! can wait for each other. Debug builds check that at every lock; release builds do not, and pay
//! nothing for it.
//!
//! Poisoning is ignored: a change that was made before a panic stays made.

use pinstripe_base::sync;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// The locks of a running array, outermost first. A thread may skip some, but never takes one while
/// it holds the same or a later one. [`Array`](crate::engine::Array) says what each protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The flusher of a volume.
    Flusher,
    /// A row that is held or occupied. Not a mutex: threads wait for it at the cache's condvar.
    Row,
    /// The order in which superblocks are written.
    Publishing,
    /// What the threads of a volume tell each other.
    Volume,
    /// Members by slot, spares, and the superblock that they have.
    Members,
    /// Errors and progress.
    Status,
    /// Blocks that wait to be healed.
    BadBlocks,
    /// Bytes that are not on the members yet.
    Cache,
    /// The placement of rows.
    Shape,
}

impl Rank {
    /// Checks that the thread may take this rank, for one that waits for other threads to release
    /// it.
    ///
    /// # Panics
    /// As [`RankGuard::take`].
    pub fn check(self) {
        let _rank = RankGuard::take(self);
    }
}

/// A rank that the thread holds until this is dropped.
pub(crate) struct RankGuard {
    #[cfg(debug_assertions)]
    rank: Rank,
    /// The thread that took it has to drop it.
    _of_thread: PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
thread_local! {
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl RankGuard {
    /// Takes a rank.
    ///
    /// # Panics
    /// In debug builds, if the thread holds the same or a later one.
    #[cfg(debug_assertions)]
    pub fn take(rank: Rank) -> Self {
        HELD.with_borrow_mut(|held| {
            let later = held.iter().find(|it| **it >= rank);
            assert!(later.is_none(), "{rank:?} is locked after {later:?}: held are {held:?}");
            held.push(rank);
        });
        RankGuard { rank, _of_thread: PhantomData }
    }

    /// Takes a rank.
    #[cfg(not(debug_assertions))]
    pub fn take(_: Rank) -> Self {
        RankGuard { _of_thread: PhantomData }
    }
}

#[cfg(debug_assertions)]
impl Drop for RankGuard {
    fn drop(&mut self) {
        // A guard that a thread-local value keeps may outlive the list.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(last) = held.iter().rposition(|rank| *rank == self.rank) {
                held.remove(last);
            }
        });
    }
}

/// A guard of a ranked lock. The lock is released before the rank.
pub(crate) struct Ranked<G> {
    guard: G,
    held: RankGuard,
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

impl<T> Ranked<MutexGuard<'_, T>> {
    /// Releases the lock until the condvar is notified, and takes it again.
    pub fn wait(self, condvar: &Condvar) -> Self {
        let Ranked { guard, held } = self;
        Ranked { guard: sync::wait(condvar, guard), held }
    }

    /// The same, for so long at most.
    pub fn wait_timeout(self, condvar: &Condvar, most: Duration) -> Self {
        let Ranked { guard, held } = self;
        Ranked { guard: sync::wait_timeout(condvar, guard, most), held }
    }
}

/// A mutex with a rank.
pub(crate) struct RankedMutex<T> {
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> RankedMutex<T> {
    pub fn new(rank: Rank, value: T) -> Self {
        RankedMutex { rank, inner: Mutex::new(value) }
    }

    pub fn lock(&self) -> Ranked<MutexGuard<'_, T>> {
        let held = RankGuard::take(self.rank);
        Ranked { guard: sync::lock(&self.inner), held }
    }
}

/// A lock with a rank that many may hold to read.
pub(crate) struct RankedRwLock<T> {
    rank: Rank,
    inner: RwLock<T>,
}

impl<T> RankedRwLock<T> {
    pub fn new(rank: Rank, value: T) -> Self {
        RankedRwLock { rank, inner: RwLock::new(value) }
    }

    pub fn read(&self) -> Ranked<RwLockReadGuard<'_, T>> {
        let held = RankGuard::take(self.rank);
        Ranked { guard: sync::read(&self.inner), held }
    }

    pub fn write(&self) -> Ranked<RwLockWriteGuard<'_, T>> {
        let held = RankGuard::take(self.rank);
        Ranked { guard: sync::write(&self.inner), held }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (members, cache) =
            (RankedRwLock::new(Rank::Members, 1), RankedMutex::new(Rank::Cache, 2));
        for _ in 0..2 {
            let outer = members.read();
            let inner = cache.lock();
            // The order of release is free.
            drop(outer);
            drop(inner);
        }
        *cache.lock() += *members.write();
    }

    #[test]
    #[should_panic(expected = "Members is locked after Some(Cache)")]
    fn a_wrong_order_panics() {
        let (members, cache) =
            (RankedRwLock::new(Rank::Members, ()), RankedMutex::new(Rank::Cache, ()));
        let _inner = cache.lock();
        let _outer = members.read();
    }

    #[test]
    #[should_panic(expected = "Cache is locked after Some(Cache)")]
    fn a_lock_that_the_thread_holds_panics() {
        let cache = RankedMutex::new(Rank::Cache, ());
        let _one = cache.lock();
        let _two = cache.lock();
    }

    #[test]
    fn a_guard_that_waits_keeps_its_rank() {
        let (cache, changed) = (RankedMutex::new(Rank::Cache, false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *cache.lock() = true;
                changed.notify_all();
            });
            let mut guard = cache.lock();
            while !*guard {
                guard = guard.wait(&changed);
            }
        });
        let guard = cache.lock().wait_timeout(&changed, Duration::ZERO);
        drop(guard);
        drop(cache.lock());
    }
}
