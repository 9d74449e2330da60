//! The physical disk of a path: two partitions of one disk share its failures and its arm.
//!
//! Read from sysfs. A file system without a block device (overlay, tmpfs, network) counts as a disk
//! of its own; for btrfs, the device counts that the kernel's table of mounts names. No guess is
//! made across several disks: a RAID or a volume over more than one disk counts as a disk of its
//! own.

#![allow(clippy::disallowed_methods, reason = "reads sysfs")]

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::mounts::{self, MountInfo};

/// sysfs's directory of devices.
const BY_NUMBER: &str = "/sys/dev/block";
/// The most stacked devices that are followed: dm-crypt on LVM on a partition are three.
const MAX_STACK: usize = 8;

/// A whole disk. Two values are equal if they are the same disk.
#[derive(Debug, Clone)]
pub struct Disk {
    major: u32,
    minor: u32,
    name: String,
}

impl Disk {
    /// The kernel's name of the disk, such as `sda`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of the disk, `(major, minor)`.
    pub fn number(&self) -> (u32, u32) {
        (self.major, self.minor)
    }
}

impl PartialEq for Disk {
    fn eq(&self, other: &Disk) -> bool {
        self.number() == other.number()
    }
}

impl Eq for Disk {}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.name, self.major, self.minor)
    }
}

/// The disk that holds `path`; `None` when the path cannot be examined.
pub fn physical_disk(path: impl AsRef<Path>) -> Option<Disk> {
    let device = rustix::fs::stat(path.as_ref()).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let disk = disk_of_device(Path::new(BY_NUMBER), major, minor);
    if major != 0 {
        return Some(disk);
    }
    let mount = mounts::of_path(path.as_ref());
    // Each subvolume of btrfs has a number of its own, and all are on the devices of one file
    // system. The table of mounts names one of these devices.
    let btrfs = mount.as_ref().filter(|mount| mount.kind == "btrfs");
    let below = btrfs.and_then(|mount| of_block_device(&mount.source));
    let named = |mount: MountInfo| Disk { name: mount.kind, ..disk.clone() };
    Some(below.unwrap_or_else(|| mount.map_or(disk.clone(), named)))
}

/// The disk of a block device; `None` if the path is not one.
fn of_block_device(path: &Path) -> Option<Disk> {
    let found = fs::metadata(path).ok()?;
    if !found.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    Some(disk_of_device(Path::new(BY_NUMBER), major, minor))
}

/// The disk of a device, or of the file system that holds a file; `None` when the path cannot be
/// examined.
pub fn disk_of(path: impl AsRef<Path>) -> Option<Disk> {
    of_block_device(path.as_ref()).or_else(|| physical_disk(path))
}

/// Follows a device down to its disk; `by_number` is sysfs's directory of devices by number.
fn disk_of_device(by_number: &Path, major: u32, minor: u32) -> Disk {
    let own = |name| Disk { major, minor, name };
    // Major 0 is not a device: the number only distinguishes file systems.
    if major == 0 {
        return own("a file system without a device".to_owned());
    }
    let Ok(device) = fs::canonicalize(by_number.join(format!("{major}:{minor}"))) else {
        return own("device".to_owned());
    };
    let disk = lowest(device);
    match (number_of(&disk), disk.file_name()) {
        (Some((major, minor)), Some(name)) => {
            Disk { major, minor, name: name.to_string_lossy().into_owned() }
        }
        _ => own("device".to_owned()),
    }
}

/// Follows a device's sysfs directory to that of the one disk below it.
fn lowest(mut device: PathBuf) -> PathBuf {
    for _ in 0..MAX_STACK {
        let below = if device.join("partition").exists() {
            device.parent().map(Path::to_path_buf)
        } else {
            only_slave(&device)
        };
        match below {
            Some(below) => device = below,
            None => break,
        }
    }
    device
}

/// The device below a mapped device (encryption, a plain volume), if there is exactly one.
fn only_slave(device: &Path) -> Option<PathBuf> {
    let mut slaves = fs::read_dir(device.join("slaves")).ok()?;
    let first = slaves.next()?.ok()?;
    if slaves.next().is_some() {
        return None;
    }
    fs::canonicalize(first.path()).ok()
}

fn number_of(device: &Path) -> Option<(u32, u32)> {
    let text = fs::read_to_string(device.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs with sda (sda1, sda2), sdb, dm-0 on sda2, and md0 on sda1 and sdb.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("devices");
        fs::create_dir(root.path().join("numbers")).unwrap();
        let make = |path: &str, number: &str| {
            let dir = devices.join(path);
            fs::create_dir_all(dir.join("slaves")).unwrap();
            fs::write(dir.join("dev"), format!("{number}\n")).unwrap();
            symlink(&dir, root.path().join("numbers").join(number)).unwrap();
        };
        let stack = |upper: &str, lower: &str| {
            let name = Path::new(lower).file_name().unwrap();
            symlink(devices.join(lower), devices.join(upper).join("slaves").join(name)).unwrap();
        };
        make("sda", "8:0");
        for (partition, number) in [("sda/sda1", "8:1"), ("sda/sda2", "8:2")] {
            make(partition, number);
            fs::write(devices.join(partition).join("partition"), "1\n").unwrap();
        }
        make("sdb", "8:16");
        make("dm-0", "254:0");
        stack("dm-0", "sda/sda2");
        make("md0", "9:0");
        stack("md0", "sda/sda1");
        stack("md0", "sdb");
        root
    }

    #[test]
    fn partitions_and_what_stands_on_them_are_their_disk() {
        let root = sysfs();
        let disk = |major, minor| disk_of_device(&root.path().join("numbers"), major, minor);
        assert_eq!(disk(8, 1).to_string(), "sda (8:0)");
        assert_eq!(disk(8, 1), disk(8, 2));
        assert_eq!(disk(254, 0), disk(8, 0));
        assert_ne!(disk(8, 16), disk(8, 0));
        assert_eq!(disk(9, 0).to_string(), "md0 (9:0)");
    }

    #[test]
    fn what_has_no_device_or_is_unknown_is_a_disk_of_its_own() {
        let root = sysfs();
        let disk = |major, minor| disk_of_device(&root.path().join("numbers"), major, minor);
        assert_eq!(disk(0, 45).number(), (0, 45));
        assert_ne!(disk(0, 45), disk(0, 46));
        assert_eq!(disk(99, 1).number(), (99, 1));
    }

    #[test]
    fn a_real_path_has_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(physical_disk(dir.path()), physical_disk(dir.path().join(".")));
        assert!(physical_disk(dir.path()).is_some());
        assert!(physical_disk(dir.path().join("missing")).is_none());
    }
}
