//! What the file system says about one entry: plain values, taken from `statx`.
//!
//! Nothing here touches a file. Times keep their nanoseconds, permission bits are kept apart
//! from the type, and device numbers are kept as the pair that `mknod` wants.

use rustix::fs::{FileType, Statx, StatxTimestamp, makedev};

/// What sort of thing a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; it is never followed.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A moment: seconds since 1970 (negative before it) and nanoseconds after that second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time {
    /// Whole seconds since 1970-01-01 00:00 UTC, rounded down.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanos: u32,
}

/// The metadata of one entry, of the entry itself and never of a symlink's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: `0o7777` at most.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes; of a symlink the length of its target.
    pub size: u64,
    /// Space in use, in units of 512 bytes; less than `size` calls for a sparse file.
    pub blocks_512: u64,
    /// When the content last changed.
    pub mtime: Time,
    /// When the content or the metadata last changed; programs cannot set it.
    pub ctime: Time,
    /// Number of the inode, unique on its `device`.
    pub inode: u64,
    /// The file system (`st_dev`) that it lives on.
    pub device: u64,
    /// How many names it has.
    pub nlink: u32,
    /// Major number, of devices only.
    pub rdev_major: u32,
    /// Minor number, of devices only.
    pub rdev_minor: u32,
}

impl Stat {
    /// What names the inode on this machine: `(device, inode)`, equal for hard links.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Takes over the kernel's answer; `None` for a type that Linux does not have today.
    pub(super) fn from_statx(statx: &Statx) -> Option<Stat> {
        let raw_mode = u32::from(statx.stx_mode);
        let kind = match FileType::from_raw_mode(raw_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Unknown => return None,
        };
        Some(Stat {
            kind,
            mode: raw_mode & 0o7777,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            size: statx.stx_size,
            blocks_512: statx.stx_blocks,
            mtime: time(statx.stx_mtime),
            ctime: time(statx.stx_ctime),
            inode: statx.stx_ino,
            device: makedev(statx.stx_dev_major, statx.stx_dev_minor),
            nlink: statx.stx_nlink,
            rdev_major: statx.stx_rdev_major,
            rdev_minor: statx.stx_rdev_minor,
        })
    }
}

fn time(stamp: StatxTimestamp) -> Time {
    Time { seconds: stamp.tv_sec, nanos: stamp.tv_nsec }
}
