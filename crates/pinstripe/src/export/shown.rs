//! The content of the file: a source, or a device that may be written as well.

use std::ops::Range;
use std::sync::Arc;

use crate::device::{Space, Sparse};
use crate::error::{Error, Kind, Result};
use crate::source::bulk::Bulk;

/// The content of the file.
pub enum Shown {
    /// Read only.
    Source(Box<dyn Bulk>),
    /// Read, and written where that is allowed.
    Device {
        /// The device.
        device: Arc<dyn Sparse>,
        /// Whether nothing may be written.
        is_read_only: bool,
    },
}

impl Shown {
    /// Its length.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a source without a known length; those of the device.
    pub fn bytes(&self) -> Result<u64> {
        match self {
            Shown::Device { device, .. } => device.len(),
            Shown::Source(source) => source.length().ok_or_else(|| {
                let what = "its length is not known, so it cannot be shown as a file";
                Error::new(Kind::Unsupported, what).at(source.place())
            }),
        }
    }

    /// Whether it is a device: others may write to it meanwhile.
    pub fn is_device(&self) -> bool {
        matches!(self, Shown::Device { .. })
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        matches!(self, Shown::Device { is_read_only: false, .. })
    }

    /// Reads within the length, and returns how many bytes.
    ///
    /// # Errors
    /// Those of the source or device.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self {
            Shown::Source(source) => source.read_at(offset, buf),
            Shown::Device { device, .. } => device.read_at(offset, buf).map(|()| buf.len()),
        }
    }

    /// Writes within the length.
    ///
    /// # Errors
    /// Those of the device; [`Kind::Refused`] where nothing may be written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.writable()?.write_at(offset, bytes)
    }

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&self) -> Result<()> {
        match self {
            Shown::Device { device, is_read_only: false } => device.sync(),
            _ => Ok(()),
        }
    }

    /// Implements fallocate(2) within the length, by its mode: a hole is zeros, and so is a range
    /// of zeros; reserving space is a no-op.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for other modes; those of the device.
    pub fn allocate(&self, range: Range<u64>, mode: i32) -> Result<()> {
        let device = self.writable()?;
        let space = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => return Ok(()),
            libc::FALLOC_FL_PUNCH_HOLE => Space::Free,
            libc::FALLOC_FL_ZERO_RANGE => Space::Keep,
            _ => return Err(Error::new(Kind::Unsupported, "no such change of a file")),
        };
        device.zero(range, space)
    }

    fn writable(&self) -> Result<&Arc<dyn Sparse>> {
        match self {
            Shown::Device { device, is_read_only: false } => Ok(device),
            _ => Err(Error::new(Kind::Refused, "nothing may be written")),
        }
    }
}
