//! An md superblock of any version: any bytes, and any fields under a sound checksum. What is read is
//! written again as it was, but for metadata 0.90, which is never written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_array::{MD_SUPERBLOCK_BYTES, MdPlace, MdSuperblock, md_bad_blocks};

fuzz_target!(|input: (bool, &[u8])| {
    let (framed, bytes) = input;
    let mut bytes = bytes.to_vec();
    bytes.resize(MD_SUPERBLOCK_BYTES, 0);
    if framed {
        // What a decoder must get past to see the rest: magic, version, place, number of roles,
        // sum.
        bytes[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
        bytes[144..152].copy_from_slice(&8u64.to_le_bytes());
        bytes[221..224].fill(0);
        bytes[216..220].fill(0);
        let len = 256 + 2 * usize::from(bytes[220]);
        let words = bytes[..len]
            .chunks(4)
            .map(|word| word.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
        let sum: u64 = words.sum();
        let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    }
    let _ = md_bad_blocks(&bytes, bytes[181]).count();
    for place in MdPlace::all(1 << 20) {
        if let Ok(superblock) = place.decode(&bytes) {
            assert_eq!(superblock.device.place, place);
            let _ = (superblock.name(), superblock.role(), superblock.bitmap_sectors());
        }
    }
    if let Ok(superblock) = MdSuperblock::decode(&bytes) {
        let len = 256 + 2 * superblock.roles.len();
        assert_eq!(superblock.encode()[..len], bytes[..len]);
        let _ =
            (superblock.name(), superblock.role(), superblock.ppl(), superblock.bitmap_sectors());
    }
});
