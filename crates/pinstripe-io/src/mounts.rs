//! Mounts: the kernel's table of mounts, `/proc/self/mountinfo` (proc(5)), and the mount through
//! which an open file was reached.

#![allow(clippy::disallowed_methods, reason = "this module reads the kernel's table of mounts")]

use std::borrow::Borrow;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatVfs, StatxFlags};
use rustix::io::Errno;

/// A line of the kernel's table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    /// The numbers of the mounted device, as `MAJOR:MINOR`.
    pub device: String,
    /// The path at which the file system is mounted.
    pub at: PathBuf,
    /// The type of the file system: ext4, xfs, tmpfs.
    pub kind: String,
    /// The device, or the name that the file system gives as its source.
    pub source: PathBuf,
    /// The options of this mount.
    pub options: String,
    /// The options of the file system, which are the same for all of its mounts.
    pub super_options: String,
}

impl MountInfo {
    /// Parses a line of the table; returns `None` if the line is invalid.
    pub fn parse(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mount: Vec<&str> = mount.split(' ').collect();
        let mut file_system = file_system.split(' ');
        Some(MountInfo {
            device: (*mount.get(2)?).to_owned(),
            at: unescaped(mount.get(4)?),
            kind: file_system.next()?.to_owned(),
            source: unescaped(file_system.next().unwrap_or_default()),
            options: (*mount.get(5)?).to_owned(),
            super_options: file_system.next().unwrap_or_default().to_owned(),
        })
    }

    /// All options, of the mount and of the file system.
    pub fn all_options(&self) -> String {
        format!("{},{}", self.options, self.super_options)
    }

    /// Whether the file system has an option of this name without a value.
    pub fn has_super_option(&self, name: &str) -> bool {
        self.super_options.split(',').any(|it| it == name)
    }
}

/// The mounts of a table; invalid lines are skipped.
pub fn parse(table: &str) -> impl Iterator<Item = MountInfo> + '_ {
    table.lines().filter_map(MountInfo::parse)
}

/// The mounts that this process sees; empty if the kernel does not show them.
pub fn of_this_process() -> Vec<MountInfo> {
    // A place that is not UTF-8 must not hide the others.
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    parse(&String::from_utf8_lossy(&table)).collect()
}

/// The mount on the device with these numbers that holds a canonical path: of all mounts of that
/// device, the one with the longest mountpoint above the path.
pub fn holding<M: Borrow<MountInfo>>(
    mounts: impl IntoIterator<Item = M>,
    path: &Path,
    device: u64,
) -> Option<M> {
    let numbers = numbers(device);
    innermost(mounts.into_iter().filter(|it| it.borrow().device == numbers), path)
}

/// The free bytes of a file system; `None` if it reports no size, as ramfs and some FUSE file
/// systems do: the space is then unknown, not used up.
pub fn free_bytes(space: &StatVfs) -> Option<u64> {
    (space.f_blocks > 0).then(|| space.f_bavail.saturating_mul(space.f_frsize))
}

/// The mount that holds a path, which may be relative. Files of btrfs have other device numbers
/// than the mounts of btrfs, so that only the path is compared there.
pub fn of_path(path: &Path) -> Option<MountInfo> {
    let (path, device) = (fs::canonicalize(path).ok()?, fs::metadata(path).ok()?.dev());
    let mounts = of_this_process();
    holding(&mounts, &path, device).or_else(|| innermost(&mounts, &path)).cloned()
}

fn innermost<M: Borrow<MountInfo>>(mounts: impl IntoIterator<Item = M>, path: &Path) -> Option<M> {
    let depth = |it: &M| it.borrow().at.as_os_str().as_bytes().len();
    mounts.into_iter().filter(|it| path.starts_with(&it.borrow().at)).max_by_key(depth)
}

/// The numbers of a device in the form of the table.
pub fn numbers(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// The mount through which a file was reached, and the device of its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountIdentity {
    /// The number of the mount. `None` if neither statx (since Linux 5.8) nor `/proc` returns it.
    id: Option<u64>,
    device: u64,
    is_directory: bool,
}

impl MountIdentity {
    /// The mount of an open file.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn of_open(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let id = by_statx(file, b"", AtFlags::EMPTY_PATH).or_else(|| by_fdinfo(file));
        let stat = rustix::fs::fstat(file)?;
        Ok(Self::new(id, &stat))
    }

    /// The mount of a name in a directory: another mount than the directory's, if something is
    /// mounted there. A symlink is not followed.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn of_name(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Self, Errno> {
        let Some(id) = by_statx(directory, name, AtFlags::empty()) else {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            return Self::of_open(file.as_fd());
        };
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Self::new(Some(id), &stat))
    }

    fn new(id: Option<u64>, stat: &rustix::fs::Stat) -> Self {
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        MountIdentity { id, device: stat.st_dev, is_directory }
    }

    /// Whether both files are on the same mount. Directories on different devices are never on the
    /// same mount: a subvolume of btrfs has a device of its own. Some file systems give files other
    /// device numbers than directories.
    pub fn is_same(self, other: MountIdentity) -> bool {
        let is_one_mount = match (self.id, other.id) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let are_directories = self.is_directory && other.is_directory;
        is_one_mount && (!are_directories || self.device == other.device)
    }
}

fn by_statx(at: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Option<u64> {
    let flags = flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let statx = rustix::fs::statx(at, name, flags, StatxFlags::MNT_ID).ok()?;
    let is_given = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::MNT_ID);
    is_given.then_some(statx.stx_mnt_id)
}

/// The mount number of an open file in /proc, where the kernel shows it since Linux 3.15.
fn by_fdinfo(file: BorrowedFd<'_>) -> Option<u64> {
    let table = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = table.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

/// Decodes a path in this table, or in `/proc/swaps`, in which blanks, tabs, line ends and
/// backslashes are written as three octal digits.
pub(crate) fn unescaped(text: &str) -> PathBuf {
    let (bytes, mut out) = (text.as_bytes(), Vec::with_capacity(text.len()));
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).and_then(|it| std::str::from_utf8(it).ok());
        let code = digits.and_then(|it| u8::from_str_radix(it, 8).ok());
        match code.filter(|_| bytes[at] == b'\\') {
            Some(code) => {
                out.push(code);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                         23 22 8:1 /sub /a\\040b rw - ext4 /dev/sda1 rw,discard\n\
                         no line\n\
                         24 22 8:2 / /srv rw master:3 propagate_from:2 - xfs /dev/sda2 rw";

    #[test]
    fn lines_are_read_by_proc_5() {
        let found: Vec<_> = parse(TABLE).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].all_options(), "rw,relatime,rw,errors=remount-ro");
        assert_eq!((found[1].at.as_path(), found[1].kind.as_str()), (Path::new("/a b"), "ext4"));
        assert!(found[1].has_super_option("discard") && !found[0].has_super_option("discard"));
        assert_eq!(
            (found[2].source.as_path(), found[2].device.as_str()),
            (Path::new("/dev/sda2"), "8:2")
        );
        assert_eq!(MountInfo::parse("29 1 254:0 / - ext4"), None);
    }

    #[test]
    fn the_innermost_mount_of_a_place_is_found() {
        let device = rustix::fs::makedev(8, 1);
        let at = |path: &str| holding(parse(TABLE), Path::new(path), device).map(|it| it.at);
        assert_eq!(at("/etc"), Some("/".into()));
        assert_eq!(at("/a b/c"), Some("/a b".into()));
        assert_eq!(holding(parse(TABLE), Path::new("/etc"), rustix::fs::makedev(9, 1)), None);
    }

    #[test]
    fn a_directory_is_on_the_mount_of_what_is_in_it() {
        let root = fs::File::open("/").unwrap();
        let here = MountIdentity::of_open(root.as_fd()).unwrap();
        assert!(here.is_same(here));
        assert_eq!(by_fdinfo(root.as_fd()), by_statx(root.as_fd(), b"", AtFlags::EMPTY_PATH));
        let proc = MountIdentity::of_name(root.as_fd(), b"proc").unwrap();
        assert!(!here.is_same(proc), "proc is mounted");
        let unknown = |it: MountIdentity| MountIdentity { id: None, ..it };
        assert!(!unknown(here).is_same(unknown(proc)), "the device tells as well");
        let file = MountIdentity { is_directory: false, ..unknown(proc) };
        assert!(unknown(here).is_same(file), "a file may have a device of its own");
    }

    #[test]
    fn this_process_has_a_root() {
        assert!(of_path(Path::new(".")).is_some_and(|it| !it.kind.is_empty()));
    }
}
