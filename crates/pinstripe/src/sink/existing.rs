//! An existing regular file that may be kept completely or in part.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::apply_metadata::{Handle, Unset};
use super::{Root, TreeSink};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::{check_relative, shown};
use pinstripe_member::meta::{FileKind, Metadata};

/// Ranges that are cloned must begin and end at block boundaries; no file system that supports
/// cloning has longer blocks than this.
const BLOCK_BYTES: u64 = 64 << 10;

/// A regular file in the target, open for reading.
#[derive(Debug)]
pub struct Existing {
    root: Arc<Root>,
    fd: OwnedFd,
    path: Box<[u8]>,
    stat: rustix::fs::Stat,
}

impl TreeSink {
    /// Returns the regular file at `path`, or `None` when there is none that can be read.
    pub fn existing(&self, path: &[u8]) -> Option<Existing> {
        check_relative(path).ok()?;
        // O_NONBLOCK: a FIFO must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.root.open(path, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let is_file = FileKind::from_st_mode(stat.st_mode) == Some(FileKind::File);
        is_file.then(|| Existing { root: Arc::clone(&self.root), fd, path: path.into(), stat })
    }
}

impl Existing {
    /// Device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// The number of the file's names when it was opened.
    pub fn names(&self) -> u64 {
        #[allow(clippy::useless_conversion, reason = "narrower on some architectures")]
        u64::from(self.stat.st_nlink)
    }

    /// Whether the file reads as zeros everywhere outside of `data`, which are ascending ranges.
    pub(crate) fn is_zero_outside(&self, data: &[Range<u64>]) -> bool {
        let ends = data.iter().map(|range| range.end);
        let starts = data.iter().map(|range| range.start).chain([self.size_bytes()]);
        let mut holes = std::iter::once(0).chain(ends).zip(starts);
        holes.all(|(start, end)| self.is_zero(start..end).unwrap_or(false))
    }

    /// Whether a range reads as zeros; holes are skipped without reading.
    fn is_zero(&self, range: Range<u64>) -> Result<bool> {
        let mut buffer = vec![0; BLOCK_BYTES as usize];
        let mut at = range.start;
        while at < range.end {
            at = match rustix::fs::seek(&self.fd, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => return Ok(true),
                Err(_) => at,
            };
            let length = range.end.saturating_sub(at).min(BLOCK_BYTES) as usize;
            if !self.read_at(at, &mut buffer[..length])? {
                return Ok(false);
            }
            if buffer[..length].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += length.max(1) as u64;
        }
        Ok(true)
    }

    /// The length of the file when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.stat.st_size as u64
    }

    /// Whether size and modification time are those of the file in the snapshot.
    pub(crate) fn looks_like(&self, size: u64, metadata: &Metadata) -> bool {
        let mtime = (self.stat.st_mtime, self.stat.st_mtime_nsec as u32);
        self.size_bytes() == size && mtime == (metadata.mtime.seconds, metadata.mtime.nanos)
    }

    /// Whether the file has all of this metadata.
    pub(crate) fn has_metadata(&self, metadata: &Metadata) -> bool {
        self.root
            .metadata_writer(&self.path, metadata, true)
            .is_applied(Handle::Open(self.fd.as_fd()))
    }

    /// Sets those parts of the metadata that differ from the existing entry's.
    ///
    /// # Errors
    /// Fails when the entry cannot even be examined. Metadata that could not be set is returned and
    /// is not an error.
    pub(crate) fn apply_metadata(&self, metadata: &Metadata) -> Result<Vec<Unset>> {
        self.root.metadata_writer(&self.path, metadata, true).apply(Handle::Open(self.fd.as_fd()))
    }

    /// Fills `buffer` from `offset` on; returns false when the file ends earlier.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            let rest = &mut buffer[filled..];
            match retry_on_intr(|| rustix::io::pread(&self.fd, &mut *rest, at)) {
                Ok(0) => return Ok(false),
                Ok(count) => filled += count,
                Err(errno) => return Err(self.failure("cannot read the existing file", errno)),
            }
        }
        Ok(true)
    }

    /// Copies ranges to the same offsets of another file, by cloning if the file system supports
    /// it.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`] when the file was changed since it was opened, or with the
    /// error of the system.
    pub(super) fn copy_to(&self, to: BorrowedFd<'_>, ranges: &[Range<u64>]) -> Result<()> {
        for range in ranges {
            // The inner part in whole blocks, so that it can be shared; its ends apart.
            let inner = range.start.next_multiple_of(BLOCK_BYTES)..range.end & !(BLOCK_BYTES - 1);
            if inner.is_empty() {
                self.copy_range(to, range.clone())?;
                continue;
            }
            self.copy_range(to, range.start..inner.start)?;
            self.copy_range(to, inner.clone())?;
            self.copy_range(to, inner.end..range.end)?;
        }
        let now =
            rustix::fs::fstat(&self.fd).map_err(|errno| self.failure("cannot stat", errno))?;
        let facts = |stat: &rustix::fs::Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        let changed = |stat: &rustix::fs::Stat| (stat.st_ctime, stat.st_ctime_nsec);
        // Another name of it may have been replaced by this restore, which moves ctime too.
        let has_fewer_names = now.st_nlink < self.stat.st_nlink;
        let is_changed = changed(&now) != changed(&self.stat) && !has_fewer_names;
        if facts(&now) != facts(&self.stat) || is_changed {
            let what = "another program changed the file while it was being restored, so the file \
                        was not restored";
            return Err(Error::new(Kind::Changed, what)
                .at(shown(&self.path))
                .advice("make sure that no program writes to the file, and restore it again"));
        }
        Ok(())
    }

    fn copy_range(&self, to: BorrowedFd<'_>, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let (mut from_at, mut to_at) = (at, at);
            let length = (range.end - at).min(1 << 30) as usize;
            let copied = retry_on_intr(|| {
                rustix::fs::copy_file_range(
                    &self.fd,
                    Some(&mut from_at),
                    to,
                    Some(&mut to_at),
                    length,
                )
            });
            match copied {
                Ok(0) => {
                    return Err(
                        self.failure("the file became shorter while it was copied", Errno::IO)
                    );
                }
                Ok(count) => at += count as u64,
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    return self.copy_plainly(to, at..range.end);
                }
                Err(errno) => {
                    return Err(self.failure("cannot copy the unchanged parts of the file", errno));
                }
            }
        }
        Ok(())
    }

    fn copy_plainly(&self, to: BorrowedFd<'_>, range: Range<u64>) -> Result<()> {
        let mut buffer = vec![0; BLOCK_BYTES as usize];
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(BLOCK_BYTES) as usize;
            if !self.read_at(at, &mut buffer[..length])? {
                return Err(self.failure("the file became shorter while it was copied", Errno::IO));
            }
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let io =
                    |errno| self.failure("cannot write the unchanged parts of the file", errno);
                match retry_on_intr(|| rustix::io::pwrite(to, rest, at)).map_err(io)? {
                    0 => return Err(io(Errno::IO)),
                    written => {
                        rest = &rest[written..];
                        at += written as u64;
                    }
                }
            }
        }
        Ok(())
    }

    fn failure(&self, attempt: &str, errno: Errno) -> Error {
        Error::io(attempt, shown(&self.path), errno)
    }
}
