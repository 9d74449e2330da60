//! The environment of a measurement: machine, kernel, disk and its settings, file system and its
//! options.
//!
//! A fact that cannot be read is left out; this module returns no errors. This module judges
//! nothing, and contains nothing that identifies a person's machine or disk, because results are
//! sent by mail.

mod disk;
mod facts;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pinstripe_io::mounts::{self, MountInfo};
use serde::{Deserialize, Serialize};

use self::disk::{disk_of, folder_of};
use crate::machine::Machine;

pub use disk::DiskDescription;
pub(crate) use disk::serial_of;
pub use facts::{Facts, PLACE, differences};

/// The machine and the places that were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Distinguishes machines without naming them: 16 hex digits derived from the machine's id.
    pub host: Option<String>,
    /// Processor, memory, kernel.
    pub machine: Machine,
    /// The frequency governor of the processors.
    pub governor: Option<String>,
    /// Settings of the page cache, by their names in `/proc/sys/vm`.
    pub page_cache: BTreeMap<String, String>,
    /// The directories and devices.
    pub places: Vec<Place>,
}

/// A directory or device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The type of the file system that contains the place.
    pub file_system: Option<String>,
    /// The options of the mount and of the file system.
    pub mount_options: Option<String>,
    /// The size of the file system in bytes, and the bytes that are free for this user.
    pub space: Option<(u64, u64)>,
    /// The disk below.
    pub disk: Option<DiskDescription>,
}

/// Settings of the page cache that determine when writes are delayed.
const PAGE_CACHE: [&str; 6] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_writeback_centisecs",
];

impl Fingerprint {
    /// Takes the fingerprint of this machine and some places.
    pub fn take(places: &[PathBuf]) -> Self {
        Self::below(Path::new("/"), places)
    }

    /// Takes the fingerprint of a system below another root directory.
    fn below(root: &Path, places: &[PathBuf]) -> Self {
        let host = text(root, "etc/machine-id")
            .map(|id| format!("{:016x}", twox_hash::XxHash3_128::oneshot(id.as_bytes()) as u64));
        let page_cache = PAGE_CACHE.iter().filter_map(|name| {
            Some(((*name).to_owned(), text(root, &format!("proc/sys/vm/{name}"))?))
        });
        Fingerprint {
            host,
            machine: Machine::probe(),
            governor: text(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            page_cache: page_cache.collect(),
            places: places.iter().map(|place| Place::below(root, place)).collect(),
        }
    }
}

impl Place {
    fn below(root: &Path, path: &Path) -> Self {
        let number = number_of(path);
        let mount = number.and_then(|number| mount_of(root, path, number));
        let space = rustix::fs::statvfs(path).ok().filter(|_| mount.is_some());
        let space =
            space.and_then(|it| Some((it.f_blocks * it.f_frsize, mounts::free_bytes(&it)?)));
        let disk = number.and_then(|number| {
            let of_source = || number_of(&mount.as_ref()?.source);
            disk_of(root, number).or_else(|| disk_of(root, of_source()?))
        });
        Place {
            path: path.to_string_lossy().into_owned(),
            file_system: mount.as_ref().map(|it| it.kind.clone()),
            mount_options: mount.map(|it| it.all_options()),
            space,
            disk,
        }
    }
}

/// The numbers of the device that a path names, or that contains the path.
pub fn number_of(path: &Path) -> Option<(u32, u32)> {
    let found = fs::metadata(path).ok()?;
    let number = match found.file_type().is_block_device() {
        true => found.rdev(),
        false => found.dev(),
    };
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}

/// The numbers of the disk (not of its partition) that a path names, or that contains the path;
/// under these numbers the kernel counts transferred bytes.
pub(crate) fn disk_number_of(path: &Path) -> Option<(u32, u32)> {
    let root = Path::new("/");
    let numbers = |(major, minor): (u32, u32)| {
        let folder = folder_of(root, (major, minor))?;
        let text = text(&folder, "dev")?;
        let (major, minor) = text.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let number = number_of(path)?;
    numbers(number).or_else(|| numbers(number_of(&mount_of(root, path, number)?.source)?))
}

/// The mount of a path; `None` for a block device.
fn mount_of(root: &Path, path: &Path, (major, minor): (u32, u32)) -> Option<MountInfo> {
    let is_block_device = fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    let path = fs::canonicalize(path).ok().filter(|_| !is_block_device)?;
    let mounts = text(root, "proc/self/mountinfo")?;
    mounts::holding(mounts::parse(&mounts), &path, rustix::fs::makedev(major, minor))
}

fn text(root: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(name)).ok()?;
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let print =
            Fingerprint::below(root.path(), &[root.path().to_path_buf(), "/no/such".into()]);
        assert_eq!((print.host, print.governor), (None, None));
        assert!(print.page_cache.is_empty());
        assert_eq!((&print.places[0].file_system, &print.places[1].disk), (&None, &None));
    }

    #[test]
    fn this_machine_has_a_fingerprint_that_json_keeps() {
        let print = Fingerprint::take(&[std::env::temp_dir()]);
        assert!(print.places[0].file_system.is_some());
        let text = serde_json::to_string(&print).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), print);
    }
}
