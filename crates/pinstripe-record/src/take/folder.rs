//! The files of a take in one directory, behind a trait with which tests simulate failing disks.

#![allow(
    clippy::disallowed_methods,
    reason = "this module creates and reads the directory of a take"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Access, Device, FileDevice, Policy, SharedDevice};
use pinstripe_io::fault::{FaultyDevice, Plan};
use pinstripe_io::mounts::free_bytes;
use pinstripe_io::remove::remove_tree;
use rustix::fs::Advice;

use crate::flac::FlacWriter;
use crate::writes::WritePolicy;

/// The longest wait for the lock of a take.
const LOCK_WITHIN: Duration = Duration::from_millis(500);
/// The time between two attempts to get the lock.
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// The place that contains the files of a take.
pub trait TakeFolder: Send + Sync {
    /// Creates a file; it is an error if the file exists. The name of the file is durable after the
    /// next [`sync_names`](Self::sync_names).
    ///
    /// # Errors
    /// [`Kind::Exists`] if the file exists; other errors as the system reports them.
    fn create(&self, name: &str) -> Result<TakeFile>;

    /// Opens a file for reading, and for writing if `is_written`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the file does not exist; other errors as the system reports them.
    fn open(&self, name: &str, is_written: bool) -> Result<TakeFile>;

    /// Replaces or creates a small file; on success the file is durable, and on failure the old
    /// file is unchanged.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()>;

    /// Reserves this many bytes on the disk, so that the next [`replace`](Self::replace) of this
    /// file succeeds even on a full disk.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if there is not enough space; other errors as the system reports them.
    fn keep_room(&self, name: &str, bytes: u64) -> Result<()> {
        let _ = (name, bytes);
        Ok(())
    }

    /// Reads a small file of at most `most` bytes.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the file does not exist; [`Kind::Corrupt`] if it is longer; other
    /// errors as the system reports them.
    fn read(&self, name: &str, most: u64) -> Result<Vec<u8>>;

    /// Makes the names of created files durable.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    fn sync_names(&self) -> Result<()>;

    /// The names of all files in the directory, as far as they are UTF-8 and can be read.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Removes a file that is not needed.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if files cannot be removed; other errors as the system reports them.
    fn remove(&self, name: &str) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "files cannot be removed from this directory").at(name))
    }

    /// Removes the directory of a take that never began, with its content.
    ///
    /// # Errors
    /// The errors of [`remove`](Self::remove).
    fn discard(&self) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "cannot be removed").at(self.path()))
    }

    /// The number of bytes that may still be written there; `None` if this is unknown.
    fn free_bytes(&self) -> Option<u64>;

    /// The path of the directory, for messages and the manifest.
    fn path(&self) -> &Path;

    /// The reason why files are not written in the requested way; `None` if they are.
    fn refusal(&self) -> Option<String>;
}

/// An open file of a take.
pub struct TakeFile {
    device: SharedDevice,
    /// The file itself, for operations that the device does not offer; `None` if the device is not
    /// a file.
    file: Option<File>,
    /// The encoder, for a format that encodes the samples (FLAC).
    encoder: Option<Arc<FlacWriter>>,
}

impl TakeFile {
    /// Makes a file that is only a device.
    pub fn of_device(device: SharedDevice) -> Self {
        TakeFile { device, file: None, encoder: None }
    }

    /// Makes a file whose samples are encoded when they are written (FLAC).
    pub fn encoded(writer: FlacWriter) -> Self {
        let writer = Arc::new(writer);
        TakeFile { device: Arc::<FlacWriter>::clone(&writer), file: None, encoder: Some(writer) }
    }

    /// Returns a reference to the device, for a device that wraps it.
    pub fn shared(&self) -> SharedDevice {
        SharedDevice::clone(&self.device)
    }

    /// Encodes all of the written payload, and waits until this is done; nothing more may be
    /// written.
    ///
    /// # Errors
    /// Errors of the encoder and of the file.
    pub fn finish(&self) -> Result<()> {
        self.encoder.as_ref().map_or(Ok(()), |it| it.finish())
    }

    /// Why encoding of the payload has stopped; `None` if it has not.
    pub fn failure(&self) -> Option<Error> {
        self.encoder.as_ref()?.failure()
    }

    /// Ends the payload with the blocks that are in the file, and returns the written bytes that
    /// are not in these blocks. `None` if the file is not encoded; it then contains everything that
    /// was written.
    pub(crate) fn end_here(&self) -> Option<Vec<u8>> {
        self.encoder.as_ref().map(|it| it.end_here())
    }

    /// The number of payload bytes that the last sync made durable, if that is less than what was
    /// written before it.
    pub fn durable_bytes(&self) -> Option<u64> {
        self.encoder.as_ref().map(|it| it.durable_bytes())
    }

    /// The bytes.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Reserves space for a range, and extends the file to the end of the range: later writes
    /// change no metadata except the state of extents. Returns whether the space was reserved; it
    /// is not if the file system does not support this.
    ///
    /// # Errors
    /// An error if the range would be more than half of the free space; otherwise the errors of
    /// fallocate(2).
    pub fn reserve(&self, range: Range<u64>) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        // A file system may keep the blocks it has allocated for a range that it finally refuses
        // (ext4), so that one stream would take all the space that is left.
        let free = rustix::fs::fstatvfs(file).ok().and_then(|it| free_bytes(&it));
        let free = free.unwrap_or(u64::MAX);
        if (range.end - range.start) > free / 2 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match allocate(file, range) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            allocated => allocated.map(|()| true),
        }
    }

    /// Whether the file is in memory (tmpfs): there, reserving space allocates and clears all of
    /// the memory at once, and every write to the file waits for that.
    pub(crate) fn is_in_memory(&self) -> bool {
        let system = self.file.as_ref().and_then(|it| rustix::fs::fstatfs(it).ok());
        system.is_some_and(|it| it.f_type == libc::TMPFS_MAGIC)
    }

    /// Starts reading a range into the page cache. A hint.
    pub fn read_ahead(&self, range: Range<u64>) {
        if let (Some(file), Some(len)) = (&self.file, NonZeroU64::new(range.end - range.start)) {
            let _ = rustix::fs::fadvise(file, range.start, Some(len), Advice::WillNeed);
        }
    }

    /// Starts writeback of a range without waiting for it. A hint.
    pub fn start_writeback(&self, range: Range<u64>) {
        self.write_out(range, libc::SYNC_FILE_RANGE_WRITE);
    }

    /// Starts writeback of a range and waits for it. The call is only a hint to the kernel; only a
    /// sync shows that the data is durable. The call uses another descriptor than the sync, so the
    /// sync still receives every write error.
    pub(crate) fn finish_writeback(&self, range: Range<u64>) {
        self.write_out(
            range,
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER,
        );
    }

    fn write_out(&self, range: Range<u64>, flags: libc::c_uint) {
        let Some(file) = &self.file else { return };
        let (at, length) =
            (range.start as libc::off64_t, (range.end - range.start) as libc::off64_t);
        // SAFETY: the descriptor is open as long as `file` is.
        unsafe { libc::sync_file_range(file.as_raw_fd(), at, length, flags) };
    }

    /// Whether the last name of the file was removed.
    pub(crate) fn is_unlinked(&self) -> bool {
        let links = self.file.as_ref().and_then(|it| it.metadata().ok()).map(|it| it.nlink());
        links == Some(0)
    }

    /// Takes the lock of a take for as long as the file is open; the lock is shared if `is_shared`.
    /// A lock that is held only for a moment is waited for: an ending process keeps the lock until
    /// its last thread has ended, and a program that it starts holds it until its exec.
    ///
    /// # Errors
    /// [`Kind::Busy`] if another process holds the lock.
    pub fn lock(&self, is_shared: bool) -> Result<()> {
        let way = if is_shared { File::try_lock_shared } else { File::try_lock };
        let began = clock::monotonic();
        loop {
            match self.file.as_ref().map(way) {
                None | Some(Ok(())) => return Ok(()),
                Some(Err(fs::TryLockError::WouldBlock)) if clock::since(began) < LOCK_WITHIN => {
                    clock::sleep(LOCK_AGAIN);
                }
                Some(Err(fs::TryLockError::WouldBlock)) => {
                    let error = Error::new(
                        Kind::Busy,
                        "another process is recording or recovering this take",
                    );
                    let advice = "stop the recording, or wait until the recovery of the take has \
                                  ended";
                    return Err(error.at(self.device.place()).advice(advice));
                }
                Some(Err(fs::TryLockError::Error(error))) => {
                    return Err(Error::io("cannot be locked", self.device.place(), error));
                }
            }
        }
    }
}

/// Allocates the blocks of a range, and extends the file to the end of the range.
fn allocate(file: &File, range: Range<u64>) -> io::Result<()> {
    let (at, length) = (range.start as libc::off_t, (range.end - range.start) as libc::off_t);
    // Not posix_fallocate(3), which writes zeros where the file system cannot.
    // SAFETY: the descriptor is open as long as `file` is.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, at, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The name of the temporary file that replaces the file at `path` when it is complete.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Opens a regular file of a take, and refuses anything else: a directory from another user may
/// contain a symlink or a FIFO with that name.
fn open_plain(path: &Path, options: &mut OpenOptions, attempt: &str) -> Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = options.custom_flags(flags).open(path);
    let stranger = || {
        let error = Error::new(
            Kind::Refused,
            "this is not a regular file, as every file of a take must be",
        );
        error.at(path).advice(
            "find out where this file comes from, because the recorder creates only regular files",
        )
    };
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP | libc::ENXIO) => stranger(),
        _ => Error::io(attempt, path, error),
    })?;
    match file.metadata().is_ok_and(|it| it.is_file()) {
        true => Ok(file),
        false => Err(stranger()),
    }
}

fn exists(path: &Path) -> Error {
    Error::new(Kind::Exists, "a take with this name already exists")
        .at(path)
        .advice("choose another name: the recorder never overwrites a take")
}

/// A directory on a disk.
pub struct DiskFolder {
    path: PathBuf,
    faults: Option<Plan>,
    writes: WritePolicy,
    refusal: OnceLock<String>,
    /// The directory, if it was created for this take.
    made: Option<MadeDirectory>,
}

/// A directory that was created. The directory is removed if no manifest was ever written to it,
/// because nothing was recorded then; so a take that could not begin leaves nothing.
struct MadeDirectory {
    path: PathBuf,
    has_begun: AtomicBool,
}

impl Drop for MadeDirectory {
    fn drop(&mut self) {
        if !self.has_begun.load(Ordering::Acquire) {
            // It is the user's affair where that is not possible.
            let _ = remove_tree(&self.path);
        }
    }
}

impl DiskFolder {
    /// Creates the directory of a take in `parent`, which must exist. `faults` are simulated in the
    /// files of streams.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if `parent` is missing, [`Kind::Exists`] if the take exists.
    pub fn create(parent: &Path, take: &str, faults: Option<Plan>) -> Result<Self> {
        // The manifest names it for programs that run in other directories.
        let path = std::path::absolute(parent.join(take))
            .map_err(|error| Error::io("cannot be found", parent, error))?;
        fs::create_dir(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&path),
            _ => Error::io("cannot create the directory of the take", &path, error),
        })?;
        let synced = File::open(parent).and_then(|it| it.sync_all());
        synced.map_err(|error| {
            Error::io("cannot make the directory entries of new files durable", parent, error)
        })?;
        let made = MadeDirectory { path: path.clone(), has_begun: AtomicBool::new(false) };
        Ok(DiskFolder { path, faults, made: Some(made), ..DiskFolder::plain() })
    }

    /// Fails if a take with this name exists; called before anything is measured or opened.
    ///
    /// # Errors
    /// [`Kind::Exists`].
    pub fn check_new(parent: &Path, take: &str) -> Result<()> {
        let path = parent.join(take);
        match fs::symlink_metadata(&path) {
            Ok(_) => Err(exists(&path)),
            Err(_) => Ok(()),
        }
    }

    /// Opens the directory of a take.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the directory does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join(super::MANIFEST).is_file() {
            let error = Error::new(Kind::NotFound, "there is no take in this directory");
            return Err(error
                .at(path)
                .advice("give the directory that contains the file take.json of the take"));
        }
        Ok(DiskFolder { path: path.to_path_buf(), ..DiskFolder::plain() })
    }

    fn plain() -> Self {
        DiskFolder {
            path: PathBuf::new(),
            faults: None,
            writes: WritePolicy::Buffered,
            refusal: OnceLock::new(),
            made: None,
        }
    }

    /// Sets the write policy for new files of streams.
    pub fn with_writes(self, writes: WritePolicy) -> Self {
        DiskFolder { writes, ..self }
    }

    /// Removes the directory and its contents, for takes that were recorded for a measurement.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn remove(self) -> Result<()> {
        self.discard()
    }

    fn open_beside(&self, name: &str) -> Result<File> {
        let path = beside(&self.path.join(name));
        let mut options = OpenOptions::new();
        open_plain(&path, options.write(true).create(true).truncate(false), "cannot write")
    }

    fn opened(&self, path: &Path, access: Access, file: File) -> Result<TakeFile> {
        let is_stream = !path.ends_with(super::JOURNAL);
        let policy = match self.writes {
            WritePolicy::Direct if is_stream => Policy::Direct,
            _ => Policy::Buffered,
        };
        let device = FileDevice::open(path, access, policy)?;
        let there = fs::symlink_metadata(path).map(|it| (it.dev(), it.ino())).ok();
        if there != file.metadata().map(|it| (it.dev(), it.ino())).ok() {
            return Err(Error::new(
                Kind::Changed,
                "another file replaced this file while it was being opened",
            )
            .at(path));
        }
        if let Some(fallback) = device.fallback() {
            self.refusal.get_or_init(|| fallback.to_string());
        }
        let device: SharedDevice = match &self.faults {
            Some(plan) if is_stream => Arc::new(FaultyDevice::new(device, plan.clone())),
            _ => Arc::new(device),
        };
        Ok(TakeFile { device, file: Some(file), encoder: None })
    }
}

impl TakeFolder for DiskFolder {
    fn create(&self, name: &str) -> Result<TakeFile> {
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|error| Error::io("cannot create the file", &path, error))?;
        self.opened(&path, Access::Write, file)
    }

    fn open(&self, name: &str, is_written: bool) -> Result<TakeFile> {
        let path = self.path.join(name);
        let file =
            open_plain(&path, OpenOptions::new().read(true).write(is_written), "cannot open")?;
        self.opened(&path, if is_written { Access::Write } else { Access::Read }, file)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        // Even if this fails, something may have been recorded from here on.
        self.made.iter().for_each(|it| it.has_begun.store(true, Ordering::Release));
        let (path, mut file) = (self.path.join(name), self.open_beside(name)?);
        let mut write = || -> io::Result<()> {
            // Not emptied first: its blocks may be the last that are available.
            file.write_all(bytes)?;
            file.set_len(bytes.len() as u64)?;
            file.sync_all()?;
            fs::rename(beside(&path), &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|error| Error::io("cannot write", &path, error))
    }

    fn keep_room(&self, name: &str, bytes: u64) -> Result<()> {
        let file = self.open_beside(name)?;
        match allocate(&file, 0..bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            kept => kept.map_err(|error| {
                Error::io(
                    "cannot reserve space for the end of the take",
                    self.path.join(name),
                    error,
                )
            }),
        }
    }

    fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let path = self.path.join(name);
        let file = open_plain(&path, OpenOptions::new().read(true), "cannot read")?;
        let mut bytes = Vec::new();
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::io("cannot read", &path, error))?;
        if bytes.len() as u64 > most {
            return Err(
                Error::corrupt("too long", &path).expected(format!("at most {most} bytes"), "more")
            );
        }
        Ok(bytes)
    }

    fn sync_names(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|it| it.sync_all());
        synced.map_err(|error| {
            Error::io("cannot make the directory entries of new files durable", &self.path, error)
        })
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(|it| it.file_name().into_string().ok()).collect()
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::remove_file(&path).map_err(|error| Error::io("cannot remove", &path, error))
    }

    fn discard(&self) -> Result<()> {
        remove_tree(&self.path).map_err(|error| Error::io("cannot remove", &self.path, error))
    }

    fn free_bytes(&self) -> Option<u64> {
        free_bytes(&rustix::fs::statvfs(&self.path).ok()?)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_had_for_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DiskFolder::create(dir.path(), "t", None).unwrap();
        let file = folder.create("one").unwrap();
        file.lock(false).unwrap();
        let other = folder.open("one", false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                clock::sleep(LOCK_AGAIN);
                drop(file);
            });
            other.lock(true).unwrap();
        });
        let third = folder.open("one", true).unwrap();
        assert_eq!(third.lock(false).unwrap_err().kind(), Kind::Busy);
    }
}
