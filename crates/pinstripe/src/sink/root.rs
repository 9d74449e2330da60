//! What all files of a restore target share, and how names are made in it.
//!
//! Invariants: nothing is opened through a symlink. If something may be replaced, an entry gets its
//! own name only when it is finished. A directory that is not empty is removed only if the rules
//! allow it.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Access, AtFlags, Dir, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::Rules;
use super::apply_metadata::{ACL_DEFAULT, Handle, MetadataWriter};
use super::birth::FirstBirth;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::{
    ParentDirectory, Resolver, check_relative, failure, magic_path, shown,
};
use pinstripe_member::meta::Metadata;

/// The values that all open files of the target share.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) directory: OwnedFd,
    pub(super) way: Resolver,
    pub(super) rules: Rules,
    /// The prefix of the names of unfinished files, and the number of the next one.
    pub(super) unfinished: String,
    pub(super) next: AtomicU64,
    /// Some directory of the target has a default ACL, so that new entries may have attributes that
    /// they should not have.
    pub(super) inherits: AtomicBool,
    /// The name of the mark file of the restore in progress.
    pub(super) mark: Mutex<Option<Vec<u8>>>,
    /// The directories that the user named, or the target itself: removal stays on their mounts.
    pub(super) named: Vec<Vec<u8>>,
    /// Directories that were emptied and removed because something else replaces them.
    pub(super) cleared: Mutex<RemovedCount>,
    /// Removed files with several names.
    pub(super) removed_files: Mutex<RemovedFiles>,
    /// When the first entry was made.
    pub(super) first: FirstBirth,
    /// The target did not exist before.
    pub(super) is_new: bool,
    /// The owner and group that files made by this process usually get.
    pub(super) owner: (u32, u32),
}

impl Root {
    pub(super) fn open(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        self.way.open(self.directory.as_fd(), path, flags, mode)
    }

    pub(super) fn parent<'r, 'p>(&'r self, path: &'p [u8]) -> Result<Parent<'r, 'p>> {
        check_relative(path)?;
        let (directory, name) = self
            .way
            .parent(self.directory.as_fd(), path)
            .map_err(|errno| failure("cannot open the directory of this entry", path, errno))?;
        Ok(Parent { directory, name })
    }

    pub(super) fn inherits(&self) -> bool {
        self.inherits.load(Ordering::Relaxed)
    }

    pub(super) fn metadata_writer<'m>(
        &self,
        path: &'m [u8],
        metadata: &'m Metadata,
        strip: bool,
    ) -> MetadataWriter<'m> {
        MetadataWriter { path, metadata, strip, owner: self.rules.owners }
    }

    /// Creates an entry under its own name or, if that name is taken and may be replaced, under a
    /// temporary name for [`Self::move_over`]; returns the name.
    pub(super) fn make(
        &self,
        parent: &Parent<'_, '_>,
        attempt: &str,
        path: &[u8],
        create: impl Fn(BorrowedFd<'_>, &[u8]) -> Result<(), Errno>,
    ) -> Result<Vec<u8>> {
        let mut name = parent.name.to_vec();
        self.prepare();
        match create(parent.as_fd(), &name) {
            Err(Errno::EXIST) if self.rules.overwrite => {
                name = self.fresh_name();
                create(parent.as_fd(), &name)
            }
            other => other,
        }
        .map_err(|errno| failure(attempt, path, errno))?;
        Ok(name)
    }

    /// Comes before an entry is made.
    pub(super) fn prepare(&self) {
        if self.rules.overwrite {
            self.first.prepare();
        }
    }

    /// Comes after an entry was made; a hard link is not one, since its inode may be older.
    pub(super) fn note(&self, directory: BorrowedFd<'_>, name: &[u8]) {
        if self.rules.overwrite {
            self.first.note(directory, name);
        }
    }

    /// Renames the file that was made under `name` to its own name, if the two differ.
    pub(super) fn move_over(
        &self,
        parent: &Parent<'_, '_>,
        name: &[u8],
        path: &[u8],
    ) -> Result<()> {
        if name == parent.name {
            return Ok(());
        }
        let moved = self.rename(parent, name, path);
        // Gone already, unless the rename failed or both names are the same file.
        let _ = rustix::fs::unlinkat(parent.as_fd(), name, AtFlags::empty());
        moved
    }

    /// Returns a name that no other entry has.
    pub(super) fn fresh_name(&self) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number:x}", self.unfinished).into_bytes()
    }

    /// Returns an unused name in the directory of `path`.
    pub(super) fn beside(&self, path: &[u8]) -> Vec<u8> {
        let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        [&path[..at], &self.fresh_name()].concat()
    }

    /// Renames the finished file `made_as`, in the directory of `path`, to its own name.
    pub(super) fn put_in_place(&self, made_as: &[u8], path: &[u8]) -> Result<()> {
        let parent = self.parent(path)?;
        let name = &made_as[path.len() - parent.name.len()..];
        self.rename(&parent, name, path)
    }

    pub(super) fn rename(&self, parent: &Parent<'_, '_>, name: &[u8], path: &[u8]) -> Result<()> {
        let (directory, to) = (parent.as_fd(), parent.name);
        if !self.rules.overwrite {
            let flags = RenameFlags::NOREPLACE;
            let moved = match rustix::fs::renameat_with(directory, name, directory, to, flags) {
                // A file system that cannot promise that; a link never replaces either.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::linkat(directory, name, directory, to, AtFlags::empty())
                        .and_then(|()| rustix::fs::unlinkat(directory, name, AtFlags::empty()))
                }
                other => other,
            };
            return moved.map_err(|errno| failure("cannot create the file", path, errno));
        }
        self.first.refuse_own(directory, to, path)?;
        match rustix::fs::renameat(directory, name, directory, to) {
            Err(Errno::ISDIR) => {
                self.clear_directory(parent, path)?;
                rustix::fs::renameat(directory, name, directory, to)
            }
            other => other,
        }
        .map_err(|errno| failure("cannot replace the existing entry", path, errno))
    }

    /// Removes a directory that is in the way: an empty one, or any directory if the rules allow
    /// it.
    pub(super) fn clear_directory(&self, parent: &Parent<'_, '_>, path: &[u8]) -> Result<()> {
        if self.rules.remove_full {
            return self.empty_directory(path);
        }
        parent.clear_directory(path)
    }

    /// Prepares an existing directory: makes it accessible if this user owns it, and records
    /// whether it has a default ACL.
    pub(super) fn enter(&self, directory: BorrowedFd<'_>, path: &[u8]) -> Result<()> {
        let io = |errno| failure("cannot use the existing directory", path, errno);
        let stat = rustix::fs::fstat(directory).map_err(io)?;
        let is_closed = || {
            let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
            rustix::fs::accessat(directory, ".", access, AtFlags::EACCESS).is_err()
        };
        if stat.st_mode & 0o700 != 0o700 && stat.st_uid == self.owner.0 && is_closed() {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777) | Mode::RWXU;
            rustix::fs::chmod(magic_path(directory), mode).map_err(io)?;
        }
        if hands_down_acl(Handle::Named(directory)) {
            self.inherits.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Where a new name is made: an open directory and the last component.
pub(super) struct Parent<'r, 'p> {
    pub(super) directory: ParentDirectory<'r>,
    pub(super) name: &'p [u8],
}

impl Parent<'_, '_> {
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub(super) fn stat(&self) -> Result<rustix::fs::Stat, Errno> {
        rustix::fs::statat(self.as_fd(), self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes the entry with this name: anything but a directory that is not empty.
    pub(super) fn clear(&self, path: &[u8]) -> Result<()> {
        match rustix::fs::unlinkat(self.as_fd(), self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => self.clear_directory(path),
            Err(errno) => {
                Err(failure("cannot remove the existing entry that has this name", path, errno))
            }
        }
    }

    /// Removes the directory with this name if it is empty; leaves any other entry as it is.
    pub(super) fn clear_directory(&self, path: &[u8]) -> Result<()> {
        match rustix::fs::unlinkat(self.as_fd(), self.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(full_directory(path)),
            Err(Errno::BUSY) => Err(is_mount_point(path)),
            Err(errno) => {
                Err(failure("cannot remove the existing directory that has this name", path, errno))
            }
        }
    }
}

/// Returns the error for a directory that is not removed because it is not empty.
pub(super) fn full_directory(path: &[u8]) -> Error {
    let what = "the target has a directory with this name, and the directory is not removed, \
                because it is not empty";
    let error = Error::new(Kind::Refused, what).at(shown(path));
    error.advice("move the directory away, or restore into another directory")
}

/// Returns the error for an entry that is not removed because it is a mount point.
pub(super) fn is_mount_point(path: &[u8]) -> Error {
    let what = "this entry was not removed: a file system is mounted on this entry";
    Error::new(Kind::Refused, what).at(shown(path))
}

pub(super) fn is_empty(directory: &OwnedFd) -> Result<bool, Errno> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the directory has a default ACL, so that every entry made in it gets an ACL.
pub(super) fn hands_down_acl(directory: Handle<'_>) -> bool {
    directory.has_xattr(ACL_DEFAULT)
}

/// The counts of entries that were removed, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedCount {
    /// Entries of all kinds.
    pub entries: u64,
    /// Bytes in removed files; each file with several names counts once.
    pub bytes: u64,
}

/// Removed or counted files with several names. The content of each counts with its first name,
/// whether or not names remain.
#[derive(Debug, Default)]
pub(crate) struct RemovedFiles(HashSet<(u64, u64)>);

impl RemovedFiles {
    /// Returns the bytes that one more name counts; a directory has no `stat`.
    pub(super) fn bytes(&mut self, stat: Option<&Stat>) -> u64 {
        let Some(stat) = stat else { return 0 };
        let file = (stat.st_dev, stat.st_ino);
        // The last name of a file has no other name left.
        let is_counted = self.0.contains(&file) || (stat.st_nlink > 1 && !self.0.insert(file));
        if is_counted { 0 } else { stat.st_size as u64 }
    }
}

impl RemovedCount {
    /// Adds another count to this one.
    pub fn add(&mut self, other: RemovedCount) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}
