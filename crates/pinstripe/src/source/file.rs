//! One regular file: open, stat, read, stat again.

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

/// From this size on the kernel is asked for its longer sequential read-ahead.
const BIG_BYTES: u64 = 4 << 20;

/// The number of extents of one file that are distinguished (1 MiB of memory). Behind the last of
/// them the file counts as one run of data, in which holes read as zeros.
const MAX_EXTENTS: usize = 1 << 16;

/// A regular file, open for reading. Shared by as many threads as read it.
///
/// An ordinary small file costs five system calls: open, fstat, pread, flistxattr, close; one
/// more fstat asks whether it changed.
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
    /// `Kind::Changed` when it is no longer a regular file, `Kind::Refused` for a path that is not
    /// clean and relative, otherwise those of the system (no right to read it).
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

    /// The data of the file as ranges, in order, not touching each other; the rest of its size is
    /// holes. Asks the file system only when the file takes less space than its size.
    ///
    /// # Errors
    /// `Kind::Io` when the file system fails. A file system without support for holes is not an
    /// error.
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

    /// Reads from `offset` on until `buffer` is full or the file ends; returns the bytes read.
    /// Fewer than asked for means that the file ended there.
    ///
    /// # Errors
    /// The errors of the system, with the file and the offset.
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

    /// Whether the file is no longer what `stat` says: size, mtime or ctime differ now. The
    /// removal of its name counts as well, since it moves ctime.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn changed_since(&self, stat: &Stat) -> Result<bool> {
        let now = stat_of(self.fd.as_fd(), &self.path)?;
        let facts = |stat: &Stat| (stat.size_bytes, stat.mtime, stat.ctime);
        Ok(facts(&now) != facts(stat))
    }

    /// The extended attributes.
    pub fn xattrs(&self) -> Xattrs {
        xattrs_of(self.fd.as_fd(), &self.path)
    }
}
