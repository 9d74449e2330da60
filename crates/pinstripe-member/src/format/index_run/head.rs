//! The head of an index run: it says where the run's segments and tables of packs are.

use super::{PAGE_ROWS, RUN_MAX_PACKS, SEGMENT_PAGES, TABLE_PACKS};
use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_base::wire::{Reader, Writer};

/// The place of a segment in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentPlace {
    /// The start of the segment's first page.
    pub offset: u64,
    /// The start of its fences, which follow its last page.
    pub fences_offset: u64,
    /// Length of the record of the fences.
    pub fences_bytes: u32,
    /// The number of pages of the segment.
    pub pages: u32,
}

/// The places of all parts of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHead {
    /// The run itself.
    pub set: SetId,
    /// Whether the other parts of the run are [bound](super::bind) to the run, as in all runs that
    /// are written today.
    pub is_bound: bool,
    /// The number of rows in all pages.
    pub rows: u64,
    /// The number of rows whose chunk also has another row: chunks that were stored more than once.
    pub duplicates: u64,
    /// Length of the record of every page except the last of a segment.
    pub page_bytes: u32,
    /// The segments of the run, in the order of the ids in them.
    pub segments: Vec<SegmentPlace>,
    /// Tables of packs: the start of each, and the length of its record.
    pub tables: Vec<(u64, u32)>,
}

impl RunHead {
    /// Writes the body.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.u8(if self.is_bound { b'H' } else { b'h' });
        writer.raw(&self.set.0).u64(self.rows).u64(self.duplicates);
        writer.u32(self.page_bytes).u32(self.segments.len() as u32).u32(self.tables.len() as u32);
        for segment in &self.segments {
            writer.u64(segment.offset).u64(segment.fences_offset);
            writer.u32(segment.fences_bytes).u32(segment.pages);
        }
        for (offset, bytes) in &self.tables {
            writer.u64(*offset).u32(*bytes);
        }
        out
    }

    /// Reads a body back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when a part is at an
    /// impossible place.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(body, "head of an index run");
        let is_bound = match reader.u8()? {
            b'H' => true,
            b'h' => false,
            _ => {
                return Err(
                    reader.corrupt("another part of the index run is stored instead of the head")
                );
            }
        };
        let set = SetId(reader.array()?);
        let (rows, duplicates, page_bytes) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let (segment_count, table_count) = (reader.u32()? as usize, reader.u32()? as usize);
        let wanted = segment_count.checked_mul(24).zip(table_count.checked_mul(12));
        if wanted.and_then(|(a, b)| a.checked_add(b)) != Some(reader.remaining()) {
            return Err(
                reader.corrupt("the lists in the head of the index run have a wrong length")
            );
        }
        let mut segments = Vec::with_capacity(segment_count);
        let (mut end, mut pages_in_all) = (0_u64, 0_u64);
        for _ in 0..segment_count {
            let (offset, fences_offset) = (reader.u64()?, reader.u64()?);
            let (fences_bytes, pages) = (reader.u32()?, reader.u32()?);
            let full = u64::from(pages.saturating_sub(1)) * u64::from(page_bytes);
            let is_possible = offset == end
                && (1..=SEGMENT_PAGES as u32).contains(&pages)
                && fences_offset > offset.saturating_add(full)
                && fences_offset <= offset.saturating_add(full).saturating_add(page_bytes.into());
            let next = fences_offset.checked_add(u64::from(fences_bytes));
            let (true, Some(next)) = (is_possible, next) else {
                return Err(reader.corrupt("a segment of the index run has an impossible offset"));
            };
            pages_in_all += u64::from(pages);
            end = next;
            segments.push(SegmentPlace { offset, fences_offset, fences_bytes, pages });
        }
        let mut tables = Vec::with_capacity(table_count);
        for _ in 0..table_count {
            let (offset, bytes) = (reader.u64()?, reader.u32()?);
            let (true, Some(next)) = (offset == end, end.checked_add(u64::from(bytes))) else {
                return Err(reader.corrupt("a table of packs has an impossible offset"));
            };
            end = next;
            tables.push((offset, bytes));
        }
        let rows_fit = rows <= pages_in_all * PAGE_ROWS as u64 && rows >= pages_in_all;
        if !rows_fit || duplicates > rows || table_count > RUN_MAX_PACKS.div_ceil(TABLE_PACKS) {
            return Err(reader.corrupt("impossible numbers"));
        }
        Ok(RunHead { set, is_bound, rows, duplicates, page_bytes, segments, tables })
    }
}
