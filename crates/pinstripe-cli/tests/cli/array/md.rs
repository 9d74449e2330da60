//! Arrays that md made.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use pinstripe_array::{
    MD_FEATURE_JOURNAL, MD_FEATURE_RESHAPE, MD_SECTOR_BYTES, MD_SUPERBLOCK_OFFSET, MdArrayInfo,
    MdDeviceInfo, MdPlace, MdReshape, MdState, MdSuperblock,
};

use super::serving::Served;
use crate::stand::{Stand, noise};

const DATA_AT: u64 = 1 << 20;
const BYTES: u64 = 4 << 20;

/// A mirror of two files, `a` and `b`, as md makes them.
fn mirror(stand: &Stand, content: &[u8], features: u32) {
    let sectors = BYTES / MD_SECTOR_BYTES;
    for (number, name) in [(0, "a"), (1, "b")] {
        let mut set_name = [0; 32];
        set_name[..9].copy_from_slice(b"host:pool");
        let superblock = MdSuperblock {
            array: MdArrayInfo {
                features,
                set_uuid: [7; 16],
                set_name,
                created: 1_700_000_000,
                level: 1,
                layout: 0,
                size_sectors: sectors,
                chunk_sectors: 0,
                members: 2,
                log: [0; 4],
                reshape: MdReshape::default(),
            },
            device: MdDeviceInfo {
                data_offset_sectors: DATA_AT / MD_SECTOR_BYTES,
                data_sectors: sectors,
                place: MdPlace::V1_2,
                recovery_sectors: 0,
                number,
                corrected_reads: 0,
                uuid: [number as u8; 16],
                flags: 0,
                bad_blocks_shift: 0,
                bad_blocks_sectors: 0,
                bad_blocks_offset_sectors: 0,
            },
            state: MdState { updated: 1_700_000_000, events: 20, resync_sectors: u64::MAX },
            roles: vec![0, 1],
        };
        let file = File::create(stand.path(name)).unwrap();
        file.set_len(DATA_AT + BYTES).unwrap();
        file.write_all_at(&superblock.encode(), MD_SUPERBLOCK_OFFSET).unwrap();
        file.write_all_at(content, DATA_AT).unwrap();
    }
}

fn copy(from: &str, to: &str) -> bool {
    Command::new("nbdcopy").args([from, to]).output().unwrap().status.success()
}

#[test]
fn an_array_of_md_is_shown_and_served() {
    const TEST: &str = "an_array_of_md_is_shown_and_served";
    let stand = Stand::in_memory();
    let content = noise(3, BYTES as usize);
    mirror(&stand, &content, 0);
    for line in ["array examine a", "array assemble pool b a", "array detail pool"] {
        assert_eq!(stand.tell(line).code, 0, "{line}");
    }
    // What md's members carry is as dear as a file system.
    assert_eq!(stand.tell("array create new -l 1 -n 2 a b").code, 14);
    stand.assert("array_md");
    if Command::new("nbdcopy").arg("--version").output().is_err() {
        return pinstripe_testing::not_installed(TEST, "nbdcopy");
    }
    let address = format!("nbd+unix:///pool?socket={}", stand.path("nbd").display());
    let back = stand.path("back").display().to_string();
    let before = fs::read(stand.path("a")).unwrap();
    let served = Served::by_nbd(&stand);
    assert!(copy(&address, &back));
    assert!(fs::read(&back).unwrap() == content);
    fs::write(stand.path("new"), noise(4, BYTES as usize)).unwrap();
    let new = stand.path("new").display().to_string();
    assert!(!copy(&new, &address), "it is read only");
    assert_eq!(stand.run("array manage pool --fail a").code, 14);
    assert_eq!(stand.run("array stop pool").code, 0);
    assert_eq!(served.ended(), 0);
    assert!(fs::read(stand.path("a")).unwrap() == before, "a set that is read is not changed");

    let served = Served::start(&stand, "--nbd unix:{}/nbd --write");
    assert!(copy(&new, &address));
    assert_eq!(stand.run("array stop pool").code, 0);
    assert_eq!(served.ended(), 0);
    for name in ["a", "b"] {
        let member = fs::read(stand.path(name)).unwrap();
        assert!(member[DATA_AT as usize..] == fs::read(&new).unwrap()[..], "{name}");
        let superblock = MdSuperblock::decode(&member[MD_SUPERBLOCK_OFFSET as usize..]).unwrap();
        assert!(superblock.is_clean() && superblock.state.events > 20, "{name}");
    }
}

#[test]
fn what_serve_would_refuse_is_refused_by_assemble() {
    let stand = Stand::in_memory();
    mirror(&stand, &noise(3, BYTES as usize), MD_FEATURE_JOURNAL);
    let ran = stand.run("array assemble pool a b");
    assert_eq!(ran.code, 14, "{}", ran.err);
    assert!(ran.err.contains("has a journal"), "{}", ran.err);
    assert!(ran.err.contains("'pinstripe array assemble NAME DEVICE... --force'"), "{}", ran.err);
    assert_eq!(stand.run("array status pool").code, 11, "it is not registered");
    // A blank device beside them is left out by force, and not otherwise.
    fs::write(stand.path("blank"), vec![0; 1 << 20]).unwrap();
    let forced = stand.run("array assemble pool blank a b --force");
    assert_eq!(forced.code, 0, "{}", forced.err);
    assert!(
        forced.err.contains("blank: this device is left out: the device has no md superblock"),
        "{}",
        forced.err
    );
    let served = Served::by_nbd(&stand);
    assert_eq!(stand.run("array stop pool").code, 0);
    assert_eq!(served.ended(), 0);
    let scanned = stand.run("array detail --scan").out;
    assert!(scanned.starts_with("ARRAY pool metadata=1.2 name=pool UUID=07070707:"), "{scanned}");

    mirror(&stand, &noise(3, BYTES as usize), 0);
    let ran = stand.run("array assemble pool a blank b");
    assert_eq!(ran.code, 11, "{}", ran.err);
    assert!(ran.err.contains("leave out this device"), "{}", ran.err);
    mirror(&stand, &noise(3, BYTES as usize), MD_FEATURE_RESHAPE);
    let ran = stand.run("array assemble pool a b --force");
    assert!(ran.code == 13 && ran.err.contains("in the middle of a reshape"), "{}", ran.err);
    assert_eq!(stand.run("array zero-superblock a").code, 0);
    assert_eq!(stand.run("array examine a").code, 11);
}
