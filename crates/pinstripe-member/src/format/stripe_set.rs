//! The bytes of a stripe set's extents: a header before the strips, a trailer and a footer after
//! them.
//!
//! ```text
//! extent of slot n:  header (4096) | strip of row 0 | strip of row 1 | ... | trailer | footer (64)
//! ```
//!
//! The header says which extent this is; it is the only part besides the strips that differs
//! between members. Trailer: the length, the index range and the checksum of every strip of every
//! member; its bytes are the same on all members, so that any of them locates all damage. Footer:
//! the length of the trailer.
//!
//! Invariants: a checksum covers all of each part, in every version, in the part's last 16 bytes or
//! in the footer, so "damaged" and "newer than this program" cannot be confused. Reserved bytes are
//! zero and are checked. Equal values encode to equal bytes.
//!
//! Not in this module: the places of strips (`stripe::geometry`), and any reading or writing of
//! members.

use std::ops::Range;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_base::wire::{Reader, Writer};

/// The version of header, trailer and footer that this program writes, and the newest that it
/// reads.
pub const VERSION: u32 = 1;
/// Length of the header in bytes: one page, so that strips stay aligned for direct I/O.
pub const HEADER_BYTES: usize = 4096;
/// Length of the footer in bytes.
pub const FOOTER_BYTES: usize = 64;
/// Length of the fixed part of the trailer, before its list of checksums, in bytes.
pub(crate) const TRAILER_FIXED_BYTES: usize = 96;
/// The largest number of members of one set: the number fits in one byte, and P+Q over GF(2^8)
/// protects this many.
pub const MEMBERS_MAX: usize = 255;
/// The largest number of parity strips per row that the format allows.
pub(crate) const PARITY_MAX: u8 = 4;
/// The largest number of parity strips per row that this program computes.
pub(crate) const PARITY_SUPPORTED: u8 = 2;
/// Smallest strip in bytes.
pub(crate) const STRIP_BYTES_MIN: u32 = 4 << 10;
/// Largest strip in bytes.
pub(crate) const STRIP_BYTES_MAX: u32 = 16 << 20;
/// The longest logical run in bytes; far below the length at which offsets overflow.
pub const LOGICAL_BYTES_MAX: u64 = 1 << 56;

const HEADER_MAGIC: [u8; 8] = *b"pstrSETh";
const TRAILER_MAGIC: [u8; 8] = *b"pstrSETt";
const FOOTER_MAGIC: [u8; 8] = *b"pstrSETf";
/// Feature flags this program knows: none yet.
const KNOWN_FLAGS: u32 = 0;
/// Checksum algorithm 1: XXH3 with 128 bits.
const XXH3_128: u8 = 1;

/// Lengths of the fields in the order in which `encode` writes them; the asserts below compare
/// their sum with the published length.
const HEADER_FIELDS: [usize; 12] = [8, 4, 4, 16, 16, 1, 1, 1, 1, 1, 3, 4];
const TRAILER_FIELDS: [usize; 15] = [8, 4, 4, 16, 16, 1, 1, 1, 1, 4, 8, 8, 8, 8, 8];
const FOOTER_FIELDS: [usize; 7] = [8, 4, 4, 8, 16, 8, 16];
const HEADER_FIELDS_BYTES: usize = sum(&HEADER_FIELDS);
const HEADER_CHECKSUM_AT: usize = HEADER_BYTES - CHECKSUM_BYTES;

const _: () = {
    assert!(HEADER_FIELDS_BYTES == 60);
    assert!(HEADER_BYTES.is_multiple_of(STRIP_BYTES_MIN as usize));
    assert!(sum(&TRAILER_FIELDS) == TRAILER_FIXED_BYTES);
    assert!(TRAILER_FIXED_BYTES.is_multiple_of(CHECKSUM_BYTES));
    assert!(sum(&FOOTER_FIELDS) == FOOTER_BYTES);
    assert!(STRIP_BYTES_MIN.is_power_of_two() && STRIP_BYTES_MAX.is_power_of_two());
};

const fn sum(lengths: &[usize]) -> usize {
    let (mut total, mut at) = (0, 0);
    while at < lengths.len() {
        total += lengths[at];
        at += 1;
    }
    total
}

mod shape;

pub use pinstripe_base::checksum::{CHECKSUM_BYTES, Checksum, checksum};
pub use shape::{Geometry, SetKind};

/// The first 4096 bytes of an extent: they say which extent this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The store that the set belongs to.
    pub store: StoreId,
    /// The set.
    pub set: SetId,
    /// The kind of the set's content.
    pub kind: SetKind,
    /// The set's geometry.
    pub geometry: Geometry,
    /// The slot of this extent in the set, below N. Members hold the slots of a set in any order.
    pub slot: u8,
}

impl Header {
    /// Encodes the header as [`HEADER_BYTES`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        let mut w = Writer::new(&mut out);
        w.raw(&HEADER_MAGIC).u32(VERSION).u32(KNOWN_FLAGS);
        w.raw(&self.store.0).raw(&self.set.0).u8(self.kind as u8);
        w.u8(self.geometry.data).u8(self.geometry.parity);
        w.u8(self.geometry.members() as u8).u8(self.slot).zeros(3);
        w.u32(self.geometry.strip_bytes);
        w.zeros(HEADER_CHECKSUM_AT - HEADER_FIELDS_BYTES);
        let sum = checksum(&out);
        out.extend_from_slice(&sum);
        out
    }

    /// Reads a header back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when these are not the bytes of a header, or with
    /// [`Kind::Unsupported`] when a newer version wrote them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = open_sealed(bytes, HEADER_BYTES, HEADER_MAGIC, "stripe set header")?;
        let Beginning { store, set, kind, data, parity } = Beginning::decode(&mut r)?;
        let (members, slot) = (r.u8()?, r.u8()?);
        expect_zeros(&mut r, 3)?;
        let geometry = Geometry::decode(data, parity, r.u32()?)?;
        expect_zeros(&mut r, HEADER_CHECKSUM_AT - HEADER_FIELDS_BYTES)?;
        if usize::from(members) != geometry.members() || slot >= members {
            return Err(
                r.corrupt("the stripe set has an impossible slot number or number of slots")
            );
        }
        Ok(Header { store, set, kind, geometry, slot })
    }
}

/// The fields with which both headers and trailers begin, after the magic.
struct Beginning {
    store: StoreId,
    set: SetId,
    kind: SetKind,
    data: u8,
    parity: u8,
}

impl Beginning {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        expect_version(r)?;
        expect_known_flags(r)?;
        let (store, set) = (StoreId(r.array()?), SetId(r.array()?));
        let kind = SetKind::decode(r.u8()?)?;
        Ok(Beginning { store, set, kind, data: r.u8()?, parity: r.u8()? })
    }
}

/// The trailer, which follows the strips on every member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trailer {
    /// The store that the set belongs to.
    pub store: StoreId,
    /// The set.
    pub set: SetId,
    /// The kind of the set's content.
    pub kind: SetKind,
    /// The set's geometry.
    pub geometry: Geometry,
    /// Bytes of the logical run.
    pub logical_bytes: u64,
    /// The range of the record index in the logical run; `0..0` when the set has no such index.
    pub index: Range<u64>,
    /// The checksums of all strips, row by row, and by slot within each row.
    pub checksums: Vec<Checksum>,
}

impl Trailer {
    /// The checksum of a slot's strip in a row.
    pub fn checksum(&self, row: u64, slot: usize) -> &Checksum {
        &self.checksums[row as usize * self.geometry.members() + slot]
    }

    /// Encodes trailer and footer: the end of each member's extent.
    pub fn encode(&self) -> Vec<u8> {
        let rows = self.geometry.rows(self.logical_bytes);
        let mut out = Vec::with_capacity(self.geometry.tail_bytes(rows) as usize);
        let mut w = Writer::new(&mut out);
        w.raw(&TRAILER_MAGIC).u32(VERSION).u32(KNOWN_FLAGS);
        w.raw(&self.store.0).raw(&self.set.0).u8(self.kind as u8);
        w.u8(self.geometry.data).u8(self.geometry.parity).u8(XXH3_128);
        w.u32(self.geometry.strip_bytes).u64(self.logical_bytes).u64(rows);
        w.u64(self.index.start).u64(self.index.end - self.index.start).zeros(8);
        w.raw(self.checksums.as_flattened());

        let footer = Footer {
            trailer_bytes: out.len() as u64,
            checksum: checksum(&out),
            set_prefix: set_prefix(self.set),
        };
        footer.encode(&mut out);
        out
    }

    /// Reads a trailer back from `bytes`, which are those that the footer delimits.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when these are not the bytes of a trailer, or with
    /// [`Kind::Unsupported`] when a newer version wrote them.
    pub fn decode(bytes: &[u8], footer: &Footer) -> Result<Self> {
        let mut r = Reader::new(bytes, "stripe set trailer");
        if bytes.len() as u64 != footer.trailer_bytes || checksum(bytes) != footer.checksum {
            return Err(r.corrupt("the checksum does not match"));
        }
        expect_magic(&mut r, TRAILER_MAGIC)?;
        let Beginning { store, set, kind, data, parity } = Beginning::decode(&mut r)?;
        let algorithm = r.u8()?;
        if algorithm != XXH3_128 {
            return Err(newer("checksum algorithm", XXH3_128, algorithm));
        }
        let geometry = Geometry::decode(data, parity, r.u32()?)?;
        let (logical_bytes, rows) = (r.u64()?, r.u64()?);
        let (index_start, index_bytes) = (r.u64()?, r.u64()?);
        expect_zeros(&mut r, 8)?;

        if logical_bytes > LOGICAL_BYTES_MAX || rows != geometry.rows(logical_bytes) {
            return Err(r.corrupt("the length of the stripe set does not match its number of rows"));
        }
        let index_end = index_start.checked_add(index_bytes).filter(|&end| end <= logical_bytes);
        let Some(index_end) = index_end else {
            return Err(r.corrupt("the index of the records is outside of the stripe set"));
        };
        let (checksums, left) = r.rest().as_chunks::<CHECKSUM_BYTES>();
        if !left.is_empty() || checksums.len() as u64 != rows * geometry.members() as u64 {
            return Err(r.corrupt("the number of checksums differs from the number of strips"));
        }
        if set_prefix(set) != footer.set_prefix {
            return Err(r.corrupt("the trailer and the footer belong to different stripe sets"));
        }
        let index = index_start..index_end;
        let checksums = checksums.to_vec();
        Ok(Trailer { store, set, kind, geometry, logical_bytes, index, checksums })
    }
}

/// The last 64 bytes of an extent, which say where the trailer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Length of the trailer, which ends where the footer begins.
    pub trailer_bytes: u64,
    /// The checksum of the trailer.
    pub checksum: Checksum,
    /// The first eight bytes of the set id, so that the last sector alone shows to which set a
    /// stray extent belongs.
    pub set_prefix: [u8; 8],
}

impl Footer {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut w = Writer::new(out);
        w.raw(&FOOTER_MAGIC).u32(VERSION).zeros(4).u64(self.trailer_bytes);
        w.raw(&self.checksum).raw(&self.set_prefix);
        let sum = checksum(&out[start..]);
        out.extend_from_slice(&sum);
    }

    /// Reads a footer back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when these are not the bytes of a footer, or with
    /// [`Kind::Unsupported`] when a newer version wrote them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = open_sealed(bytes, FOOTER_BYTES, FOOTER_MAGIC, "stripe set footer")?;
        expect_version(&mut r)?;
        expect_zeros(&mut r, 4)?;
        let trailer_bytes = r.u64()?;
        Ok(Footer { trailer_bytes, checksum: r.array()?, set_prefix: r.array()? })
    }
}

fn set_prefix(set: SetId) -> [u8; 8] {
    *set.0.first_chunk().expect("a set id has 16 bytes")
}

/// Verifies a block of known length that ends with a checksum of the rest, and returns a reader
/// positioned after its magic.
fn open_sealed<'a>(
    bytes: &'a [u8],
    len: usize,
    magic: [u8; 8],
    what: &'static str,
) -> Result<Reader<'a>> {
    let mut r = Reader::new(bytes, what);
    expect_magic(&mut r, magic)?;
    match bytes.split_last_chunk::<CHECKSUM_BYTES>() {
        _ if bytes.len() != len => Err(r.corrupt("wrong length").expected(len, bytes.len())),
        Some((covered, sum)) if *sum == checksum(covered) => Ok(r),
        _ => Err(r.corrupt("the checksum does not match")),
    }
}

fn expect_magic(r: &mut Reader<'_>, magic: [u8; 8]) -> Result<()> {
    let found: [u8; 8] = r.array()?;
    if found == magic {
        return Ok(());
    }
    Err(r.corrupt("wrong magic").expected(magic.escape_ascii(), found.escape_ascii()))
}

fn expect_version(r: &mut Reader<'_>) -> Result<()> {
    match r.u32()? {
        VERSION => Ok(()),
        0 => Err(r.corrupt("the version of the stripe set is 0, which never existed")),
        version => Err(newer("stripe set version", VERSION, version)),
    }
}

fn expect_known_flags(r: &mut Reader<'_>) -> Result<()> {
    match r.u32()? & !KNOWN_FLAGS {
        0 => Ok(()),
        unknown => Err(newer("stripe set feature flags", "none", format!("{unknown:#x}"))),
    }
}

fn expect_zeros(r: &mut Reader<'_>, len: usize) -> Result<()> {
    if r.take(len)?.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    Err(r.corrupt("reserved bytes are not zero"))
}

fn newer(what: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Error::new(Kind::Unsupported, format!("this program does not know this {what}"))
        .expected(expected, found)
        .advice("use the version of pinstripe that wrote this object, or a newer version")
}

#[cfg(test)]
mod tests;
