//! A source that ends with an error when the case is asked to stop.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_split::{ByteSource, Extent, Identity};

/// A source that delivers the bytes of another source until the case is asked to stop.
pub struct Stopped {
    pub source: Box<dyn ByteSource>,
    pub stop: Arc<AtomicBool>,
}

impl ByteSource for Stopped {
    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn place(&self) -> &Path {
        self.source.place()
    }

    fn identity(&self) -> Option<Identity> {
        self.source.identity()
    }

    fn extent(&self, at: u64) -> Result<Extent> {
        self.source.extent(at)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new(Kind::Interrupted, "stopped before the source was split")),
            false => self.source.read_at(offset, buffer),
        }
    }

    fn readahead(&self, range: Range<u64>) {
        self.source.readahead(range);
    }
}
