//! One huge source that many readers take ranges of: a file, a block device, a pipe, or made-up
//! bytes.
//!
//! [`open`] finds out which it is; [`Units`] hands out the source to readers, in order, a unit at
//! a time, without reading what is a hole.
//!
//! Invariants: a source has the length that it had when it was opened. An earlier end is an error
//! that names the place; it is never filled up, and no reader waits for more. Bytes that a file
//! grew by since then are not read. Nothing is allocated per range: the reader brings the buffer.
//! Not in this module: threads, and the use of the bytes. Unlike the rest of `source/`, [`open`]
//! follows symlinks, since its caller named the source itself (`/dev/disk/by-id/...`).

#![allow(clippy::disallowed_methods, reason = "opens the source that was named")]

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

/// One long run of bytes.
pub trait ByteSource: Send + Sync {
    /// The bytes; `None` while they can only be found out by reading to the end (a pipe).
    fn length(&self) -> Option<u64>;

    /// The name in messages.
    fn place(&self) -> &Path;

    /// The identity that tells it from a changed or another source; `None` where there is none (a
    /// pipe).
    fn identity(&self) -> Option<Identity>;

    /// The kind of the bytes from `at`, which is below the length: data or a hole, and where that
    /// ends. `at` may be in the middle of it.
    ///
    /// # Errors
    /// [`Kind::Io`] as reported by the system.
    fn extent(&self, at: u64) -> Result<Extent>;

    /// Reads from `offset` on until the buffer is full, and returns how many bytes it now has:
    /// fewer than it is long only where the source ends. Holes read as zeros. Any number of threads
    /// may read at once.
    ///
    /// # Errors
    /// [`Kind::Changed`] when it ends before its [`length`](Self::length); [`Kind::Unsupported`]
    /// when it can only be read from front to back and `offset` is not where the last reading
    /// ended; otherwise as reported by the system, with the byte.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Announces that this range will be read soon. Only a hint.
    fn readahead(&self, range: Range<u64>);
}

/// Data or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first byte that is not part of it, at most the length; `u64::MAX` when that is unknown.
    pub end: u64,
    /// Whether it reads as zeros because there is nothing.
    pub is_hole: bool,
}

/// Opens what `name` says: `-` is `standard_input`, `fake:...` a generator ([`FakeSpec`] says
/// what may follow), everything else the path of a file, block device, character device or FIFO.
/// A file that is really called `fake:...` is reached as `./fake:...`. Opening a FIFO waits for
/// its writer.
///
/// # Errors
/// [`Kind::Usage`] for a path that is not a source (a directory, a socket) and for an impossible
/// generator; otherwise those of the system.
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
        _ => Error::io("cannot open the source", path, errno),
    })
}

/// Reads a descriptor by its kind.
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

/// Whether the source is read from its beginning and its size is reliable. Standard input continues
/// where another process left it, and files generated by /proc and /sys have no size: both are
/// streams.
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
        format!("the source is {what}, which cannot be read as one sequence of bytes"),
    )
    .at(place)
    .advice("name a file, a block device, a FIFO, '-' or 'fake:SIZE'")
}
