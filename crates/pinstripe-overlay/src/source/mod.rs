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

/// Distinguishes one content of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContentVersion {
    /// Bytes of content.
    pub size: u64,
    /// Changes whenever the content may have changed: a directory puts inode, mtime and ctime here.
    pub tag: [u8; 32],
}

/// One entry of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceEntry {
    /// What it is.
    pub kind: FileKind,
    /// The identity of the file, the same for all its names: device and inode.
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
    /// The version of the content.
    pub version: ContentVersion,
}

/// A name in a directory, with its entry if the listing includes that.
pub type ListedName = (Box<[u8]>, Option<SourceEntry>);

/// Files that can be read by ranges.
pub trait RangeSource: Send + Sync + 'static {
    /// The entry at a path; symbolic links are not followed.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the path does not exist; [`Kind::Refused`] for an unclean path.
    fn stat(&self, path: &[u8]) -> Result<SourceEntry>;

    /// The names in a directory, without "." and "..", in any order.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the path does not exist; [`Kind::Usage`] if it is not a directory.
    fn list(&self, path: &[u8]) -> Result<Vec<ListedName>>;

    /// Appends to `out` the bytes of a range that ends within the file.
    ///
    /// # Errors
    /// [`Kind::Changed`] if the file did not have `version` during the entire read, or is gone; the
    /// errors of the source.
    fn read(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()>;

    /// Appends the same to `out` if the bytes are in memory, so that this cannot wait. Returns
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

    /// The file of a version, if it is on this machine and the kernel reads it without waiting for
    /// anything but a disk.
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
    /// [`Kind::NotFound`] if the path does not exist.
    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// The capacity of the source, or its use, in bytes and entries.
    ///
    /// # Errors
    /// The errors of the source.
    fn totals(&self) -> Result<(u64, u64)>;
}

/// The error for content that has changed.
pub(crate) fn changed(path: &[u8]) -> Error {
    Error::new(Kind::Changed, "this file of the source has changed since it was opened")
        .at(shown(path))
        .advice("open the file again to read its new content")
}
