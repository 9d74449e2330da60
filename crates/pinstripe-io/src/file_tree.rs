//! The interface of read-only file systems: one part of the program provides a tree of files,
//! another part shows it.
//!
//! The tree assigns inode numbers; 1 is its root, and a number names the same file as long as the
//! tree is shown. Names are bytes. Calls come from many threads at once.
//!
//! A tree that keeps state for each inode counts its mentions: each answer of `lookup` and each
//! entry from `list` adds one, and `forget` subtracts them.

use std::ops::Range;
use std::os::fd::OwnedFd;

use pinstripe_base::error::Result;

/// The root's inode number.
pub const ROOT: u64 = 1;

/// The kinds of entries that a directory can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Directory,
    /// A symbolic link; its target is a string of bytes, and is not followed by this module.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
}

impl FileKind {
    /// The kind given by the type bits of an `st_mode`; `None` if these bits are invalid.
    pub fn from_st_mode(st_mode: u32) -> Option<Self> {
        Some(match st_mode & 0o170_000 {
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            0o020_000 => FileKind::CharDevice,
            0o060_000 => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// The name of the kind in messages, with an article.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::File => "a regular file",
            FileKind::Directory => "a directory",
            FileKind::Symlink => "a symlink",
            FileKind::Fifo => "a named pipe",
            FileKind::Socket => "a socket",
            FileKind::CharDevice => "a character device",
            FileKind::BlockDevice => "a block device",
        }
    }
}

/// An entry of a tree, with its attributes as in stat(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The inode number.
    pub inode: u64,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
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
    /// Whether names and attributes never change, so that the kernel need not ask again.
    pub is_lasting: bool,
}

/// A function that receives the entries of a directory: the offset of the next entry, the name, the
/// entry. The function returns whether it accepts another entry.
pub type TakeEntry<'t> = &'t mut dyn FnMut(u64, &[u8], &Node) -> bool;

/// How files of a tree are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOpening {
    /// The tree is not asked when a file is opened; the kernel keeps cached content from one open
    /// to the next.
    Untold,
    /// The inode is still the one at its path, so that content in the kernel's cache is valid.
    Current,
}

/// A read-only tree of files.
pub trait FileTree: Send + Sync + 'static {
    /// The entry with a given name in a directory.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when the directory has
    /// no such name.
    fn lookup(&self, directory: u64, name: &[u8]) -> Result<Node>;

    /// The file that an inode number names.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when the file no longer
    /// exists.
    fn node(&self, inode: u64) -> Result<Node>;

    /// Passes the entries of a directory, without "." and "..", from the offset `from` on: 0, or
    /// the offset that was passed with an entry.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`](pinstripe_base::error::Kind::Usage) if the inode is not a
    /// directory.
    fn list(&self, directory: u64, from: u64, take: TakeEntry<'_>) -> Result<()>;

    /// Appends the bytes of a file in `range` to `out`, up to the end of the file.
    ///
    /// # Errors
    /// Fails when any byte of the range cannot be read.
    fn read(&self, inode: u64, range: Range<u64>, out: &mut Vec<u8>) -> Result<()>;

    /// Passes the bytes of a file in `range`, up to the end of the file, in one piece: directly
    /// from the tree's memory if they are contiguous there, else gathered in `buffer`.
    ///
    /// # Errors
    /// Fails with the errors of [`read`](Self::read); in that case nothing was passed.
    fn give(
        &self,
        inode: u64,
        range: Range<u64>,
        buffer: &mut Vec<u8>,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        buffer.clear();
        self.read(inode, range, buffer)?;
        give(buffer);
        Ok(())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`](pinstripe_base::error::Kind::Usage) if the inode is not a
    /// symbolic link.
    fn target(&self, inode: u64) -> Result<Vec<u8>>;

    /// Extended attributes: names and values.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is no such
    /// inode.
    fn xattrs(&self, inode: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Whether no entry of the tree has an extended attribute of this name. The kernel then answers
    /// programs itself, and does not ask the tree again. Caching the answer matters because `ls -l`
    /// asks for ACLs and labels of every entry.
    fn has_nowhere(&self, _name: &[u8]) -> bool {
        false
    }

    /// Receives a hint from a program about how it will read a file.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`](pinstripe_base::error::Kind::Usage) for an unknown hint.
    fn hint(&self, inode: u64, text: &[u8]) -> Result<()>;

    /// The ranges of a file that are data; all other ranges are holes.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is no such
    /// inode.
    fn data(&self, inode: u64) -> Result<Vec<Range<u64>>>;

    /// The number of bytes and entries of the entire tree, as for statfs(2).
    fn totals(&self) -> (u64, u64);

    /// Called when a program opens a file.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`](pinstripe_base::error::Kind::Changed) when another file is at
    /// the path of the inode now: the kernel then looks the path up again.
    fn open(&self, _inode: u64) -> Result<FileOpening> {
        Ok(FileOpening::Untold)
    }

    /// A local file with the present bytes of an inode, which the kernel may read directly; `None`
    /// if reads must go through the tree.
    fn backing(&self, _inode: u64) -> Option<OwnedFd> {
        None
    }

    /// Subtracts mentions of an inode.
    fn forget(&self, _inode: u64, _mentions: u64) {}
}
