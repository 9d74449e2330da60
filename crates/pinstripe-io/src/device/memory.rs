//! A device in memory: for tests, and wherever no disk is needed.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{ALIGN_BYTES, Caps, Device, end_within, no_room, too_short, write_parts};
use pinstripe_base::error::Result;
use pinstripe_base::sync;
use pinstripe_base::units::GIB;

/// Bytes in memory that grow up to a limit.
pub struct MemoryDevice {
    place: PathBuf,
    most_bytes: u64,
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// An empty device of at most 1 GiB; `place` is for messages only.
    pub fn new(place: impl Into<PathBuf>) -> Self {
        Self::with_limit(place, GIB)
    }

    /// An empty device that is full at `most_bytes`.
    pub fn with_limit(place: impl Into<PathBuf>, most_bytes: u64) -> Self {
        MemoryDevice { place: place.into(), most_bytes, bytes: RwLock::default() }
    }

    /// A copy of the entire content.
    pub fn to_vec(&self) -> Vec<u8> {
        self.read().clone()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        sync::read(&self.bytes)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        sync::write(&self.bytes)
    }
}

impl Device for MemoryDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.read();
        match end_within(offset, buf.len(), bytes.len() as u64) {
            Some(end) => buf.copy_from_slice(&bytes[offset as usize..end as usize]),
            None if buf.is_empty() => {}
            None => return Err(too_short(&self.place, offset, buf.len(), bytes.len() as u64)),
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = end_within(offset, bytes.len(), self.most_bytes)
            .ok_or_else(|| no_room(&self.place, offset, bytes.len(), self.most_bytes))?;
        let mut all = self.write();
        if (all.len() as u64) < end {
            all.resize(end as usize, 0);
        }
        all[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        write_parts(self, offset, parts)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.read().len() as u64)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        if bytes > self.most_bytes {
            return Err(no_room(&self.place, bytes, 0, self.most_bytes));
        }
        self.write().resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let mut bytes = self.write();
        let clamp = |at: u64| at.min(bytes.len() as u64) as usize;
        let (start, end) = (clamp(range.start), clamp(range.end));
        if start < end {
            bytes[start..end].fill(0);
        }
        Ok(())
    }

    fn caps(&self) -> Caps {
        Caps { align_bytes: ALIGN_BYTES, is_block_device: false, device: None }
    }

    fn place(&self) -> &Path {
        &self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{SharedDevice, conformance};
    use pinstripe_base::error::Kind;
    use std::sync::Arc;

    #[test]
    fn keeps_the_rules_of_the_seam() {
        conformance::run(&|| Box::new(MemoryDevice::new("memory")));
        conformance::run(&|| {
            let shared: SharedDevice = Arc::new(MemoryDevice::new("shared"));
            Box::new(shared)
        });
    }

    #[test]
    fn it_is_full_at_its_limit() {
        let device = MemoryDevice::with_limit("small", 10);
        device.write_at(6, b"four").unwrap();
        assert_eq!(device.write_at(7, b"four").unwrap_err().kind(), Kind::NoSpace);
        assert_eq!(device.set_len(11).unwrap_err().kind(), Kind::NoSpace);
        assert_eq!(device.to_vec(), b"\0\0\0\0\0\0four");
    }
}
