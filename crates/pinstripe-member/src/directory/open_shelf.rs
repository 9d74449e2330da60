//! One opened directory of a member: its names, and the files in it, for reading.
//!
//! Invariant: no call follows a symlink.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::{Errno, retry_on_intr};

use super::shelf::{Shelf, parse_leaf};
use pinstripe_io::descriptors::patiently;

/// Bytes of names per system call, in a buffer on the stack.
const LISTING_BYTES: usize = 8 * 1024;

/// The largest number of extents that a member may list of one kind, at 16 bytes of memory each.
pub(super) const NAMES_MAX: usize = 8 << 20;
/// Most foreign names in one directory.
const STRANGERS_MAX: usize = 1 << 20;

/// A directory below the root, opened.
pub(super) struct OpenShelf {
    pub(super) shelf: Shelf,
    pub(super) fd: OwnedFd,
}

impl OpenShelf {
    /// Returns the names in the directory, sorted, as bytes.
    ///
    /// # Errors
    /// Fails if there are more than [`STRANGERS_MAX`] names.
    pub fn names(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        self.each_entry(STRANGERS_MAX, |name, _| found.push(name.to_vec()))?;
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the names in the directory that can be an extent's, sorted, each with its file type
    /// if the directory entry has one.
    ///
    /// # Errors
    /// Fails if there are more than `most` such names, or more than [`STRANGERS_MAX`] other names.
    pub fn extents(&mut self, most: usize) -> io::Result<Vec<([u8; 16], FileType)>> {
        let mut found = Vec::new();
        self.each_entry(most.saturating_add(STRANGERS_MAX), |name, kind| {
            if let Some(id) = parse_leaf(name).filter(|_| found.len() <= most) {
                found.push((id, kind));
            }
        })?;
        if found.len() > most {
            return Err(too_many());
        }
        found.sort_unstable_by_key(|(id, _)| *id);
        Ok(found)
    }

    /// Calls `show` with each name in the directory, in no particular order. Moves the read
    /// position of this directory; an open directory has only one.
    fn each_entry(&mut self, most: usize, mut show: impl FnMut(&[u8], FileType)) -> io::Result<()> {
        let mut count = 0;
        fs::seek(&self.fd, fs::SeekFrom::Start(0))?;
        let mut space = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(&self.fd, &mut space);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            count += 1;
            // An endless directory would take all memory.
            if count > most {
                return Err(too_many());
            }
            show(name, entry.file_type());
        }
        Ok(())
    }

    /// Returns the metadata of a name, without following a symlink, or `None` if the name is
    /// missing.
    pub fn stat(&self, leaf: &str) -> io::Result<Option<Stat>> {
        match fs::statat(&self.fd, leaf, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a name refers to this very file.
    pub fn holds(&self, leaf: &str, file: &File) -> io::Result<bool> {
        let ours = fs::fstat(file)?;
        let there = self.stat(leaf)?;
        Ok(there.is_some_and(|it| (it.st_dev, it.st_ino) == (ours.st_dev, ours.st_ino)))
    }

    /// Opens a regular file; returns `None` if it is missing or not a regular file. Never blocks on
    /// a FIFO.
    pub fn open_file(&self, leaf: &str, access: OFlags) -> io::Result<Option<File>> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || retry_on_intr(|| fs::openat(&self.fd, leaf, flags, Mode::empty()));
        match patiently(open) {
            Ok(fd) => Ok(is_regular(&fs::fstat(&fd)?).then(|| File::from(fd))),
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn too_many() -> io::Error {
    io::Error::other("the directory has more files than a member can have")
}

/// Whether `stat` describes a regular file.
pub(super) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}
