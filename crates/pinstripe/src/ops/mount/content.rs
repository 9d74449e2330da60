//! The content of files: finds the chunks of a range, and prefetches the records that hold them.

use std::collections::BTreeSet;
use std::ops::Range;

use pinstripe_prefetch::{
    Ahead, Bounds, BudgetUsage, FetchPlan, Hint, Presence, Readers, ReadersOfObject, Runner,
};

use super::pages::{Decoded, Pages};
use crate::pipeline::limits::RECORD_RAW_BYTES;
use crate::pipeline::restore::Offsets;
use crate::pipeline::stream::{DecodedRecords, decoded_bytes};
use crate::store::index::{Index, Place};
use crate::store::packs::{ChunkReader, PackReader, RecordPlace, missing_chunk, wrong_place};
use pinstripe_base::error::{Error, Result};
use pinstripe_member::entry::{Content as EntryContent, Entry};
use pinstripe_member::keys::Keys;
use pinstripe_member::record::ChunkRow;

/// The number of bytes of a file that are planned at once.
const PLANNED_BYTES: u64 = 1 << 20;
/// The number of records that are prefetched for one stream.
const WINDOW: u32 = 64;

/// A chunk with the part of it that is wanted.
struct WantedChunk {
    row: ChunkRow,
    /// The offset of the chunk in the file.
    start: u64,
    /// The range of bytes wanted from the chunk.
    part: Range<u32>,
}

/// Reads files.
pub(super) struct Content {
    runner: Runner<DecodedRecords<'static>>,
    readers: Readers,
    total: u64,
}

impl Content {
    pub(super) fn new(
        packs: &'static PackReader<'static>,
        index: &'static Index<'static>,
        keys: &'static Keys,
        budget: u64,
        threads: usize,
    ) -> Self {
        let records = DecodedRecords::new(packs, index, keys);
        Content {
            runner: Runner::new(records, budget, threads),
            readers: Readers::default(),
            // The rest is for the reads themselves.
            total: budget / 6 * 5,
        }
    }

    /// Appends the bytes of `range` of a file; holes are zeros.
    pub(super) fn read(
        &self,
        pages: &Pages,
        inode: u64,
        entry: &Entry,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let pieces = pieces(pages, entry, &range)?;
        let places =
            pieces.iter().map(|piece| self.place(&piece.row)).collect::<Result<Vec<_>>>()?;
        self.plan(pages, inode, entry, &range, places.first());
        let base = out.len();
        out.resize(base + (range.end - range.start) as usize, 0);
        for (piece, place) in pieces.iter().zip(&places) {
            let at = base + (piece.start + u64::from(piece.part.start) - range.start) as usize;
            let length = (piece.part.end - piece.part.start) as usize;
            self.chunk(piece, place, &mut out[at..at + length])?;
        }
        Ok(())
    }

    fn chunk(&self, piece: &WantedChunk, place: &Place, out: &mut [u8]) -> Result<()> {
        let part = piece.part.start as usize..piece.part.end as usize;
        let record = self.runner.get(place.record, decoded_bytes(place));
        let direct = record.as_ref().map_err(Error::duplicate).and_then(|record| {
            out.copy_from_slice(&record.chunk(place.raw_offset, &piece.row)?[part.clone()]);
            Ok(())
        });
        let Err(error) = direct else { return Ok(()) };
        // Another pack may have it too, or a collector has moved it.
        let source = self.runner.source();
        let mut reader = ChunkReader::new(source.packs, source.index);
        match reader.read_elsewhere(&piece.row.id, place.record) {
            Some(chunk) if chunk.len() == piece.row.raw_bytes as usize => {
                out.copy_from_slice(&chunk[part]);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn place(&self, row: &ChunkRow) -> Result<Place> {
        let place =
            self.runner.source().index.find(&row.id)?.ok_or_else(|| missing_chunk(&row.id))?;
        match place.raw_bytes == row.raw_bytes {
            true => Ok(place),
            false => Err(wrong_place(&row.id)),
        }
    }

    /// Requests what the reader will need next, before the read itself.
    fn plan(
        &self,
        pages: &Pages,
        inode: u64,
        entry: &Entry,
        range: &Range<u64>,
        first: Option<&Place>,
    ) {
        if entry.size <= RECORD_RAW_BYTES as u64 {
            return;
        }
        let found = first.map_or(Presence::Ready, |place| self.runner.presence(&place.record));
        let dropped = self.runner.take_dropped(inode);
        let plan = self.readers.read(inode, self.bounds(entry), range.clone(), found, &dropped);
        self.send(pages, inode, entry, plan);
    }

    /// Applies a program's hint about its reads.
    pub(super) fn hint(&self, pages: &Pages, inode: u64, entry: &Entry, hint: Hint, next: u64) {
        let plan = self.readers.hint(inode, self.bounds(entry), hint, next);
        self.send(pages, inode, entry, plan);
    }

    fn send(&self, pages: &Pages, inode: u64, entry: &Entry, plan: FetchPlan) {
        self.runner.unwanted(inode, &plan.drop);
        for range in plan.fetch {
            self.fetch_ahead(pages, inode, entry, range);
        }
    }

    /// Prefetches the records of a range. The read itself reports errors.
    pub(super) fn fetch_ahead(&self, pages: &Pages, inode: u64, entry: &Entry, range: Range<u64>) {
        let Ok(pieces) = pieces(pages, entry, &range) else { return };
        let mut seen = BTreeSet::new();
        let places = pieces.iter().filter_map(|piece| self.place(&piece.row).ok());
        let mut wanted: Vec<Ahead<RecordPlace>> = places
            .filter(|place| seen.insert(place.record))
            .map(|place| Ahead {
                key: place.record,
                bytes: decoded_bytes(&place),
                origin: (inode, range.clone()),
            })
            .collect();
        // Packs are read in order.
        wanted.sort_by_key(|ahead| ahead.key);
        self.runner.ahead(wanted);
    }

    /// Returns the state of the readers of up to `files` files, the most recently read file first.
    pub(super) fn report(&self, files: usize) -> Vec<ReadersOfObject> {
        self.readers.report(files)
    }

    /// Returns how much of the memory for records is used.
    pub(super) fn usage(&self) -> BudgetUsage {
        self.runner.usage()
    }

    fn bounds(&self, entry: &Entry) -> Bounds {
        Bounds { object: entry.size, record: PLANNED_BYTES, window: WINDOW, total: self.total }
    }
}

/// Returns the chunks of a range of a file.
fn pieces(pages: &Pages, entry: &Entry, range: &Range<u64>) -> Result<Vec<WantedChunk>> {
    let (offsets, range) = (Offsets::new(entry), range.clone());
    let mut walk = ContentWalk { offsets, range, is_over: false, pieces: Vec::new() };
    match &entry.content {
        EntryContent::Chunks(rows) => walk.rows(rows)?,
        EntryContent::Lists(lists) => {
            for list in lists {
                if walk.is_over {
                    break;
                } else if walk.offsets.after(list.content_bytes) <= walk.range.start {
                    walk.offsets.skip(list.content_bytes)?;
                } else if let Decoded::List(rows) = &*pages.list(&list.id)? {
                    walk.rows(rows)?;
                }
            }
        }
    }
    Ok(walk.pieces)
}

/// A walk through the content of a file.
struct ContentWalk {
    offsets: Offsets,
    range: Range<u64>,
    /// The walk has reached the end of the range.
    is_over: bool,
    pieces: Vec<WantedChunk>,
}

impl ContentWalk {
    fn rows(&mut self, rows: &[ChunkRow]) -> Result<()> {
        for row in rows {
            let start = self.offsets.next(row.raw_bytes)?;
            let end = start + u64::from(row.raw_bytes);
            let wanted = start.max(self.range.start)..end.min(self.range.end);
            if wanted.start < wanted.end {
                let part = (wanted.start - start) as u32..(wanted.end - start) as u32;
                self.pieces.push(WantedChunk { row: *row, start, part });
            }
            self.is_over = end >= self.range.end;
            if self.is_over {
                break;
            }
        }
        Ok(())
    }
}
