//! Converts the kernel's answer about an entry to the metadata that pinstripe stores.
//!
//! Nothing in this module touches a file. Times keep their nanoseconds, permission bits are
//! separate from the file type, and device numbers are stored as the pair that `mknod` takes.

use rustix::fs::{Statx, StatxTimestamp, makedev};

use pinstripe_member::meta::{FileKind, Stat, Time};

/// Converts the kernel's answer; returns `None` for a file type that Linux does not have today.
pub(super) fn from_statx(statx: &Statx) -> Option<Stat> {
    let raw_mode = u32::from(statx.stx_mode);
    Some(Stat {
        kind: FileKind::from_st_mode(raw_mode)?,
        mode: raw_mode & 0o7777,
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        links: u64::from(statx.stx_nlink),
        device: makedev(statx.stx_dev_major, statx.stx_dev_minor),
        inode: statx.stx_ino,
        size_bytes: statx.stx_size,
        blocks: statx.stx_blocks,
        mtime: time(statx.stx_mtime),
        ctime: time(statx.stx_ctime),
        rdev: (statx.stx_rdev_major, statx.stx_rdev_minor),
    })
}

fn time(stamp: StatxTimestamp) -> Time {
    Time { seconds: stamp.tv_sec, nanos: stamp.tv_nsec }
}
