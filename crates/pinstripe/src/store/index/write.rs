//! Writes an index run: it gets rows in the order of their ids, and writes the parts of the run.
//!
//! Memory holds one segment, for runs of any length: its keys and the tables of its filter, about 7
//! MB. Not in this module: where rows come from, and which members get the run.

use std::ops::Range;
use std::sync::Arc;

use crate::store::{Store, geometry_over};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_member::index_run::{
    Fences, PAGE_ROWS, RUN_MAX_PACKS, Row, RunHead, RunPack, SEGMENT_PAGES, SegmentPlace,
    TABLE_PACKS, bind, encode_packs, encode_page, fence, filter_key,
};
use pinstripe_member::pack_index::PackIndex;
use pinstripe_member::record::RecordKind;
use pinstripe_member::stripe_set::{Geometry, SetKind};
use pinstripe_member::{ExtentName, ExtentWriter, Replace, SealedCache, seal_own};
use pinstripe_stripe::{Filter, Sealer, SetWriter, StripSink};

use super::part;

/// The largest number of pages of a run that are added to the cache of this host when they are
/// written; of a longer run, only those pages are cached that are read.
const KEPT_PAGES_MAX: u32 = 4096;

/// A sealed pack, from which its entry in an index run is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPack {
    /// The pack's records and chunks.
    pub index: PackIndex,
    /// The pack's geometry over the members.
    pub geometry: Geometry,
}

impl SealedPack {
    /// The number of chunks in the pack.
    pub fn chunks(&self) -> usize {
        self.index.records.iter().map(|record| record.chunks.len()).sum()
    }

    /// Returns the pack's entry in a run's table.
    pub(crate) fn run_pack(&self) -> RunPack {
        RunPack {
            set: self.index.set,
            data: self.geometry.data() as u8,
            parity: self.geometry.parity() as u8,
            is_lost: false,
            bytes: self.index.records.iter().map(|record| u64::from(record.bytes)).sum(),
        }
    }

    /// Appends a row for each chunk, with this number as the pack's number.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] for a pack of more than 4 GiB, which no writer makes.
    pub fn rows(&self, pack: u32, rows: &mut Vec<Row>) -> Result<()> {
        rows.reserve(self.chunks());
        for record in &self.index.records {
            let end = record.offset + u64::from(record.bytes);
            if end > u64::from(u32::MAX) {
                return Err(Error::corrupt(
                    "a pack is longer than the maximum length of a pack",
                    ExtentName::pack(self.index.set).path(),
                )
                .expected(format!("a pack of at most {} bytes", u32::MAX), end));
            }
            let (offset, bytes) = (record.offset as u32, record.bytes);
            let mut raw_offset = 0;
            for chunk in &record.chunks {
                let raw_bytes = chunk.raw_bytes;
                rows.push(Row { id: chunk.id, pack, offset, bytes, raw_offset, raw_bytes });
                raw_offset += raw_bytes;
            }
        }
        Ok(())
    }
}

/// Writes an index run to the members, part by part. If the writer is dropped before it is
/// finished, its extents remain unsealed.
pub struct RunWriter<'s> {
    writer: SetWriter,
    sealer: &'s Sealer,
    sink: &'s mut dyn StripSink,
    /// The cache of this host, in which its next verb finds the run.
    kept: Option<Arc<SealedCache>>,
    head: RunHead,
    page: Vec<Row>,
    /// The fences of the segment that is being filled.
    fences: Vec<u64>,
    keys: Vec<u64>,
    segment_rows: u32,
    segment_offset: u64,
    pages: u32,
    last: Option<ChunkId>,
}

impl<'s> RunWriter<'s> {
    /// Begins a run without rows.
    pub fn new(
        store: &Store,
        set: SetId,
        geometry: Geometry,
        sealer: &'s Sealer,
        sink: &'s mut dyn StripSink,
    ) -> Self {
        let head = RunHead {
            set,
            is_bound: true,
            rows: 0,
            duplicates: 0,
            page_bytes: 0,
            segments: Vec::new(),
            tables: Vec::new(),
        };
        RunWriter {
            writer: SetWriter::new(store.config.store, set, SetKind::IndexRun, geometry),
            sealer,
            sink,
            kept: store.kept().cloned(),
            head,
            page: Vec::with_capacity(PAGE_ROWS),
            fences: Vec::new(),
            keys: Vec::new(),
            segment_rows: 0,
            segment_offset: 0,
            pages: 0,
            last: None,
        }
    }

    /// Adds a row; rows must come in ascending order of ids. The pack in the row is a number in the
    /// table that [`finish`](Self::finish) gets.
    ///
    /// # Errors
    /// Fails with the errors of the sink, or with [`Kind::Usage`] for a row out of order.
    pub fn push(&mut self, row: Row) -> Result<()> {
        match self.last {
            Some(last) if row.id < last => {
                return Err(Error::new(Kind::Usage, "the rows of an index run are out of order"));
            }
            Some(last) if row.id == last => {
                self.head.duplicates += 1;
                // The rows of a chunk may continue in the next segment, which has a filter of its own.
                if self.keys.is_empty() {
                    self.keys.push(filter_key(&row.id));
                }
            }
            _ => self.keys.push(filter_key(&row.id)),
        }
        self.last = Some(row.id);
        self.page.push(row);
        if self.page.len() == PAGE_ROWS {
            self.close_page()?;
        }
        Ok(())
    }

    /// Returns the record of a part, bound to this run.
    fn bound(&self, number: u32, body: &[u8]) -> Result<Vec<u8>> {
        part::write(RecordKind::RunPart, &bind(self.head.set, number, body), self.sealer)
    }

    /// Writes the record of a part; returns its range in the run.
    fn lay(&mut self, record: &[u8]) -> Result<Range<u64>> {
        let start = self.writer.position();
        self.writer.append(record, self.sink)?;
        let range = start..self.writer.position();
        if let Some(kept) = self.kept.as_ref().filter(|_| self.pages <= KEPT_PAGES_MAX) {
            kept.put(part::kept_as(ExtentName::index(self.head.set), &range), record);
        }
        Ok(range)
    }

    fn close_page(&mut self) -> Result<()> {
        let Some(first) = self.page.first() else { return Ok(()) };
        self.fences.push(fence(&first.id));
        let record = self.bound(self.pages, &encode_page(self.pages, &self.page))?;
        self.head.page_bytes = self.head.page_bytes.max(record.len() as u32);
        self.lay(&record)?;
        self.pages += 1;
        self.segment_rows += self.page.len() as u32;
        self.page.clear();
        if self.fences.len() == SEGMENT_PAGES {
            self.close_segment()?;
        }
        Ok(())
    }

    fn close_segment(&mut self) -> Result<()> {
        if self.fences.is_empty() {
            return Ok(());
        }
        let filter = Filter::build(&mut self.keys)?;
        let shape = filter.shape();
        let fences = Fences {
            fences: std::mem::take(&mut self.fences).into(),
            rows: self.segment_rows,
            seed: shape.seed,
            segment_log2: shape.segment_log2,
            filter_segments: shape.segments,
        };
        let number = self.head.segments.len() as u32;
        let record = self.bound(number, &fences.encode(filter.fingerprints()))?;
        let fences_offset = self.lay(&record)?.start;
        self.head.segments.push(SegmentPlace {
            offset: self.segment_offset,
            fences_offset,
            fences_bytes: record.len() as u32,
            pages: fences.fences.len() as u32,
        });
        self.head.rows += u64::from(self.segment_rows);
        self.keys.clear();
        self.segment_rows = 0;
        self.segment_offset = self.writer.position();
        Ok(())
    }

    /// Ends the run; `packs` is the table to which the pack numbers in rows refer.
    ///
    /// # Errors
    /// Fails with the errors of the sink, or with [`Kind::Usage`] for more packs than a run can
    /// have.
    pub fn finish(mut self, packs: &[RunPack]) -> Result<RunHead> {
        if packs.len() > RUN_MAX_PACKS {
            return Err(Error::new(Kind::Usage, "too many packs for one index run")
                .expected(format!("at most {RUN_MAX_PACKS} packs"), packs.len()));
        }
        self.close_page()?;
        self.close_segment()?;
        for (number, table) in (0..).zip(packs.chunks(TABLE_PACKS)) {
            let record = self.bound(number, &encode_packs(table))?;
            let offset = self.lay(&record)?.start;
            self.head.tables.push((offset, record.len() as u32));
        }
        let record = part::write(RecordKind::RunPart, &self.head.encode(), self.sealer)?;
        let head = self.lay(&record)?;
        self.writer.finish(head, self.sink)?;
        Ok(self.head)
    }
}

/// Writes a run that lists `packs`; the caller seals its extents.
///
/// # Errors
/// Fails with the errors of the sink and of [`SealedPack::rows`].
pub fn lay_run(
    store: &Store,
    set: SetId,
    geometry: Geometry,
    packs: &[SealedPack],
    sealer: &Sealer,
    sink: &mut dyn StripSink,
) -> Result<RunHead> {
    let mut rows = Vec::with_capacity(packs.iter().map(SealedPack::chunks).sum());
    for (number, pack) in packs.iter().enumerate() {
        pack.rows(number as u32, &mut rows)?;
    }
    // Copies are sorted by pack: a reader of a tree then finds all pages in one pack.
    rows.sort_unstable_by_key(|row| (row.id, row.pack));
    let mut writer = RunWriter::new(store, set, geometry, sealer, sink);
    rows.into_iter().try_for_each(|row| writer.push(row))?;
    let table: Vec<_> = packs.iter().map(SealedPack::run_pack).collect();
    writer.finish(&table)
}

/// Returns the entry in a run's table for a lost pack.
pub(super) fn lost_pack(set: SetId) -> RunPack {
    RunPack { set, data: 1, parity: 0, is_lost: true, bytes: 0 }
}

/// The extents of one set on the present members, which are written strip by strip. A member that
/// fails is left out, as long as parity replaces it.
struct RunExtents {
    writers: Vec<Option<Box<dyn ExtentWriter>>>,
    spare: usize,
}

impl RunExtents {
    /// Handles the result of a member's call; returns `None` when the member is left out.
    fn settle<T>(spare: &mut usize, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if *spare == 0 => Err(error),
            Err(_) => {
                *spare -= 1;
                Ok(None)
            }
        }
    }
}

impl StripSink for RunExtents {
    fn append(&mut self, member: usize, bytes: Vec<u8>) -> Result<()> {
        if let Some(slot) = self.writers.get_mut(member)
            && let Some(writer) = slot
            && RunExtents::settle(&mut self.spare, writer.append(&bytes))?.is_none()
        {
            *slot = None;
        }
        Ok(())
    }
}

/// Durably writes a new run to the members that get sets and are not full; `lay` writes its parts
/// for that number of members.
///
/// # Errors
/// Fails with the errors of `lay`, or with those of members when more fail or are absent than
/// parity replaces.
pub fn write_run<T>(
    store: &Store,
    lay: impl FnOnce(SetId, Geometry, &mut dyn StripSink) -> Result<T>,
) -> Result<(SetId, T)> {
    let set = SetId(store.new_name()?);
    let name = ExtentName::index(set);
    let mut spare = usize::from(store.config.parity).saturating_sub(store.absent().count());
    let members = store.takers_with_room();
    let geometry = geometry_over(&store.config, members.len())?;
    let mut writers = Vec::new();
    for member in members.into_iter().take(geometry.members()) {
        writers.push(RunExtents::settle(&mut spare, member.create(name, Replace::Never))?);
    }
    let mut extents = RunExtents { writers, spare };
    let laid = lay(set, geometry, &mut extents)?;
    let RunExtents { writers, mut spare } = extents;
    for writer in writers.into_iter().flatten() {
        RunExtents::settle(&mut spare, seal_own(writer))?;
    }
    Ok((set, laid))
}
