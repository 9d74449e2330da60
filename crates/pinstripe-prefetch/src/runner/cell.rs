//! The cell of one unit: empty, or with the result of the unit's fetch.

use std::sync::{Arc, Condvar, Mutex};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{lock, wait};

pub(super) struct Cell<U> {
    result: Mutex<Option<Result<Arc<U>>>>,
    filled: Condvar,
}

impl<U> Cell<U> {
    pub(super) fn empty() -> Arc<Self> {
        Arc::new(Cell { result: Mutex::new(None), filled: Condvar::new() })
    }

    /// Fills the cell with the result of `fetch`, or with an error if `fetch` panics; returns
    /// whether the result is a unit.
    pub(super) fn filled_by(&self, fetch: impl FnOnce() -> Result<U>) -> bool {
        let guard = FailOnPanic(self);
        let result = fetch().map(Arc::new);
        std::mem::forget(guard);
        let is_unit = result.is_ok();
        self.fill(result);
        is_unit
    }

    fn fill(&self, result: Result<Arc<U>>) {
        *lock(&self.result) = Some(result);
        self.filled.notify_all();
    }

    /// Waits for the result.
    pub(super) fn wait(&self) -> Result<Arc<U>> {
        let mut result = lock(&self.result);
        loop {
            match result.as_ref() {
                Some(Ok(unit)) => return Ok(Arc::clone(unit)),
                Some(Err(error)) => return Err(error.duplicate()),
                None => result = wait(&self.filled, result),
            }
        }
    }

    /// Whether a reader holds the unit.
    pub(super) fn is_held(&self) -> bool {
        match lock(&self.result).as_ref() {
            Some(Ok(unit)) => Arc::strong_count(unit) > 1,
            Some(Err(_)) => false,
            None => true,
        }
    }
}

struct FailOnPanic<'c, U>(&'c Cell<U>);

impl<U> Drop for FailOnPanic<'_, U> {
    fn drop(&mut self) {
        self.0.fill(Err(panicked()));
    }
}

fn panicked() -> Error {
    Error::new(Kind::Io, "the thread that fetched this data panicked")
}
