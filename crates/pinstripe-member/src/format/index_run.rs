//! An index run: the places of the chunks of some packs, sorted by id, in pages that are read one
//! at a time.
//!
//! Every part is the body of a record of kind `RunPart`, so each has a checksum of its own:
//!
//! ```text
//! segment:  pages of rows, then the segment's fences   (again and again)
//! tables of packs
//! head: where all of this is
//! ```
//!
//! Every part except the head begins with the id of its run and with its number among the parts of
//! its kind: `b`, set id (16 bytes), number (4 bytes). If the head begins with `H`, its parts must
//! begin this way; a head that begins with `h` has the older form, in which each part begins with a
//! letter of its own.
//!
//! The index range in the trailer of the stripe set is the record of the head. All pages of a run
//! have the same length, except the last of a segment, so the offset of a page can be computed.
//!
//! A page has `p`, its number (4 bytes), and its rows; a row has 52 bytes: chunk id 32, number of
//! the pack in the run's tables 4, offset of the record in the pack 4, length of the record 4,
//! offset of the chunk in the record's raw bytes 4, length of the chunk 4. The fences are the first
//! eight bytes of each page's first id: with them and the filter in memory, a reader reads only one
//! page per chunk.

mod head;

pub use head::{RunHead, SegmentPlace};

use super::record::{RECORD_HEAD_BYTES, RECORD_MAX_RAW_BYTES};
use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::wire::{Reader, Writer};

/// Bytes of a row.
pub const ROW_BYTES: usize = 52;
/// The number of rows of every page except the last of a segment: a page then has just under 16
/// KiB.
pub const PAGE_ROWS: usize = 315;
/// The largest number of pages of a segment: its filter is built from at most 2^18 keys.
pub const SEGMENT_PAGES: usize = 832;
/// The largest number of packs in one table.
pub const TABLE_PACKS: usize = 4096;
/// The largest number of packs in a run; further packs go into a second run.
pub const RUN_MAX_PACKS: usize = 1 << 24;

const PAGE_HEAD_BYTES: usize = 5;
const PACK_ROW_BYTES: usize = 32;

/// One chunk and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The chunk.
    pub id: ChunkId,
    /// Number of the pack in a list; the owner of the row knows which list is meant.
    pub pack: u32,
    /// The record's start in the pack's logical run.
    pub offset: u32,
    /// Length of the record.
    pub bytes: u32,
    /// The chunk's start in the record's raw bytes.
    pub raw_offset: u32,
    /// Length of the chunk.
    pub raw_bytes: u32,
}

impl Row {
    fn write(&self, out: &mut Vec<u8>) {
        Writer::new(out)
            .raw(&self.id.0)
            .u32(self.pack)
            .u32(self.offset)
            .u32(self.bytes)
            .u32(self.raw_offset)
            .u32(self.raw_bytes);
    }

    fn read(bytes: &[u8; ROW_BYTES]) -> Self {
        let (id, numbers) = bytes.split_first_chunk::<32>().expect("a row begins with an id");
        let number = |at: usize| {
            let bytes = numbers[4 * at..].first_chunk().expect("five numbers follow");
            u32::from_le_bytes(*bytes)
        };
        Row {
            id: ChunkId(*id),
            pack: number(0),
            offset: number(1),
            bytes: number(2),
            raw_offset: number(3),
            raw_bytes: number(4),
        }
    }
}

/// Binds a part to its run and to its number among the parts of its kind, so that it is accepted in
/// no other place.
pub fn bind(set: SetId, number: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + SetId::LEN + 4 + body.len());
    Writer::new(&mut out).u8(b'b').raw(&set.0).u32(number).raw(body);
    out
}

/// Returns the part without the prefix that binds it to the run.
///
/// # Errors
/// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when the part belongs to
/// another run, or to another place in this run.
pub fn unbind(set: SetId, number: u32, bound: &[u8]) -> Result<&[u8]> {
    let mut reader = Reader::new(bound, "part of an index run");
    if reader.u8()? != b'b' {
        return Err(reader.corrupt("this part does not contain the id of its index run"));
    }
    let found = SetId(reader.array()?);
    if found != set {
        return Err(reader.corrupt("this part belongs to another index run").expected(set, found));
    }
    let found = reader.u32()?;
    if found != number {
        return Err(reader
            .corrupt("this is not the expected part of the index run")
            .expected(number, found));
    }
    Ok(reader.rest())
}

/// Returns the first eight bytes of an id as a number: the numbers sort as the ids do.
pub fn fence(id: &ChunkId) -> u64 {
    u64::from_be_bytes(*id.0.first_chunk().expect("an id has 32 bytes"))
}

/// Returns the key of a chunk in a filter, made of bytes of the id that are not in its fence.
pub fn filter_key(id: &ChunkId) -> u64 {
    u64::from_le_bytes(*id.0[8..].first_chunk().expect("an id has 32 bytes"))
}

/// Encodes the body of a page.
pub fn encode_page(number: u32, rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_HEAD_BYTES + rows.len() * ROW_BYTES);
    Writer::new(&mut out).u8(b'p').u32(number);
    rows.iter().for_each(|row| row.write(&mut out));
    out
}

/// A page as it is kept in memory: its bytes, already verified.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    rows: Box<[u8]>,
}

impl Page {
    /// Decodes the body of page `number` of a run with this number of packs.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) if the body is not that
    /// of this page, its ids descend or a row is impossible.
    pub fn decode(body: &[u8], number: u32, packs: u32) -> Result<Self> {
        let mut reader = Reader::new(body, "page of an index run");
        if reader.u8()? != b'p' {
            return Err(reader.corrupt("another part of the index run is stored instead of a page"));
        }
        let found = reader.u32()?;
        if found != number {
            return Err(reader.corrupt("another page").expected(number, found));
        }
        let rows = reader.take(reader.remaining())?;
        if rows.len() % ROW_BYTES != 0 || rows.is_empty() || rows.len() > PAGE_ROWS * ROW_BYTES {
            return Err(reader.corrupt("the rows of a page of the index run have a wrong length"));
        }
        let page = Page { rows: rows.into() };
        let mut last = ChunkId([0; 32]);
        for row in page.rows() {
            let end = row.raw_offset.checked_add(row.raw_bytes);
            if row.id < last
                || row.pack >= packs
                || (row.bytes as usize) < RECORD_HEAD_BYTES
                || row.offset.checked_add(row.bytes).is_none()
                || end.is_none_or(|end| end > RECORD_MAX_RAW_BYTES)
            {
                return Err(
                    reader.corrupt(format!("the row for chunk {} has impossible values", row.id))
                );
            }
            last = row.id;
        }
        Ok(page)
    }

    /// Number of rows, at least one.
    pub fn len(&self) -> usize {
        self.rows.len() / ROW_BYTES
    }

    /// Whether the page has no rows; always false.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One row.
    pub fn row(&self, at: usize) -> Row {
        Row::read(self.rows[at * ROW_BYTES..].first_chunk().expect("the caller knows the length"))
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        (0..self.len()).map(|at| self.row(at))
    }

    /// Returns the number of the first row whose id is not below `id`.
    pub fn lower_bound(&self, id: &ChunkId) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = (from + to) / 2;
            let there = &self.rows[middle * ROW_BYTES..middle * ROW_BYTES + ChunkId::LEN];
            if there < id.0.as_slice() { from = middle + 1 } else { to = middle }
        }
        from
    }
}

/// The fences of a segment, which a reader keeps in memory together with its filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fences {
    /// First eight bytes of each page's first id.
    pub fences: Box<[u64]>,
    /// Rows in all pages.
    pub rows: u32,
    /// The seed that is mixed into the filter's keys.
    pub seed: u64,
    /// Each segment of the filter has two to the power of this many slots.
    pub segment_log2: u8,
    /// The number of the filter's segments, not counting the last two.
    pub filter_segments: u32,
}

impl Fences {
    /// Encodes the body of this part of a segment: the fences, then the filter.
    pub fn encode(&self, fingerprints: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(22 + 8 * self.fences.len() + fingerprints.len());
        let mut writer = Writer::new(&mut out);
        writer
            .u8(b's')
            .u32(self.rows)
            .u64(self.seed)
            .u8(self.segment_log2)
            .u32(self.filter_segments)
            .u32(self.fences.len() as u32);
        self.fences.iter().for_each(|fence| {
            writer.u64(*fence);
        });
        writer.raw(fingerprints);
        out
    }

    /// Decodes the body into the fences and the fingerprints of the filter.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for what `encode` does
    /// not write.
    pub fn decode(body: &[u8]) -> Result<(Self, &[u8])> {
        let mut reader = Reader::new(body, "segment of an index run");
        if reader.u8()? != b's' {
            return Err(reader.corrupt(
                "another part of the index run is stored instead of the fence keys of a segment",
            ));
        }
        let rows = reader.u32()?;
        let (seed, segment_log2, filter_segments) = (reader.u64()?, reader.u8()?, reader.u32()?);
        let pages = reader.u32()? as usize;
        let most = (pages.saturating_sub(1)) * PAGE_ROWS + 1..=pages * PAGE_ROWS;
        if pages == 0 || pages > SEGMENT_PAGES || !most.contains(&(rows as usize)) {
            return Err(reader.corrupt("the numbers of pages and rows are impossible"));
        }
        let mut fences = Vec::with_capacity(pages);
        for _ in 0..pages {
            fences.push(reader.u64()?);
        }
        if !fences.is_sorted() {
            return Err(reader.corrupt("fences descend"));
        }
        let fences = fences.into();
        let fingerprints = reader.rest();
        Ok((Fences { fences, rows, seed, segment_log2, filter_segments }, fingerprints))
    }
}

/// One pack of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPack {
    /// The pack.
    pub set: SetId,
    /// The number of extents that are needed to read the pack: D, the number of data strips per
    /// row.
    pub data: u8,
    /// Further extents, P.
    pub parity: u8,
    /// The pack is lost and has no rows, but snapshots still refer to some of its chunks.
    pub is_lost: bool,
    /// The length of the pack's records together.
    pub bytes: u64,
}

/// Encodes the body of a table of packs.
pub fn encode_packs(packs: &[RunPack]) -> Vec<u8> {
    let mut out = Vec::with_capacity(5 + packs.len() * PACK_ROW_BYTES);
    let mut writer = Writer::new(&mut out);
    writer.u8(b'k').u32(packs.len() as u32);
    for pack in packs {
        writer.raw(&pack.set.0).u8(pack.data).u8(pack.parity).u8(u8::from(pack.is_lost));
        writer.zeros(5).u64(pack.bytes);
    }
    out
}

/// Reads a table of packs.
///
/// # Errors
/// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for what `encode_packs` does
/// not write.
pub fn decode_packs(body: &[u8]) -> Result<Vec<RunPack>> {
    let mut reader = Reader::new(body, "packs of an index run");
    if reader.u8()? != b'k' {
        return Err(
            reader.corrupt("another part of the index run is stored instead of a table of packs")
        );
    }
    let count = reader.u32()? as usize;
    if count == 0 || count > TABLE_PACKS || reader.remaining() != count * PACK_ROW_BYTES {
        return Err(reader.corrupt("the table of packs has a wrong length"));
    }
    let mut packs = Vec::with_capacity(count);
    for _ in 0..count {
        let set = SetId(reader.array()?);
        let (data, parity, is_lost) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let reserved: [u8; 5] = reader.array()?;
        if data == 0 || is_lost > 1 || reserved != [0; 5] {
            return Err(reader.corrupt("a row of the table of packs has impossible values"));
        }
        packs.push(RunPack { set, data, parity, is_lost: is_lost == 1, bytes: reader.u64()? });
    }
    reader.finish()?;
    Ok(packs)
}

#[cfg(test)]
mod tests;
