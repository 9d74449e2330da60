//! Units of a known plan, as those hold them who will read them.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use pinstripe_base::error::Result;

use super::state::Pinning;
use super::{FetchSource, Runner};

/// A unit that will be read; its place in the budget is given back when this is dropped.
pub struct Pinned<'r, S: FetchSource> {
    runner: &'r Runner<S>,
    key: S::Key,
    bytes: u64,
    pinning: Pinning,
}

impl<'r, S: FetchSource> Pinned<'r, S> {
    pub(super) fn new(runner: &'r Runner<S>, key: S::Key, bytes: u64, pinning: Pinning) -> Self {
        Pinned { runner, key, bytes, pinning }
    }

    /// The name of the unit.
    pub fn key(&self) -> S::Key {
        self.key
    }

    /// Whether it got its place by this pin, and is to be [started](Runner::start).
    pub fn is_new(&self) -> bool {
        self.pinning == Pinning::New
    }

    /// Waits for the unit, or fetches it where no thread has begun to. It cannot outlive its pin.
    ///
    /// # Errors
    /// The errors of the source; the same for all pins that a unit has at a time.
    pub fn get(&self) -> Result<PinnedUnit<'_, S::Unit>> {
        let unit = self.runner.get(self.key, self.bytes)?;
        Ok(PinnedUnit { unit, pin: PhantomData })
    }
}

impl<S: FetchSource> Drop for Pinned<'_, S> {
    fn drop(&mut self) {
        if self.pinning != Pinning::Unplaced {
            self.runner.shared.unpin(&self.key);
        }
    }
}

/// A unit while it is pinned.
pub struct PinnedUnit<'p, U> {
    unit: Arc<U>,
    pin: PhantomData<&'p U>,
}

impl<U> Deref for PinnedUnit<'_, U> {
    type Target = U;

    fn deref(&self) -> &U {
        &self.unit
    }
}

/// Ends a runner when it is dropped.
pub struct EndOnDrop<'r, S: FetchSource>(&'r Runner<S>);

impl<'r, S: FetchSource> EndOnDrop<'r, S> {
    pub(super) fn new(runner: &'r Runner<S>) -> Self {
        EndOnDrop(runner)
    }
}

impl<S: FetchSource> Drop for EndOnDrop<'_, S> {
    fn drop(&mut self) {
        self.0.end();
    }
}
