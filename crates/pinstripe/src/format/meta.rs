//! What is kept about an entry besides its name and content.

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; never followed.
    Symlink,
    /// A named pipe; never opened.
    Fifo,
    /// A socket; never opened.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A moment as the file system keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds of that second, below 1,000,000,000.
    pub nanos: u32,
}

/// What restore brings back besides name and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, 0o7777 at most.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of content.
    pub mtime: Time,
    /// Extended attributes, ACLs and capabilities among them, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Major and minor number of a device, zero for everything else.
    pub rdev: (u32, u32),
}
