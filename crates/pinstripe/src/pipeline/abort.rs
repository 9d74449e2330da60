//! The one fatal error of a run: the first wins, all stages see it and drain.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// Shared by all stages of one run.
#[derive(Default)]
pub struct Abort {
    raised: AtomicBool,
    first: Mutex<Option<Error>>,
}

impl Abort {
    /// Ends the run with `error`, unless an earlier one has.
    pub fn raise(&self, error: Error) {
        let mut first = lock(&self.first);
        first.get_or_insert(error);
        self.raised.store(true, Ordering::Release);
    }

    /// A guard that ends the run when its thread panics, so that no other thread waits for its
    /// work. The panic itself is passed on where the thread is joined.
    pub fn on_panic(&self) -> impl Drop + '_ {
        struct Guard<'a>(&'a Abort);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.raise(Error::new(Kind::Io, "a worker thread of the run panicked"));
                }
            }
        }
        Guard(self)
    }

    /// Whether the run is over.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// The fatal error, if there was one.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        if !self.is_raised() {
            return Ok(());
        }
        let first = lock(&self.first);
        Err(first.as_ref().expect("raised only after the error was put there").duplicate())
    }
}
