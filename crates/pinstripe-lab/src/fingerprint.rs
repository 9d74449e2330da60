//! What a figure was measured on: machine, kernel, disk and its settings, file system and its options.
//!
//! What cannot be read is left out; nothing here is an error. Never here: a judgement.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// The machine and the places that were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Tells machines apart without naming them: 16 hex digits made of the machine's id.
    pub host: Option<String>,
    /// Processor, memory, kernel.
    pub machine: Machine,
    /// How processors choose their frequency.
    pub governor: Option<String>,
    /// Settings of the page cache, by their names in `/proc/sys/vm`.
    pub page_cache: BTreeMap<String, String>,
    /// The directories and devices.
    pub places: Vec<Place>,
}

/// A directory or device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Its path; what is not UTF-8 in it is replaced.
    pub path: String,
    /// The type of the file system that it is on.
    pub file_system: Option<String>,
    /// How that is mounted, both by the mount and by the file system.
    pub mount_options: Option<String>,
    /// Bytes of the file system, and of these free for us.
    pub space: Option<(u64, u64)>,
    /// The disk below.
    pub disk: Option<Disk>,
}

/// A disk as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// The kernel's name: `sda`, `nvme0n1`, `dm-0`.
    pub name: String,
    /// Who made it and what they call it.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its length in bytes.
    pub bytes: Option<u64>,
    /// Whether it has an arm that moves.
    pub is_rotational: Option<bool>,
    /// Settings by their names in `/sys/block/NAME/queue`.
    pub settings: BTreeMap<String, String>,
}

/// Settings of the page cache that decide when writes are held up.
const PAGE_CACHE: [&str; 6] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_writeback_centisecs",
];
/// Settings of a disk that change what it is measured to do.
const SETTINGS: [&str; 9] = [
    "logical_block_size",
    "max_sectors_kb",
    "nr_requests",
    "physical_block_size",
    "read_ahead_kb",
    "rq_affinity",
    "scheduler",
    "wbt_lat_usec",
    "write_cache",
];

impl Fingerprint {
    /// Takes it, of this machine and some places.
    pub fn take(places: &[PathBuf]) -> Self {
        Self::below(Path::new("/"), places)
    }

    /// The same of what lies below another root.
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
        let mounts = text(root, "proc/self/mountinfo").unwrap_or_default();
        let number = number_of(path);
        let mount = number.and_then(|number| mount_of(&mounts, path, number));
        let space = rustix::fs::statvfs(path).ok().filter(|_| mount.is_some());
        let disk = number.and_then(|number| {
            let of_source = || number_of(Path::new(&mount.as_ref()?.source));
            disk_of(root, number).or_else(|| disk_of(root, of_source()?))
        });
        Place {
            path: path.to_string_lossy().into_owned(),
            file_system: mount.as_ref().map(|it| it.kind.clone()),
            mount_options: mount.map(|it| it.options),
            space: space.map(|it| (it.f_blocks * it.f_frsize, it.f_bavail * it.f_frsize)),
            disk,
        }
    }
}

/// The numbers of the device that a path is on, or is.
pub fn number_of(path: &Path) -> Option<(u32, u32)> {
    let found = fs::metadata(path).ok()?;
    let number = match found.file_type().is_block_device() {
        true => found.rdev(),
        false => found.dev(),
    };
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}

/// The numbers of the whole disk that a path is on, or is: by those the kernel counts what it moves.
pub fn disk_number_of(path: &Path) -> Option<(u32, u32)> {
    let root = Path::new("/");
    let numbers = |(major, minor): (u32, u32)| {
        let folder = folder_of(root, (major, minor))?;
        let text = text(&folder, "dev")?;
        let (major, minor) = text.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let number = number_of(path)?;
    numbers(number).or_else(|| {
        let mounts = text(root, "proc/self/mountinfo")?;
        numbers(number_of(Path::new(&mount_of(&mounts, path, number)?.source))?)
    })
}

struct Mount {
    kind: String,
    source: String,
    options: String,
}

/// The mount of a path, by proc(5): of all with its device's number, the one with the longest
/// place above it.
fn mount_of(mounts: &str, path: &Path, (major, minor): (u32, u32)) -> Option<Mount> {
    let is_block_device = fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    let path = fs::canonicalize(path).ok().filter(|_| !is_block_device)?;
    let numbers = format!("{major}:{minor}");
    let read = |line: &str| {
        let (mount, source) = line.split_once(" - ")?;
        let mount: Vec<&str> = mount.split(' ').collect();
        let source: Vec<&str> = source.split(' ').collect();
        let place = PathBuf::from(mount.get(4)?);
        let is_it = *mount.get(2)? == numbers && path.starts_with(&place);
        is_it.then(|| {
            let options = format!("{},{}", mount[5], source.get(2).unwrap_or(&""));
            let kind = source[0].to_owned();
            let source = source.get(1).unwrap_or(&"").to_string();
            (place.as_os_str().as_bytes().len(), Mount { kind, source, options })
        })
    };
    mounts.lines().filter_map(read).max_by_key(|(depth, _)| *depth).map(|(_, mount)| mount)
}

/// Where sysfs has the disk with these numbers, or the one that it is a partition of.
fn folder_of(root: &Path, (major, minor): (u32, u32)) -> Option<PathBuf> {
    let folder = fs::canonicalize(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    match folder.join("partition").exists() {
        true => Some(folder.parent()?.to_path_buf()),
        false => Some(folder),
    }
}

fn disk_of(root: &Path, number: (u32, u32)) -> Option<Disk> {
    let folder = folder_of(root, number)?;
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let settings = SETTINGS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), text(&folder, &format!("queue/{name}"))?)));
    let model: Vec<String> =
        ["device/vendor", "device/model"].iter().filter_map(|name| text(&folder, name)).collect();
    Some(Disk {
        name,
        model: (!model.is_empty()).then(|| model.join(" ")),
        serial: serial(&folder),
        bytes: text(&folder, "size").and_then(|it| it.parse::<u64>().ok()).map(|it| it * 512),
        is_rotational: text(&folder, "queue/rotational").map(|it| it == "1"),
        settings: settings.collect(),
    })
}

/// The serial number of the disk in a directory of sysfs: of NVMe and virtio, or of SCSI's page 0x80.
fn serial(folder: &Path) -> Option<String> {
    let plain = text(folder, "device/serial").or_else(|| text(folder, "serial"));
    plain.or_else(|| {
        // SPC-4, 7.8.15: four bytes in front of the number.
        let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
        let number = String::from_utf8_lossy(page.get(4..)?).trim().to_owned();
        (!number.is_empty()).then_some(number)
    })
}

/// The serial number of the disk that a path is, or is a partition of.
pub fn serial_of(path: &Path) -> Option<String> {
    disk_of(Path::new("/"), number_of(path)?)?.serial
}

fn text(root: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(name)).ok()?;
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_disk_is_read_with_its_settings_through_a_partition() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "devices/sda/queue/scheduler", "none [mq-deadline]\n");
        put(root, "devices/sda/queue/rotational", "1\n");
        put(root, "devices/sda/size", "2048\n");
        put(root, "devices/sda/device/vendor", "ATA     \n");
        put(root, "devices/sda/device/model", "SPINNER 9\n");
        put(root, "devices/sda/device/vpd_pg80", "\0\0\0\u{4} S123 ");
        put(root, "devices/sda/sda1/partition", "1\n");
        fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        std::os::unix::fs::symlink(root.join("devices/sda/sda1"), root.join("sys/dev/block/8:1"))
            .unwrap();
        let disk = disk_of(root, (8, 1)).unwrap();
        assert_eq!(
            (disk.name.as_str(), disk.bytes, disk.is_rotational),
            ("sda", Some(1 << 20), Some(true))
        );
        assert_eq!(disk.model.as_deref(), Some("ATA SPINNER 9"));
        assert_eq!(disk.serial.as_deref(), Some("S123"));
        assert_eq!(disk.settings["scheduler"], "none [mq-deadline]");
        assert_eq!(disk_of(root, (8, 2)), None);
    }

    #[test]
    fn the_innermost_mount_of_a_place_is_found() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                      23 22 8:1 /sub /nowhere rw - ext4 /dev/sda1 rw\n\
                      24 22 8:2 / /srv rw - xfs /dev/sda2 rw";
        let mount = mount_of(mounts, Path::new("/"), (8, 1)).unwrap();
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext4", "/dev/sda1"));
        assert_eq!(mount.options, "rw,relatime,rw,errors=remount-ro");
        assert!(mount_of(mounts, Path::new("/"), (9, 1)).is_none());
    }

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
