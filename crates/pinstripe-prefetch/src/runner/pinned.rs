//! Units of a known plan, held by those who will read them.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use pinstripe_base::error::Result;

use super::state::Pinning;
use super::{FetchSource, Runner};

/// A unit that will be read; its place in the budget is released when this object is dropped.
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

    /// The key of the unit.
    pub fn key(&self) -> S::Key {
        self.key
    }

    /// Whether this pin reserved the unit's place, so that the unit must be
    /// [started](Runner::start).
    pub fn is_new(&self) -> bool {
        self.pinning == Pinning::New
    }

    /// Waits for the unit, or fetches it if no thread has begun to. The returned unit cannot
    /// outlive its pin.
    ///
    /// # Errors
    /// Fails with the errors of the source; all pins of a unit get the same error.
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
