//! Ways to aim at a device that must not be touched, on loop devices; and the one way that is let pass.

use std::process::Command;

use super::*;
use crate::testing::skipped;

fn examined(objections: Vec<Objection>) -> Examined {
    Examined { path: "/dev/x".into(), serial: Some("S123 ".to_owned()), bytes: 9, objections }
}

#[test]
fn a_free_device_passes_with_its_number_and_no_other() {
    let free = examined(Vec::new());
    free.allow(Some("S123")).unwrap();
    for typed in [None, Some(""), Some("S12"), Some("s123"), Some("/dev/x")] {
        assert_eq!(free.allow(typed).unwrap_err().kind(), Kind::Refused, "{typed:?}");
    }
    let nameless = Examined { serial: None, ..free };
    assert_eq!(nameless.allow(Some("")).unwrap_err().kind(), Kind::Refused);
}

#[test]
fn every_objection_is_final_and_told() {
    let name = || "/dev/y".to_owned();
    for (objection, said) in [
        (Objection::NoBlockDevice, "no block device"),
        (Objection::ReadOnly, "read-only"),
        (Objection::InUse("mounted at /srv".to_owned()), "it is mounted at /srv"),
        (Objection::HasParts("x1, x2".to_owned()), "partitions x1, x2"),
        (Objection::WholeInUse(name(), "used as swap".to_owned()), "/dev/y is used as swap"),
        (Objection::Carries("an XFS file system".to_owned()), "an XFS file system"),
        (Objection::WholeCarries(name(), "swap space".to_owned()), "/dev/y carries swap space"),
        (Objection::NoSerial, "no serial number"),
        (Objection::Unknown("no permission".to_owned()), "no permission"),
    ] {
        let error = examined(vec![objection]).allow(Some("S123")).unwrap_err();
        assert_eq!(error.kind(), Kind::Refused);
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn what_is_no_device_is_refused_and_what_is_not_there_told() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path(), Path::new("/dev/null"), Path::new("/proc/self/exe")] {
        let found = examine(path).unwrap();
        assert_eq!(found.objections, [Objection::NoBlockDevice], "{}", path.display());
    }
    assert_eq!(examine(&dir.path().join("gone")).unwrap_err().kind(), Kind::NotFound);
}

/// A loop device on a file of 64 MiB, taken down when it is dropped.
pub(crate) struct Loop {
    device: PathBuf,
    dir: tempfile::TempDir,
}

impl Loop {
    pub(crate) fn new(options: &[&str]) -> Option<Loop> {
        let dir = tempfile::tempdir().ok()?;
        let file = dir.path().join("image");
        fs::File::create(&file).ok()?.set_len(64 << 20).ok()?;
        let made =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(&file).output();
        let made = made.ok().filter(|made| made.status.success())?;
        let device = PathBuf::from(String::from_utf8(made.stdout).ok()?.trim());
        Some(Loop { device, dir })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.device
    }

    /// Runs a program on the device; false where it is not there or fails.
    fn run(&self, line: &str) -> bool {
        let line = line.replace("{}", self.device.to_str().unwrap());
        let line = line.replace("{dir}", self.dir.path().to_str().unwrap());
        let mut words = line.split(' ');
        let ran = Command::new(words.next().unwrap()).args(words).output();
        ran.is_ok_and(|ran| ran.status.success())
    }

    fn said(&self) -> String {
        let found = examine(&self.device).unwrap();
        let serial = found.serial.clone().unwrap_or_default();
        found.allow(Some(&serial)).map_or_else(|error| error.to_string(), |()| "passes".to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.run("umount {dir}/mnt");
        self.run("swapoff {}");
        self.run("losetup --detach {}");
    }
}

#[test]
fn used_devices_are_refused_by_what_they_are_used_for() {
    let test = "used_devices_are_refused_by_what_they_are_used_for";
    let Some(free) = Loop::new(&[]) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    assert_eq!(free.said(), "passes");
    assert_eq!(examine(&free.device).unwrap().allow(None).unwrap_err().kind(), Kind::Refused);
    assert_eq!(examine(&free.device).unwrap().bytes, 64 << 20);
    for (make, part) in [
        ("mkfs.ext4 -q {}", "an ext"),
        ("mkfs.btrfs -q -f -M {}", "a btrfs file system"),
        ("mkswap {}", "swap space"),
        ("mkfs.vfat {}", "FAT"),
    ] {
        let device = Loop::new(&[]).unwrap();
        if !device.run(make) {
            skipped(test, &format!("'{make}' cannot be run"));
        } else {
            assert!(device.said().contains(part), "{make}: {}", device.said());
        }
    }
    let mounted = Loop::new(&[]).unwrap();
    fs::create_dir(mounted.dir.path().join("mnt")).unwrap();
    if mounted.run("mkfs.ext4 -q {}") && mounted.run("mount {} {dir}/mnt") {
        assert!(mounted.said().contains("mounted at"), "{}", mounted.said());
    } else {
        skipped(test, "a file system cannot be mounted");
    }
    let read_only = Loop::new(&["--read-only"]).unwrap();
    assert!(read_only.said().contains("read-only"), "{}", read_only.said());
}

#[test]
fn parts_and_their_disks_are_refused() {
    let test = "parts_and_their_disks_are_refused";
    let Some(disk) = Loop::new(&["--partscan"]) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    let table = disk.dir.path().join("table");
    fs::write(&table, "label: gpt\n,16M\n,16M\n").unwrap();
    let script = fs::File::open(&table).unwrap();
    let cut = Command::new("sfdisk").arg("--quiet").arg(&disk.device).stdin(script).output();
    let first = PathBuf::from(format!("{}p1", disk.device.display()));
    if !cut.is_ok_and(|cut| cut.status.success()) || !first.exists() {
        return skipped(test, "a loop device cannot be partitioned");
    }
    assert!(disk.said().contains("partitions"), "{}", disk.said());
    // A part of a loop device has no number of its own, nor has the disk.
    let found = examine(&first).unwrap();
    assert_eq!(found.objections, [Objection::NoSerial]);
    // The other part is mounted: this one shares its disk.
    fs::create_dir(disk.dir.path().join("mnt")).unwrap();
    if disk.run("mkfs.ext4 -q {}p2") && disk.run("mount {}p2 {dir}/mnt") {
        let objections = examine(&first).unwrap().objections;
        let shared = |it: &Objection| matches!(it, Objection::WholeInUse(..));
        assert!(objections.iter().any(shared), "{objections:?}");
    } else {
        skipped(test, "a file system cannot be mounted");
    }
}
