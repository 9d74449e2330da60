//! Locks with a rank. A thread takes locks only in the order of their ranks, so that no two threads
//! can wait for each other. Debug builds check the order at every lock; release builds do not, so
//! they have no cost.
//!
//! Each crate or module has its own ranks, which [`lock_ranks!`](crate::lock_ranks) declares. Ranks
//! of two different enums are not compared: a module that calls another one under a lock documents
//! that at the call.
//!
//! Poisoning of locks is ignored: a change made before a panic remains.

#[cfg(debug_assertions)]
use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::sync;

/// The ranks of the locks of a module, outermost first. A thread may skip ranks, but never takes a
/// rank while it holds the same or a later one.
pub trait LockRank: Copy + 'static {
    /// The position of the rank in the order, from 0.
    fn ordinal(self) -> u8;
    /// The name of the rank, for the panic about a wrong order.
    fn name(self) -> &'static str;

    /// Checks that the thread may take this rank, for code that waits for other threads to release
    /// it.
    ///
    /// # Panics
    /// Like [`RankGuard::take`].
    fn check(self) {
        let _rank = RankGuard::take(self);
    }
}

/// Declares the [`LockRank`]s of a module as an enum, outermost first.
#[macro_export]
macro_rules! lock_ranks {
    ($(#[$about:meta])* $vis:vis enum $ranks:ident { $($(#[$doc:meta])* $rank:ident),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $ranks { $($(#[$doc])* $rank),+ }

        impl $crate::ranked::LockRank for $ranks {
            fn ordinal(self) -> u8 {
                self as u8
            }

            fn name(self) -> &'static str {
                match self { $($ranks::$rank => stringify!($rank)),+ }
            }
        }
    };
}

/// A rank that the thread holds until this guard is dropped.
pub struct RankGuard {
    #[cfg(debug_assertions)]
    held: HeldLock,
    /// Ensures that the guard is dropped by the thread that took the rank.
    _of_thread: PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldLock {
    ranks: TypeId,
    ordinal: u8,
    name: &'static str,
}

#[cfg(debug_assertions)]
thread_local! {
    static HELD: std::cell::RefCell<Vec<HeldLock>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl RankGuard {
    /// Takes a rank.
    ///
    /// # Panics
    /// Panics in debug builds if the thread holds the same or a later rank.
    #[cfg(debug_assertions)]
    pub fn take<R: LockRank>(rank: R) -> Self {
        let new = HeldLock { ranks: TypeId::of::<R>(), ordinal: rank.ordinal(), name: rank.name() };
        HELD.with_borrow_mut(|held| {
            let is_later = |it: &&HeldLock| it.ranks == new.ranks && it.ordinal >= new.ordinal;
            if let Some(later) = held.iter().find(is_later) {
                panic!("{} is locked after {}", new.name, later.name);
            }
            held.push(new);
        });
        RankGuard { held: new, _of_thread: PhantomData }
    }

    /// Takes a rank.
    #[cfg(not(debug_assertions))]
    pub fn take<R: LockRank>(_: R) -> Self {
        RankGuard { _of_thread: PhantomData }
    }
}

#[cfg(debug_assertions)]
impl Drop for RankGuard {
    fn drop(&mut self) {
        // A guard that a thread-local value keeps may outlive the list.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(last) = held.iter().rposition(|it| *it == self.held) {
                held.remove(last);
            }
        });
    }
}

/// A guard of a ranked lock. The lock is released before the rank.
pub struct Ranked<G> {
    guard: G,
    rank: RankGuard,
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
    /// Releases the lock until the condvar is notified, and then takes the lock again.
    pub fn wait(self, condvar: &Condvar) -> Self {
        let Ranked { guard, rank } = self;
        Ranked { guard: sync::wait(condvar, guard), rank }
    }

    /// Like [`wait`](Self::wait), for at most this time.
    pub fn wait_timeout(self, condvar: &Condvar, most: Duration) -> Self {
        let Ranked { guard, rank } = self;
        Ranked { guard: sync::wait_timeout(condvar, guard, most), rank }
    }
}

/// A mutex with a rank.
#[derive(Debug)]
pub struct RankedMutex<R, T> {
    rank: R,
    inner: Mutex<T>,
}

impl<R: LockRank, T> RankedMutex<R, T> {
    /// A mutex with this rank.
    pub const fn new(rank: R, value: T) -> Self {
        RankedMutex { rank, inner: Mutex::new(value) }
    }

    /// Locks it.
    ///
    /// # Panics
    /// Like [`RankGuard::take`].
    pub fn lock(&self) -> Ranked<MutexGuard<'_, T>> {
        let rank = RankGuard::take(self.rank);
        Ranked { guard: sync::lock(&self.inner), rank }
    }
}

/// A lock with a rank, which several threads may hold for reading.
#[derive(Debug)]
pub struct RankedRwLock<R, T> {
    rank: R,
    inner: RwLock<T>,
}

impl<R: LockRank, T> RankedRwLock<R, T> {
    /// A lock with this rank.
    pub const fn new(rank: R, value: T) -> Self {
        RankedRwLock { rank, inner: RwLock::new(value) }
    }

    /// Locks the value for reading.
    ///
    /// # Panics
    /// Like [`RankGuard::take`].
    pub fn read(&self) -> Ranked<RwLockReadGuard<'_, T>> {
        let rank = RankGuard::take(self.rank);
        Ranked { guard: sync::read(&self.inner), rank }
    }

    /// Locks the value for writing.
    ///
    /// # Panics
    /// Like [`RankGuard::take`].
    pub fn write(&self) -> Ranked<RwLockWriteGuard<'_, T>> {
        let rank = RankGuard::take(self.rank);
        Ranked { guard: sync::write(&self.inner), rank }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    crate::lock_ranks! {
        /// Two ranks.
        enum RankPair {
            /// The first.
            Members,
            /// The second.
            Cache,
        }
    }

    crate::lock_ranks! {
        /// Ranks of another module, for tests.
        enum Other {
            /// The only one.
            Leaf,
        }
    }

    #[test]
    fn ranks_of_two_rooms_are_not_compared() {
        let (leaf, cache) =
            (RankedMutex::new(Other::Leaf, ()), RankedMutex::new(RankPair::Cache, ()));
        drop((leaf.lock(), cache.lock()));
        drop((cache.lock(), leaf.lock()));
    }

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (members, cache) =
            (RankedRwLock::new(RankPair::Members, 1), RankedMutex::new(RankPair::Cache, 2));
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
    #[should_panic(expected = "Members is locked after Cache")]
    fn a_wrong_order_panics() {
        let (members, cache) =
            (RankedRwLock::new(RankPair::Members, ()), RankedMutex::new(RankPair::Cache, ()));
        let _inner = cache.lock();
        let _outer = members.read();
    }

    #[test]
    #[should_panic(expected = "Cache is locked after Cache")]
    fn a_lock_that_the_thread_holds_panics() {
        let cache = RankedMutex::new(RankPair::Cache, ());
        let _one = cache.lock();
        let _two = cache.lock();
    }

    #[test]
    fn a_guard_that_waits_keeps_its_rank() {
        let (cache, changed) = (RankedMutex::new(RankPair::Cache, false), Condvar::new());
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
