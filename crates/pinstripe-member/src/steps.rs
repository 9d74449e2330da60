//! The hook of the crash tests: every system call of a directory member that changes the disk.
//!
//! A [`Steps`] stands around each such call and decides whether it happens. Without one the calls
//! are made directly and nothing is built for it: no paths, no closures on the heap.

use std::io;
use std::path::Path;

/// One primitive change of the disk, about to be made. Paths start with the member's own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskStep<'a> {
    /// A new, empty file.
    Create(&'a Path),
    /// Bytes written into a file.
    Write {
        /// The file.
        path: &'a Path,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes offered; the call may take fewer.
        len: usize,
    },
    /// A file's bytes made durable.
    SyncFile(&'a Path),
    /// A file gets another name.
    Rename {
        /// The name it loses.
        from: &'a Path,
        /// The name it gets.
        to: &'a Path,
    },
    /// A directory's entries made durable.
    SyncDirectory(&'a Path),
    /// A file loses its name.
    Unlink(&'a Path),
    /// A new directory.
    MakeDirectory(&'a Path),
}

/// Stands around the changes that a directory member makes.
pub trait Steps: Send + Sync {
    /// Makes the change by calling `act` once, or refuses it with an error, which the member
    /// then meets as if the system had given it. Returning `Ok` without calling `act` is allowed
    /// for [`DiskStep::SyncFile`] and [`DiskStep::SyncDirectory`] alone: a test that keeps its own books
    /// of what is durable need not wait for the disk.
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;

    /// The bytes that a member's file system has left, where that is to be less than it says.
    fn free_bytes(&self, _member: &Path) -> Option<u64> {
        None
    }
}
