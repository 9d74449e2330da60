//! The record: chunks that are stored together; it describes itself, and is the unit of compression
//! and of reading.
//!
//! ```text
//!  0  magic "psRC"                  4
//!  4  version                       1
//!  5  kind                          1   see `RecordKind`
//!  6  codec                         1   see codec/; 0 when sealed
//!  7  seal                          1   see `Encryption`
//!  8  raw bytes                     4   length of all chunks together; 0 when sealed
//! 12  stored bytes                  4   length after compression and sealing
//! 16  chunk count                   4   0 when sealed
//! 20  zero                          4
//! 24  XXH3-128 of stored bytes     16
//! 40  XXH3-128 of 0..40 and table  16
//! 56  zero                          8
//! 64  chunk table: id 32, raw bytes 4, once per chunk; not when sealed
//!     stored bytes
//! ```
//!
//! The stored bytes of a sealed record are a blob (see seal/). The seal encloses:
//!
//! ```text
//!  0  codec                         1
//!  1  zero                          3
//!  4  raw bytes                     4
//!  8  chunk count                   4
//! 12  compressed bytes              4
//! 16  chunk table
//!     compressed bytes
//!     zeros                             the padding
//! ```
//!
//! So all that a reader without keys can do is to see the kind and length of a record, to find
//! damage, and to walk from record to record. Chunks share a record because most files are far
//! smaller than the amount of data that a compressor needs to be effective and fast (decision
//! 0005). The ids are in the record and not only in the index, so that any index can be rebuilt
//! from the records alone.
//!
//! Not in this module: keys and ciphers (seal/), compression (codec/).

use std::ops::Range;

use super::envelope::newer;
use super::label::Encryption;
use pinstripe_base::byte_enum;
use pinstripe_base::checksum::{Checksum, checksum, checksum_of_two};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::wire::{Reader, Writer};

/// Bytes of the fixed head.
pub const RECORD_HEAD_BYTES: usize = 64;
/// Bytes at the beginning of the head that the seal authenticates: everything but the checksums.
pub const RECORD_SEALED_HEAD_BYTES: usize = 24;
/// Bytes of the fixed head inside the seal.
pub const INNER_HEAD_BYTES: usize = 16;
/// Bytes per chunk in the table.
pub const CHUNK_ROW_BYTES: usize = ChunkId::LEN + 4;
/// The largest number of raw bytes that a record may claim: it bounds what a damaged or hostile
/// head can make us allocate.
pub const RECORD_MAX_RAW_BYTES: u32 = 64 << 20;
/// The largest number of chunks that a record may claim.
pub const RECORD_MAX_CHUNKS: u32 = 1 << 16;
/// The largest number of bytes that a seal adds to a record, not counting padding: blob head, inner
/// head and tag.
pub(crate) const SEAL_MAX_BYTES: u64 = 64;

const MAGIC: &[u8; 4] = b"psRC";
const VERSION: u8 = 1;

const _: () = assert!(RECORD_HEAD_BYTES == 40 + 16 + 8);

byte_enum! {
    /// The kind of a record's chunks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
}

impl RecordKind {
    /// Whether the record's stored bytes are chunks, listed in its table; otherwise they are an
    /// index.
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

/// The head of a record, with the chunk table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHead {
    /// The kind of the chunks.
    pub kind: RecordKind,
    /// The codec of the chunks.
    pub codec: u8,
    /// Length of all chunks together.
    pub raw_bytes: u32,
    /// Length of the compressed bytes.
    pub stored_bytes: u32,
    /// The chunks, in the order of their bytes.
    pub chunks: Vec<ChunkRow>,
}

/// A record as a reader without keys sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearRecord {
    /// The cipher of the record's seal.
    pub seal: Encryption,
    /// The clear head; for a sealed record it lacks codec, raw length and chunks.
    pub head: RecordHead,
    /// The range of the stored bytes within the record, which ends where they end.
    pub stored: Range<usize>,
}

/// The largest number of bytes that a record of these chunks may have, sealed and padded or not.
pub fn longest(raw_bytes: u64, chunk_count: u64) -> u64 {
    let plain = RECORD_HEAD_BYTES as u64 + chunk_count * CHUNK_ROW_BYTES as u64 + raw_bytes;
    // Padmé adds less than an eighth.
    plain + plain / 8 + SEAL_MAX_BYTES
}

/// Appends a chunk table.
pub fn write_table(out: &mut Vec<u8>, chunks: &[ChunkRow]) {
    for chunk in chunks {
        Writer::new(out).raw(&chunk.id.0).u32(chunk.raw_bytes);
    }
}

/// Appends the head and chunk table of an unsealed record whose stored bytes are `stored`.
pub fn write_head(
    out: &mut Vec<u8>,
    kind: RecordKind,
    codec: u8,
    chunks: &[ChunkRow],
    raw_bytes: u32,
    stored: &[u8],
) {
    let start = out.len();
    out.resize(start + RECORD_HEAD_BYTES, 0);
    write_table(out, chunks);
    let head = RecordHead {
        kind,
        codec,
        raw_bytes,
        stored_bytes: stored.len() as u32,
        chunks: chunks.to_vec(),
    };
    let clear = clear_head(&head, Encryption::None);
    out[start..start + RECORD_SEALED_HEAD_BYTES].copy_from_slice(&clear);
    let sum = checksum(stored);
    fill_sums(&mut out[start..], sum);
}

/// Encodes the beginning of a record's head, up to the checksums. The head of a sealed record has
/// only the kind and the length of the stored bytes.
pub fn clear_head(head: &RecordHead, seal: Encryption) -> [u8; RECORD_SEALED_HEAD_BYTES] {
    let (codec, raw_bytes, count) = match seal {
        Encryption::None => (head.codec, head.raw_bytes, head.chunks.len() as u32),
        _ => (0, 0, 0),
    };
    let mut out = Vec::with_capacity(RECORD_SEALED_HEAD_BYTES);
    Writer::new(&mut out)
        .raw(MAGIC)
        .u8(VERSION)
        .u8(head.kind as u8)
        .u8(codec)
        .u8(seal as u8)
        .u32(raw_bytes)
        .u32(head.stored_bytes)
        .u32(count)
        .u32(0);
    out.try_into().expect("the fields have this length")
}

/// Writes the checksums into `head`, which is a head with its chunk table; `stored` is the checksum
/// of the bytes that follow.
pub fn fill_sums(head: &mut [u8], stored: Checksum) {
    head[24..40].copy_from_slice(&stored);
    let sum = head_sum(head);
    head[40..56].copy_from_slice(&sum);
}

/// Encodes the fixed head that is inside the seal.
pub fn inner_head(head: &RecordHead) -> [u8; INNER_HEAD_BYTES] {
    let mut out = Vec::with_capacity(INNER_HEAD_BYTES);
    Writer::new(&mut out)
        .u8(head.codec)
        .zeros(3)
        .u32(head.raw_bytes)
        .u32(head.chunks.len() as u32)
        .u32(head.stored_bytes);
    out.try_into().expect("the fields have this length")
}

fn head_sum(head: &[u8]) -> Checksum {
    checksum_of_two(&head[..40], &head[RECORD_HEAD_BYTES..])
}

/// Returns the length of the whole record that begins with these bytes, as its unverified head
/// gives it.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] when no record begins here.
pub fn whole_bytes(head: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(head, "record");
    if reader.take(4)? != MAGIC {
        return Err(reader.corrupt("there is no record at this offset"));
    }
    reader.take(8)?;
    let (stored_bytes, count) = (reader.u32()?, reader.u32()?);
    Ok(RECORD_HEAD_BYTES as u64
        + u64::from(stored_bytes)
        + u64::from(count) * CHUNK_ROW_BYTES as u64)
}

/// Verifies the record at the beginning of `bytes`, as far as that is possible without a key.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] when anything does not match, or with [`Kind::Unsupported`] for a
/// newer version or an unknown seal.
pub fn parse_clear(bytes: &[u8]) -> Result<ClearRecord> {
    let mut reader = Reader::new(bytes, "record");
    if reader.take(4)? != MAGIC {
        return Err(reader.corrupt("there is no record at this offset"));
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
    let table = Reader::new(reader.take(table_bytes)?, "record's chunk table");
    if head_sum(&bytes[..RECORD_HEAD_BYTES + table_bytes]) != sum_of_head {
        return Err(reader.corrupt("the checksum of the record's head does not match"));
    }
    let unknown = |features| newer("record", u16::from(version), u16::from(VERSION), features);
    let seal = Encryption::from_byte(seal).ok_or_else(|| unknown(u32::from(seal)))?;
    let kind = RecordKind::from_byte(kind).ok_or_else(|| unknown(1))?;
    if version != VERSION {
        return Err(unknown(0));
    }
    let chunks = match seal {
        Encryption::None => read_table(table, kind, raw_bytes)?,
        _ if codec != 0 || raw_bytes != 0 || count != 0 => {
            return Err(reader.corrupt("a sealed record has unencrypted data"));
        }
        _ => Vec::new(),
    };
    let start = reader.position();
    if checksum(reader.take(stored_bytes as usize)?) != sum {
        return Err(reader.corrupt("the checksum of a record's stored bytes does not match"));
    }
    let head = RecordHead { kind, codec, raw_bytes, stored_bytes, chunks };
    Ok(ClearRecord { seal, head, stored: start..start + stored_bytes as usize })
}

/// Decodes what the seal of a record of this kind encloses; the returned range is that of the
/// compressed bytes in `plain`.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for content that is never sealed.
pub fn parse_inner(kind: RecordKind, plain: &[u8]) -> Result<(RecordHead, Range<usize>)> {
    let mut reader = Reader::new(plain, "sealed record");
    let codec = reader.u8()?;
    if reader.take(3)? != [0; 3] {
        return Err(reader.corrupt("reserved bytes are not zero"));
    }
    let (raw_bytes, count, stored_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if raw_bytes > RECORD_MAX_RAW_BYTES || count > RECORD_MAX_CHUNKS {
        return Err(reader.corrupt("impossible lengths"));
    }
    let table = reader.take(count as usize * CHUNK_ROW_BYTES)?;
    let chunks = read_table(Reader::new(table, "record's chunk table"), kind, raw_bytes)?;
    let start = reader.position();
    reader.take(stored_bytes as usize)?;
    if reader.rest().iter().any(|&byte| byte != 0) {
        return Err(reader.corrupt("the padding is not zero"));
    }
    let head = RecordHead { kind, codec, raw_bytes, stored_bytes, chunks };
    Ok((head, start..start + stored_bytes as usize))
}

fn read_table(mut table: Reader<'_>, kind: RecordKind, raw_bytes: u32) -> Result<Vec<ChunkRow>> {
    let mut chunks = Vec::with_capacity(table.remaining() / CHUNK_ROW_BYTES);
    while !table.is_empty() {
        chunks.push(ChunkRow { id: ChunkId(table.array()?), raw_bytes: table.u32()? });
    }
    let sum: u64 = chunks.iter().map(|chunk| u64::from(chunk.raw_bytes)).sum();
    if !kind.has_chunks() && !chunks.is_empty() {
        return Err(table.corrupt("the record is marked as an index, but contains chunks"));
    }
    if kind.has_chunks() && sum != u64::from(raw_bytes) {
        return Err(table
            .corrupt("the lengths of the chunks do not add up to the length of the record")
            .expected(raw_bytes, sum));
    }
    Ok(chunks)
}

/// Splits an unsealed record's bytes into head and stored bytes, both verified.
///
/// # Errors
/// Fails with the errors of [`parse_clear`], or with [`Kind::Locked`] for a sealed record.
pub fn parse(bytes: &[u8]) -> Result<(RecordHead, &[u8])> {
    let clear = parse_clear(bytes)?;
    if clear.seal != Encryption::None {
        return Err(Error::new(Kind::Locked, "this record is sealed"));
    }
    Ok((clear.head, &bytes[clear.stored]))
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
