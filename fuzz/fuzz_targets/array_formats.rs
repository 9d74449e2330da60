//! What stands on a member of an array: superblock, head of a record of the log, journal, sector of
//! a table. Any bytes, and any fields under a sound checksum. What is read is written again as it
//! was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_array::{
    BLOCK_BYTES, CONTENT_BYTES, JournalPlace, RecordHeader, RegionVersion, SECTOR_BYTES,
    SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC, SectorPlace, Superblock, TableKind, crc32c, decode_regions,
    decode_sums, encode_regions, encode_sums, shape_of,
};
use pinstripe_base::id::{ArrayId, MemberId};

const ARRAY: ArrayId = ArrayId([7; 16]);

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (kind, framed, bytes) = input;
    match kind % 4 {
        0 => superblock(bytes, framed),
        1 => head(bytes, framed),
        2 => journal(bytes),
        _ => leaf(bytes, framed),
    }
});

fn superblock(bytes: &[u8], framed: bool) {
    let mut block = [0; SUPERBLOCK_BYTES];
    let count = bytes.len().min(SUPERBLOCK_BYTES);
    block[..count].copy_from_slice(&bytes[..count]);
    if framed {
        // What a decoder must get past to see the rest: magic, version, features, sum.
        block[..8].copy_from_slice(SUPERBLOCK_MAGIC);
        block[8..10].copy_from_slice(&[1, 0]);
        block[56..64].fill(0);
        let check = crc32c(&block[..SUPERBLOCK_BYTES - 4]);
        block[SUPERBLOCK_BYTES - 4..].copy_from_slice(&check.to_le_bytes());
    }
    if let Ok(superblock) = Superblock::decode(&block) {
        let _ = shape_of(&superblock);
        let again = Superblock::decode(&superblock.encode()).expect("what was encoded is sound");
        assert_eq!(again, superblock);
        assert!(superblock.place() < superblock.areas.data_at);
    }
}

fn head(bytes: &[u8], framed: bool) {
    let (sequence, position) = (5, 8192);
    let mut bytes = bytes.to_vec();
    if framed {
        bytes.resize(bytes.len().max(64).next_multiple_of(BLOCK_BYTES as usize), 0);
        bytes[..4].copy_from_slice(b"PSal");
        bytes[4..6].copy_from_slice(&[1, 0]);
        bytes[8..24].copy_from_slice(&ARRAY.0);
        bytes[24..32].copy_from_slice(&u64::to_le_bytes(sequence));
        bytes[32..40].copy_from_slice(&u64::to_le_bytes(position));
        let length = bytes.len() as u32;
        bytes[40..44].copy_from_slice(&length.to_le_bytes());
        let rest = [&bytes[..60], &bytes[64..]].concat();
        bytes[60..64].copy_from_slice(&crc32c(&rest).to_le_bytes());
    }
    if let Some(first) = bytes.first_chunk() {
        let _ = RecordHeader::length(first);
    }
    if let Ok(head) = RecordHeader::decode(&bytes, ARRAY, sequence, position) {
        let mut out = Vec::new();
        head.encode(&mut out);
        assert_eq!(
            RecordHeader::decode(&out, ARRAY, sequence, position).expect("it is sound"),
            head
        );
    }
}

fn journal(bytes: &[u8]) {
    let place =
        JournalPlace { array: ARRAY, slot: 1, stretch: 2, start: 4096, width: 8192, chunks: 3 };
    if let Ok(sums) = place.decode(bytes) {
        assert_eq!(place.decode(&place.encode(&sums)).expect("it is sound"), sums);
    }
}

fn leaf(bytes: &[u8], framed: bool) {
    let version = RegionVersion::FIRST.plus(5);
    let member = MemberId([8; 16]);
    let place =
        SectorPlace { array: ARRAY, member, slot: 3, area: TableKind::Sums, number: 9, version };
    let mut sector = [0; SECTOR_BYTES];
    let count = bytes.len().min(SECTOR_BYTES);
    sector[..count].copy_from_slice(&bytes[..count]);
    if framed {
        let mut content = [0; CONTENT_BYTES];
        content.copy_from_slice(&sector[..CONTENT_BYTES]);
        sector = place.encode(&content);
    }
    if let Ok(content) = place.decode(&sector) {
        assert_eq!(&encode_sums(&decode_sums(content)), content);
        assert_eq!(&encode_regions(&decode_regions(content)), content);
        assert_eq!(place.encode(content), sector);
    }
}
