//! Where the rows of an array lie, which changes while it grows.
//!
//! Whoever reads does so by one shape, and again if it changed meanwhile: what was read may have been written
//! over since. What is written gathers by the shape of the cache, under the cache's lock.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Array, lock};
use crate::array::geometry::Shape;
use crate::error::{Error, Kind, Result};

impl Array {
    /// Where its rows lie now.
    pub(super) fn shape(&self) -> Shape {
        *self.shape.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says where its rows lie from now on. Only the flusher does, between batches.
    pub(super) fn reshape(&self, shape: Shape) {
        let mut cache = lock(&self.cache);
        cache.reshape(shape);
        *self.shape.write().unwrap_or_else(PoisonError::into_inner) = shape;
        self.reshaped.fetch_add(1, Ordering::SeqCst);
        cache.landed().notify_all();
    }

    /// Reads by one shape, of which a range of user bytes lies somewhere.
    ///
    /// # Errors
    /// As `read` does; [`Kind::TooManyLosses`] where the bytes lie nowhere, and will not.
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

    /// The shape when none of a range is being moved over itself.
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
                let what = "members failed while rows were moved over themselves";
                return Err(Error::new(Kind::TooManyLosses, what)
                    .advice("bring members back, and assemble the array again"));
            }
            cache = landed.wait(cache).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(*cache.shape())
    }

    /// Says that rows which are being moved over themselves will lie nowhere: too many members failed.
    pub(super) fn give_up_rows(&self) {
        let cache = lock(&self.cache);
        self.is_torn_up.store(true, Ordering::Release);
        cache.landed().notify_all();
    }
}
