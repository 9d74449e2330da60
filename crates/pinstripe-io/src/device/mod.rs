//! The block seam: one run of bytes that can be read and written anywhere.
//!
//! A device is a file, a block device or memory; a wrapper (see `fault/`) is one as well. Every
//! call moves a whole buffer or fails. Methods take `&self`, the trait is object safe and has no
//! default bodies, so a wrapper cannot silently skip a new call. How bytes get to the disk, past
//! the page cache or through it, is the [`Policy`] with which a [`FileDevice`] was opened.
//!
//! Invariants every implementation keeps, tested by the one conformance suite:
//! - a read returns the last write, at once and on every thread; bytes never written are zeros;
//! - writes to ranges that do not overlap may be made at the same time, with any alignment;
//! - after `sync` returned, all that was written before it was called survives a power cut; after a
//!   `sync` failed, every later one fails, since it is unknown what was lost.
//!
//! Not in this module: threads, queues, and any meaning of the bytes.

#![allow(clippy::disallowed_methods, reason = "files and disks are devices")]

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

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};

/// The properties of a device, queried once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Offsets and lengths that are multiples of this go past the page cache without a detour
    /// under [`Policy::Direct`]; a power of two.
    pub align_bytes: u32,
    /// Whether its length is given by a disk and cannot be changed.
    pub is_block_device: bool,
    /// The device (st_dev) that a file is on, or that a block device is (st_rdev), if there is one:
    /// devices that share it share its fate.
    pub device: Option<u64>,
}

/// One run of bytes that can be read and written anywhere: a file, a block device, memory.
#[allow(clippy::len_without_is_empty)] // A device is asked for its length, never whether it has one.
pub trait Device: Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] beyond the end; otherwise as reported by the system. What `buf` holds then
    /// is not said.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `bytes` at `offset`; what grows grows, with zeros in between.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] beyond the end of what cannot grow, and on a full disk; otherwise as
    /// reported by the system. Any part of `bytes` may have been written then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes parts one behind the other from `offset` on, as [`write_at`](Self::write_at) would
    /// write them joined. Meant for long runs: a device may move them another way.
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at).
    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// As reported by the system.
    fn len(&self) -> Result<u64>;

    /// Cuts or extends it, with zeros.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where the length is fixed and another one; otherwise as reported by
    /// the system.
    fn set_len(&self, bytes: u64) -> Result<()>;

    /// Makes everything written so far survive a power cut.
    ///
    /// # Errors
    /// As reported by the system; after the first failure always that one.
    fn sync(&self) -> Result<()>;

    /// Announces that the bytes in `range` are not needed any more: each then reads as zero or as
    /// before.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where space cannot be given back; otherwise as reported by the system.
    fn discard(&self, range: Range<u64>) -> Result<()>;

    /// The properties.
    fn caps(&self) -> Caps;

    /// The path, for messages.
    fn place(&self) -> &Path;
}

/// A device that several threads hold.
pub type SharedDevice = Arc<dyn Device>;

/// The alignment that devices other than disks report.
const ALIGN_BYTES: u32 = buffer::BUFFER_ALIGN as u32;

/// [`Device::write_long_at`] of a device that gains nothing by taking the parts at once.
///
/// # Errors
/// The errors of [`Device::write_at`].
pub fn write_parts(device: &dyn Device, offset: u64, parts: &[&[u8]]) -> Result<()> {
    let mut at = offset;
    for part in parts {
        device.write_at(at, part)?;
        at = at.saturating_add(part.len() as u64);
    }
    Ok(())
}

/// The error of a read beyond the end.
pub fn too_short(place: &Path, offset: u64, wanted: usize, len: u64) -> Error {
    let end = u128::from(offset) + wanted as u128;
    Error::corrupt("ends too early", place)
        .expected(format!("a length of {end} bytes or more"), len)
}

/// The error of a write beyond the end of what cannot grow so far.
pub fn no_room(place: &Path, offset: u64, wanted: usize, len: u64) -> Error {
    let end = u128::from(offset) + wanted as u128;
    Error::new(Kind::NoSpace, "the write would end beyond the end of the device")
        .at(place)
        .expected(format!("an end at byte {len} at most"), end)
}

/// The end of `wanted` bytes from `offset`, if it is not beyond `len`.
pub fn end_within(offset: u64, wanted: usize, len: u64) -> Option<u64> {
    offset.checked_add(wanted as u64).filter(|end| *end <= len)
}

/// Accepts `bytes` as the length of a device only if it has that length already.
pub fn same_length(place: &Path, bytes: u64, len: u64) -> Result<()> {
    if bytes == len {
        return Ok(());
    }
    let error = Error::new(Kind::Unsupported, "the length of this device cannot be changed");
    Err(error.at(place).expected(len, bytes))
}
