//! The placement of an array's rows, which changes while the array grows.
//!
//! A reader works with one shape and starts again if the shape changed during the read: the bytes
//! may have been overwritten before they were read. Writes gather by the shape in the cache, which
//! is read under the cache's lock.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Array;
use crate::geometry::Shape;
use pinstripe_base::error::{Error, Kind, Result};

impl Array {
    /// The placement of rows now.
    pub(super) fn shape(&self) -> Shape {
        *self.shape.read()
    }

    /// Changes the placement of rows. Only the flusher calls this, between batches.
    pub(super) fn reshape(&self, shape: Shape) {
        // Both copies change under the cache's lock, so that no write gathers by the old one; the
        // counter moves after them, so that a reader that sees no change has read by a valid shape.
        let mut cache = self.cache.lock();
        cache.reshape(shape);
        *self.shape.write() = shape;
        self.reshaped.fetch_add(1, Ordering::SeqCst);
        cache.rows_changed().notify_all();
    }

    /// Calls `read` with a shape in which all of `range` has a place.
    ///
    /// # Errors
    /// Fails with the errors of `read`; with [`Kind::TooManyLosses`] where the bytes were lost by a
    /// failed move.
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
        let is_relocating = |shape: &Shape| {
            let relocating = shape.relocating();
            relocating.start < range.end && range.start < relocating.end
        };
        let shape = self.shape();
        if !is_relocating(&shape) {
            return Ok(shape);
        }
        let mut cache = self.cache.lock();
        let rows_changed = cache.rows_changed();
        while is_relocating(cache.shape()) {
            if self.relocation_lost.load(Ordering::Acquire) {
                let what = "members failed while a reshape moved rows in place";
                return Err(Error::new(Kind::TooManyLosses, what)
                    .advice("attach the missing members, and assemble the array again"));
            }
            cache = cache.wait(&rows_changed);
        }
        Ok(*cache.shape())
    }

    /// Declares the rows lost that are being moved in place, because too many members failed.
    pub(super) fn lose_relocation(&self) {
        // Under the lock, or a reader between its check and its wait would miss the notification.
        let cache = self.cache.lock();
        self.relocation_lost.store(true, Ordering::Release);
        cache.rows_changed().notify_all();
    }
}
