//! Ways to aim at a device that must not be touched, on loop devices; and the one way that is let
//! pass.

use std::process::Command;

use super::*;
use pinstripe_testing::skipped;

fn examined(objections: Vec<Objection>) -> SafetyReport {
    let serial = Some("S123 ".to_owned());
    SafetyReport { path: "/dev/x".into(), serial, bytes: 9, objections, written_at: None }
}

fn typed(serial: Option<&str>) -> Consent<'_> {
    Consent { serial, overwrite_unknown: false }
}

#[test]
fn a_free_device_passes_with_its_number_and_no_other() {
    let free = examined(Vec::new());
    free.allow(typed(Some("S123"))).unwrap();
    for serial in [None, Some(""), Some("S12"), Some("s123"), Some("/dev/x")] {
        assert_eq!(free.allow(typed(serial)).unwrap_err().kind(), Kind::Refused, "{serial:?}");
    }
    let nameless = SafetyReport { serial: None, ..free };
    assert_eq!(nameless.allow(typed(Some(""))).unwrap_err().kind(), Kind::Refused);
}

#[test]
fn a_rehearsal_refuses_what_a_run_does_but_for_a_number_still_to_be_typed() {
    let free = examined(Vec::new());
    for serial in [None, Some("S123")] {
        free.allow_to_ask(typed(serial)).unwrap();
    }
    let error = free.allow_to_ask(typed(Some("S12"))).unwrap_err();
    assert!(error.what().contains("differs from the given one"), "{error}");
    let written = SafetyReport { written_at: Some(3 << 20), ..free };
    let used = examined(vec![Objection::InUse("mounted at /srv".to_owned())]);
    for serial in [None, Some("S123"), Some("S12")] {
        for bad in [&written, &used] {
            let (asked, ran) = (bad.allow_to_ask(typed(serial)), bad.allow(typed(serial)));
            assert_eq!(asked.unwrap_err().to_string(), ran.unwrap_err().to_string());
        }
    }
}

#[test]
fn what_is_not_blank_passes_only_if_both_are_said() {
    let written = SafetyReport { written_at: Some(3 << 20), ..examined(Vec::new()) };
    let error = written.allow(typed(Some("S123"))).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("not blank: it contains data in an unknown format at offset 3.0 MiB")
    );
    assert!(error.advice_text().unwrap().contains("--overwrite-unknown"));
    let all_the_same = |serial| Consent { serial, overwrite_unknown: true };
    assert_eq!(written.allow(all_the_same(None)).unwrap_err().kind(), Kind::Refused);
    assert_eq!(written.allow(all_the_same(Some("S12"))).unwrap_err().kind(), Kind::Refused);
    written.allow(all_the_same(Some("S123"))).unwrap();
    // It overrides nothing else.
    let known = Objection::Carries("an XFS file system".to_owned());
    let known = SafetyReport { objections: vec![known], ..written };
    assert_eq!(known.allow(all_the_same(Some("S123"))).unwrap_err().kind(), Kind::Refused);
}

#[test]
fn every_objection_is_final_and_told() {
    let name = || "/dev/y".to_owned();
    for (objection, said) in [
        (Objection::NoBlockDevice, "not a block device"),
        (Objection::ReadOnly, "read-only"),
        (Objection::InUse("mounted at /srv".to_owned()), "the device is mounted at /srv"),
        (Objection::HasParts("x1, x2".to_owned()), "partitions x1, x2"),
        (
            Objection::WholeInUse(name(), "used as swap".to_owned()),
            "the underlying device /dev/y is used",
        ),
        (Objection::Carries("an XFS file system".to_owned()), "an XFS file system"),
        (
            Objection::WholeCarries(name(), "swap space".to_owned()),
            "/dev/y of the device contains swap space",
        ),
        (Objection::NoSerial, "no serial number"),
        (Objection::Unknown("no permission".to_owned()), "no permission"),
    ] {
        let error = examined(vec![objection]).allow(typed(Some("S123"))).unwrap_err();
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
        Self::on(&file, options, dir)
    }

    /// One on a file or device that is there.
    fn on(file: &Path, options: &[&str], dir: tempfile::TempDir) -> Option<Loop> {
        let made =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        let made = made.ok().filter(|made| made.status.success())?;
        let device = PathBuf::from(String::from_utf8(made.stdout).ok()?.trim());
        Some(Loop { device, dir })
    }

    /// One on the same file, or on the device itself.
    fn beside(&self) -> Option<Loop> {
        Self::on(&self.file(), &[], tempfile::tempdir().ok()?)
    }

    fn above(&self) -> Option<Loop> {
        Self::on(&self.device, &[], tempfile::tempdir().ok()?)
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Puts bytes on it, as the program that makes them would.
    fn put(&self, pieces: &[(u64, &[u8])]) -> Held {
        let device = fs::OpenOptions::new().write(true).open(&self.device).unwrap();
        for (at, bytes) in pieces {
            std::os::unix::fs::FileExt::write_all_at(&device, bytes, *at).unwrap();
        }
        device.sync_all().unwrap();
        Box::new(())
    }

    /// Makes an ext4 and mounts it.
    fn mounted(&self) -> Option<Held> {
        fs::create_dir(self.dir.path().join("mnt")).unwrap();
        let is_done = self.run("mkfs.ext4 -q -F {}") && self.run("mount {} {dir}/mnt");
        is_done.then(nothing)
    }

    fn made(&self, line: &str) -> Option<Held> {
        self.run(line).then(nothing)
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
        found
            .allow(typed(Some(&serial)))
            .map_or_else(|error| error.to_string(), |()| "passes".to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.run("umount {dir}/mnt");
        self.run("swapoff {}");
        // Otherwise it would stay read-only for its next user.
        self.run("blockdev --setrw {}");
        let name = self.device.file_name().unwrap_or_default();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let own = fs::read_to_string(&backing).ok();
        self.run("losetup --detach {}");
        // While another program looks at it, the kernel keeps it, and wakes nothing afterwards.
        for _ in 0..RELEASE_LOOKS {
            if own.is_none() || fs::read_to_string(&backing).ok() != own {
                break;
            }
            std::thread::sleep(RELEASE_LOOK);
        }
    }
}

/// Looks whether a device is released, of which other programs take moments to let go.
const RELEASE_LOOKS: usize = 1000;
const RELEASE_LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// The objects that have to stay alive as long as a device is in use.
type Held = Box<dyn std::any::Any>;

fn nothing() -> Held {
    Box::new(())
}

/// A program that has a device as its standard output.
struct Program(std::process::Child);

impl Program {
    fn with(device: &Path) -> Option<Program> {
        let open = fs::OpenOptions::new().write(true).open(device).ok()?;
        Command::new("sleep").arg("600").stdout(open).spawn().ok().map(Program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A way to aim at a device that must not be touched.
struct Way {
    name: &'static str,
    /// Makes a free device one that must not be touched; none where that cannot be done here.
    make: fn(&Loop) -> Option<Held>,
    /// The objections against it.
    said: &'static str,
}

const END: u64 = 64 << 20;

const WAYS: &[Way] = &[
    Way { name: "mounted", make: Loop::mounted, said: "the device is mounted at" },
    Way {
        name: "swap in use",
        make: |it| (it.run("mkswap {}") && it.run("swapon {}")).then(nothing),
        said: "the device is used as swap",
    },
    Way {
        name: "another loop device on it",
        make: |it| Some(Box::new(it.above()?)),
        said: "the device is used by loop",
    },
    Way {
        name: "another loop device on its file",
        make: |it| Some(Box::new(it.beside()?)),
        said: "is used by loop",
    },
    Way {
        name: "a mount of its file by another loop device",
        make: |it| {
            let other = it.beside()?;
            other.mounted()?;
            Some(Box::new(other))
        },
        said: "is used by loop",
    },
    Way {
        name: "opened by a program for itself alone",
        make: |it| {
            let mut options = fs::OpenOptions::new();
            Some(Box::new(options.read(true).custom_flags(libc::O_EXCL).open(&it.device).unwrap()))
        },
        said: "has opened it exclusively",
    },
    Way {
        name: "mounted where nobody sees it",
        make: |it| {
            it.made("mkfs.ext4 -q -F {}")?;
            Some(Box::new(crate::scratch::Mounted::new(&it.device, "ext4", &[]).ok()?))
        },
        said: "has opened it exclusively",
    },
    Way {
        name: "locked by another process of ours",
        make: |it| {
            let device = FileDevice::open(&it.device, Access::Read, Policy::Buffered).unwrap();
            device.lock().unwrap();
            Some(Box::new(device))
        },
        said: "locked by another process",
    },
    Way {
        name: "opened by a program, as a virtual machine does",
        make: |it| Some(Box::new(Program::with(&it.device)?)),
        said: "the device is opened by process",
    },
    Way {
        name: "read-only",
        make: |it| it.made("blockdev --setro {}"),
        said: "the device is read-only",
    },
    Way { name: "swap", make: |it| it.made("mkswap {}"), said: "the device contains swap space" },
    Way { name: "ext3", make: |it| it.made("mkfs.ext3 -q -F {}"), said: "an ext3 file system" },
    Way { name: "ext4", make: |it| it.made("mkfs.ext4 -q -F {}"), said: "an ext4 file system" },
    Way {
        name: "btrfs",
        make: |it| it.made("mkfs.btrfs -q -f -M {}"),
        said: "a btrfs file system",
    },
    Way { name: "FAT", make: |it| it.made("mkfs.vfat {}"), said: "a FAT file system" },
    Way { name: "XFS", make: |it| Some(it.put(&[(0, b"XFSB")])), said: "an XFS file system" },
    Way {
        name: "a member of LVM",
        make: |it| Some(it.put(&[(512, b"LABELONE"), (536, b"LVM2 001")])),
        said: "an LVM physical volume",
    },
    Way {
        name: "a member of md, superblock 1.2",
        make: |it| Some(it.put(&[(4096, &0xa92b_4efc_u32.to_le_bytes())])),
        said: "a member of an md array",
    },
    Way {
        name: "a member of md, superblock 1.0",
        make: |it| Some(it.put(&[(END - 8192, &0xa92b_4efc_u32.to_le_bytes())])),
        said: "a member of an md array",
    },
    Way {
        name: "encrypted",
        make: |it| Some(it.put(&[(0, b"LUKS\xba\xbe\x00\x02")])),
        said: "an encrypted volume (LUKS)",
    },
    Way {
        name: "a partition table (GPT)",
        make: |it| Some(it.put(&[(512, b"EFI PART"), (450, &[0xee]), (510, &[0x55, 0xaa])])),
        said: "a partition table (GPT)",
    },
    Way {
        name: "a partition table (GPT) of which only the copy is left",
        make: |it| Some(it.put(&[(END - 512, b"EFI PART")])),
        said: "the backup copy of a partition table (GPT)",
    },
    Way {
        name: "a partition table (MBR)",
        make: |it| Some(it.put(&[(450, &[0x83]), (510, &[0x55, 0xaa])])),
        said: "a partition table (MBR)",
    },
    Way {
        name: "a member of an array of ours",
        make: |it| {
            use pinstripe_array::SUPERBLOCK_MAGIC;
            Some(it.put(&[(0, SUPERBLOCK_MAGIC)]))
        },
        said: "a member of an array of pinstripe",
    },
    Way {
        name: "a member of ZFS",
        make: |it| Some(it.put(&[(132 << 10, &0x00ba_b10c_u64.to_le_bytes())])),
        said: "a ZFS device",
    },
    Way {
        name: "an output of split",
        make: |it| Some(it.put(&[(0, b"PINSTRIP\x0a")])),
        said: "an output of 'pinstripe split'",
    },
    Way {
        name: "a disk of Oracle ASM",
        make: |it| Some(it.put(&[(32, b"ORCLDISK")])),
        said: "a disk of Oracle ASM",
    },
    Way {
        name: "text at its beginning",
        make: |it| Some(it.put(&[(0, b"a list of things")])),
        said: "is not blank: it contains data in an unknown format at offset 0",
    },
    Way {
        name: "data in its middle",
        make: |it| Some(it.put(&[(END / 2, &[7; 1 << 20])])),
        said: "is not blank",
    },
    Way {
        name: "a byte at its end",
        make: |it| Some(it.put(&[(END - 1, b"x")])),
        said: "is not blank",
    },
];

#[test]
#[ignore = "with --all: it makes file systems on loop devices"]
fn every_way_to_aim_at_a_used_device_is_refused() {
    let test = "every_way_to_aim_at_a_used_device_is_refused";
    let Some(free) = Loop::new(&[]) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    assert_eq!(free.said(), "passes");
    assert_eq!(examine(&free.device).unwrap().bytes, END);
    // Two more: no number, and another one.
    for serial in [None, Some("/no/such/image"), Some("")] {
        let refused = examine(&free.device).unwrap().allow(typed(serial)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Refused);
    }
    let mut refusals = 2;
    for way in WAYS {
        let device = Loop::new(&[]).unwrap();
        let before = fs::read(device.file()).unwrap();
        let Some(held) = (way.make)(&device) else {
            skipped(test, &format!("'{}' cannot be made here", way.name));
            continue;
        };
        let said = device.said();
        assert!(said.contains(way.said), "{}: {said}", way.name);
        // Looking at it has changed nothing: it passes again where nothing was put on it.
        drop(held);
        if fs::read(device.file()).unwrap() == before && device.run("blockdev --setrw {}") {
            assert_eq!(device.said(), "passes", "{}", way.name);
        }
        refusals += 1;
    }
    // So many need nothing but the kernel.
    assert!(refusals >= 12, "{refusals}");
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

#[test]
fn the_program_that_has_a_device_open_is_named_with_its_number() {
    let test = "the_program_that_has_a_device_open_is_named_with_its_number";
    let Some(device) = Loop::new(&[]) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    let Some(program) = Program::with(&device.device) else {
        return skipped(test, "there is no sleep");
    };
    // Other tests set loop devices up meanwhile, and their programs look at all of these.
    let (first, wanted) =
        ("the device is opened by process ", format!("process {} (sleep)", program.0.id()));
    let said = device.said();
    assert!(said.contains(first) && said.contains(&wanted), "{said}");
    drop(program);
    assert_eq!(device.said(), "passes");
}

#[test]
fn what_only_blkid_knows_is_refused() {
    let test = "what_only_blkid_knows_is_refused";
    let Some(device) = Loop::new(&[]) else {
        return skipped(test, "no loop device can be made: not root, or none left");
    };
    // The log of an XFS file system, which our table lacks: 0xfeedbabe, version 1, and its format.
    let mut log = [0; 512];
    for (at, word) in [(0, 0xfeed_babe_u32), (4, 1), (8, 1), (12, 512), (300, 1)] {
        log[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    device.put(&[(0, &log)]);
    match blkid::probe(&device.device).unwrap() {
        None => skipped(test, "blkid is not installed, or does not know the log of XFS"),
        Some(what) => assert!(device.said().contains(&what), "{}", device.said()),
    }
}
