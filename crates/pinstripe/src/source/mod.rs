//! Reads a tree for backup: file content, holes, attributes, link targets.
//!
//! The walk has listed the entries; when an entry is read it may have changed, vanished or become a
//! symlink. An entry that is not any more what the walk saw fails with [`Kind::Changed`], and is
//! never read as if it were.
//!
//! Invariants: files are opened only below the given root and through no symlink
//! (`pinstripe_io::beneath`). Reading does not change access times where the system allows that.
//! Attributes that cannot be read are returned as problems, never dropped. This module never waits
//! on a FIFO or a device, and never writes.

#![allow(clippy::disallowed_methods, reason = "reads files to back up")]

mod file;
#[cfg(test)]
mod tests;
mod xattr;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::{Resolver, check_relative, failure, shown};
use pinstripe_member::meta::Stat;

pub use file::SourceFile;
pub use xattr::{Xattrs, xattrs_at};

/// Opens the file system's root, to which the paths of a backup are relative.
///
/// # Errors
/// Fails with the error of the system.
pub(crate) fn open_root() -> Result<OwnedFd> {
    open_directory(Path::new("/"))
}

/// Opens a directory below which files are read.
///
/// # Errors
/// Fails with the error of the system.
pub fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| Error::io("cannot open the directory", path, errno))
}

/// Returns the present metadata of the entry at `path`.
///
/// # Errors
/// Fails with the errors of [`read_link`].
pub(crate) fn stat_at(root: BorrowedFd<'_>, path: &[u8]) -> Result<Stat> {
    check_relative(path)?;
    pinstripe_member::stat_of(open_entry(root, path)?.as_fd(), path)
}

/// Whether there is no entry at `path` now.
pub(crate) fn is_gone(root: BorrowedFd<'_>, path: &[u8]) -> bool {
    let opened = Resolver::of_this_kernel().open(root, path, OFlags::PATH, Mode::empty());
    opened.is_err_and(|errno| errno == Errno::NOENT)
}

/// Returns the target of the symlink at `path` below `root` as bytes, without resolving it.
///
/// # Errors
/// Fails with [`Kind::Changed`] when it is not a symlink any more, with [`Kind::Refused`] for a
/// path that is not clean and relative, or with the error of the system.
pub fn read_link(root: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<u8>> {
    check_relative(path)?;
    let link = open_entry(root, path)?;
    match rustix::fs::readlinkat(&link, b"".as_slice(), Vec::new()) {
        Ok(target) => Ok(target.into_bytes()),
        // Only a symlink has a target: else EINVAL, or ENOENT for an empty path on most kinds.
        Err(Errno::INVAL | Errno::NOENT) => Err(no_longer(path, "a symlink")),
        Err(errno) => Err(Error::io("cannot read the symbolic link", shown(path), errno)),
    }
}

/// Opens the entry itself with `O_PATH`, whatever its type; the empty path is the root.
fn open_entry(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    Resolver::of_this_kernel()
        .open(root.as_fd(), path, OFlags::PATH, Mode::empty())
        .map_err(|errno| open_failure(path, errno))
}

/// Returns the error for an entry that the walk saw and that cannot be opened now.
fn open_failure(path: &[u8], errno: Errno) -> Error {
    match errno {
        Errno::NOENT => {
            Error::new(Kind::Changed, "the file at this path was removed before it was read")
                .at(shown(path))
        }
        // A component is now a symlink or a file, or the file is a socket or a driverless node.
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => {
            Error::new(Kind::Changed, "the file at this path was replaced before it was read")
                .at(shown(path))
        }
        _ => failure("cannot open", path, errno),
    }
}

/// Returns the error for an entry that was of type `kind` when the walk saw it.
fn no_longer(path: &[u8], kind: &str) -> Error {
    Error::new(Kind::Changed, format!("this path is no longer {kind}")).at(shown(path))
}
