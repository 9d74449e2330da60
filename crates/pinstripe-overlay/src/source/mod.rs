//! The interface to the source of the files: a source lists, describes and reads files.
//!
//! A path is relative, with slashes between names; the empty path is the root. Content has a
//! version: metadata of the source that differs after a change. Calls come from many threads at
//! once and may take long. Implementations pass `conformance.rs`.

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
    /// A tag that changes whenever the content may have changed; for a directory it consists of
    /// inode, mtime and ctime.
    pub tag: [u8; 32],
}

/// One entry of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceEntry {
    /// What it is.
    pub kind: FileKind,
    /// The identity of the file, which all its names share: device and inode.
    pub identity: (u64, u64),
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Bytes of data, without holes.
    pub data_bytes: u64,
    /// Hard links.
    pub links: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// Time of the last change of the content: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Time of the last change of the inode, in the same form.
    pub ctime: (i64, u32),
    /// The version of the content.
    pub version: ContentVersion,
}

/// A name in a directory, with its entry if the listing includes entries.
pub type ListedName = (Box<[u8]>, Option<SourceEntry>);

/// A source of files that can be read by ranges.
pub trait RangeSource: Send + Sync + 'static {
    /// The entry at a path; symbolic links are not followed.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the path does not exist; with [`Kind::Refused`] for an
    /// unclean path.
    fn stat(&self, path: &[u8]) -> Result<SourceEntry>;

    /// The names in a directory, without "." and "..", in any order.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the path does not exist; with [`Kind::Usage`] if the path
    /// is not a directory.
    fn list(&self, path: &[u8]) -> Result<Vec<ListedName>>;

    /// Appends to `out` the bytes of a range that ends within the file.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`] if the file did not have `version` during the entire read, or
    /// no longer exists; with the errors of the source.
    fn read(
        &self,
        path: &[u8],
        version: &ContentVersion,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()>;

    /// Appends the bytes of a range to `out`, if they are in memory so that the call cannot block.
    /// Returns whether the bytes were appended. The call has no time limit.
    fn read_at_hand(
        &self,
        _path: &[u8],
        _version: &ContentVersion,
        _range: Range<u64>,
        _out: &mut Vec<u8>,
    ) -> bool {
        false
    }

    /// The file with this version, if it is on this machine and the kernel can read it without
    /// waiting for anything but a disk.
    fn local_file(&self, _path: &[u8], _version: &ContentVersion) -> Option<OwnedFd> {
        None
    }

    /// Whether the source is a disk or memory of this machine, where short reads are cheap.
    fn is_local(&self) -> bool {
        false
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if the path is not a symbolic link.
    fn target(&self, path: &[u8]) -> Result<Vec<u8>>;

    /// Extended attributes: names and values.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the path does not exist.
    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// The capacity of the source, or its usage, in bytes and entries.
    ///
    /// # Errors
    /// Fails with the errors of the source.
    fn totals(&self) -> Result<(u64, u64)>;
}

/// The error for content that has changed.
pub(crate) fn changed(path: &[u8]) -> Error {
    Error::new(Kind::Changed, "this file of the source has changed since it was opened")
        .at(shown(path))
        .advice("open the file again to read its new content")
}
