//! The seam of read-only file systems: one part of the program has a tree of files,
//! another one shows it.
//!
//! Inode numbers are the tree's own; 1 is its root, and a number names the same thing as long as the
//! tree is shown. Names are bytes. Calls come from many threads at once.
//!
//! A tree that keeps something for each inode counts its mentions: an answer of `lookup` and an
//! entry that `list` gives are one each, and `forget` takes them back.

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
    /// A symbolic link; its target is a string of bytes, and is never followed here.
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
    /// The kind in the type bits of an `st_mode`; `None` when they are of no kind that exists.
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

    /// The word for people, with its article, as in messages.
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
    /// Whether names and attributes never change: the kernel need not ask again.
    pub is_lasting: bool,
}

/// Receives the entries of a directory: the offset of the next entry, the name, the entry. Returns
/// whether it takes another one.
pub type TakeEntry<'t> = &'t mut dyn FnMut(u64, &[u8], &Node) -> bool;

/// The way in which files of a tree are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOpening {
    /// The tree is not asked: the kernel keeps the content from one open to the next.
    Untold,
    /// The inode still names what its path names, so that content which the kernel has is good.
    Current,
}

/// A read-only tree of files.
pub trait FileTree: Send + Sync + 'static {
    /// The entry of a directory that has a name.
    ///
    /// # Errors
    /// [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is none.
    fn lookup(&self, directory: u64, name: &[u8]) -> Result<Node>;

    /// What an inode number names.
    ///
    /// # Errors
    /// [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is none any more.
    fn node(&self, inode: u64) -> Result<Node>;

    /// Gives the entries of a directory, without "." and "..", from the offset `from` on: 0, or the
    /// offset that was passed with an entry.
    ///
    /// # Errors
    /// [`Kind::Usage`](pinstripe_base::error::Kind::Usage) if the inode is not a directory.
    fn list(&self, directory: u64, from: u64, take: TakeEntry<'_>) -> Result<()>;

    /// Appends to `out` the bytes of a file from `range`, as far as there are any.
    ///
    /// # Errors
    /// When one of the bytes cannot be read.
    fn read(&self, inode: u64, range: Range<u64>, out: &mut Vec<u8>) -> Result<()>;

    /// Gives the bytes of a file from `range` in one piece, as far as there are any: those that the
    /// tree has, where they lie together, else as they were gathered in `buffer`.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); nothing was given then.
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
    /// [`Kind::Usage`](pinstripe_base::error::Kind::Usage) if the inode is not a symbolic link.
    fn target(&self, inode: u64) -> Result<Vec<u8>>;

    /// Extended attributes: names and values.
    ///
    /// # Errors
    /// [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is no such inode.
    fn xattrs(&self, inode: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Whether no entry of the tree has an extended attribute of this name. Programs get this
    /// answer and do not ask again. `ls -l` asks for ACLs and labels of every entry.
    fn has_nowhere(&self, _name: &[u8]) -> bool {
        false
    }

    /// Receives the hint of a program about its reads of a file.
    ///
    /// # Errors
    /// [`Kind::Usage`](pinstripe_base::error::Kind::Usage) for an unknown hint.
    fn hint(&self, inode: u64, text: &[u8]) -> Result<()>;

    /// The ranges of a file that are data; the rest are holes.
    ///
    /// # Errors
    /// [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is no such inode.
    fn data(&self, inode: u64) -> Result<Vec<Range<u64>>>;

    /// Bytes and entries of the whole tree, as statfs(2) tells them.
    fn totals(&self) -> (u64, u64);

    /// Takes in that a program opens a file.
    ///
    /// # Errors
    /// [`Kind::Changed`](pinstripe_base::error::Kind::Changed) when the path of the inode names
    /// something else now: the kernel then looks the path up again.
    fn open(&self, _inode: u64) -> Result<FileOpening> {
        Ok(FileOpening::Untold)
    }

    /// A file of this machine whose bytes are those of an inode now, which the kernel may read by
    /// itself; none where reads are to be asked of the tree.
    fn backing(&self, _inode: u64) -> Option<OwnedFd> {
        None
    }

    /// Takes back mentions of an inode.
    fn forget(&self, _inode: u64, _mentions: u64) {}
}
