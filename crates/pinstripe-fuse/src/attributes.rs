//! Converts the attributes of a node to the form that the kernel uses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use pinstripe_io::file_tree::{FileKind, Node};

/// The cache time of names and attributes that never change: those of a tree that lasts.
const CACHED_FOREVER: Duration = Duration::from_secs(1 << 30);
/// The cache time of names and attributes that may change at any time.
const CACHED_BRIEFLY: Duration = Duration::from_secs(1);
pub(crate) const BLOCK_BYTES: u32 = 4096;
/// The unit of st_blocks (stat(2)), in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// The time for which the kernel may cache the attributes of a node.
pub(crate) fn cache_time(node: &Node) -> Duration {
    if node.is_lasting { CACHED_FOREVER } else { CACHED_BRIEFLY }
}

pub(crate) fn kind_of(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn attributes(node: &Node) -> FileAttr {
    let mtime = time_of(node.mtime);
    FileAttr {
        ino: INodeNo(node.inode),
        size: node.size,
        blocks: node.data_bytes.div_ceil(STAT_BLOCK_BYTES),
        atime: mtime,
        mtime,
        ctime: time_of(node.ctime),
        crtime: mtime,
        kind: kind_of(node.kind),
        perm: node.mode as u16,
        nlink: node.links,
        uid: node.uid,
        gid: node.gid,
        rdev: rustix::fs::makedev(node.rdev.0, node.rdev.1) as u32,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Converts a time before or after 1970; a time that the system cannot represent becomes 1970.
fn time_of((seconds, nanos): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds >= 0 {
        true => UNIX_EPOCH.checked_add(whole),
        false => UNIX_EPOCH.checked_sub(whole),
    };
    let time = time.and_then(|time| time.checked_add(Duration::from_nanos(nanos.into())));
    time.unwrap_or(UNIX_EPOCH)
}
