//! The placement of an array's rows, which changes while it grows.
//!
//! A reader works with one shape and starts again if the shape changed meanwhile: what it read may
//! have been overwritten since. Writes gather by the cache's copy of the shape, under the cache's
//! lock.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Array, lock};
use crate::geometry::Shape;
use pinstripe_base::error::{Error, Kind, Result};

impl Array {
    /// The placement of rows now.
    pub(super) fn shape(&self) -> Shape {
        *self.shape.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the placement of rows. Only the flusher does, between batches.
    pub(super) fn reshape(&self, shape: Shape) {
        // Both copies change under the cache's lock, so that no write gathers by the old one; the
        // counter moves after them, so that a reader that sees no change has read by a valid shape.
        let mut cache = lock(&self.cache);
        cache.reshape(shape);
        *self.shape.write().unwrap_or_else(PoisonError::into_inner) = shape;
        self.reshaped.fetch_add(1, Ordering::SeqCst);
        cache.landed().notify_all();
    }

    /// Runs a read by one shape in which all of `range` has a place.
    ///
    /// # Errors
    /// As `read`; [`Kind::TooManyLosses`] where the bytes are lost by a failed move.
    pub(super) fn by_shape<T>(
        &self,
        range: &Range<u64>,
        mut read: impl FnMut(&Shape) -> Result<T>,
    ) -> Result<T> {
        loop {
            let before = self.reshaped.load(Ordering::SeqCst);
            let shape = self.settled_shape(range)?;
            let done = read(&shape);
            if self.reshaped.load(Ordering::SeqCst) == before {
                return done;
            }
        }
    }

    /// Waits for a shape in which no part of the range is being moved in place.
    fn settled_shape(&self, range: &Range<u64>) -> Result<Shape> {
        let is_lifted = |shape: &Shape| {
            let lifted = shape.lifted();
            lifted.start < range.end && range.start < lifted.end
        };
        let shape = self.shape();
        if !is_lifted(&shape) {
            return Ok(shape);
        }
        let mut cache = lock(&self.cache);
        let landed = cache.landed();
        while is_lifted(cache.shape()) {
            if self.is_torn_up.load(Ordering::Acquire) {
                let what = "members failed while a reshape moved rows in place";
                return Err(Error::new(Kind::TooManyLosses, what)
                    .advice("attach the missing members, and assemble the array again"));
            }
            cache = landed.wait(cache).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(*cache.shape())
    }

    /// Declares the rows lost that are being moved in place: too many members failed.
    pub(super) fn give_up_rows(&self) {
        // Under the lock, or a reader between its check and its wait would miss the notification.
        let cache = lock(&self.cache);
        self.is_torn_up.store(true, Ordering::Release);
        cache.landed().notify_all();
    }
}
