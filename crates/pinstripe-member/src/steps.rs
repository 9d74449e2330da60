//! The hook of the crash tests: it gets every system call of a directory member that changes the
//! disk.
//!
//! A [`Steps`] hook is called around each such system call and decides whether the call is made.
//! Without a hook the calls are made directly, without the cost of paths or closures.

use std::io;
use std::path::Path;

/// One primitive change of the disk that is about to be made. Paths start with the member's own
/// path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskStep<'a> {
    /// A new, empty file is created.
    Create(&'a Path),
    /// Bytes are written into a file.
    Write {
        /// The file.
        path: &'a Path,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes to write; the call may write fewer.
        len: usize,
    },
    /// A file's bytes are made durable.
    SyncFile(&'a Path),
    /// A file gets another name.
    Rename {
        /// The old name of the file.
        from: &'a Path,
        /// The new name of the file.
        to: &'a Path,
    },
    /// A directory's entries are made durable.
    SyncDirectory(&'a Path),
    /// A name of a file is removed.
    Unlink(&'a Path),
    /// A new directory.
    MakeDirectory(&'a Path),
}

/// A hook around the changes that a directory member makes.
pub trait Steps: Send + Sync {
    /// Makes the change by calling `act` once, or refuses it with an error, which the member treats
    /// like an error from the system. `Ok` without a call of `act` is allowed only for
    /// [`DiskStep::SyncFile`] and [`DiskStep::SyncDirectory`]: a test that models durability itself
    /// need not wait for the disk.
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;

    /// The number of free bytes on a member's file system; it overrides a larger value from the
    /// system.
    fn free_bytes(&self, _member: &Path) -> Option<u64> {
        None
    }
}
