//! The target of requests: files of equal length, or a device, opened with one write policy.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Access, AlignedBuf, Caps, Device, FileDevice, Policy, SharedDevice};
use rustix::fs::Advice;

use super::Content;
use crate::run::Live;

/// One file or device, or a part of it.
#[derive(Clone)]
pub struct Target {
    device: SharedDevice,
    /// The start.
    start: u64,
    /// The file device, if io_uring can be used on it.
    pub(super) file: Option<Arc<FileDevice>>,
}

/// Targets of equal length, which are accessed as one.
pub struct Area {
    targets: Vec<Target>,
    target_bytes: u64,
    /// Whether blocks are striped over the targets in turn; otherwise one target is filled after
    /// the other.
    is_striped: bool,
}

/// Bytes written at a time while files are created.
const FILL_BYTES: usize = 1 << 20;

/// The kernel limits one advice call to its read-ahead size, 128 KiB by default
/// (`force_page_cache_ra` in mm/readahead.c).
const ADVICE_BYTES: u64 = 128 << 10;

/// Whether requests of this size, one after the other, can bypass the page cache completely: parts of
/// an alignment unit of the device, at least a page, go through the page cache.
pub(crate) fn suits_direct(caps: &Caps, block_bytes: usize) -> bool {
    block_bytes.is_multiple_of(caps.align_bytes as usize)
}

impl Target {
    /// A target on any device, for example on a wrapper.
    pub fn new(device: SharedDevice) -> Self {
        Target { device, start: 0, file: None }
    }

    /// Opens a file or block device.
    ///
    /// # Errors
    /// The errors of [`FileDevice::open`].
    pub fn open(path: &Path, access: Access, policy: Policy) -> Result<Self> {
        let file = Arc::new(FileDevice::open(path, access, policy)?);
        Ok(Target { device: Arc::clone(&file) as SharedDevice, start: 0, file: Some(file) })
    }

    /// The device that the target reads and writes.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The device as a shared reference.
    pub fn shared(&self) -> SharedDevice {
        Arc::clone(&self.device)
    }

    fn holds(&self, wanted: u64) -> Result<()> {
        let len = self.device.len()?;
        if len >= wanted {
            return Ok(());
        }
        let error = Error::new(Kind::Corrupt, "the file is shorter than the size to measure");
        Err(error.at(self.device.place()).expected(wanted, len))
    }

    /// Waits until everything that was written is durable, and returns how long this took.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn sync(&self, is_full: bool) -> Result<Duration> {
        let began = Instant::now();
        if is_full && self.file.is_some() {
            let place = self.device.place();
            let file = File::options().write(true).open(place);
            file.and_then(|file| file.sync_all()).map_err(|error| {
                Error::io("cannot make the written bytes durable", place, error)
            })?;
        } else {
            self.device.sync()?;
        }
        Ok(began.elapsed())
    }

    /// Whether requests of this size bypass the page cache; `None` if the target is not a file.
    pub fn is_direct(&self, block_bytes: usize) -> Option<bool> {
        let suits = suits_direct(&self.device.caps(), block_bytes);
        self.file.as_ref().map(|file| file.policy().is_direct() && suits)
    }

    /// Tells the kernel that these bytes will be read soon. Does nothing if the target is not a
    /// file.
    pub(super) fn will_read(&self, offset: u64, bytes: usize) {
        let Some(file) = &self.file else { return };
        let end = offset + bytes as u64;
        for start in (offset..end).step_by(ADVICE_BYTES as usize) {
            file.will_read(start..end.min(start + ADVICE_BYTES));
        }
    }

    /// Enables or disables the kernel's own read-ahead.
    pub fn read_ahead(&self, is_wanted: bool) {
        self.file.iter().for_each(|file| file.read_ahead(is_wanted));
    }

    /// Writes the target's pages in the page cache back and drops them, so that the next read is
    /// from the disk.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub(crate) fn drop_cache(&self) -> Result<()> {
        self.device.sync()?;
        if self.file.is_none() {
            return Ok(());
        }
        let place = self.device.place();
        let failed =
            |error| Error::io("cannot drop the file's pages from the page cache", place, error);
        let file = File::open(place).map_err(failed)?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| failed(errno.into()))
    }
}

impl Area {
    /// An area of targets that all have at least this length.
    pub fn new(targets: Vec<Target>, target_bytes: u64) -> Self {
        Area { targets, target_bytes, is_striped: false }
    }

    /// The area with its blocks in turn: the first block of each target, then the second block of
    /// each.
    #[must_use]
    pub fn striped(self) -> Self {
        Area { is_striped: true, ..self }
    }

    /// The targets.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The total bytes of all targets.
    pub fn bytes(&self) -> u64 {
        self.target_bytes * self.targets.len() as u64
    }

    /// The total number of complete blocks of all targets.
    pub fn blocks(&self, block_bytes: usize) -> u64 {
        self.target_bytes / block_bytes as u64 * self.targets.len() as u64
    }

    /// The target of a block, and the offset in it.
    pub(super) fn place(&self, block: u64, block_bytes: usize) -> (&Target, u64) {
        let (in_target, targets) =
            (self.target_bytes / block_bytes as u64, self.targets.len() as u64);
        let (target, within) = match self.is_striped {
            true => (block % targets, block / targets),
            false => (block / in_target, block % in_target),
        };
        let target = &self.targets[target as usize];
        (target, target.start + within * block_bytes as u64)
    }

    /// Creates files of `target_bytes` bytes full of content, and opens them.
    ///
    /// # Errors
    /// [`Kind::Interrupted`] after a stop request; other errors as the system reports them.
    pub fn make(
        paths: &[PathBuf],
        target_bytes: u64,
        content: Content,
        policy: Policy,
        live: &Live,
    ) -> Result<Self> {
        // Through the page cache, which takes it and is emptied at the end.
        let files = Self::open(paths, target_bytes, Access::Create, Policy::Buffered)?;
        files.targets.iter().try_for_each(|file| file.device().set_len(0))?;
        files.fill(content, live)?;
        Self::open(paths, target_bytes, Access::Write, policy)
    }

    /// Fills the area with content, and drops it from the page cache.
    ///
    /// # Errors
    /// [`Kind::Interrupted`] after a stop request; other errors as the system reports them.
    pub fn fill(&self, content: Content, live: &Live) -> Result<()> {
        let mut buffer = AlignedBuf::new(FILL_BYTES);
        buffer.set_len(FILL_BYTES);
        content.fill(&mut buffer, self.target_bytes);
        let mut made = 0;
        live.set_total(self.bytes());
        for target in &self.targets {
            let mut at = 0;
            while at < self.target_bytes {
                live.check()?;
                let piece = (self.target_bytes - at).min(FILL_BYTES as u64) as usize;
                content.mark(&mut buffer, made, self.target_bytes);
                target.device().write_at(target.start + at, &buffer[..piece])?;
                live.moved(piece as u64);
                at += piece as u64;
                made += 1;
            }
            target.drop_cache()?;
        }
        Ok(())
    }

    /// Opens files.
    ///
    /// # Errors
    /// The errors of [`Target::open`]; [`Kind::Corrupt`] for a target that is too short.
    pub fn open(
        paths: &[PathBuf],
        target_bytes: u64,
        access: Access,
        policy: Policy,
    ) -> Result<Self> {
        let open = |path: &PathBuf| {
            let target = Target::open(path, access, policy)?;
            if matches!(access, Access::Read | Access::Write) {
                target.holds(target_bytes)?;
            }
            Ok(target)
        };
        let targets = paths.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Area::new(targets, target_bytes))
    }

    /// Makes an area of the parts of one target that begin at these offsets.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the target is too short; other errors as the system reports them.
    pub fn parts(target: &Target, starts: &[u64], bytes: u64) -> Result<Self> {
        target.holds(starts.iter().max().unwrap_or(&0) + bytes)?;
        let part = |start: &u64| Target { start: *start, ..target.clone() };
        Ok(Area::new(starts.iter().map(part).collect(), bytes))
    }

    /// Drops the pages of all targets from the page cache.
    ///
    /// # Errors
    /// The errors of [`Target::drop_cache`].
    pub(crate) fn drop_cache(&self) -> Result<()> {
        self.targets.iter().try_for_each(Target::drop_cache)
    }

    /// Whether all requests of this size bypass the page cache.
    pub fn is_direct(&self, block_bytes: usize) -> bool {
        self.targets.iter().all(|target| target.is_direct(block_bytes) == Some(true))
    }
}
