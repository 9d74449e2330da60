//! Reads one regular file: open, stat, read, stat again.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Advice, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::xattr::{Xattrs, xattrs_of};
use super::{no_longer, open_failure};
use pinstripe_base::error::{Error, Result};
use pinstripe_io::beneath::{Resolver, check_relative, shown};
use pinstripe_member::meta::{FileKind, Stat};
use pinstripe_member::stat_of;

/// For files of at least this size, the kernel is asked for longer sequential read-ahead.
const BIG_BYTES: u64 = 4 << 20;

/// The largest number of extents of one file that are distinguished (1 MiB of memory). After the
/// last of them, the rest of the file counts as one data range, in which holes read as zeros.
const MAX_EXTENTS: usize = 1 << 16;

/// A regular file, open for reading. Any number of threads may read it at once.
///
/// An ordinary small file costs five system calls: open, fstat, pread, flistxattr, close; one more
/// fstat checks whether it changed.
#[derive(Debug)]
pub struct SourceFile {
    fd: OwnedFd,
    stat: Stat,
    path: Box<[u8]>,
}

impl SourceFile {
    /// Opens `path` below `root`.
    ///
    /// # Errors
    /// Fails with `Kind::Changed` when it is not a regular file any more, with `Kind::Refused` for
    /// a path that is not clean and relative, or with the error of the system (for example, no
    /// permission to read it).
    pub fn open(root: BorrowedFd<'_>, path: &[u8]) -> Result<Self> {
        Self::open_by(Resolver::of_this_kernel(), root, path)
    }

    pub(super) fn open_by(way: Resolver, root: BorrowedFd<'_>, path: &[u8]) -> Result<Self> {
        check_relative(path)?;
        // O_NONBLOCK: a FIFO that took the file's place must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match way.open(root, path, flags | OFlags::NOATIME, Mode::empty()) {
            // Only the owner and root may read without a trace.
            Err(Errno::PERM) => way.open(root, path, flags, Mode::empty()),
            other => other,
        }
        .map_err(|errno| open_failure(path, errno))?;
        let stat = stat_of(fd.as_fd(), path)?;
        if stat.kind != FileKind::File {
            return Err(no_longer(path, FileKind::File.name()));
        }
        if stat.size_bytes >= BIG_BYTES {
            // Advice only: reading is right without it.
            let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Sequential);
        }
        Ok(SourceFile { fd, stat, path: path.into() })
    }

    /// The metadata of the file right after it was opened.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Returns the data ranges of the file, in order and not adjacent; the rest of its size is
    /// holes. The file system is asked only when the file takes less space than its size.
    ///
    /// # Errors
    /// Fails with `Kind::Io` when the file system fails. A file system without support for holes is
    /// not an error.
    pub fn data_extents(&self) -> Result<Vec<Range<u64>>> {
        let size = self.stat.size_bytes;
        if size == 0 {
            return Ok(Vec::new());
        }
        let whole = 0..size;
        if self.stat.blocks.saturating_mul(512) >= size {
            return Ok(vec![whole]);
        }
        self.seek_extents(size, MAX_EXTENTS).or_else(|errno| match errno {
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => Ok(vec![whole]),
            _ => Err(Error::io("cannot find the holes of the file", shown(&self.path), errno)),
        })
    }

    pub(super) fn seek_extents(&self, size: u64, limit: usize) -> Result<Vec<Range<u64>>, Errno> {
        let mut extents = Vec::new();
        let mut at = 0;
        while at < size {
            let start = match rustix::fs::seek(&self.fd, SeekFrom::Data(at)) {
                Ok(start) if start < size => start,
                Ok(_) | Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno),
            };
            let end = if extents.len() + 1 < limit {
                match rustix::fs::seek(&self.fd, SeekFrom::Hole(start)) {
                    Ok(end) => end.min(size),
                    // Truncated meanwhile: the next read finds the new end.
                    Err(Errno::NXIO) => size,
                    Err(errno) => return Err(errno),
                }
            } else {
                size
            };
            extents.push(start..end);
            at = end.max(start + 1);
        }
        Ok(extents)
    }

    /// Reads from `offset` on until `buffer` is full or the file ends; returns the number of bytes
    /// read. Fewer bytes than requested mean that the file ended there.
    ///
    /// # Errors
    /// Fails with the errors of the system, with the file and the offset.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            let rest = &mut buffer[filled..];
            match retry_on_intr(|| rustix::io::pread(&self.fd, &mut *rest, at)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(errno) => {
                    return Err(Error::io(
                        format!("cannot read the file at byte {at}"),
                        shown(&self.path),
                        errno,
                    ));
                }
            }
            // A read that stops at the known size has met the end, without a second call. If the
            // file has grown, `changed_since` reports it.
            if offset + filled as u64 == self.stat.size_bytes {
                break;
            }
        }
        Ok(filled)
    }

    /// Whether the file has changed since `stat` was taken: its size, mtime or ctime differ now.
    /// The removal of a name counts as a change as well, since it changes ctime.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn changed_since(&self, stat: &Stat) -> Result<bool> {
        let now = stat_of(self.fd.as_fd(), &self.path)?;
        let facts = |stat: &Stat| (stat.size_bytes, stat.mtime, stat.ctime);
        Ok(facts(&now) != facts(stat))
    }

    /// Whether the file is longer now than when it was opened.
    ///
    /// # Errors
    /// The errors of the system.
    pub(crate) fn has_grown(&self) -> Result<bool> {
        Ok(stat_of(self.fd.as_fd(), &self.path)?.size_bytes > self.stat.size_bytes)
    }

    /// The extended attributes.
    pub fn xattrs(&self) -> Xattrs {
        xattrs_of(self.fd.as_fd(), &self.path)
    }
}
