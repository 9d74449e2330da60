//! The atomics of a ring, and the check of accesses: which thread accesses which bytes of the ring.
//! `cargo xtask soak loom` builds this module with loom, which tries the orders in which threads
//! may see each other's writes, and finds two threads that access a byte at the same time. In other
//! builds the atomics are those of the standard library, and [`Touches`] is empty.

#[cfg(loom)]
pub(super) use loom::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(super) use std::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    thread::yield_now,
};

/// The memory ordering with which the producer publishes its bytes to the consumers. With
/// `planted="head"` the ordering is wrong, and loom must find that.
pub(super) const SHOWS: Ordering =
    if cfg!(planted = "head") { Ordering::Relaxed } else { Ordering::Release };

/// The bytes of a ring, as loom sees them.
#[cfg(loom)]
pub(super) struct Touches(Box<[loom::cell::UnsafeCell<()>]>);

// SAFETY: the cells hold nothing; loom reports two threads that touch one at once.
#[cfg(loom)]
unsafe impl Sync for Touches {}
// SAFETY: as above.
#[cfg(loom)]
unsafe impl Send for Touches {}

#[cfg(loom)]
impl Touches {
    pub(super) fn new(size: u64) -> Self {
        Touches((0..size).map(|_| loom::cell::UnsafeCell::new(())).collect())
    }

    /// Records a write of these bytes, counted from the beginning of the ring.
    pub(super) fn write(&self, from: u64, bytes: u64) {
        self.each(from, bytes, |cell| cell.with_mut(|_| ()));
    }

    /// Records a read of these bytes.
    pub(super) fn read(&self, from: u64, bytes: u64) {
        self.each(from, bytes, |cell| cell.with(|_| ()));
    }

    fn each(&self, from: u64, bytes: u64, touch: impl Fn(&loom::cell::UnsafeCell<()>)) {
        (from..from + bytes).for_each(|at| touch(&self.0[at as usize % self.0.len()]));
    }
}

/// Stands for the tracked bytes of a ring in builds without loom, and tracks nothing.
#[cfg(not(loom))]
pub(super) struct Touches;

#[cfg(not(loom))]
impl Touches {
    pub(super) fn new(_: u64) -> Self {
        Touches
    }

    #[inline]
    pub(super) fn write(&self, _: u64, _: u64) {}

    #[inline]
    pub(super) fn read(&self, _: u64, _: u64) {}
}
