//! Locks with a rank. A thread takes locks in the order of their ranks only, so that no two threads
//! can wait for each other. Debug builds check that at every lock; release builds do not, and pay
//! nothing for it.
//!
//! Each crate or room has ranks of its own, which [`lock_ranks!`](crate::lock_ranks) makes. Ranks of
//! two such enums are not compared: a room that calls another one under a lock says so there.
//!
//! Poisoning is ignored: a change that was made before a panic stays made.

#[cfg(debug_assertions)]
use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::sync;

/// The ranks of the locks of a room, outermost first. A thread may skip some, but never takes one
/// while it holds the same or a later one.
pub trait LockRank: Copy + 'static {
    /// The place in the order, from 0.
    fn ordinal(self) -> u8;
    /// The name, for the panic of a wrong order.
    fn name(self) -> &'static str;

    /// Checks that the thread may take this rank, for one that waits for other threads to release
    /// it.
    ///
    /// # Panics
    /// Like [`RankGuard::take`].
    fn check(self) {
        let _rank = RankGuard::take(self);
    }
}

/// Declares the [`LockRank`]s of a room as an enum, outermost first.
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

/// A rank that the thread holds until this is dropped.
pub struct RankGuard {
    #[cfg(debug_assertions)]
    held: HeldLock,
    /// The thread that took it has to drop it.
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
    /// In debug builds, if the thread holds the same or a later one.
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
    /// Releases the lock until the condvar is notified, and takes it again.
    pub fn wait(self, condvar: &Condvar) -> Self {
        let Ranked { guard, rank } = self;
        Ranked { guard: sync::wait(condvar, guard), rank }
    }

    /// The same, for at most this time.
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
    /// A lock of this rank.
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

/// A lock with a rank that many may hold to read.
#[derive(Debug)]
pub struct RankedRwLock<R, T> {
    rank: R,
    inner: RwLock<T>,
}

impl<R: LockRank, T> RankedRwLock<R, T> {
    /// A lock of this rank.
    pub const fn new(rank: R, value: T) -> Self {
        RankedRwLock { rank, inner: RwLock::new(value) }
    }

    /// Locks it for reading.
    ///
    /// # Panics
    /// Like [`RankGuard::take`].
    pub fn read(&self) -> Ranked<RwLockReadGuard<'_, T>> {
        let rank = RankGuard::take(self.rank);
        Ranked { guard: sync::read(&self.inner), rank }
    }

    /// Locks it for writing.
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
        /// Ranks of another room.
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
