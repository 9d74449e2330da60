//! Reading a tree for backup: file content, holes, attributes, link targets.
//!
//! The walk has listed the entries; by the time one is read it may have changed, vanished or become
//! a symlink. An entry that is not what the walk saw any more is [`Kind::Changed`], and never read
//! as if it were.
//!
//! Invariants: opens only below the root that it was given and through no symlink
//! (`pinstripe_io::beneath`); reading leaves no trace in access times where the system allows that;
//! attributes that cannot be read are returned as problems, never dropped. Never waits on a FIFO or
//! a device, never writes.

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

/// The file system's root: what the paths of a backup are relative to.
///
/// # Errors
/// As reported by the system.
pub(crate) fn open_root() -> Result<OwnedFd> {
    open_directory(Path::new("/"))
}

/// A directory to read below.
///
/// # Errors
/// As reported by the system.
pub fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| Error::io("cannot open the directory", path, errno))
}

/// The present metadata of the entry at `path`.
///
/// # Errors
/// The errors of [`read_link`].
pub(crate) fn stat_at(root: BorrowedFd<'_>, path: &[u8]) -> Result<Stat> {
    check_relative(path)?;
    pinstripe_member::stat_of(open_entry(root, path)?.as_fd(), path)
}

/// The target of the symlink at `path` below `root`: its bytes, not resolved.
///
/// # Errors
/// [`Kind::Changed`] when there is no symlink any more, [`Kind::Refused`] for a path that is not
/// clean and relative, otherwise as reported by the system.
pub fn read_link(root: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<u8>> {
    check_relative(path)?;
    let link = open_entry(root, path)?;
    match rustix::fs::readlinkat(&link, b"".as_slice(), Vec::new()) {
        Ok(target) => Ok(target.into_bytes()),
        // Only a symlink has a target: else EINVAL, or ENOENT for an empty path on most kinds.
        Err(Errno::INVAL | Errno::NOENT) => Err(no_longer(path, "a symlink")),
        Err(errno) => Err(Error::io("cannot read the link", shown(path), errno)),
    }
}

/// A handle on the entry itself, whatever its kind; the empty path is the root.
fn open_entry(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    Resolver::of_this_kernel()
        .open(root.as_fd(), path, OFlags::PATH, Mode::empty())
        .map_err(|errno| open_failure(path, errno))
}

/// The error for an entry that the walk saw and that does not open now.
fn open_failure(path: &[u8], errno: Errno) -> Error {
    match errno {
        Errno::NOENT => {
            Error::new(Kind::Changed, "the path vanished before it was read").at(shown(path))
        }
        // A component is now a symlink or a file, or the file is a socket or a driverless node.
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => {
            Error::new(Kind::Changed, "the path was replaced by something else before it was read")
                .at(shown(path))
        }
        _ => failure("cannot open", path, errno),
    }
}

/// The error for an entry that was `kind` when the walk saw it.
fn no_longer(path: &[u8], kind: &str) -> Error {
    Error::new(Kind::Changed, format!("the path is no longer {kind}")).at(shown(path))
}
