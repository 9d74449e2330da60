//! Writes a restored tree below a target directory.
//!
//! A snapshot is untrusted input: its names may be malicious, and so may be the content of the
//! target.
//!
//! Invariants: nothing is made, changed or removed outside the target, and no symlink below it is
//! ever followed (`pinstripe_io::beneath`). An entry in the way is replaced only under `overwrite`,
//! and then never followed or written into. A directory that is not empty is never removed, unless
//! the rules say so. In a target that is not empty, a file has another name until it is finished;
//! in an empty one it has its own name from the beginning, and a mark file at the top says until
//! the end that the restore is not complete (decision 0027). A file that cannot be finished is
//! removed again. Directories are first private (0700) and get their own mode, owner and times at
//! the end, the deepest first. The caller determines the order of entries: it makes directories
//! before what is in them, and hard links after the file to which they link.
//!
//! Every path is relative to the target, as bytes. All methods take `&self`, for any number of
//! threads. Opening each file by its complete path is as fast as keeping the parent directory open
//! (no difference was measurable), so no handle is cached.

#![allow(clippy::disallowed_methods, reason = "writes restored files")]

mod apply_metadata;
mod birth;
mod existing;
mod file;
mod mark;
mod remove;
mod root;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::{Resolver, check_relative, failure, shown};
use pinstripe_member::meta::{FileKind, Metadata, Time};

pub use apply_metadata::{MetadataPart, Unset};
pub use existing::Existing;
pub use file::FileSink;
pub(crate) use remove::WantedNames;
pub use root::RemovedCount;
pub(crate) use root::RemovedFiles;

use apply_metadata::Handle;
use birth::FirstBirth;
use root::{Root, hands_down_acl, is_empty};

/// The target of a restore.
#[derive(Debug, Clone)]
pub struct TreeSink {
    root: Arc<Root>,
}

/// What a restore may do in a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Replace existing entries with restored ones.
    pub overwrite: bool,
    /// Remove even a directory that is not empty, if it is in the way of another entry.
    pub remove_full: bool,
    /// Make each file durable before it gets its name, so that a power cut leaves either the old
    /// file or the new one.
    pub durable: bool,
    /// Set the owners of entries; otherwise they belong to this process.
    pub owners: bool,
}

impl Rules {
    /// The rules for a target that must be empty.
    pub const EMPTY: Rules =
        Rules { overwrite: false, remove_full: false, durable: false, owners: true };
    /// The rules for a target in which entries in the way are replaced.
    pub const OVERWRITE: Rules = Rules { overwrite: true, ..Rules::EMPTY };
}

impl TreeSink {
    /// Opens the target directory, or makes it together with the directories above it.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when the target is not empty and may not be overwritten, or
    /// with the error of the system.
    pub fn create(to: &Path, rules: Rules) -> Result<Self> {
        Self::create_by(Resolver::of_this_kernel(), to, rules)
    }

    fn create_by(way: Resolver, to: &Path, rules: Rules) -> Result<Self> {
        let is_new = rustix::fs::stat(to).is_err_and(|errno| errno == Errno::NOENT);
        std::fs::create_dir_all(to)
            .map_err(|error| Error::io("cannot create the target directory", to, error))?;
        Self::open_by(way, to, rules, is_new)
    }

    fn open_by(way: Resolver, to: &Path, rules: Rules, is_new: bool) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let io = |errno| Error::io("cannot open the target directory", to, errno);
        let directory = rustix::fs::open(to, flags, Mode::empty()).map_err(io)?;
        if !rules.overwrite && !is_empty(&directory).map_err(io)? {
            return Err(mark::refusal(&directory, to));
        }
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let inherits = AtomicBool::new(hands_down_acl(Handle::Open(directory.as_fd())));
        let run = u64::from_le_bytes(pinstripe_base::id::random()?);
        let unfinished = format!(".pinstripe-{run:016x}");
        let next = AtomicU64::new(0);
        let root = Root {
            directory,
            way,
            rules,
            unfinished,
            next,
            inherits,
            named: vec![Vec::new()],
            cleared: Mutex::default(),
            removed_files: Mutex::default(),
            first: FirstBirth::default(),
            is_new,
            owner,
            mark: Mutex::default(),
        };
        Ok(TreeSink { root: Arc::new(root) })
    }

    /// The same target. Removal in the target then stays on the mounts of these paths, which the
    /// user named; by default it stays on the mount of the target.
    #[must_use]
    pub(crate) fn with_named(mut self, named: Vec<Vec<u8>>) -> Self {
        if let Some(root) = Arc::get_mut(&mut self.root) {
            root.named = named;
        }
        self
    }

    /// Whether the target directory was made for this restore.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.root.is_new
    }

    /// Opens the target directory for reading only; returns `None` if it does not exist.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::create`].
    pub fn inspect(to: &Path, rules: Rules) -> Result<Option<Self>> {
        match rustix::fs::stat(to) {
            Err(Errno::NOENT) => Ok(None),
            _ => Self::open_by(Resolver::of_this_kernel(), to, rules, false).map(Some),
        }
    }

    /// Whether this process may set other owners, as only root may.
    #[must_use]
    pub(crate) fn may_give_away(&self) -> bool {
        self.root.owner.0 == 0
    }

    /// Makes the directory at `path`, private until it is finished. An existing directory is kept
    /// with its content; anything else in the way is unlinked under `overwrite`.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] for a path that is malicious or leads through a symlink, with
    /// [`Kind::Exists`] when something is in the way, or with the error of the system.
    pub fn make_directory(&self, path: &[u8]) -> Result<()> {
        let parent = self.root.parent(path)?;
        let attempt = "cannot create the directory";
        self.root.prepare();
        match rustix::fs::mkdirat(parent.as_fd(), parent.name, Mode::RWXU) {
            Ok(()) => {
                self.root.note(parent.as_fd(), parent.name);
                return Ok(());
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failure(attempt, path, errno)),
        }
        match self.root.open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Ok(existing) => {
                self.root.first.refuse_own(parent.as_fd(), parent.name, path)?;
                return self.root.enter(existing.as_fd(), path);
            }
            Err(Errno::LOOP | Errno::NOTDIR) if self.root.rules.overwrite => {}
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(failure(attempt, path, Errno::EXIST)),
            Err(errno) => return Err(failure(attempt, path, errno)),
        }
        self.root.first.refuse_own(parent.as_fd(), parent.name, path)?;
        parent.clear(path)?;
        rustix::fs::mkdirat(parent.as_fd(), parent.name, Mode::RWXU)
            .map_err(|errno| failure(attempt, path, errno))
    }

    /// Sets the metadata of the directory at `path`; the empty path is the target itself. The
    /// caller calls this function when everything in the directory is written, for the deepest
    /// directories first: later writes would change its times, and its mode may forbid them.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::make_directory`]. Metadata that could not be set is
    /// returned and is not an error.
    pub fn finish_directory(&self, path: &[u8], metadata: &Metadata) -> Result<Vec<Unset>> {
        if !path.is_empty() {
            check_relative(path)?;
        }
        let directory = self
            .root
            .open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .map_err(|errno| failure("cannot open the directory", path, errno))?;
        let strip = self.root.rules.overwrite || self.root.inherits();
        self.root.metadata_writer(path, metadata, strip).apply(Handle::Open(directory.as_fd()))
    }

    /// Makes a regular file at `path` with a length of `size_bytes`; what is not written remains a
    /// hole. The file's `metadata` is set when the file is finished, the modification time last.
    /// Under `overwrite`, an entry in the way stays until then, so that the old file is not lost if
    /// the new one cannot be restored.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::make_directory`].
    pub fn create_file(
        &self,
        path: &[u8],
        size_bytes: u64,
        metadata: Metadata,
    ) -> Result<FileSink> {
        check_relative(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        // Its final mode at once saves a call; but not for an owner that it does not have yet.
        let mode = if !self.root.rules.owners || (metadata.uid, metadata.gid) == self.root.owner {
            Mode::from_raw_mode(metadata.mode & 0o777)
        } else {
            Mode::RUSR | Mode::WUSR
        };
        let made_as =
            if self.root.rules.overwrite { self.root.beside(path) } else { path.to_vec() };
        self.root.prepare();
        let fd = self
            .root
            .open(&made_as, flags, mode)
            .map_err(|errno| failure("cannot create the file", path, errno))?;
        self.root.note(fd.as_fd(), b"");
        Ok(FileSink::new(Arc::clone(&self.root), fd, path, made_as, size_bytes, metadata))
    }

    /// Makes a symlink at `path`. The `target` of the symlink is only stored, and may point
    /// anywhere.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::make_directory`]. Metadata that could not be set is
    /// returned and is not an error.
    pub fn symlink(&self, path: &[u8], target: &[u8], metadata: &Metadata) -> Result<Vec<Unset>> {
        self.make_entry("cannot create the symbolic link", path, metadata, |parent, name| {
            rustix::fs::symlinkat(target, parent, name)
        })
    }

    /// Makes at `path` the FIFO, socket or device node that `metadata` describes.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::make_directory`], with [`Kind::Io`] and advice for device
    /// nodes, which only root can make, or with [`Kind::Usage`] for another type. Metadata that
    /// could not be set is returned and is not an error.
    pub fn special(&self, path: &[u8], metadata: &Metadata) -> Result<Vec<Unset>> {
        let kind = match metadata.kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::File | FileKind::Directory | FileKind::Symlink => {
                return Err(Error::new(Kind::Usage, "the entry is not a device, FIFO or socket")
                    .at(shown(path)));
            }
        };
        let is_device = matches!(metadata.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let (major, minor) = if is_device { metadata.rdev } else { (0, 0) };
        let device = rustix::fs::makedev(major, minor);
        let private = Mode::RUSR | Mode::WUSR;
        self.make_entry("cannot create the special file", path, metadata, |parent, name| {
            rustix::fs::mknodat(parent, name, kind, private, device)
        })
        .map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM) if is_device => {
                error.advice("restore as root to restore device nodes")
            }
            _ => error,
        })
    }

    /// Makes `new` another name of `existing`, which was restored before.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::make_directory`], for either path, or with
    /// [`Kind::Refused`] when both paths are the same.
    pub fn hard_link(&self, existing: &[u8], new: &[u8]) -> Result<()> {
        if existing == new {
            return Err(
                Error::new(Kind::Refused, "a name cannot be a hard link to itself").at(shown(new))
            );
        }
        let from = self.root.parent(existing)?;
        let to = self.root.parent(new)?;
        let attempt = "cannot create the hard link";
        let name = self.root.make(&to, attempt, new, |parent, name| {
            rustix::fs::linkat(from.as_fd(), from.name, parent, name, AtFlags::empty())
        })?;
        self.root.move_over(&to, &name, new)
    }

    /// Returns device and inode number of the entry with this name, or `None` if there is none.
    pub(crate) fn identity(&self, path: &[u8]) -> Option<(u64, u64)> {
        let stat = self.root.parent(path).ok()?.stat().ok()?;
        Some((stat.st_dev, stat.st_ino))
    }

    /// Whether both paths exist and are names of the same inode.
    pub(crate) fn are_linked(&self, one: &[u8], other: &[u8]) -> bool {
        self.identity(one).is_some_and(|it| self.identity(other) == Some(it))
    }

    /// Whether an entry with this name exists.
    pub fn has(&self, path: &[u8]) -> bool {
        self.root.parent(path).is_ok_and(|parent| parent.stat().is_ok())
    }

    /// Whether an entry that is not a directory has this name.
    pub(crate) fn is_in_the_way(&self, path: &[u8]) -> bool {
        self.has(path) && !self.is_directory(path)
    }

    /// Whether a directory has this name.
    pub fn is_directory(&self, path: &[u8]) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        check_relative(path).is_ok() && self.root.open(path, flags, Mode::empty()).is_ok()
    }

    /// Whether mode, owner and attributes of the directory at `path` equal those of `metadata`. The
    /// time of the directory is not compared.
    pub(crate) fn has_mode_and_owner(&self, path: &[u8], metadata: &Metadata) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let Ok(entry) = self.root.open(path, flags, Mode::empty()) else { return false };
        let Ok(stat) = rustix::fs::fstat(&entry) else { return false };
        let mtime = Time { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 };
        let metadata = Metadata { mtime, ..metadata.clone() };
        self.root.metadata_writer(path, &metadata, true).is_applied(Handle::Named(entry.as_fd()))
    }

    /// Whether the target may have entries from before the restore.
    pub(crate) fn may_hold_anything(&self) -> bool {
        self.root.rules.overwrite
    }

    /// Whether the symlink, special file or directory at `path` already equals `metadata` and, for
    /// symlinks, `target`.
    pub(crate) fn is_as_wanted(&self, path: &[u8], target: &[u8], metadata: &Metadata) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        if check_relative(path).is_err() {
            return false;
        }
        let Ok(entry) = self.root.open(path, flags, Mode::empty()) else { return false };
        let Ok(stat) = rustix::fs::fstat(&entry) else { return false };
        let is_device = matches!(metadata.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let device = rustix::fs::makedev(metadata.rdev.0, metadata.rdev.1);
        let is_same_thing = match metadata.kind {
            FileKind::Symlink => rustix::fs::readlinkat(&entry, b"".as_slice(), Vec::new())
                .is_ok_and(|found| found.as_bytes() == target),
            _ => !is_device || stat.st_rdev == device,
        };
        let writer = self.root.metadata_writer(path, metadata, true);
        is_same_thing && writer.is_applied(Handle::Named(entry.as_fd()))
    }

    /// Makes an entry without content and sets its metadata.
    fn make_entry(
        &self,
        attempt: &str,
        path: &[u8],
        metadata: &Metadata,
        create: impl Fn(BorrowedFd<'_>, &[u8]) -> Result<(), Errno>,
    ) -> Result<Vec<Unset>> {
        let parent = self.root.parent(path)?;
        let name = self.root.make(&parent, attempt, path, create)?;
        self.root.note(parent.as_fd(), &name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let entry =
            self.root.way.open(parent.as_fd(), &name, flags, Mode::empty()).map_err(|errno| {
                failure("cannot open the entry that was just created", path, errno)
            })?;
        let writer = self.root.metadata_writer(path, metadata, self.root.inherits());
        let unset = writer.apply(Handle::Named(entry.as_fd()))?;
        self.root.move_over(&parent, &name, path)?;
        Ok(unset)
    }
}
