//! The one fatal error of a run: the first error wins, and all stages see it and drain their input.
//!
//! Invariant: a raised abort wakes every thread that waits in [`Abort::recv`] or [`Abort::send`],
//! now or later, so that no thread has to poll for the end of the run. A stage that takes jobs from
//! a queue needs no waking: the stage before it ends, and closes the queue.

#![allow(
    clippy::disallowed_methods,
    reason = "this module creates the queue that wakes the stages of a run"
)]

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// The fatal error, shared by all stages of one run.
pub struct Abort {
    raised: AtomicBool,
    /// The fatal error; before there is one, the sender that keeps `over` open.
    state: Mutex<std::result::Result<Sender<Infallible>, Error>>,
    /// Nothing is ever sent on this channel: it closes when the abort is raised, which wakes all
    /// waiting threads.
    over: Receiver<Infallible>,
}

impl Default for Abort {
    fn default() -> Self {
        let (open, over) = bounded(0);
        Abort { raised: AtomicBool::new(false), state: Mutex::new(Ok(open)), over }
    }
}

impl Abort {
    /// Ends the run with `error`, unless an earlier error has ended it.
    pub fn raise(&self, error: Error) {
        let mut state = lock(&self.state);
        if state.is_ok() {
            // The flag first, so that a thread that is woken finds it set.
            self.raised.store(true, Ordering::Release);
            *state = Err(error);
        }
    }

    /// Returns a guard that ends the run when its thread panics, so that no other thread waits for
    /// that thread's work. The panic itself is passed on to the thread that joins.
    pub fn on_panic(&self) -> impl Drop + '_ {
        struct AbortGuard<'a>(&'a Abort);
        impl Drop for AbortGuard<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.raise(Error::new(Kind::Io, "a worker thread of this run panicked"));
                }
            }
        }
        AbortGuard(self)
    }

    /// Whether the run has ended.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Returns the fatal error, if there was one.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        if !self.is_raised() {
            return Ok(());
        }
        lock(&self.state).as_ref().map(|_| ()).map_err(Error::duplicate)
    }

    /// Receives from a queue, waiting as long as the run lasts.
    ///
    /// # Errors
    /// Fails with the run's fatal error, or with [`Kind::Io`] when the queue is empty and has no
    /// sender left.
    pub fn recv<T>(&self, queue: &Receiver<T>) -> Result<T> {
        self.check()?;
        let received = select! {
            recv(queue) -> received => received.ok(),
            recv(self.over) -> _ => None,
        };
        received.ok_or_else(|| self.why_ended())
    }

    /// Sends to a queue, waiting for room in it as long as the run lasts.
    ///
    /// # Errors
    /// Fails with the run's fatal error, or with [`Kind::Io`] when the queue has no receiver left.
    pub fn send<T>(&self, queue: &Sender<T>, message: T) -> Result<()> {
        self.check()?;
        let sent = select! {
            send(queue, message) -> sent => sent.ok(),
            recv(self.over) -> _ => None,
        };
        sent.ok_or_else(|| self.why_ended())
    }

    /// Returns the reason why a queue ended.
    fn why_ended(&self) -> Error {
        let early = || Error::new(Kind::Io, "a thread of this run ended early");
        self.check().err().unwrap_or_else(early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> Error {
        Error::new(Kind::Corrupt, "broken on purpose")
    }

    #[test]
    fn the_first_error_stays() {
        let abort = Abort::default();
        assert!(!abort.is_raised() && abort.check().is_ok());
        abort.raise(broken());
        abort.raise(Error::new(Kind::Io, "a later one"));
        assert!(abort.is_raised());
        assert_eq!(abort.check().unwrap_err().kind(), Kind::Corrupt);
    }

    /// The waits have no timeout: a thread that is not woken would hang the test.
    #[test]
    fn a_raised_abort_wakes_all_that_wait() {
        let abort = Abort::default();
        let ((_sender, empty), (full, _receiver)) = (bounded::<u8>(1), bounded(1));
        full.send(1).unwrap();
        std::thread::scope(|scope| {
            let receivers: Vec<_> = (0..3).map(|_| scope.spawn(|| abort.recv(&empty))).collect();
            let senders: Vec<_> = (0..3).map(|_| scope.spawn(|| abort.send(&full, 2))).collect();
            // So that some of them wait already; if none does, it holds as well.
            std::thread::sleep(std::time::Duration::from_millis(10));
            abort.raise(broken());
            for receiver in receivers {
                assert_eq!(receiver.join().unwrap().unwrap_err().kind(), Kind::Corrupt);
            }
            for sender in senders {
                assert_eq!(sender.join().unwrap().unwrap_err().kind(), Kind::Corrupt);
            }
        });
        // Also if there is no need to wait.
        let (sender, receiver) = bounded(1);
        assert!(abort.send(&sender, 1).is_err());
        sender.send(1).unwrap();
        assert!(abort.recv(&receiver).is_err());
    }

    #[test]
    fn a_queue_that_has_lost_its_other_end_gives_and_takes_nothing() {
        let abort = Abort::default();
        let (sender, receiver) = bounded(1);
        abort.send(&sender, 7).unwrap();
        drop(sender);
        assert_eq!(abort.recv(&receiver).unwrap(), 7);
        assert_eq!(abort.recv(&receiver).unwrap_err().kind(), Kind::Io);
        let (sender, receiver) = bounded(1);
        drop(receiver);
        assert_eq!(abort.send(&sender, 7).unwrap_err().kind(), Kind::Io);
        assert!(!abort.is_raised());
    }
}
