//! A source that is read as a read-only device.

use std::ops::Range;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Caps, Device, Run, Space, Sparse, end_within, too_short};

use super::ByteSource;

/// A source that is read as a read-only device.
pub struct SourceDevice {
    source: Box<dyn ByteSource>,
    bytes: u64,
}

impl SourceDevice {
    /// Makes a device of a source whose length is known.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for a source without a known length.
    pub fn new(source: Box<dyn ByteSource>) -> Result<Self> {
        let Some(bytes) = source.length() else {
            let what = "the length of this device is unknown, so it cannot be shown as a file";
            return Err(Error::new(Kind::Unsupported, what).at(source.place()));
        };
        Ok(SourceDevice { source, bytes })
    }

    fn read_only<T>(&self) -> Result<T> {
        Err(Error::new(Kind::Unsupported, "a source cannot be written").at(self.place()))
    }

    fn check(&self, offset: u64, wanted: usize) -> Result<()> {
        match end_within(offset, wanted, self.bytes) {
            Some(_) => Ok(()),
            None => Err(too_short(self.place(), offset, wanted, self.bytes)),
        }
    }
}

impl Device for SourceDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        self.source.read_at(offset, buf).map(drop)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        self.read_only()
    }

    fn write_long_at(&self, _: u64, _: &[&[u8]]) -> Result<()> {
        self.read_only()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        self.read_only()
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        self.read_only()
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: 1, is_block_device: false, device: None }
    }

    fn place(&self) -> &Path {
        self.source.place()
    }
}

impl Sparse for SourceDevice {
    fn run(&self, range: Range<u64>) -> Result<Run> {
        self.check(range.start, usize::from(range.start < range.end))?;
        let extent = self.source.extent(range.start)?;
        let bytes = extent.end.min(range.end) - range.start;
        Ok(Run { bytes, is_hole: extent.is_hole })
    }

    fn zero(&self, _: Range<u64>, _: Space) -> Result<()> {
        self.read_only()
    }
}
