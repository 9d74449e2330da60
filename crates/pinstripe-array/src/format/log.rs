//! A record of the log: the writes in place that a batch of row operations is about to make.
//!
//! ```text
//! head, the same on every member, padded to 4 KiB:
//!   magic 4 | version 2 | members 2 | array 16 | sequence 8 | begins at 8 | head bytes 4 | pieces 4
//!   | span 8 | zero 4 | CRC-32C 4, of all else
//!   per member: payload bytes 4, CRC-32C of the payload 4
//!   per piece:  row 8, first byte of the column 4, bytes 4, written shards 8, logged data shards 8,
//!               kinds 1 (bit 0: the sum for P; 1: for Q; 2: own bytes), zero 7
//!               then for each written shard, lowest first, and each 4 KiB: the new checksum 4
//! payload, each member's own, right behind the head: for each piece, in order, what of this the
//!   member keeps of it: the sum of the unmodified data (on P), their syndrome (on Q), on both of
//!   these the logged data shards, and with bit 2 on each written data shard's member its new bytes
//! ```
//!
//! Version 2 is a record in which some piece has bit 2, which version 1 does not know.
//!
//! Records are stored one after the other; a record that does not fit before the end of the log
//! starts at the beginning of the log. `span` is the number of bytes that a record takes on every
//! member, the longest payload included.
//!
//! This module does not decide which member keeps which payload. The kept payload follows from the
//! geometry of the row, see `array/`.

use std::ops::Range;

use super::sums::Sum;
use super::{BLOCK_BYTES, crc32c, crc32c_of};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ArrayId;
use pinstripe_base::wire::{Reader, Writer};

const MAGIC: u32 = u32::from_le_bytes(*b"PSal");
const VERSION: u16 = 2;
/// The version of records whose payloads have no own bytes.
const VERSION_WITHOUT_OWN: u16 = 1;
const HEAD_BYTES: usize = 64;
/// The place of the checksum in the head of a record.
const CHECK: Range<usize> = 60..64;
/// The most bytes that a head may have; a longer length in a record is not believed.
pub(crate) const HEAD_BYTES_MAX: u32 = 1 << 20;
/// The largest number of members.
const MEMBERS_MAX: usize = 64;
const PIECE_BYTES: usize = 40;

/// A piece of a row that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// The row.
    pub row: u64,
    /// The bytes of the row's chunks that are written, in whole blocks.
    pub column: Range<u32>,
    /// Shards that are written, parity included, as bits.
    pub written: u64,
    /// The data that the payload holds for this piece.
    pub has: PayloadKinds,
    /// The new checksums of the shards in `written`, lowest shard first; each shard has one for
    /// every block of `column`.
    pub sums: Vec<Sum>,
}

/// The kinds of data in the payload of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PayloadKinds {
    /// The sum of the unmodified data shards.
    pub p: bool,
    /// The syndrome.
    pub q: bool,
    /// The new bytes of these data shards, as a bit set, on the members of parity: of shards whose
    /// members are absent, and with `own` of all written shards.
    pub data: u64,
    /// The new bytes of each written data shard, on its own member.
    pub own: bool,
}

/// A member's payload: the bytes that it keeps of a record in addition to the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PayloadCheck {
    /// Bytes.
    pub bytes: u32,
    /// The CRC-32C.
    pub check: u32,
}

impl PayloadCheck {
    /// The check of this payload.
    pub(crate) fn from_payload(payload: &[u8]) -> Self {
        PayloadCheck { bytes: payload.len() as u32, check: crc32c(payload) }
    }

    /// Whether the payload matches this check.
    pub fn suits(self, payload: &[u8]) -> bool {
        self == Self::from_payload(payload)
    }
}

/// The head of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeader {
    /// The array that the log belongs to.
    pub array: ArrayId,
    /// The number of the record, one more than that of the record before.
    pub sequence: u64,
    /// The offset in the log at which the record begins.
    pub position: u64,
    /// By slot.
    pub kept: Vec<PayloadCheck>,
    /// The pieces written.
    pub pieces: Vec<LogPiece>,
}

impl LogPiece {
    /// Bytes in a head that describe one piece, without its checksums.
    pub(crate) const FIXED_BYTES: u64 = PIECE_BYTES as u64;

    fn blocks(&self) -> usize {
        self.column.len() / BLOCK_BYTES as usize
    }
}

impl RecordHeader {
    /// Bytes of the encoded head, padded.
    pub(crate) fn head_bytes(&self) -> u64 {
        let sums: usize = self.pieces.iter().map(|piece| 4 * piece.sums.len()).sum();
        Self::bytes_of(self.kept.len(), (PIECE_BYTES * self.pieces.len() + sums) as u64)
    }

    /// Bytes of a head for this many members whose pieces take `piece_bytes`.
    pub fn bytes_of(members: usize, piece_bytes: u64) -> u64 {
        let bytes = (HEAD_BYTES + 8 * members) as u64 + piece_bytes;
        bytes.next_multiple_of(BLOCK_BYTES)
    }

    /// Whether a head with this many bytes of pieces can be read again.
    pub fn fits(piece_bytes: u64) -> bool {
        Self::bytes_of(MEMBERS_MAX, piece_bytes) <= u64::from(HEAD_BYTES_MAX)
    }

    /// Bytes that the record takes in the log of each member.
    pub fn span(&self) -> u64 {
        let longest = self.kept.iter().map(|kept| u64::from(kept.bytes)).max().unwrap_or(0);
        self.head_bytes() + longest.next_multiple_of(BLOCK_BYTES)
    }

    /// Appends the bytes.
    ///
    /// # Panics
    /// Panics in debug builds if a piece does not have one checksum for every block that it writes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (start, bytes) = (out.len(), self.head_bytes());
        let mut w = Writer::new(out);
        let has_own = self.pieces.iter().any(|piece| piece.has.own);
        let version = if has_own { VERSION } else { VERSION_WITHOUT_OWN };
        w.u32(MAGIC).u16(version).u16(self.kept.len() as u16).raw(&self.array.0);
        w.u64(self.sequence).u64(self.position).u32(bytes as u32).u32(self.pieces.len() as u32);
        w.u64(self.span()).zeros(8);
        for kept in &self.kept {
            w.u32(kept.bytes).u32(kept.check);
        }
        for piece in &self.pieces {
            debug_assert_eq!(
                piece.sums.len(),
                piece.written.count_ones() as usize * piece.blocks(),
                "the record has a checksum for each written block"
            );
            let PayloadKinds { p, q, data, own } = piece.has;
            let kinds = u8::from(p) | u8::from(q) << 1 | u8::from(own) << 2;
            w.u64(piece.row).u32(piece.column.start).u32(piece.column.len() as u32);
            w.u64(piece.written).u64(data).u8(kinds).zeros(7);
            piece.sums.iter().for_each(|sum| _ = w.u32(sum.to_bits()));
        }
        out.resize(start + bytes as usize, 0);
        let head = &mut out[start..];
        let check = crc32c_of(&[&head[..CHECK.start]], &head[CHECK.end..]);
        head[CHECK].copy_from_slice(&check.to_le_bytes());
    }

    /// The length of the head that begins with these bytes, if they begin a head.
    pub fn length(first: &[u8; BLOCK_BYTES as usize]) -> Option<u32> {
        let word =
            |at: usize| u32::from_le_bytes(first[at..at + 4].try_into().expect("four bytes"));
        let bytes = word(40);
        let is_length = bytes.is_multiple_of(BLOCK_BYTES as u32) && bytes <= HEAD_BYTES_MAX;
        (word(0) == MAGIC && bytes > 0 && is_length).then_some(bytes)
    }

    /// Reads the record with number `sequence` at `position`.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] if the record is missing or differs; with [`Kind::Unsupported`]
    /// when a newer version wrote the record.
    pub fn decode(bytes: &[u8], array: ArrayId, sequence: u64, position: u64) -> Result<Self> {
        let mut r = Reader::new(bytes, "record of the array's log");
        let (magic, version) = (r.u32()?, r.u16()?);
        let members = usize::from(r.u16()?);
        if magic != MAGIC || bytes.len() < HEAD_BYTES {
            return Err(r.corrupt("the bytes are not a record of an array log"));
        }
        let stored = u32::from_le_bytes(bytes[CHECK].try_into().expect("four bytes"));
        if crc32c_of(&[&bytes[..CHECK.start]], &bytes[CHECK.end..]) != stored {
            return Err(r.corrupt("the checksum of the record does not match"));
        }
        if !(VERSION_WITHOUT_OWN..=VERSION).contains(&version) {
            return Err(Error::new(
                Kind::Unsupported,
                "the array's log has a version that this program cannot read",
            )
            .expected(VERSION, version)
            .advice("assemble the array with the version of pinstripe that wrote it"));
        }
        let (of, at) = (ArrayId(r.array()?), (r.u64()?, r.u64()?));
        let (head_bytes, count, span) = (r.u32()?, r.u32()? as usize, r.u64()?);
        r.take(8)?;
        if (of, at) != (array, (sequence, position)) {
            return Err(r.corrupt("the record is older than expected, or belongs to another array"));
        }
        if head_bytes as usize != bytes.len() || members > MEMBERS_MAX {
            return Err(r.corrupt("impossible sizes"));
        }
        let kept = (0..members)
            .map(|_| Ok(PayloadCheck { bytes: r.u32()?, check: r.u32()? }))
            .collect::<Result<Vec<_>>>()?;
        if count > r.remaining() / PIECE_BYTES {
            return Err(r.corrupt("the record lists more pieces than fit into it"));
        }
        let pieces = (0..count).map(|_| piece(&mut r)).collect::<Result<Vec<_>>>()?;
        let head = RecordHeader { array, sequence, position, kept, pieces };
        if r.remaining() >= BLOCK_BYTES as usize || r.rest().iter().any(|byte| *byte != 0) {
            return Err(Error::new(
                Kind::Corrupt,
                "a record of the array's log ends with unknown bytes",
            ));
        }
        match head.span() == span {
            true => Ok(head),
            false => {
                Err(Error::new(Kind::Corrupt, "a record of the array's log has a wrong length")
                    .expected(head.span(), span))
            }
        }
    }
}

fn piece(r: &mut Reader<'_>) -> Result<LogPiece> {
    let (row, start, len) = (r.u64()?, r.u32()?, r.u32()?);
    let (written, data) = (r.u64()?, r.u64()?);
    let has = r.u8()?;
    let is_padded = r.array::<7>()? == [0; 7];
    let end = start.checked_add(len);
    let (Some(end), true) = (end, has < 8 && is_padded) else {
        return Err(r.corrupt("a piece of the record has impossible values"));
    };
    let is_cut = |at: u32| at.is_multiple_of(BLOCK_BYTES as u32);
    if !is_cut(start) || !is_cut(len) || len == 0 || written == 0 {
        return Err(r.corrupt("the record has a piece that does not consist of complete blocks"));
    }
    let blocks = u64::from(len) / BLOCK_BYTES * u64::from(written.count_ones());
    if blocks > r.remaining() as u64 / 4 {
        return Err(r.corrupt("the record lists more checksums than fit into it"));
    }
    let sums = (0..blocks).map(|_| r.u32().map(Sum::from_bits)).collect::<Result<Vec<_>>>()?;
    let has = PayloadKinds { p: has & 1 > 0, q: has & 2 > 0, data, own: has & 4 > 0 };
    Ok(LogPiece { row, column: start..end, written, has, sums })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: ArrayId = ArrayId([9; 16]);

    fn head(pieces: usize) -> RecordHeader {
        let piece = |row: usize| {
            let blocks = 1 + row % 3;
            let start = 4096 * (row as u32 % 5);
            LogPiece {
                row: row as u64,
                column: start..start + 4096 * blocks as u32,
                written: 0b1001,
                has: PayloadKinds {
                    p: row.is_multiple_of(2),
                    q: false,
                    data: row as u64 % 3,
                    own: row % 5 == 4,
                },
                sums: (0..2 * blocks).map(|n| Sum::from_block(&[n as u8, row as u8])).collect(),
            }
        };
        let kept =
            [&[1u8; 5000][..], &[], &[2; 100], &[3; 4096]].map(PayloadCheck::from_payload).to_vec();
        let pieces = (0..pieces).map(piece).collect();
        RecordHeader { array: ARRAY, sequence: 77, position: 8192, kept, pieces }
    }

    fn decode(bytes: &[u8]) -> Result<RecordHeader> {
        RecordHeader::decode(bytes, ARRAY, 77, 8192)
    }

    #[test]
    fn a_head_comes_back() {
        for pieces in [0, 1, 2, 40, 80, 1000] {
            let (head, mut bytes) = (head(pieces), Vec::new());
            head.encode(&mut bytes);
            assert_eq!(bytes.len() as u64, head.head_bytes());
            assert_eq!(
                RecordHeader::length(bytes.first_chunk().unwrap()),
                Some(bytes.len() as u32)
            );
            assert_eq!(decode(&bytes).unwrap(), head);
            assert_eq!(head.span(), head.head_bytes() + 8192);
        }
    }

    #[test]
    fn what_is_not_the_record_that_is_sought_is_refused() {
        let mut bytes = Vec::new();
        head(30).encode(&mut bytes);
        let strangers = [
            RecordHeader::decode(&bytes, ArrayId([1; 16]), 77, 8192),
            RecordHeader::decode(&bytes, ARRAY, 78, 8192),
            RecordHeader::decode(&bytes, ARRAY, 77, 4096),
            decode(&bytes[..64]),
            decode(&[]),
            decode(&[0; 4096]),
        ];
        for stranger in strangers {
            assert_eq!(stranger.unwrap_err().kind(), Kind::Corrupt);
        }
        for at in 0..bytes.len() {
            let mut hurt = bytes.clone();
            hurt[at] ^= 0x40;
            assert_eq!(decode(&hurt).unwrap_err().kind(), Kind::Corrupt, "{at}");
        }
    }

    /// A sound checksum does not make sense of what is behind it.
    #[test]
    fn no_claim_sizes_a_buffer() {
        let mut bytes = Vec::new();
        head(3).encode(&mut bytes);
        for at in (0..HEAD_BYTES + 32 + 3 * PIECE_BYTES).filter(|at| !CHECK.contains(at)) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut hurt = bytes.clone();
                hurt[at] = value;
                let check = crc32c_of(&[&hurt[..CHECK.start]], &hurt[CHECK.end..]);
                hurt[CHECK].copy_from_slice(&check.to_le_bytes());
                let _ = decode(&hurt);
            }
        }
    }

    #[test]
    fn a_payload_is_known_by_its_checksum() {
        let kept = PayloadCheck::from_payload(b"what stays");
        assert!(kept.suits(b"what stays") && !kept.suits(b"what stayz"));
        assert!(PayloadCheck::default().suits(&[]));
    }
}
