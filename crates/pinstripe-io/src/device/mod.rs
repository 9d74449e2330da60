//! The interface to block devices: a run of bytes that can be read and written at any offset.
//!
//! A device is a file, a block device or memory; a wrapper of a device (see `fault/`) is also a
//! device. Every call moves a whole buffer or fails. Methods take `&self`, the trait is object safe
//! and has no default bodies, so that a wrapper cannot silently miss a new method. Whether bytes go
//! through the page cache or bypass it is determined by the [`Policy`] with which a [`FileDevice`]
//! was opened.
//!
//! Invariants of every implementation, tested by one conformance suite:
//! - a read returns the last write, at once and on every thread; bytes never written are zeros;
//! - writes to ranges that do not overlap may be made at the same time, with any alignment;
//! - after `sync` returned, everything that was written before the call survives a power cut; after
//!   a `sync` failed, every later one fails, since it is unknown what was lost.
//!
//! Not in this module: threads, queues, and the meaning of the bytes.

#![allow(
    clippy::disallowed_methods,
    reason = "this module reads and writes files and disks as devices"
)]

pub mod buffer;
mod engine;
mod file;
mod forward;
mod holder;
mod memory;
mod null;
mod pattern;
pub mod policy;
pub mod ring;
mod shared;
mod sparse;
mod watched;

pub mod conformance;
#[cfg(test)]
pub(crate) mod testing;

pub use buffer::{AlignedBuf, BufferPool, WriteBuf};
pub use engine::Engine;
pub use file::{Access, FileDevice};
pub use holder::{Holder, holder, holder_besides, refuse_held};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use pattern::PatternDevice;
pub use policy::{Fallback, Policy};
pub use ring::{Completion, Ring};
pub use sparse::{Run, Space, Sparse};
pub use watched::{Unwatched, WatchedDevice, give_up_overdue, is_overdue, within};

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};

/// The properties of a device, queried once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Under [`Policy::Direct`], offsets and lengths that are multiples of this bypass the page
    /// cache; a power of two.
    pub align_bytes: u32,
    /// Whether the device is a disk with a fixed length.
    pub is_block_device: bool,
    /// The device number of a block device (st_rdev), or of the device that a file is on (st_dev),
    /// if there is one: objects with the same number fail together.
    pub device: Option<u64>,
}

/// A run of bytes that can be read and written at any offset: a file, a block device, memory.
#[allow(clippy::len_without_is_empty)] // A device is asked for its length, never whether it has one.
pub trait Device: Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] beyond the end; otherwise with the errors of the system. After
    /// an error, the content of `buf` is unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `bytes` at `offset`; a device that can grow does, with zeros in the gap.
    ///
    /// # Errors
    /// Fails with [`Kind::NoSpace`] beyond the end of a device that cannot grow, and on a full
    /// disk; otherwise with the errors of the system. After an error, any part of `bytes` may have
    /// been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes consecutive parts from `offset` on, with the same result as
    /// [`write_at`](Self::write_at) of the joined parts. This method is meant for long runs: a
    /// device may write them in another way.
    ///
    /// # Errors
    /// Fails with the errors of [`write_at`](Self::write_at).
    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    fn len(&self) -> Result<u64>;

    /// Cuts the device to this length, or extends it with zeros.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for a new length if the length of the device is fixed;
    /// otherwise with the errors of the system.
    fn set_len(&self, bytes: u64) -> Result<()>;

    /// Makes everything written so far survive a power cut.
    ///
    /// # Errors
    /// Fails with the errors of the system; after the first failure, every call returns that error.
    fn sync(&self) -> Result<()>;

    /// Announces that the bytes in `range` are no longer needed: each byte then reads as zero or as
    /// before.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] where space cannot be freed; otherwise with the errors of
    /// the system.
    fn discard(&self, range: Range<u64>) -> Result<()>;

    /// The properties.
    fn caps(&self) -> Caps;

    /// The path, for messages.
    fn place(&self) -> &Path;
}

/// A device that several threads share.
pub type SharedDevice = Arc<dyn Device>;

/// The alignment that devices other than disks report.
const ALIGN_BYTES: u32 = buffer::BUFFER_ALIGN as u32;

/// Implements [`Device::write_long_at`] for a device that has no faster way than single writes.
///
/// # Errors
/// Fails with the errors of [`Device::write_at`].
pub fn write_parts(device: &dyn Device, offset: u64, parts: &[&[u8]]) -> Result<()> {
    let mut at = offset;
    for part in parts {
        device.write_at(at, part)?;
        at = at.saturating_add(part.len() as u64);
    }
    Ok(())
}

/// The error of a read beyond the end of a device.
pub fn too_short(place: &Path, offset: u64, wanted: usize, len: u64) -> Error {
    let end = u128::from(offset) + wanted as u128;
    Error::corrupt("the device ends before this range", place)
        .expected(format!("a length of {end} bytes or more"), len)
}

/// The error of a write beyond the end of a device that cannot grow that far.
pub fn no_room(place: &Path, offset: u64, wanted: usize, len: u64) -> Error {
    let end = u128::from(offset) + wanted as u128;
    Error::new(Kind::NoSpace, "the write would end beyond the end of the device")
        .at(place)
        .expected(format!("an end at byte {len} at most"), end)
}

/// The end of `wanted` bytes from `offset`; `None` if it is beyond `len`.
pub fn end_within(offset: u64, wanted: usize, len: u64) -> Option<u64> {
    offset.checked_add(wanted as u64).filter(|end| *end <= len)
}

/// Accepts `bytes` as a new length only if the device already has that length.
pub fn same_length(place: &Path, bytes: u64, len: u64) -> Result<()> {
    if bytes == len {
        return Ok(());
    }
    let error = Error::new(Kind::Unsupported, "the length of this device cannot be changed");
    Err(error.at(place).expected(len, bytes))
}
