//! Writes a log that has one output of its own.

use crossbeam_channel::Receiver;

use super::{Unit, Written};
use crate::format::{ALIGN_BYTES, BatchPlace, FrameKind, LogEnd, LogIndex, PAGES_BYTES, Tag};
use crate::outputs::batch::single;
use crate::outputs::resume::LogProgress;
use pinstripe_base::error::Result;
use pinstripe_io::write_queue::WriteQueue;

/// The number of bytes of a log after which its batches are made durable and listed in an index.
pub(super) const INDEX_EVERY_BYTES: u64 = 1 << 30;

/// The state of a log while it is written.
pub(super) struct Ledger {
    tag: Tag,
    pub(super) end: u64,
    rows: Vec<BatchPlace>,
    last_index: Option<u64>,
    batches: u64,
    unindexed_bytes: u64,
}

impl Ledger {
    pub(super) fn new(tag: Tag, begun: LogProgress) -> Self {
        Ledger {
            tag,
            end: begun.log_bytes,
            rows: begun.rows,
            last_index: begun.last_index,
            batches: begun.indexed,
            unindexed_bytes: 0,
        }
    }

    /// Records a batch that is appended to the log.
    pub(super) fn note(&mut self, unit: &Unit) {
        let log_bytes = unit.frames.len() as u64;
        let (offset, raw_bytes) = (unit.offset, unit.raw_bytes);
        self.rows.push(BatchPlace { offset, raw_bytes, position: self.end, log_bytes });
        self.end += log_bytes;
        self.unindexed_bytes += log_bytes;
    }

    /// Whether enough was written for another index part.
    pub(super) fn is_due(&self) -> bool {
        self.unindexed_bytes >= INDEX_EVERY_BYTES
    }

    /// Returns the frame of an index part that lists all batches recorded since the last part, to
    /// be appended to the log. The batches that the index part lists must be durable.
    pub(super) fn index(&mut self, align: u64) -> Vec<u8> {
        let rows = std::mem::take(&mut self.rows);
        let (previous, batches_before) = (self.last_index, self.batches);
        self.batches += rows.len() as u64;
        self.last_index = Some(self.end);
        self.unindexed_bytes = 0;
        let index = LogIndex { previous, batches_before, rows };
        let mut frame = Vec::new();
        single(&mut frame, self.tag, FrameKind::Index, &index.encode(), align);
        self.end += frame.len() as u64;
        frame
    }

    pub(super) fn finish(self) -> LogEnd {
        LogEnd { last_index: self.last_index, batches: self.batches, log_bytes: self.end }
    }
}

/// Takes units from a queue, one after the other, and writes them to the log.
pub(super) struct OwnWriter<'a> {
    queue: &'a WriteQueue<'a>,
    plain: Option<&'a WriteQueue<'a>>,
    first_byte: u64,
    ledger: Ledger,
}

impl<'a> OwnWriter<'a> {
    pub(super) fn new(
        queue: &'a WriteQueue<'a>,
        plain: Option<&'a WriteQueue<'a>>,
        first_byte: u64,
        tag: Tag,
        begun: LogProgress,
    ) -> Self {
        OwnWriter { queue, plain, first_byte, ledger: Ledger::new(tag, begun) }
    }

    pub(super) fn run(mut self, units: &Receiver<Unit>) -> Result<Written> {
        for unit in units {
            let place = PAGES_BYTES + self.ledger.end;
            self.ledger.note(&unit);
            if let (Some(queue), Some(bytes)) = (self.plain, unit.plain) {
                queue.write(unit.offset - self.first_byte, bytes)?;
            }
            self.queue.write(place, unit.frames)?;
            if self.ledger.is_due() {
                self.index()?;
            }
        }
        self.index()?;
        let end = self.ledger.finish();
        Ok(Written { end, manifest_at: vec![PAGES_BYTES + end.log_bytes] })
    }

    fn index(&mut self) -> Result<()> {
        self.plain.iter().try_for_each(|queue| queue.barrier())?;
        self.queue.barrier()?;
        let place = PAGES_BYTES + self.ledger.end;
        let frame = self.ledger.index(ALIGN_BYTES);
        self.queue.write(place, frame)
    }
}
