//! What the array takes in, and how much of it waits for the members.

use std::time::Duration;

use super::{Array, lock};
use crate::error::{Kind, Result};

/// What waits to be written to the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gathered {
    /// Bytes, of rows that are being written too.
    pub bytes: u64,
    /// When the first byte came of the row that gathers longest.
    pub oldest: Option<Duration>,
    /// Whether there is a row that is full.
    pub has_full: bool,
}

impl Array {
    /// Takes bytes to be written at `offset`; they are on the members when a flusher put them there. Returns
    /// what waits then.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] beyond the end.
    pub fn write(&self, offset: u64, bytes: &[u8], now: Duration) -> Result<Gathered> {
        self.check(offset, bytes.len(), Kind::NoSpace)?;
        let mut cache = lock(&self.cache);
        for span in self.geometry.spans(offset..offset + bytes.len() as u64) {
            let from = (span.user.start - offset) as usize;
            cache.write(&span, &bytes[from..from + span.column.len()], now);
        }
        Ok(cache.gathered())
    }

    /// What waits to be written.
    pub fn gathered(&self) -> Gathered {
        lock(&self.cache).gathered()
    }

    /// Bytes that are written and not on the members yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.gathered().bytes
    }
}

impl crate::array::cache::Cache {
    fn gathered(&self) -> Gathered {
        Gathered { bytes: self.bytes(), oldest: self.oldest(), has_full: self.has_full() }
    }
}
