//! The record: chunks stored together, self-describing, the unit of compression and of reading.
//!
//! ```text
//!  0  magic "psRC"                  4
//!  4  version                       1
//!  5  kind                          1   see `RecordKind`
//!  6  codec                         1   see codec/
//!  7  seal                          1   0 = none
//!  8  raw bytes                     4   length of all chunks together
//! 12  stored bytes                  4   length after compression
//! 16  chunk count                   4
//! 20  zero                          4
//! 24  XXH3-128 of stored bytes     16
//! 40  XXH3-128 of 0..40 and table  16
//! 56  zero                          8
//! 64  chunk table: id 32, raw bytes 4, once per chunk
//!     stored bytes
//! ```
//! Why chunks share a record: most files are far smaller than what a compressor needs to be good
//! and fast (decision 0005). Why the ids stand here and not only in the index: any index can be
//! rebuilt from records alone.

use super::checksum::{Checksum, checksum, checksum_of_two};
use super::envelope::newer;
use super::wire::{Reader, Writer};
use crate::error::{Error, Result};
use crate::id::ChunkId;

/// Bytes of the fixed head.
pub const RECORD_HEAD_BYTES: usize = 64;
/// Bytes per chunk in the table.
pub const CHUNK_ROW_BYTES: usize = ChunkId::LEN + 4;
/// Most raw bytes a record may claim: bounds what a damaged or hostile head can make us allocate.
pub const RECORD_MAX_RAW_BYTES: u32 = 64 << 20;
/// Most chunks a record may claim.
pub const RECORD_MAX_CHUNKS: u32 = 1 << 16;

const MAGIC: &[u8; 4] = b"psRC";
const VERSION: u8 = 1;

const _: () = assert!(RECORD_HEAD_BYTES == 40 + 16 + 8);

/// What a record's chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// File content.
    Data = 1,
    /// Pages and nodes of snapshot trees, and long content lists.
    Tree = 2,
    /// A pack's index; its table is empty.
    PackIndex = 3,
    /// A part of an index run; its table is empty.
    RunPart = 4,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [RecordKind::Data, RecordKind::Tree, RecordKind::PackIndex, RecordKind::RunPart]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }

    /// Whether its stored bytes are chunks, which stand in the table; else they are an index.
    pub fn has_chunks(self) -> bool {
        matches!(self, RecordKind::Data | RecordKind::Tree)
    }
}

/// One chunk in a record's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRow {
    /// Keyed BLAKE3-256 of the raw bytes.
    pub id: ChunkId,
    /// Length of the raw bytes.
    pub raw_bytes: u32,
}

/// A decoded head with its chunk table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHead {
    /// What the chunks are.
    pub kind: RecordKind,
    /// How the stored bytes were compressed.
    pub codec: u8,
    /// Length of all chunks together.
    pub raw_bytes: u32,
    /// Length of the stored bytes.
    pub stored_bytes: u32,
    /// The chunks, in the order of their bytes.
    pub chunks: Vec<ChunkRow>,
}

/// Appends the head and table of a record whose stored bytes are `stored`.
pub fn write_head(
    out: &mut Vec<u8>,
    kind: RecordKind,
    codec: u8,
    chunks: &[ChunkRow],
    raw_bytes: u32,
    stored: &[u8],
) {
    let start = out.len();
    Writer::new(out)
        .raw(MAGIC)
        .u8(VERSION)
        .u8(kind as u8)
        .u8(codec)
        .u8(0)
        .u32(raw_bytes)
        .u32(stored.len() as u32)
        .u32(chunks.len() as u32)
        .u32(0)
        .raw(&checksum(stored))
        .zeros(24);
    for chunk in chunks {
        Writer::new(out).raw(&chunk.id.0).u32(chunk.raw_bytes);
    }
    let sum = head_sum(&out[start..]);
    out[start + 40..start + 56].copy_from_slice(&sum);
}

fn head_sum(head: &[u8]) -> Checksum {
    checksum_of_two(&head[..40], &head[RECORD_HEAD_BYTES..])
}

/// Splits a record's bytes into head and stored bytes, both verified.
///
/// # Errors
/// [`Kind::Corrupt`](crate::error::Kind::Corrupt) when anything does not match,
/// [`Kind::Unsupported`](crate::error::Kind::Unsupported) for a newer version or a seal.
pub fn parse(bytes: &[u8]) -> Result<(RecordHead, &[u8])> {
    let mut reader = Reader::new(bytes, "record");
    if reader.take(4)? != MAGIC {
        return Err(reader.corrupt("no record begins here"));
    }
    let (version, kind, codec, seal) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    let (raw_bytes, stored_bytes, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let reserved = reader.u32()?;
    let sum = reader.array::<16>()?;
    let sum_of_head = reader.array::<16>()?;
    if reserved != 0 || reader.u64()? != 0 {
        return Err(reader.corrupt("reserved bytes are not zero"));
    }
    if raw_bytes > RECORD_MAX_RAW_BYTES || count > RECORD_MAX_CHUNKS {
        return Err(reader.corrupt("impossible lengths"));
    }
    let table_bytes = count as usize * CHUNK_ROW_BYTES;
    let mut table = Reader::new(reader.take(table_bytes)?, "record's chunk table");
    if head_sum(&bytes[..RECORD_HEAD_BYTES + table_bytes]) != sum_of_head {
        return Err(reader.corrupt("the checksum of the head does not match"));
    }
    if version != VERSION || seal != 0 {
        return Err(newer("record", u16::from(version), u16::from(VERSION), u32::from(seal)));
    }
    let kind = RecordKind::from_byte(kind)
        .ok_or_else(|| newer("record", u16::from(version), u16::from(VERSION), 1))?;
    let mut chunks = Vec::with_capacity(count as usize);
    while !table.is_empty() {
        chunks.push(ChunkRow { id: ChunkId(table.array()?), raw_bytes: table.u32()? });
    }
    let sum_of_chunks: u64 = chunks.iter().map(|chunk| u64::from(chunk.raw_bytes)).sum();
    if !kind.has_chunks() && count != 0 {
        return Err(reader.corrupt("an index with chunks"));
    }
    if kind.has_chunks() && sum_of_chunks != u64::from(raw_bytes) {
        return Err(reader.corrupt("the chunks do not add up").expected(raw_bytes, sum_of_chunks));
    }
    let stored = reader.take(stored_bytes as usize)?;
    if checksum(stored) != sum {
        return Err(Error::new(
            crate::error::Kind::Corrupt,
            "the checksum of a record's stored bytes does not match",
        ));
    }
    Ok((RecordHead { kind, codec, raw_bytes, stored_bytes, chunks }, stored))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Vec<u8> {
        let chunks = [
            ChunkRow { id: ChunkId([1; 32]), raw_bytes: 10 },
            ChunkRow { id: ChunkId([2; 32]), raw_bytes: 20 },
        ];
        let mut out = Vec::new();
        write_head(&mut out, RecordKind::Data, 1, &chunks, 30, b"stored");
        out.extend_from_slice(b"stored");
        out
    }

    #[test]
    fn a_record_comes_back() {
        let bytes = sample();
        let (head, stored) = parse(&bytes).unwrap();
        assert_eq!((head.kind, head.codec, head.raw_bytes), (RecordKind::Data, 1, 30));
        assert_eq!((head.chunks.len(), head.chunks[1].raw_bytes), (2, 20));
        assert_eq!(stored, b"stored");
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = sample();
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(parse(&damaged).is_err(), "bit {at}");
        }
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn an_index_with_chunks_is_refused() {
        let chunks = [ChunkRow { id: ChunkId([1; 32]), raw_bytes: 10 }];
        let mut bytes = Vec::new();
        write_head(&mut bytes, RecordKind::PackIndex, 0, &chunks, 5, b"index");
        bytes.extend_from_slice(b"index");
        assert!(parse(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, with_magic: bool) {
            if with_magic && bytes.len() > 8 {
                bytes[..5].copy_from_slice(b"psRC\x01");
            }
            let _ = parse(&bytes);
        }
    }
}
