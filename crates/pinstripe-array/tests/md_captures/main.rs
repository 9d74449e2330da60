//! Arrays of every version of md's metadata, as md left them on its members (`README.md`), are read;
//! and what cannot be read is refused by name.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use pinstripe_array::{
    MdArray, MdAssembleOptions, MdAssembly, MdVersion, assemble_md_members, md_superblock,
};
use pinstripe_base::error::{Kind, Result};
use pinstripe_io::device::{Device, MemoryDevice, SharedDevice};

const MEMBER_BYTES: usize = 4 << 20;
const BLOCK: usize = 4096;
const READ: MdAssembleOptions = MdAssembleOptions { write: None, force: false };
const FORCE: MdAssembleOptions = MdAssembleOptions { write: None, force: true };

/// The members of a capture.
fn members(name: &str) -> Vec<SharedDevice> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/md_captures");
    let packed = std::fs::read(path.join(format!("{name}.zst"))).unwrap();
    let bytes = zstd::decode_all(&packed[..]).unwrap();
    let device = |(number, member): (usize, &[u8])| {
        let device = MemoryDevice::new(format!("{name}.{number}"));
        device.set_len(MEMBER_BYTES as u64).unwrap();
        device.write_at(0, member).unwrap();
        Arc::new(device) as SharedDevice
    };
    bytes.chunks(MEMBER_BYTES).enumerate().map(device).collect()
}

fn without(name: &str, gone: &[usize]) -> Vec<SharedDevice> {
    let all = members(name).into_iter().enumerate();
    all.filter(|(number, _)| !gone.contains(number)).map(|(_, device)| device).collect()
}

fn block(number: usize) -> Vec<u8> {
    format!("block {number:07}\n").into_bytes().into_iter().cycle().take(BLOCK).collect()
}

/// Reads all of an array, and finds what md wrote.
fn check(array: &MdArray, blocks: usize, what: &str) {
    let mut bytes = vec![0; array.len().unwrap() as usize];
    array.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes.len() / BLOCK, blocks, "{what}");
    for (number, found) in bytes.chunks_exact(BLOCK).enumerate() {
        assert!(found == block(number), "{what}: block {number}");
    }
}

fn refusal(result: Result<MdAssembly>) -> (Kind, String, String) {
    match result {
        Ok(_) => panic!("it was assembled"),
        Err(error) => {
            (error.kind(), error.to_string(), error.advice_text().unwrap_or_default().to_owned())
        }
    }
}

/// Name, members, members that may be lost, blocks of the array.
#[rustfmt::skip]
const READABLE: [(&str, usize, usize, usize); 12] = [
    ("090-raid1", 2, 1, 1008),
    ("090-raid5", 3, 1, 2016),
    ("090-raid6", 4, 2, 2016),
    ("090-raid10", 4, 1, 2016),
    ("10-raid1", 2, 1, 1008),
    ("10-raid5", 3, 1, 2040),
    ("10-raid10", 4, 1, 2016),
    ("11-raid0", 3, 0, 2304),
    ("11-raid5", 3, 1, 1536),
    ("11-raid6", 4, 2, 1536),
    ("12-raid5", 3, 1, 1536),
    ("090-spare", 2, 1, 1008),
];

#[test]
fn every_version_is_read_whole_and_with_members_missing() {
    for (name, count, lost, blocks) in READABLE {
        for gone in 0..=lost {
            for first in (0..count).step_by(pinstripe_testing::every(2)) {
                let gone: Vec<_> = (0..gone).map(|n| (first + n) % count).collect();
                let mut devices = without(name, &gone);
                devices.reverse();
                let found = assemble_md_members(devices, READ).unwrap();
                check(&found.array, blocks, &format!("{name} without {gone:?}"));
                let spares = usize::from(name == "090-spare");
                assert_eq!(found.left_out.len(), spares, "{name}: {:?}", found.left_out);
            }
        }
    }
}

#[test]
fn the_version_is_told() {
    for (name, version) in [
        ("090-raid5", MdVersion::V0_90),
        ("10-raid5", MdVersion::V1_0),
        ("11-raid5", MdVersion::V1_1),
        ("12-raid5", MdVersion::V1_2),
    ] {
        let superblock = md_superblock(&*members(name)[0]).unwrap();
        assert_eq!(superblock.device.place.version, version, "{name}");
        assert!(superblock.is_clean() && superblock.array.level == 5, "{name}");
    }
}

#[test]
fn a_member_that_failed_is_left_out() {
    for (name, blocks) in [("090-degraded", 2016), ("11-degraded", 1536)] {
        let found = assemble_md_members(members(name), READ).unwrap();
        assert_eq!(found.left_out.len(), 1, "{name}");
        assert!(found.left_out[0].place.ends_with(format!("{name}.1")));
        check(&found.array, blocks, name);
    }
}

#[test]
fn a_dirty_array_is_read_whole_and_degraded_only_by_force() {
    for (name, blocks) in [("090-dirty", 2016), ("10-dirty", 2040), ("12-dirty", 1536)] {
        let found = assemble_md_members(members(name), READ).unwrap();
        assert!(!found.array.superblock().is_clean(), "{name}");
        check(&found.array, blocks, name);
        let (kind, what, advice) = refusal(assemble_md_members(without(name, &[1]), READ));
        assert!(kind == Kind::Refused && what.contains("dirty and degraded"), "{name}: {what}");
        assert!(advice.contains("array assemble NAME DEVICE... --force"), "{advice}");
        check(&assemble_md_members(without(name, &[1]), FORCE).unwrap().array, blocks, name);
    }
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    for (name, reason) in [
        ("090-reshape", "in the middle of a reshape"),
        ("12-reshape", "in the middle of a reshape"),
        ("090-linear", "level linear (-1) is not supported"),
        ("12-linear", "level linear (-1) is not supported"),
    ] {
        for options in [READ, FORCE] {
            let (kind, what, _) = refusal(assemble_md_members(members(name), options));
            assert!(kind == Kind::Unsupported && what.contains(reason), "{name}: {what}");
        }
    }
    let (kind, what, advice) = refusal(assemble_md_members(members("12-journal"), READ));
    assert!(kind == Kind::Refused && what.contains("has a journal"), "{what}");
    assert!(advice.contains("array assemble NAME DEVICE... --force"), "{advice}");
    let found = assemble_md_members(members("12-journal"), FORCE).unwrap();
    assert_eq!(found.left_out.len(), 1, "the journal itself");
}

#[test]
fn a_device_that_does_not_belong_there_is_left_out_by_force_only() {
    let blank = || -> SharedDevice {
        let device = MemoryDevice::new("blank");
        device.set_len(MEMBER_BYTES as u64).unwrap();
        Arc::new(device)
    };
    for (stranger, kind) in [
        (&blank as &dyn Fn() -> SharedDevice, Kind::NotFound),
        (&|| members("11-raid5").remove(0), Kind::WrongMember),
    ] {
        let devices = || [members("10-raid5"), vec![stranger()]].concat();
        let (found, what, advice) = refusal(assemble_md_members(devices(), READ));
        assert_eq!(found, kind, "{what}");
        assert!(advice.contains("leave out this device"), "{advice}");
        let forced = assemble_md_members(devices(), FORCE);
        // Of two arrays the one with more events is meant, which may be either.
        if kind == Kind::NotFound {
            let forced = forced.unwrap();
            assert_eq!(forced.left_out.len(), 1);
            check(&forced.array, 2040, "with a blank device");
        }
    }
}

#[test]
fn all_but_metadata_0_90_can_be_written() {
    let write = MdAssembleOptions { write: Some(1_700_000_000), force: false };
    for (name, blocks) in [("10-raid5", 2040), ("11-raid5", 1536), ("12-raid5", 1536)] {
        let devices = members(name);
        let array = assemble_md_members(devices.clone(), write).unwrap().array;
        let before = array.superblock().state.events;
        array.write_at(0, &block(0)[..100]).unwrap();
        array.write_at(40 * BLOCK as u64, &block(40)).unwrap();
        array.finish().unwrap();
        let found = assemble_md_members(devices[1..].to_vec(), READ).unwrap().array;
        assert!(found.superblock().is_clean() && found.superblock().state.events > before);
        check(&found, blocks, name);
    }
    let (kind, what, _) = refusal(assemble_md_members(members("090-raid5"), write));
    assert!(kind == Kind::Refused && what.contains("metadata 0.90"), "{what}");
}
