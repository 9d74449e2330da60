//! Describes a disk from sysfs: its identity and its settings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use super::{number_of, text};

/// A disk as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskDescription {
    /// The kernel's name: `sda`, `nvme0n1`, `dm-0`.
    pub name: String,
    /// The names of the maker and of the model.
    pub model: Option<String>,
    /// The version of the firmware.
    #[serde(default)]
    pub firmware: Option<String>,
    /// Distinguishes the disk from others of the same model without revealing its serial number:
    /// `#` and eight hex digits derived from the number, too few to recover it. Results of an older
    /// format contain the serial number itself; the digits are then derived when the results are
    /// read.
    #[serde(default, alias = "serial", deserialize_with = "identity")]
    pub identity: Option<String>,
    /// The length in bytes.
    pub bytes: Option<u64>,
    /// Whether the disk has a moving arm.
    pub is_rotational: Option<bool>,
    /// Settings by their names in `/sys/block/NAME/queue`.
    pub settings: BTreeMap<String, String>,
}

/// Settings of a disk that affect measured values.
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

/// The directory in sysfs of the disk with these device numbers, or of the disk that contains the
/// partition with these numbers.
pub(super) fn folder_of(root: &Path, (major, minor): (u32, u32)) -> Option<PathBuf> {
    let folder = fs::canonicalize(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    match folder.join("partition").exists() {
        true => Some(folder.parent()?.to_path_buf()),
        false => Some(folder),
    }
}

pub(super) fn disk_of(root: &Path, number: (u32, u32)) -> Option<DiskDescription> {
    let folder = folder_of(root, number)?;
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let settings = SETTINGS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), text(&folder, &format!("queue/{name}"))?)));
    let model: Vec<String> =
        ["device/vendor", "device/model"].iter().filter_map(|name| text(&folder, name)).collect();
    Some(DiskDescription {
        name,
        model: (!model.is_empty()).then(|| model.join(" ")),
        firmware: ["device/firmware_rev", "device/rev"].iter().find_map(|it| text(&folder, it)),
        identity: serial(&folder).map(|it| made_of(&it)),
        bytes: text(&folder, "size").and_then(|it| it.parse::<u64>().ok()).map(|it| it * 512),
        is_rotational: text(&folder, "queue/rotational").map(|it| it == "1"),
        settings: settings.collect(),
    })
}

/// The serial number of the disk in a directory of sysfs: of an NVMe or virtio disk, or from page
/// 0x80 of a SCSI disk.
fn serial(folder: &Path) -> Option<String> {
    let plain = text(folder, "device/serial").or_else(|| text(folder, "serial"));
    plain.or_else(|| {
        // SPC-4, 7.8.15: four bytes in front of the number.
        let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
        let number = String::from_utf8_lossy(page.get(4..)?).trim().to_owned();
        (!number.is_empty()).then_some(number)
    })
}

/// The serial number of the disk that a path names, or that contains the partition that the path
/// names.
pub(crate) fn serial_of(path: &Path) -> Option<String> {
    serial(&folder_of(Path::new("/"), number_of(path)?)?)
}

/// Derives the digits that replace a serial number.
fn made_of(serial: &str) -> String {
    let hash = blake3::derive_key("pinstripe lab: identity of a disk", serial.trim().as_bytes());
    format!("#{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3])
}

/// Reads the replacement of a serial number, or derives it if the results contain the number.
fn identity<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let is_made = |it: &str| {
        let digits = it.strip_prefix('#').unwrap_or_default();
        digits.len() == 8 && digits.bytes().all(|it| it.is_ascii_hexdigit())
    };
    let found = Option::<String>::deserialize(from)?;
    Ok(found.map(|it| if is_made(&it) { it } else { made_of(&it) }))
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
        put(root, "devices/sda/device/rev", "F7  \n");
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
        assert_eq!(disk.firmware.as_deref(), Some("F7"));
        assert_eq!(serial(&root.join("devices/sda")).as_deref(), Some("S123"));
        assert_eq!(disk.identity, Some(made_of("S123")));
        assert_eq!(disk.settings["scheduler"], "none [mq-deadline]");
        assert_eq!(disk_of(root, (8, 2)), None);
    }

    #[test]
    fn a_serial_number_is_read_as_what_stands_for_it() {
        let of = |key: &str, value: &str| {
            let text = format!(
                r#"{{"name":"sda","model":null,"{key}":"{value}","bytes":null,"is_rotational":null,"settings":{{}}}}"#
            );
            serde_json::from_str::<DiskDescription>(&text).unwrap()
        };
        let old = of("serial", " WD-1234567890 ");
        assert_eq!(old.identity, Some(made_of("WD-1234567890")));
        assert_ne!(old.identity, of("serial", "WD-1234567891").identity);
        let text = serde_json::to_string(&old).unwrap();
        assert!(!text.contains("1234567890") && !text.contains("serial"), "{text}");
        assert_eq!(serde_json::from_str::<DiskDescription>(&text).unwrap(), old);
        assert_eq!(of("identity", "#00c0ffee").identity.as_deref(), Some("#00c0ffee"));
    }
}
