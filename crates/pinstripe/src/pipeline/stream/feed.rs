//! The feed: finds the chunks of the wanted content, in order, and sends readers ahead.

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

/// Records sent ahead together, sorted by their place.
const BATCH_RECORDS: usize = 32;
/// Items held back for that at most.
const BATCH_ITEMS: usize = 512;

/// Takes requests for content.
pub(crate) struct Feed<'r, 'a, T> {
    origin: Origin<'a>,
    runner: &'r RecordRunner<'a>,
    items: Sender<StreamItem<'r, 'a, T>>,
    /// Records and items that wait to be sent together.
    batch: Vec<RecordPlace>,
    held: Vec<StreamItem<'r, 'a, T>>,
    is_over: bool,
}

/// Whether holes come out as zeros or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// As zeros of the same length.
    Zeros,
    /// Only data comes out.
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

    /// Whether no more is wanted: the caller of the stream has ended it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Puts `mark` in its place between content.
    pub fn mark(&mut self, mark: T) {
        self.push(StreamItem::Mark(mark));
    }

    /// The content of a file from `range.start` to `range.end`, which must lie within its size. A
    /// part that cannot be planned comes out as lost, so that the length is right in any case.
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

    /// The record that holds a chunk, with its place in the budget.
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
    /// The next byte to come out.
    at: u64,
    /// Bytes that came out.
    given: u64,
}

impl FileWalk {
    /// Whether the next `bytes` of content are all before the range.
    fn is_before(&self, bytes: u64) -> bool {
        self.offsets.after(bytes) <= self.range.start
    }
}
