//! One huge source that many readers read in ranges: a file, a block device, a pipe, or a
//! generator.
//!
//! [`open`] finds out which kind of source it is; [`Units`] hands out the source to readers, in
//! order, one unit at a time, and does not read holes.
//!
//! Invariants: a source has the length that it had when it was opened. If a source ends earlier,
//! reading fails with an error that gives the offset; the missing bytes are never replaced, and no
//! reader waits for them. Bytes that were appended to a file after it was opened are not read.
//! No memory is allocated per range: the reader provides the buffer. Not in this module: threads,
//! and how the bytes are used. Unlike the other functions of `source/`, [`open`] follows symlinks,
//! since its caller named the source itself (`/dev/disk/by-id/...`).

#![allow(clippy::disallowed_methods, reason = "this module opens the given source")]

mod device;
mod fake;
mod file;
mod pipe;
#[cfg(test)]
mod tests;
mod units;

use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

pub use crate::format::Identity;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::stat_of;

use pinstripe_member::meta::{FileKind, Stat};

pub use device::SourceDevice;
pub use fake::{Fake, FakeSpec, Millionths};
pub(crate) use file::BulkFile;
pub use pipe::Pipe;
pub use units::{SourcePiece, Units};

/// The name of standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// One long sequence of bytes.
pub trait ByteSource: Send + Sync {
    /// The length in bytes; `None` while it can only be found by reading to the end (a pipe).
    fn length(&self) -> Option<u64>;

    /// The source's name in messages.
    fn place(&self) -> &Path;

    /// The identity that distinguishes the source from a changed one or another one; `None` if it
    /// has no identity (a pipe).
    fn identity(&self) -> Option<Identity>;

    /// Returns whether there is data or a hole at `at`, which is below the length, and where that
    /// range ends. `at` may be in the middle of the range.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] and the error of the system.
    fn extent(&self, at: u64) -> Result<Extent>;

    /// Reads from `offset` on until the buffer is full, and returns the number of bytes read, which
    /// is less than the buffer's length only at the end of the source. Holes read as zeros. Any
    /// number of threads may read at once.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`] when the source ends before its [`length`](Self::length), with
    /// [`Kind::Unsupported`] when it is a stream and `offset` is not where the last read ended, or
    /// otherwise with the error of the system and its offset.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Hint: this range will be read soon. Only a hint.
    fn readahead(&self, range: Range<u64>);
}

/// A range of data, or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The offset of the first byte after the range, at most the length; `u64::MAX` when the end is
    /// unknown.
    pub end: u64,
    /// Whether the range is a hole, which reads as zeros because nothing is stored.
    pub is_hole: bool,
}

/// Opens the source called `name`: `-` is `standard_input`, `fake:...` a generator (see
/// [`FakeSpec`]), everything else the path of a file, block device, character device or FIFO. A
/// file whose name begins with `fake:` is given as `./fake:...`. Opening a FIFO waits until a
/// process opens it for writing.
///
/// # Errors
/// Fails with [`Kind::Usage`] for a path that is not a source (a directory, a socket) and for an
/// impossible generator, or with the errors of the system.
pub fn open(name: &OsStr, standard_input: BorrowedFd<'_>) -> Result<Box<dyn ByteSource>> {
    if name == "-" {
        let place = Path::new(STANDARD_INPUT);
        let fd = standard_input.try_clone_to_owned();
        let fd = fd.map_err(|error| {
            Error::io("cannot duplicate the descriptor of the source", place, error)
        })?;
        return by_kind(fd, place);
    }
    match name.to_str() {
        Some(text) if text.starts_with(fake::PREFIX) => Ok(Box::new(Fake::new(text.parse()?)?)),
        _ => by_kind(open_path(Path::new(name))?, Path::new(name)),
    }
}

fn open_path(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let open = |flags| retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
    match open(flags | OFlags::NOATIME) {
        // Only the owner and root may read without a trace.
        Err(Errno::PERM) => open(flags),
        other => other,
    }
    .map_err(|errno| match errno {
        Errno::NXIO => no_source(path, "a socket, or a missing device"),
        _ => Error::of_named("cannot open the source", path, errno),
    })
}

/// Makes a source of a descriptor, by its file type.
fn by_kind(fd: OwnedFd, place: &Path) -> Result<Box<dyn ByteSource>> {
    let stat = stat_of(fd.as_fd(), place.as_os_str().as_encoded_bytes())?;
    match stat.kind {
        FileKind::Directory => Err(no_source(place, "a directory")),
        FileKind::File | FileKind::BlockDevice if is_at_its_beginning(fd.as_fd(), &stat) => {
            Ok(Box::new(BulkFile::new(fd, place, &stat)?))
        }
        _ => Ok(Box::new(Pipe::new(fd, place))),
    }
}

/// Whether the descriptor is at the beginning of the source and the reported size is reliable.
/// Standard input may begin where another process stopped reading, and files generated by /proc and
/// /sys have no size: both are treated as streams.
fn is_at_its_beginning(fd: BorrowedFd<'_>, stat: &Stat) -> bool {
    let has_size = || {
        let mut byte = [0];
        stat.kind != FileKind::File
            || stat.size_bytes > 0
            || !matches!(retry_on_intr(|| rustix::io::pread(fd, &mut byte, 0)), Ok(1))
    };
    rustix::fs::tell(fd) == Ok(0) && has_size()
}

fn no_source(place: &Path, what: &str) -> Error {
    Error::new(
        Kind::Usage,
        format!("the source is {what}, which cannot be read as a sequence of bytes"),
    )
    .at(place)
    .advice("give a file, a block device, a FIFO, '-' or 'fake:SIZE'")
}
