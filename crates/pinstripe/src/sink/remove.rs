//! Removes entries that a snapshot does not have, on request.
//!
//! Removal begins in a directory, its *base*, and stays on the mount through which the base was
//! reached. Invariants: nothing is removed outside the target or through a symlink. No mount point
//! is removed, nor anything on another mount than the base's, be it on another file system or on
//! another directory of the same one. Mounts that appear during the removal are kept as well. No
//! member of any store is touched, nor a directory that contains one.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::root::{Parent, RemovedCount, RemovedFiles, is_mount_point};
use super::{Root, TreeSink};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_io::beneath::{ParentDirectory, failure, shown};
use pinstripe_io::mounts::MountIdentity;
use pinstripe_member::tree::is_at_or_below;

/// The file that identifies a directory as a member.
const MEMBER_LABEL: &[u8] = b"pinstripe.member";

/// The names that a snapshot has in a directory, each with a flag that says whether it is a
/// directory.
pub(crate) type WantedNames = HashMap<Vec<u8>, bool>;

/// The entries of a directory of the target that the snapshot lacks.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// The names that the snapshot lacks.
    pub extra: Vec<Vec<u8>>,
    /// The names of directories that are in the way of an entry of another type in the snapshot.
    pub in_the_way: Vec<Vec<u8>>,
    /// The directory is on another mount than the directories that the user named: nothing in it is
    /// removed.
    pub is_elsewhere: bool,
}

impl TreeSink {
    /// Returns the strangers in the directory at `path`; none when it is missing or is a member.
    ///
    /// # Errors
    /// Fails with the error of the system.
    pub(crate) fn strangers(&self, path: &[u8], wanted: &WantedNames) -> Result<Strangers> {
        let root = &self.root;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = match root.open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Strangers::default()),
            Err(errno) => return Err(failure("cannot open the directory", path, errno)),
        };
        let io = |errno| failure("cannot list the directory", path, errno);
        let is_elsewhere = !root.is_on_mount_of_base(directory.as_fd(), path).map_err(io)?;
        let mut found = Strangers { is_elsewhere, ..Strangers::default() };
        for (name, kind) in list(directory.as_fd()).map_err(io)? {
            if name == MEMBER_LABEL {
                return Ok(Strangers::default());
            }
            match wanted.get(&name) {
                None => found.extra.push(name),
                Some(false) if is_directory(directory.as_fd(), &name, kind) => {
                    found.in_the_way.push(name);
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    /// Returns the outermost directory at or above `path` that is on another mount than the
    /// directory that the user named.
    #[must_use]
    pub(crate) fn mount_point_above(&self, path: &[u8]) -> Vec<u8> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let is_elsewhere = |path: &&[u8]| {
            let opened = self.root.open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
            opened.is_ok_and(|it| self.root.is_on_mount_of_base(it.as_fd(), path) == Ok(false))
        };
        ends.map(|end| &path[..end]).find(is_elsewhere).unwrap_or(path).to_vec()
    }

    /// Returns the mount of the directory at `path`, or of the innermost existing directory above
    /// it.
    pub(crate) fn mount_of(&self, path: &[u8]) -> Option<MountIdentity> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut above: Vec<_> = ends.map(|end| &path[..end]).collect();
        above.insert(0, b"");
        above.push(path);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let found =
            above.into_iter().rev().find_map(|it| self.root.open(it, flags, Mode::empty()).ok());
        MountIdentity::of_open(found?.as_fd()).ok()
    }

    /// Removes the entry at `path` with everything in it. `show` gets each entry with its bytes, the
    /// content of a directory before the directory itself.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when the entry is a mount point or a member of a store, or
    /// contains one; these are kept. Fails with the errors of the system in all other cases.
    pub fn remove(
        &self,
        path: &[u8],
        removed: &mut RemovedCount,
        show: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        self.root.remove(path, removed, show)
    }

    /// Like [`TreeSink::remove`], but removes nothing. `files` are those that were counted before.
    ///
    /// # Errors
    /// Fails with the errors of [`TreeSink::remove`].
    pub(crate) fn count(
        &self,
        path: &[u8],
        files: &mut RemovedFiles,
        counted: &mut RemovedCount,
        show: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        let base = RemovalBase::for_path(&self.root, path)?;
        base.walk(path, &mut |_, _| Ok(()))?;
        base.walk(path, &mut |path, stat| {
            let bytes = files.bytes(stat);
            counted.add(RemovedCount { entries: 1, bytes });
            show(path, bytes);
            Ok(())
        })
    }

    /// Counts the directories that were emptied and removed so far because something else replaces
    /// them, with everything that was in them.
    #[must_use]
    pub fn cleared(&self) -> RemovedCount {
        *lock(&self.root.cleared)
    }

    /// Fails if the directory at `path` could not be removed to make room for something else.
    /// Changes nothing.
    ///
    /// # Errors
    /// Fails with the errors with which the removal would be refused.
    pub(crate) fn check_clear(&self, path: &[u8]) -> Result<()> {
        if self.root.rules.remove_full {
            self.root.check_base(path)?;
            return RemovalBase::for_path(&self.root, path)?.walk(path, &mut |_, _| Ok(()));
        }
        let directory = RemovalBase::for_path(&self.root, path)?.open(path)?;
        let io = |errno| failure("cannot list the directory", path, errno);
        if super::root::is_empty(&directory).map_err(io)? {
            return Ok(());
        }
        Err(super::root::full_directory(path))
    }
}

impl Root {
    /// See [`TreeSink::remove`].
    fn remove(
        &self,
        path: &[u8],
        removed: &mut RemovedCount,
        show: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        let base = RemovalBase::for_path(self, path)?;
        // All of it is examined first: an entry that must stay is found before anything is removed.
        base.walk(path, &mut |_, _| Ok(()))?;
        base.walk(path, &mut |path, stat| {
            if base.unlink(path, stat.is_none())? {
                let bytes = lock(&self.removed_files).bytes(stat);
                removed.add(RemovedCount { entries: 1, bytes });
                show(path, bytes);
            }
            Ok(())
        })
    }

    /// Removes the directory in the way at `path` with everything in it.
    pub(super) fn empty_directory(&self, path: &[u8]) -> Result<()> {
        self.check_base(path)?;
        let mut removed = RemovedCount::default();
        let done = self.remove(path, &mut removed, &mut |_, _| ());
        lock(&self.cleared).add(removed);
        done
    }

    /// Returns the innermost directory that the user named at or above the directory `path`.
    fn base_of(&self, path: &[u8]) -> Option<&[u8]> {
        let above = self.named.iter().filter(|named| is_at_or_below(path, named));
        above.max_by_key(|named| named.len()).map(|named| &named[..])
    }

    /// Whether an open directory, found at `path`, is on the mount of the directory above it that
    /// the user named.
    fn is_on_mount_of_base(&self, directory: BorrowedFd<'_>, path: &[u8]) -> Result<bool, Errno> {
        match self.base_of(path) {
            Some(base) if base != path => {
                let base = self.open(base, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
                Ok(MountIdentity::of_open(base.as_fd())?
                    .is_same(MountIdentity::of_open(directory)?))
            }
            _ => Ok(true),
        }
    }

    /// Refuses to remove the entry at `path` if its directory is on another mount than the
    /// directory that the user named.
    fn check_base(&self, path: &[u8]) -> Result<()> {
        let parent = self.parent(path)?;
        let above = path[..path.len() - parent.name.len()].strip_suffix(b"/").unwrap_or_default();
        match self.is_on_mount_of_base(parent.as_fd(), above) {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(stays(path, "a file system is mounted on a directory above this entry"))
            }
            Err(errno) => Err(failure("cannot open the directory of this entry", path, errno)),
        }
    }
}

/// The directory in which something is removed.
struct RemovalBase<'r> {
    root: &'r Root,
    directory: ParentDirectory<'r>,
    /// The length of the directory's path, including the slash after it.
    prefix: usize,
    mount: MountIdentity,
}

impl<'r> RemovalBase<'r> {
    /// Opens the directory that holds `path`.
    fn for_path(root: &'r Root, path: &[u8]) -> Result<Self> {
        let Parent { directory, name } = root.parent(path)?;
        let prefix = path.len() - name.len();
        let mount = MountIdentity::of_open(directory.as_fd())
            .map_err(|errno| failure("cannot stat the directory of this entry", path, errno))?;
        Ok(RemovalBase { root, directory, prefix, mount })
    }

    /// Opens the directory at `path` to list it.
    fn open(&self, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let io = |errno| failure("cannot list the directory", path, errno);
        let below = &path[self.prefix..];
        let at = self.directory.as_fd();
        let directory = self.root.way.open(at, below, flags, Mode::empty()).map_err(io)?;
        // Check the open directory: a mount may have appeared since its name was examined.
        match self.mount.is_same(MountIdentity::of_open(directory.as_fd()).map_err(io)?) {
            true => Ok(directory),
            false => Err(is_mount_point(path)),
        }
    }

    /// Returns the directory of `path`, and its last component.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(ParentDirectory<'_>, &'p [u8])> {
        let parent = self.root.way.parent(self.directory.as_fd(), &path[self.prefix..]);
        parent.map_err(|errno| failure("cannot open the directory of this entry", path, errno))
    }

    /// Removes one name; returns whether it existed.
    fn unlink(&self, path: &[u8], is_directory: bool) -> Result<bool> {
        let io = |errno| failure("cannot remove the entry", path, errno);
        let (parent, name) = self.parent(path)?;
        if !self.mount.is_same(MountIdentity::of_open(parent.as_fd()).map_err(io)?) {
            return Err(stays(path, "a file system is mounted on a directory above this entry"));
        }
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(parent.as_fd(), name, flags) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::BUSY) => Err(is_mount_point(path)),
            Err(errno) => Err(io(errno)),
        }
    }

    /// Returns the metadata of `path`; fails if something is mounted there.
    fn stat(&self, path: &[u8]) -> Result<Stat> {
        let io = |errno| failure("cannot stat", path, errno);
        let (parent, name) = self.parent(path)?;
        let stat = rustix::fs::statat(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(io)?;
        match self.mount.is_same(MountIdentity::of_name(parent.as_fd(), name).map_err(io)?) {
            true => Ok(stat),
            false => Err(is_mount_point(path)),
        }
    }

    /// Passes everything at and below `path` to `show`, the content of a directory before the
    /// directory itself.
    fn walk(&self, path: &[u8], show: &mut ShowRemoved<'_>) -> Result<()> {
        // Each directory on the way down with its names not yet visited; none stays open.
        let mut open: Vec<(Vec<u8>, Vec<Vec<u8>>)> = vec![(Vec::new(), vec![path.to_vec()])];
        while let Some((directory, names)) = open.last_mut() {
            let Some(name) = names.pop() else {
                let directory = std::mem::take(directory);
                open.pop();
                if !open.is_empty() {
                    show(&directory, None)?;
                }
                continue;
            };
            let path =
                if directory.is_empty() { name } else { [directory, &b"/"[..], &name].concat() };
            let stat = self.stat(&path)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let names = list(self.open(&path)?.as_fd())
                    .map_err(|errno| failure("cannot list the directory", &path, errno))?;
                let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
                if names.iter().any(|name| name == MEMBER_LABEL) {
                    return Err(stays(&path, "the directory is a member of a store"));
                }
                open.push((path, names));
            } else {
                show(&path, Some(&stat))?;
            }
        }
        Ok(())
    }
}

/// Gets a path, and its metadata unless it is a directory.
type ShowRemoved<'s> = dyn FnMut(&[u8], Option<&Stat>) -> Result<()> + 's;

fn stays(path: &[u8], why: &str) -> Error {
    Error::new(Kind::Refused, format!("this entry was not removed: {why}")).at(shown(path))
}

fn list(directory: BorrowedFd<'_>) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push((name.to_vec(), entry.file_type()));
        }
    }
    Ok(names)
}

fn is_directory(directory: BorrowedFd<'_>, name: &[u8], listed: FileType) -> bool {
    match listed {
        FileType::Unknown => {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Directory)
        }
        listed => listed == FileType::Directory,
    }
}
