//! A device that is a file or block device of this machine.
//!
//! Under a direct policy, a file is opened twice: whole pages bypass the page cache, the rest at
//! either end of a range goes through the cache, by the other descriptor. So no page is written in
//! both ways at the same time, unless writes overlap; the kernel keeps both ways consistent if one
//! write follows the other (`kiocb_invalidate_pages` in mm/filemap.c writes out and drops the
//! cached part of a range before it is written directly).
//!
//! A device can also be set up so that only long writes bypass the cache. If only long writes
//! bypass the cache, both descriptors write, and all reads go through the cache: the kernel drops
//! the cached pages of a range before and after a direct write, so that a later read gets the data
//! from the disk. The caller must make no other write during a long one: otherwise the kernel could
//! fail to drop a page that the other write has just changed, and the next sync would fail.
//!
//! Invariants: a policy that the kernel or the file system refuses, at once or at the first write,
//! is replaced by its fallback, which gives the same guarantee and can be queried; a disk that is
//! mounted or otherwise in use is not written to.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use rustix::fs::{Advice, AtFlags, FallocateFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use super::buffer::{BUFFER_ALIGN, BufferPool};
use super::policy::{Fallback, Policy};
use super::{Caps, Device, end_within, no_room, same_length, too_short, write_parts};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

mod transfer;

use transfer::{Direct, LongDirect, Second};

/// The access with which a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading only.
    Read,
    /// For reading and writing; the file must exist.
    Write,
    /// For reading and writing; the file is created if it is missing.
    Create,
    /// For reading and writing; the file must not exist.
    CreateNew,
}

/// A file or block device; or `/dev/null`, `/dev/zero`, `/dev/full`, which have no length.
pub struct FileDevice {
    path: PathBuf,
    /// The descriptor that uses the page cache.
    pub(super) file: File,
    /// The descriptor that bypasses the page cache, under a direct policy.
    direct: Option<Direct>,
    /// The descriptor for long writes that bypass the page cache, under another policy.
    long: Option<LongDirect>,
    policy: Policy,
    caps: Caps,
    /// Whether the device drops writes, has no length and has nothing to make durable.
    is_sink: bool,
    fallback: OnceLock<Fallback>,
    failed_sync: Mutex<Option<Error>>,
    /// Aligned memory for copies of direct writes whose own memory the disk cannot take.
    bounce: BufferPool,
}

/// The most buffers for copies, and so the most unaligned writes that can run at once.
const BOUNCES: usize = 8;
/// The size of a buffer for copies.
const BOUNCE_BYTES: usize = 1 << 20;

impl FileDevice {
    /// Opens a file or block device. The name of a created file is durable on return.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] or [`Kind::Exists`], depending on `access`; with
    /// [`Kind::Usage`] when the path is something else, such as a directory; with [`Kind::Busy`]
    /// for a disk in use; otherwise with the errors of the system.
    pub fn open(path: impl AsRef<Path>, access: Access, policy: Policy) -> Result<Self> {
        let path = path.as_ref();
        let before = metadata(path)?;
        let file = open_plain(path, access, policy, before.as_ref())?;
        let found = file.metadata().map_err(|error| Error::io("cannot examine", path, error))?;
        refuse_strangers(path, &found)?;
        if before.is_none() {
            sync_directory_of(path)?;
        }
        let is_block_device = found.file_type().is_block_device();
        let limits = AlignLimits::for_file(&file, is_block_device);
        let device = if is_block_device { found.rdev() } else { found.dev() };
        let mut opened = FileDevice {
            path: path.to_path_buf(),
            file,
            direct: None,
            long: None,
            policy,
            caps: Caps {
                align_bytes: limits.block_bytes as u32,
                is_block_device,
                device: Some(device),
            },
            is_sink: is_sink(&found),
            fallback: OnceLock::new(),
            failed_sync: Mutex::default(),
            bounce: BufferPool::new(BOUNCES, BOUNCE_BYTES.next_multiple_of(limits.block_bytes)),
        };
        if policy.is_direct() {
            opened.open_direct(access, &found, limits)?;
        }
        Ok(opened)
    }

    /// Makes only long writes ([`Device::write_long_at`]) bypass the page cache, so that bytes that
    /// are often read stay cached. If the file system refuses this, long writes also go through the
    /// cache.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`] when another file has the name now; otherwise with the errors
    /// of the system.
    pub fn with_direct_long_writes(mut self) -> Result<Self> {
        if self.is_sink || self.policy.is_direct() {
            return Ok(self);
        }
        let found = self.file.metadata().map_err(|error| self.cannot("cannot examine", error))?;
        let limits = AlignLimits::for_file(&self.file, self.caps.is_block_device);
        self.long = match self.open_second(Access::Write, &found, limits)? {
            Second::Open(direct) => Some(LongDirect::new(direct)),
            Second::Refused(_) => None,
        };
        Ok(self)
    }

    /// The policy in use: the requested one, or its fallback.
    pub fn policy(&self) -> Policy {
        self.fallback.get().map_or(self.policy, |fallback| fallback.used)
    }

    /// The fallback in use, if the requested policy was refused so far.
    pub fn fallback(&self) -> Option<&Fallback> {
        self.fallback.get()
    }

    /// Announces that these bytes will be read soon: the kernel may begin to read them
    /// (POSIX_FADV_WILLNEED, posix_fadvise(2)).
    pub fn will_read(&self, range: Range<u64>) {
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let _ = rustix::fs::fadvise(&self.file, range.start, Some(len), Advice::WillNeed);
        }
    }

    /// Sets whether the kernel reads ahead of sequential reads (POSIX_FADV_NORMAL) or never does
    /// (POSIX_FADV_RANDOM); for reads through the page cache.
    pub fn read_ahead(&self, is_wanted: bool) {
        let advice = if is_wanted { Advice::Normal } else { Advice::Random };
        let _ = rustix::fs::fadvise(&self.file, 0, None, advice);
    }

    /// Opens the second descriptor, or uses the fallback if that is refused.
    fn open_direct(&mut self, access: Access, found: &Metadata, limits: AlignLimits) -> Result<()> {
        match self.open_second(access, found, limits)? {
            Second::Open(direct) => {
                // Only heads and tails are read here: pages read ahead around them are dropped by
                // the next write.
                let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
                self.direct = Some(direct);
            }
            Second::Refused(why) => self.fall_back(why),
        }
        Ok(())
    }

    /// Opens a descriptor that bypasses the page cache.
    fn open_second(&self, access: Access, found: &Metadata, limits: AlignLimits) -> Result<Second> {
        if limits.refuses_direct {
            return Ok(Second::Refused(Errno::OPNOTSUPP.into()));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read);
        options.custom_flags(libc::O_DIRECT | libc::O_NOCTTY | self.policy.open_flags());
        let file = match options.open(&self.path) {
            Err(error) if is_refusal(error.raw_os_error()) => return Ok(Second::Refused(error)),
            other => other.map_err(|error| Error::io("cannot open", &self.path, error))?,
        };
        let again = file.metadata();
        let again = again.map_err(|error| Error::io("cannot examine", &self.path, error))?;
        if (again.dev(), again.ino()) != (found.dev(), found.ino()) {
            return Err(Error::new(
                Kind::Changed,
                "another file replaced this file while it was being opened",
            )
            .at(&self.path)
            .advice("find out which other program writes to this path, then try again"));
        }
        let (block_bytes, memory_align) = (limits.block_bytes, limits.memory_align);
        Ok(Second::Open(Direct { file, block_bytes, memory_align }))
    }

    pub(super) fn fall_back(&self, why: impl Into<io::Error>) {
        // The first thread that meets the refusal sets the reason.
        let _ = self.fallback.set(Fallback::new(self.policy, why));
    }

    pub(super) fn cannot(&self, what: &str, error: impl Into<io::Error>) -> Error {
        Error::io(what, &self.path, error)
    }
}

impl Device for FileDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        if end_within(offset, buf.len(), i64::MAX as u64).is_none() {
            return Err(too_short(&self.path, offset, buf.len(), self.len()?));
        }
        self.read_split(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if end_within(offset, bytes.len(), i64::MAX as u64).is_none() {
            return Err(no_room(&self.path, offset, bytes.len(), i64::MAX as u64));
        }
        self.write_split(offset, bytes)
    }

    fn write_long_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        match self.long.as_ref().filter(|long| long.takes(offset, parts)) {
            Some(long) => self.write_long(long, offset, parts),
            None => write_parts(self, offset, parts),
        }
    }

    fn len(&self) -> Result<u64> {
        if self.caps.is_block_device {
            // Nothing uses the descriptor's own position.
            return rustix::fs::seek(&self.file, SeekFrom::End(0))
                .map_err(|errno| self.cannot("cannot find the length of the file", errno));
        }
        let found = self.file.metadata();
        Ok(found.map_err(|error| self.cannot("cannot find the length of the file", error))?.len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        if self.caps.is_block_device || self.is_sink {
            return same_length(&self.path, bytes, self.len()?);
        }
        self.file
            .set_len(bytes)
            .map_err(|error| self.cannot("cannot set the length of the file", error))
    }

    fn sync(&self) -> Result<()> {
        let mut failed = lock(&self.failed_sync);
        if let Some(error) = &*failed {
            return Err(error.duplicate());
        }
        if self.is_sink {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| {
            // The kernel says it once, then forgets the bytes (fsync(2)).
            let error = self.cannot("cannot make the written bytes durable", error);
            failed.insert(error).duplicate()
        })
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let mut range = range.start..range.end.min(self.len()?);
        if self.caps.is_block_device && !range.is_empty() {
            let block = u64::from(self.caps.align_bytes);
            range = range.start.next_multiple_of(block)..range.end / block * block;
        }
        if range.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                Err(Error::new(Kind::Unsupported, "cannot release the space of a range")
                    .at(&self.path))
            }
            Err(errno) => Err(self.cannot("cannot release the space of a range", errno)),
        }
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn place(&self) -> &Path {
        &self.path
    }
}

/// The alignment of offsets, lengths and memory that direct I/O needs; powers of two.
#[derive(Clone, Copy)]
struct AlignLimits {
    /// The alignment of offsets and lengths, at least a page: see the comment at the head of this
    /// file.
    block_bytes: usize,
    memory_align: usize,
    /// Whether the file system reports that this file has no direct I/O.
    refuses_direct: bool,
}

impl AlignLimits {
    /// Asks statx(2) for the alignment (STATX_DIOALIGN, Linux 6.1), else the disk, else assumes a
    /// page.
    fn for_file(file: &File, is_block_device: bool) -> Self {
        let flags = StatxFlags::DIOALIGN;
        let said = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, flags).ok();
        let said = said.filter(|it| it.stx_mask & flags.bits() != 0);
        let said = said.map(|it| (it.stx_dio_offset_align as usize, it.stx_dio_mem_align as usize));
        let asked = || {
            let sector = is_block_device.then(|| rustix::fs::ioctl_blksszget(file).ok()).flatten();
            sector.map(|bytes| (bytes as usize, bytes as usize))
        };
        let (offset, memory) = said.or_else(asked).unwrap_or((BUFFER_ALIGN, BUFFER_ALIGN));
        let page = rustix::param::page_size();
        AlignLimits {
            block_bytes: offset.next_power_of_two().max(page),
            memory_align: memory.next_power_of_two(),
            refuses_direct: offset == 0 || memory == 0,
        }
    }
}

/// Whether an error number means that this kind of transfer is not supported.
fn is_refusal(number: Option<i32>) -> bool {
    matches!(number, Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS))
}

/// The metadata of the file that has this name now, if any.
fn metadata(path: &Path) -> Result<Option<Metadata>> {
    match path.metadata() {
        // Checked before opening: opening a FIFO would block until its other end is opened.
        Ok(found) => refuse_strangers(path, &found).map(|()| Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::of_named("cannot examine", path, error)),
    }
}

/// Whether a file is `/dev/null`, `/dev/zero` or `/dev/full`: memory devices (major 1,
/// Documentation/admin-guide/devices.txt of the kernel) that store nothing.
fn is_sink(found: &Metadata) -> bool {
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    found.file_type().is_char_device() && major == 1 && matches!(minor, 3 | 5 | 7)
}

fn refuse_strangers(path: &Path, found: &Metadata) -> Result<()> {
    if found.is_file() || found.file_type().is_block_device() || is_sink(found) {
        return Ok(());
    }
    let what =
        if found.is_dir() { "is a directory" } else { "this is not a file or a block device" };
    Err(Error::new(Kind::Usage, what).at(path).advice("give a file or a block device"))
}

fn open_plain(
    path: &Path,
    access: Access,
    policy: Policy,
    before: Option<&Metadata>,
) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(access != Access::Read);
    options.create(access == Access::Create).create_new(access == Access::CreateNew);
    let mut flags = libc::O_NOCTTY | policy.open_flags();
    let is_disk = before.is_some_and(|found| found.file_type().is_block_device());
    if is_disk && access != Access::Read {
        if access == Access::CreateNew {
            return Err(Error::new(Kind::Exists, "exists already").at(path));
        }
        // On a block device O_EXCL without O_CREAT asks for it alone (open(2)).
        options.create(false);
        flags |= libc::O_EXCL;
    }
    options.custom_flags(flags).open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) if is_disk => Error::new(Kind::Busy, "the disk is in use")
            .at(path)
            .advice("unmount the disk, and stop all other programs that use it"),
        _ => Error::io("cannot open", path, error),
    })
}

/// Makes the name of a created file durable.
fn sync_directory_of(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    match File::open(parent).and_then(|directory| directory.sync_all()) {
        // Some network file systems do not know this of directories.
        Err(error) if is_refusal(error.raw_os_error()) => Ok(()),
        other => other.map_err(|error| {
            Error::io("cannot make the directory entries of new files durable", parent, error)
        }),
    }
}

#[cfg(test)]
mod tests;
