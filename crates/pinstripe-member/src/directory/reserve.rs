//! Reserved space and inodes on a member, so that deleting, and adding a member, work even when the
//! member's disk is full.
//!
//! A deletion begins with puts of small objects: marks, sessions, the steps of gc. To add a member,
//! the labels of all other members are written again. A dummy file occupies the space that such
//! small objects need, and a directory of empty files occupies the inodes. The dummy files are
//! removed when there is no other space, and created again by the next sweep that finds some. They
//! are not part of the store: nothing reads them, and their absence means only that the reserve is
//! used up.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, StatVfs};
use rustix::io::Errno;

use super::tree::Tree;

/// The size of the reserve on a large disk: enough for the marks of hundreds of snapshots.
const MOST_BYTES: u64 = 1 << 20;
/// The reserve is at most this fraction of a small file system: 1 in `PARTS`.
const PARTS: u64 = 32;
const BLOCK_BYTES: u64 = 4096;
/// The number of reserved inodes on a large disk.
const MOST_INODES: u64 = 32;
/// The reserve is at most this fraction of the inodes of a small file system.
const INODE_PARTS: u64 = 8;

/// The size of the reserve on a file system.
pub(super) fn bytes(space: &StatVfs) -> u64 {
    let part = space.f_blocks.saturating_mul(space.f_frsize) / PARTS;
    part.min(MOST_BYTES) / BLOCK_BYTES * BLOCK_BYTES
}

/// The number of inodes to reserve; 0 on a file system that makes inodes as they are needed.
fn inodes(space: &StatVfs) -> u64 {
    (space.f_files / INODE_PARTS).min(MOST_INODES)
}

/// Whether a file system has less space or fewer inodes left than a reserve needs.
pub(super) fn is_full(space: &StatVfs, free_bytes: u64) -> bool {
    free_bytes < bytes(space) || space.f_favail < inodes(space)
}

/// The name of the reserve's file in the member's own directory.
pub(crate) const NAME: &str = "pinstripe.reserve";
/// The name of the directory of empty files in the member's own directory.
pub(super) const INODES: &str = "pinstripe.inodes";

impl Tree {
    /// Creates the reserve if it is missing and there is space for it.
    pub(crate) fn keep_reserve(&self) -> io::Result<()> {
        let space = fs::fstatvfs(self.root())?;
        self.keep_inodes(inodes(&space))?;
        self.keep_bytes(bytes(&space))
    }

    fn keep_inodes(&self, wanted: u64) -> io::Result<()> {
        // They are created in this order and removed in the other: the last one shows that all
        // exist.
        let Some(last) = wanted.checked_sub(1).map(inode_name) else { return Ok(()) };
        if fs::statat(self.root(), &last, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        match fs::mkdirat(self.root(), INODES, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        (0..wanted).try_for_each(|number| {
            fs::openat(self.root(), inode_name(number), flags, Mode::from_raw_mode(0o600))?;
            Ok(())
        })
    }

    fn keep_bytes(&self, wanted: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if wanted == 0 {
            return Ok(());
        }
        let file = fs::openat(self.root(), NAME, flags, Mode::from_raw_mode(0o600))?;
        let stat = fs::fstat(&file)?;
        // Blocks count 512 bytes each; a file with holes reserves nothing.
        let taken = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        if stat.st_size as u64 >= wanted && taken >= wanted {
            return Ok(());
        }
        let made = match fs::fallocate(&file, FallocateFlags::empty(), 0, wanted) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => fill(&File::from(file), wanted),
            made => made.map_err(io::Error::from),
        };
        // A partial reserve is useless and occupies space that others need.
        made.inspect_err(|_| {
            let _ = fs::unlinkat(self.root(), NAME, AtFlags::empty());
        })
    }

    /// Removes the reserve. Returns whether there was a reserve to release.
    pub(crate) fn give_reserve(&self) -> bool {
        let unlink = |name: &str| fs::unlinkat(self.root(), name, AtFlags::empty()).is_ok();
        let inodes = (0..MOST_INODES).rev().filter(|number| unlink(&inode_name(*number))).count();
        unlink(NAME) || inodes > 0
    }
}

fn inode_name(number: u64) -> String {
    format!("{INODES}/{number:02}")
}

fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let block = [0; BLOCK_BYTES as usize];
    (0..bytes / BLOCK_BYTES).try_for_each(|at| file.write_all_at(&block, at * BLOCK_BYTES))
}
