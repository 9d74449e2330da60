//! Calls fstat and returns the result in the types of the formats.

use std::os::fd::BorrowedFd;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::beneath::shown;

use crate::format::meta::{FileKind, Stat, Time};

/// Returns the metadata of an open file, as backups store it.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] for an unknown file type, or with the errors of the system.
pub fn stat_of(fd: BorrowedFd<'_>, path: &[u8]) -> Result<Stat> {
    let stat =
        rustix::fs::fstat(fd).map_err(|errno| Error::io("cannot stat", shown(path), errno))?;
    let kind = FileKind::from_st_mode(stat.st_mode as u32).ok_or_else(|| {
        Error::new(Kind::Unsupported, "this entry has an unknown file type").at(shown(path))
    })?;
    let time = |seconds: i64, nanos: u32| Time { seconds, nanos };
    Ok(Stat {
        kind,
        mode: stat.st_mode as u32 & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: stat.st_nlink as u64,
        device: stat.st_dev as u64,
        inode: stat.st_ino as u64,
        size_bytes: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        mtime: time(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        rdev: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
    })
}
