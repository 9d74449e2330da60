//! The interface to the source of the files: they are listed, described and read by ranges.
//!
//! A path is relative, with slashes between names; the root is the empty path. Content has a
//! version: source metadata that differs after a change. Calls come from many threads at once and
//! may take long. Implementations pass `conformance.rs`.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod directory;

use std::ops::Range;
use std::os::fd::OwnedFd;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::shown;
use pinstripe_io::file_tree::FileKind;

pub use directory::DirectorySource;

/// Tells one content of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContentVersion {
    /// Bytes of content.
    pub size: u64,
    /// Differs when anything else about the content may: a directory puts inode, mtime and ctime
    /// here.
    pub tag: [u8; 32],
}

/// One thing in a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceEntry {
    /// What it is.
    pub kind: FileKind,
    /// Which file it is, for all its names: device and inode.
    pub identity: (u64, u64),
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Bytes of data: without holes.
    pub data_bytes: u64,
    /// Hard links.
    pub links: u32,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// Last change of the content: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Last change of the inode, in the same way.
    pub ctime: (i64, u32),
    /// Size, and what else tells the content from any other.
    pub version: ContentVersion,
}

/// A name in a directory, with what it names where the listing tells that at once.
pub type ListedName = (Box<[u8]>, Option<SourceEntry>);

/// Files that can be read by ranges.
pub trait RangeSource: Send + Sync + 'static {
    /// What a path names; a symbolic link is itself what is described.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when nothing is there; [`Kind::Refused`] for a path that is not clean.
    fn stat(&self, path: &[u8]) -> Result<SourceEntry>;

    /// The names in a directory, without "." and "..", in any order.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the path does not exist; [`Kind::Usage`] if it is not a directory.
    fn list(&self, path: &[u8]) -> Result<Vec<ListedName>>;

    /// Appends to `out` the bytes of a range that ends within the file.
    ///
    /// # Errors
    /// [`Kind::Changed`] when the file is not of `version`, or was not all the time, or is gone;
    /// otherwise as the source says.
    fn read(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()>;

    /// Appends the same to `out` where that needs no waiting, because the bytes are in memory;
    /// whether it did. The caller has no deadline for it.
    fn read_at_hand(
        &self,
        _path: &[u8],
        _version: &ContentVersion,
        _range: Range<u64>,
        _out: &mut Vec<u8>,
    ) -> bool {
        false
    }

    /// The file of a version, where it is one of this machine that the kernel reads without waiting
    /// for anything but a disk.
    fn local_file(&self, _path: &[u8], _version: &ContentVersion) -> Option<OwnedFd> {
        None
    }

    /// Whether the source is a disk or memory of this machine: short reads are cheap then.
    fn is_local(&self) -> bool {
        false
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Kind::Usage`] if it is not a symbolic link.
    fn target(&self, path: &[u8]) -> Result<Vec<u8>>;

    /// Extended attributes: names and values.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when nothing is there.
    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Bytes and entries that the source can hold, or has.
    ///
    /// # Errors
    /// As the source says.
    fn totals(&self) -> Result<(u64, u64)>;
}

/// The error for content that is not what it was.
pub(crate) fn changed(path: &[u8]) -> Error {
    Error::new(Kind::Changed, "this file of the source has changed since it was looked at")
        .at(shown(path))
        .advice("open it again to read what it holds now")
}
