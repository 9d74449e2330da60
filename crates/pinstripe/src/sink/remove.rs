//! Removing entries that a snapshot does not have, when that was asked for.
//!
//! Invariants: never removes anything outside the target or through a symlink; never crosses into
//! another file system; never touches a member of a store, whichever store it is of, nor a
//! directory that holds one.

use std::collections::HashSet;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Root, TreeSink};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::{failure, shown};

/// By this file a directory is known as a member.
const MEMBER_LABEL: &[u8] = b"pinstripe.member";

/// Whether to remove, or only to see what would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Count only.
    Counted,
    /// Remove.
    Done,
}

/// The removed entries, or those that would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedCount {
    /// Entries of all kinds.
    pub entries: u64,
    /// Bytes in files whose last name went.
    pub bytes: u64,
}

impl TreeSink {
    /// The names in the directory at `path` that are not among `wanted`. None when the directory is
    /// not there; none when it is empty of wanted names and another file system is mounted on it,
    /// since a backup may have left that out.
    ///
    /// # Errors
    /// As the system says.
    pub fn extra(&self, path: &[u8], wanted: &HashSet<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let root = &self.root;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = match root.open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
            Err(errno) => return Err(failure("cannot open the directory", path, errno)),
        };
        let io = |errno| failure("cannot list the directory", path, errno);
        if wanted.is_empty() && !path.is_empty() {
            let above = root.parent(path)?;
            let device = rustix::fs::fstat(above.as_fd()).map_err(io)?.st_dev;
            if rustix::fs::fstat(&directory).map_err(io)?.st_dev != device {
                return Ok(Vec::new());
            }
        }
        let names = list(directory.as_fd()).map_err(io)?;
        if names.iter().any(|name| name == MEMBER_LABEL) {
            return Ok(Vec::new());
        }
        let is_extra = |name: &Vec<u8>| !wanted.contains(name);
        Ok(names.into_iter().filter(is_extra).collect())
    }

    /// Removes the entry at `path` with all that is in it, or counts it.
    ///
    /// # Errors
    /// [`Kind::Refused`] when it holds a member of a store or another file system, which stay;
    /// otherwise as the system says.
    pub fn remove(&self, path: &[u8], removal: Removal, removed: &mut RemovedCount) -> Result<()> {
        match removal {
            Removal::Done => remove(&self.root, path, removed),
            Removal::Counted => walk(&self.root, path, removed, &mut |_, _| Ok(())),
        }
    }
}

pub(super) fn remove(root: &Root, path: &[u8], removed: &mut RemovedCount) -> Result<()> {
    // All of it is examined first: an entry that must stay is found before anything is removed.
    walk(root, path, &mut RemovedCount::default(), &mut |_, _| Ok(()))?;
    walk(root, path, removed, &mut |path, is_directory| {
        let parent = root.parent(path)?;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(parent.as_fd(), parent.name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failure("cannot remove it", path, errno)),
        }
    })
}

/// Shows everything at and below `path`, the content of a directory before the directory.
fn walk(
    root: &Root,
    path: &[u8],
    seen: &mut RemovedCount,
    show: &mut dyn FnMut(&[u8], bool) -> Result<()>,
) -> Result<()> {
    let stat_of = |path: &[u8]| {
        let parent = root.parent(path)?;
        parent.stat().map_err(|errno| failure("cannot stat", path, errno))
    };
    let device = stat_of(path)?.st_dev;
    // Each directory on the way down with its names not yet visited; no descriptor stays open.
    let mut open: Vec<(Vec<u8>, Vec<Vec<u8>>)> = vec![(Vec::new(), vec![path.to_vec()])];
    while let Some((directory, names)) = open.last_mut() {
        let Some(name) = names.pop() else {
            let directory = std::mem::take(directory);
            open.pop();
            if !open.is_empty() {
                seen.entries += 1;
                show(&directory, true)?;
            }
            continue;
        };
        let path = if directory.is_empty() { name } else { [directory, &b"/"[..], &name].concat() };
        let stat = stat_of(&path)?;
        if stat.st_dev != device {
            return Err(stays(&path, "another file system is mounted there"));
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let names = root
                .open(&path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .and_then(|directory| list(directory.as_fd()))
                .map_err(|errno| failure("cannot list the directory", &path, errno))?;
            if names.iter().any(|name| name == MEMBER_LABEL) {
                return Err(stays(&path, "it is a member of a store"));
            }
            open.push((path, names));
        } else {
            seen.entries += 1;
            if stat.st_nlink == 1 {
                seen.bytes += stat.st_size as u64;
            }
            show(&path, false)?;
        }
    }
    Ok(())
}

fn stays(path: &[u8], why: &str) -> Error {
    Error::new(Kind::Refused, format!("is not removed: {why}")).at(shown(path))
}

fn list(directory: std::os::fd::BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}
