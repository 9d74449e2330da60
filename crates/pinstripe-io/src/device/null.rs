//! A device that stores nothing, for measuring everything except the disk.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{ALIGN_BYTES, Caps, Device, end_within, no_room, same_length, too_short, write_parts};
use pinstripe_base::error::Result;

/// A device of fixed length that reads as zeros and drops writes.
pub struct NullDevice {
    place: PathBuf,
    len: u64,
}

impl NullDevice {
    /// A device of `len` bytes; `place` is for messages only.
    pub fn new(place: impl Into<PathBuf>, len: u64) -> Self {
        NullDevice { place: place.into(), len }
    }

    /// Refuses a read beyond the end of the device.
    pub(super) fn check_read(&self, offset: u64, bytes: usize) -> Result<()> {
        if bytes > 0 && end_within(offset, bytes, self.len).is_none() {
            return Err(too_short(&self.place, offset, bytes, self.len));
        }
        Ok(())
    }
}

impl Device for NullDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_read(offset, buf.len())?;
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if !bytes.is_empty() && end_within(offset, bytes.len(), self.len).is_none() {
            return Err(no_room(&self.place, offset, bytes.len(), self.len));
        }
        Ok(())
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        same_length(&self.place, bytes, self.len)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: ALIGN_BYTES, is_block_device: true, device: None }
    }

    fn place(&self) -> &Path {
        &self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rules_of_the_seam_but_no_bytes() {
        crate::device::conformance::run_bounds(&|| Box::new(NullDevice::new("null", 1 << 20)));
        let device = NullDevice::new("null", 1 << 60);
        device.write_at((1 << 60) - 3, b"end").unwrap();
        let mut found = [7; 3];
        device.read_at((1 << 60) - 3, &mut found).unwrap();
        assert_eq!(found, [0; 3]);
    }
}
