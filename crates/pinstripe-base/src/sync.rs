//! Objects that threads share: locks whose poisoning is ignored, a stop for which threads can wait,
//! and a wake for which one can wait repeatedly.
//!
//! Invariant: a [`Stop`] that was set stays set, and every wait for it returns at once, both in a
//! thread and in poll(2).

#![allow(clippy::disallowed_methods, reason = "this module waits for events of its own process")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::clock;
use crate::error::{Error, Result};

/// The interval at which a stop is polled if the kernel refuses to wait for it.
const REFUSED_POLL: Duration = Duration::from_millis(50);

/// Locks a mutex, poisoned or not.
///
/// A change made under the lock before a panic remains, so each single change must leave the value
/// valid for other threads. The panic itself is not hidden: it is reported when the thread that
/// panicked is joined. A second panic here would only hide the first one.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of a mutex that no other thread shares any more; ignores poisoning like [`lock`].
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The value of a mutex that only the caller has; ignores poisoning like [`lock`].
pub fn get_mut<T: ?Sized>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, together with other readers; ignores poisoning like [`lock`].
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing; ignores poisoning like [`lock`].
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a condition variable is notified, or wakes up spuriously; ignores poisoning like
/// [`lock`].
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Like [`wait`], for at most `timeout`.
pub fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

/// A flag that is set once, and for which threads can wait.
///
/// A stop consists of the flag and an eventfd, which is readable once the flag is set and is never
/// read, so that one `set` wakes all present and future waiters. [`AsFd`] returns the descriptor
/// for poll(2).
#[derive(Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    event: OwnedFd,
}

impl Stop {
    /// A stop that is not set.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`](crate::error::Kind::Io) if no descriptor is available, because a
    /// stop without one could not wake threads.
    pub fn new() -> Result<Self> {
        Stop::of_flag(Arc::default())
    }

    /// A stop whose flag is shared with code that only reads the flag. The new stop is already set
    /// if the flag is. After this call, only [`set`](Self::set) may set the flag.
    ///
    /// # Errors
    /// Fails with the errors of [`new`](Self::new).
    pub fn of_flag(flag: Arc<AtomicBool>) -> Result<Self> {
        // Nonblocking: `set` runs in signal handlers.
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::io("cannot be created", "eventfd that stops threads", errno))?;
        let stop = Stop { flag, event };
        if stop.is_set() {
            stop.set();
        }
        Ok(stop)
    }

    /// Sets the stop permanently. `set` is safe in a signal handler: it uses an atomic store and a
    /// write(2), no lock and no memory allocation.
    pub fn set(&self) {
        // The flag first, so that a thread that is woken finds it set.
        self.flag.store(true, Ordering::Release);
        // It fails only at the counter's limit of 2^64 - 2, and then the event is readable already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Whether the stop was set.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Waits until the stop is set, for at most `timeout`; returns whether it is set.
    pub fn wait(&self, timeout: Duration) -> bool {
        // None where the clock does not reach as far.
        let deadline = clock::monotonic().checked_add(timeout);
        while !self.is_set() {
            let left = deadline.map(|it| it.saturating_duration_since(clock::monotonic()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if wait_readable(&[self.as_fd()], left).is_err() {
                // The kernel has no memory to wait with.
                std::thread::sleep(left.unwrap_or(REFUSED_POLL).min(REFUSED_POLL));
            }
        }
        true
    }

    /// The flag of the stop, for code that only reads it. Writing to the flag would not wake any
    /// thread.
    pub fn as_flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }
}

impl AsFd for Stop {
    /// The descriptor that is readable once the stop is set. The descriptor must not be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Notifies one thread that there is something to do; the thread may wait in poll(2) for other
/// things at the same time.
///
/// Several calls before the thread checks count as one.
#[derive(Debug)]
pub struct Wake {
    event: OwnedFd,
}

impl Wake {
    /// A wake that has not been called.
    ///
    /// # Errors
    /// Fails with the errors of [`Stop::new`].
    pub fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::io("cannot be created", "eventfd that wakes threads", errno))?;
        Ok(Wake { event })
    }

    /// Wakes the thread, now or at its next wait.
    pub fn call(&self) {
        // It fails only at the counter's limit, and then the event is readable already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Resets the wake; returns whether there were any calls.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.event, &mut [0_u8; 8]).is_ok()
    }
}

impl AsFd for Wake {
    /// The descriptor that is readable while there are calls that were not taken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Waits until at least one of the descriptors is readable, at its end or has an error; waits at
/// most for `timeout`, or without limit. Returns for each descriptor whether it is ready; after a
/// timeout, none is. Signals do not end the wait.
///
/// # Errors
/// Fails with the errors of the system, for a lack of memory, or for more descriptors than the
/// process may have.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let deadline = timeout.and_then(|it| clock::monotonic().checked_add(it));
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.map(|it| it.saturating_duration_since(clock::monotonic()));
        let left = left.and_then(|it| Timespec::try_from(it).ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(_) => return Ok(polled.iter().map(|it| !it.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test may take: a wait of this length was woken if it returns.
    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_wake_is_taken_once_however_often_it_was_called() {
        let wake = Wake::new().unwrap();
        assert!(!wake.take());
        assert_eq!(wait_readable(&[wake.as_fd()], Some(SHORT)).unwrap(), [false]);
        wake.call();
        wake.call();
        assert_eq!(wait_readable(&[wake.as_fd()], Some(LONG)).unwrap(), [true]);
        assert!(wake.take() && !wake.take());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_readable(&[wake.as_fd()], Some(LONG)).unwrap());
            wake.call();
            assert_eq!(waiting.join().unwrap(), [true]);
        });
    }

    #[test]
    fn a_poisoned_lock_holds_what_was_changed_before() {
        let mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut value = lock(&mutex);
                *value = 2;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            thread.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
        let condvar = Condvar::new();
        let guard = wait_timeout(&condvar, lock(&mutex), SHORT);
        assert_eq!(*guard, 2);
        drop(guard);
        assert_eq!(into_inner(mutex), 2);
        let lock = RwLock::new(1);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                *write(&lock) = 2;
                let _guard = write(&lock);
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            thread.join().is_err()
        });
        assert!(panicked && lock.is_poisoned());
        assert_eq!(*read(&lock), 2);
        *write(&lock) = 3;
        assert_eq!(*read(&lock), 3);
    }

    #[test]
    fn what_is_set_before_is_not_waited_for() {
        let stop = Stop::new().unwrap();
        assert!(!stop.is_set());
        assert!(!stop.wait(Duration::ZERO) && !stop.wait(SHORT));
        stop.set();
        stop.set();
        assert!(stop.is_set() && stop.as_flag().load(Ordering::Relaxed));
        // Any number of times, even without time, or with more than the clock has.
        assert!(stop.wait(Duration::ZERO) && stop.wait(LONG) && stop.wait(Duration::MAX));
    }

    #[test]
    fn all_that_wait_are_woken_by_another_thread() {
        let stop = Stop::new().unwrap();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| stop.wait(LONG))).collect();
            let forever = scope.spawn(|| stop.wait(Duration::MAX));
            let polling = scope.spawn(|| wait_readable(&[stop.as_fd()], None));
            // So that some of them wait already; if none does, it holds as well.
            std::thread::sleep(10 * SHORT);
            let start = clock::monotonic();
            stop.set();
            assert!(waiters.into_iter().all(|it| it.join().unwrap()));
            assert!(forever.join().unwrap());
            assert_eq!(polling.join().unwrap().unwrap(), [true]);
            assert!(clock::monotonic() - start < LONG / 10);
        });
    }

    #[test]
    fn a_flag_that_is_set_makes_a_stop_that_is() {
        let flag = Arc::new(AtomicBool::new(true));
        let stop = Stop::of_flag(Arc::clone(&flag)).unwrap();
        assert!(stop.is_set());
        assert_eq!(wait_readable(&[stop.as_fd()], Some(LONG)).unwrap(), [true]);
        let shared = Stop::of_flag(Arc::default()).unwrap();
        shared.set();
        assert!(shared.as_flag().load(Ordering::Relaxed));
    }

    #[test]
    fn of_several_descriptors_those_that_are_ready_are_told() {
        let (set, unset) = (Stop::new().unwrap(), Stop::new().unwrap());
        let fds = [unset.as_fd(), set.as_fd()];
        assert_eq!(wait_readable(&fds, Some(Duration::ZERO)).unwrap(), [false, false]);
        assert_eq!(wait_readable(&fds, Some(SHORT)).unwrap(), [false, false]);
        set.set();
        assert_eq!(wait_readable(&fds, None).unwrap(), [false, true]);
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        drop(theirs);
        assert_eq!(wait_readable(&[ours.as_fd()], Some(LONG)).unwrap(), [true]);
    }
}
