//! The feed: finds the chunks of the requested content, in order, and has their records prefetched.

use std::ops::Range;

use crossbeam_channel::Sender;

use super::decoded::decoded_bytes;
use super::{Origin, Record, RecordRunner, StreamItem};
use crate::pipeline::restore::Offsets;
use crate::store::packs::{RecordPlace, missing_chunk, wrong_place};
use crate::store::tree::TreeReader;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::entry::{Content, Entry};
use pinstripe_member::record::ChunkRow;

/// The number of records that are requested together, sorted by their place.
const BATCH_RECORDS: usize = 32;
/// The largest number of items that are held back until their records are requested.
const BATCH_ITEMS: usize = 512;

/// Receives requests for content.
pub(crate) struct Feed<'r, 'a, T> {
    origin: Origin<'a>,
    runner: &'r RecordRunner<'a>,
    items: Sender<StreamItem<'r, 'a, T>>,
    /// Records and items that are held back to be sent together.
    batch: Vec<RecordPlace>,
    held: Vec<StreamItem<'r, 'a, T>>,
    is_over: bool,
}

/// Whether holes are output as zeros or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// Holes are output as zeros of the same length.
    Zeros,
    /// Only data is output.
    LeftOut,
}

impl<'r, 'a, T> Feed<'r, 'a, T> {
    pub(super) fn new(
        origin: Origin<'a>,
        runner: &'r RecordRunner<'a>,
        items: Sender<StreamItem<'r, 'a, T>>,
    ) -> Self {
        Feed { origin, runner, items, batch: Vec::new(), held: Vec::new(), is_over: false }
    }

    pub(super) fn run(mut self, produce: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let produced = produce(&mut self);
        self.send();
        produced
    }

    /// Whether nothing more is needed, because the caller of the stream has ended it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Puts `mark` into the output between pieces of content.
    pub fn mark(&mut self, mark: T) {
        self.push(StreamItem::Mark(mark));
    }

    /// Outputs the content of a file from `range.start` to `range.end`, which must be within its
    /// size. A part that cannot be planned is output as lost, so that the length is right in any
    /// case.
    pub fn file(
        &mut self,
        tree: &mut TreeReader<'_>,
        entry: &Entry,
        range: Range<u64>,
        holes: Holes,
    ) {
        let within = |run: &Range<u64>| run.start.max(range.start)..run.end.min(range.end);
        let wanted = match holes {
            Holes::Zeros => range.end - range.start,
            Holes::LeftOut => (entry.data_extents().iter().map(within))
                .map(|run| run.end.saturating_sub(run.start))
                .sum(),
        };
        let mut walk = FileWalk { offsets: Offsets::new(entry), range, holes, at: 0, given: 0 };
        walk.at = walk.range.start;
        let mut planned = match &entry.content {
            Content::Chunks(rows) => self.rows(rows, &mut walk),
            Content::Lists(lists) => lists.iter().try_for_each(|list| {
                if walk.is_before(list.content_bytes) {
                    walk.offsets.skip(list.content_bytes)
                } else if walk.at < walk.range.end && !self.is_over {
                    self.rows(&tree.list(&list.id)?, &mut walk)
                } else {
                    Ok(())
                }
            }),
        };
        if planned.is_ok() && holes == Holes::Zeros {
            self.zeros_until(&mut walk, None);
        }
        if planned.is_ok() && walk.given != wanted && !self.is_over {
            planned = Err(Error::new(
                Kind::Corrupt,
                "the lengths of a file's chunks do not add up to the file's size",
            )
            .expected(wanted, walk.given));
        }
        if let Err(error) = planned {
            self.push(StreamItem::Lost(wanted.saturating_sub(walk.given), error));
        }
    }

    fn rows(&mut self, rows: &[ChunkRow], walk: &mut FileWalk) -> Result<()> {
        for row in rows {
            let start = walk.offsets.next(row.raw_bytes)?;
            let end = start + u64::from(row.raw_bytes);
            if end <= walk.range.start {
                continue;
            }
            if start >= walk.range.end || self.is_over {
                break;
            }
            if walk.holes == Holes::Zeros {
                self.zeros_until(walk, Some(start));
            }
            let part = start.max(walk.range.start)..end.min(walk.range.end);
            self.chunk(row, (part.start - start) as u32..(part.end - start) as u32);
            walk.given += part.end - part.start;
            walk.at = part.end;
        }
        Ok(())
    }

    fn zeros_until(&mut self, walk: &mut FileWalk, next: Option<u64>) {
        let next = next.unwrap_or(u64::MAX).min(walk.range.end);
        if next > walk.at {
            self.push(StreamItem::Zeros(next - walk.at));
            walk.given += next - walk.at;
            walk.at = next;
        }
    }

    fn chunk(&mut self, row: &ChunkRow, part: Range<u32>) {
        match self.record_of(row) {
            Ok((record, raw_offset)) => {
                self.push(StreamItem::Chunk { record, raw_offset, row: *row, part });
            }
            Err(error) => self.push(StreamItem::Lost(u64::from(part.end - part.start), error)),
        }
    }

    /// Returns the record that holds a chunk, with its place in the memory budget.
    fn record_of(&mut self, row: &ChunkRow) -> Result<(Record<'r, 'a>, u32)> {
        let place = self.origin.index.find(&row.id)?;
        let place = place.ok_or_else(|| missing_chunk(&row.id))?;
        if place.raw_bytes != row.raw_bytes {
            return Err(wrong_place(&row.id));
        }
        let bytes = decoded_bytes(&place);
        let record = self.runner.try_pin(place.record, bytes).unwrap_or_else(|| {
            // Room is made by the caller of the stream, who must have all that is pinned.
            self.send();
            self.runner.pin(place.record, bytes)
        });
        if record.is_new() {
            self.batch.push(place.record);
        }
        Ok((record, place.raw_offset))
    }

    fn push(&mut self, item: StreamItem<'r, 'a, T>) {
        self.held.push(item);
        if self.batch.len() >= BATCH_RECORDS || self.held.len() >= BATCH_ITEMS {
            self.send();
        }
    }

    /// Sends what is held back: first to the threads that fetch, in the order of the packs.
    fn send(&mut self) {
        self.batch.sort_unstable();
        self.runner.start(self.batch.drain(..));
        for item in self.held.drain(..) {
            self.is_over = self.is_over || self.items.send(item).is_err();
        }
    }
}

/// The position in a file.
struct FileWalk {
    offsets: Offsets,
    range: Range<u64>,
    holes: Holes,
    /// The offset of the next byte to output.
    at: u64,
    /// The number of bytes that were output.
    given: u64,
}

impl FileWalk {
    /// Whether the next `bytes` bytes of content are all before the range.
    fn is_before(&self, bytes: u64) -> bool {
        self.offsets.after(bytes) <= self.range.start
    }
}
