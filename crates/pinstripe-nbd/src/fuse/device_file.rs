//! The content of the file: a device, which may be writable.

use std::ops::Range;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Space, Sparse};

/// The content of the file.
pub(crate) struct DeviceFile {
    /// The device.
    pub device: Arc<dyn Sparse>,
    /// Whether writes are refused.
    pub is_read_only: bool,
}

impl DeviceFile {
    /// Writes bytes within the length of the device.
    ///
    /// # Errors
    /// Fails with the errors of the device; with [`Kind::Refused`] if the file is read-only.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.writable()?.write_at(offset, bytes)
    }

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Fails with the errors of the device.
    pub fn sync(&self) -> Result<()> {
        if self.is_read_only { Ok(()) } else { self.device.sync() }
    }

    /// Implements fallocate(2) within the length of the device: punching a hole and zeroing a range
    /// make zeros; reserving space has no effect.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for other modes; with the errors of the device.
    pub fn allocate(&self, range: Range<u64>, mode: i32) -> Result<()> {
        let device = self.writable()?;
        let space = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => return Ok(()),
            libc::FALLOC_FL_PUNCH_HOLE => Space::Free,
            libc::FALLOC_FL_ZERO_RANGE => Space::Keep,
            _ => {
                return Err(Error::new(
                    Kind::Unsupported,
                    "this change of a file is not supported",
                ));
            }
        };
        device.zero(range, space)
    }

    fn writable(&self) -> Result<&Arc<dyn Sparse>> {
        match self.is_read_only {
            false => Ok(&self.device),
            true => Err(Error::new(Kind::Refused, "the file system is read-only")),
        }
    }
}
