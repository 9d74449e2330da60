//! Writes a log that is striped over all outputs, as one stripe set after the other.

use crossbeam_channel::Receiver;

use super::own::Ledger;
use super::{Unit, Written};
use crate::format::{ALIGN_BYTES, Tag};
use crate::outputs::log::Sets;
use crate::outputs::resume::LogProgress;
use pinstripe_base::error::Result;
use pinstripe_io::write_queue::WriteQueue;
use pinstripe_member::stripe_set::SetKind;
use pinstripe_stripe::{SetWriter, StripSink};

/// Takes units from a queue and stripes them over all outputs.
pub(super) struct StripedWriter<'a> {
    sets: Sets,
    writer: SetWriter,
    set: u64,
    sink: StripDestinations<'a>,
    ledger: Ledger,
}

/// Where the strips of the open stripe set are written.
struct StripDestinations<'a> {
    queues: Vec<&'a WriteQueue<'a>>,
    /// The offset of the open set's extent in every output.
    start: u64,
    /// The bytes of the open set written so far, by slot.
    written: Vec<u64>,
}

impl StripSink for StripDestinations<'_> {
    fn append(&mut self, slot: usize, bytes: Vec<u8>) -> Result<()> {
        let place = self.start + self.written[slot];
        self.written[slot] += bytes.len() as u64;
        self.queues[slot].write(place, bytes)
    }
}

impl<'a> StripedWriter<'a> {
    /// Makes a writer that continues the log at the beginning of a set.
    pub(super) fn new(
        sets: Sets,
        queues: Vec<&'a WriteQueue<'a>>,
        tag: Tag,
        begun: LogProgress,
    ) -> Result<Self> {
        let set = begun.log_bytes / sets.log_bytes();
        let writer = open(&sets, set);
        let start = sets.extent_at(set);
        let written = vec![0; queues.len()];
        let sink = StripDestinations { queues, start, written };
        Ok(StripedWriter { sets, writer, set, sink, ledger: Ledger::new(tag, begun) })
    }

    pub(super) fn run(mut self, units: &Receiver<Unit>) -> Result<Written> {
        for unit in units {
            self.ledger.note(&unit);
            self.append(&unit.frames)?;
            if self.ledger.is_due() {
                self.index()?;
            }
        }
        self.index()?;
        if self.writer.position() > 0 {
            self.writer.finish(0..0, &mut self.sink)?;
        }
        let manifest_at = |written: &u64| (self.sink.start + written).next_multiple_of(ALIGN_BYTES);
        let manifest_at = self.sink.written.iter().map(manifest_at).collect();
        Ok(Written { end: self.ledger.finish(), manifest_at })
    }

    /// Appends bytes to the log, beginning new sets as needed.
    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.sets.log_bytes() - self.writer.position();
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.writer.append(now, &mut self.sink)?;
            bytes = later;
            if self.writer.position() == self.sets.log_bytes() {
                self.set += 1;
                let full = std::mem::replace(&mut self.writer, open(&self.sets, self.set));
                full.finish(0..0, &mut self.sink)?;
                self.sink.start = self.sets.extent_at(self.set);
                self.sink.written.fill(0);
            }
        }
        Ok(())
    }

    /// Rows that are not full are still in memory: everything that an index lists is durable,
    /// except the end of the last batch.
    fn index(&mut self) -> Result<()> {
        self.sink.queues.iter().try_for_each(|queue| queue.barrier())?;
        let frame = self.ledger.index(1);
        self.append(&frame)
    }
}

fn open(sets: &Sets, set: u64) -> SetWriter {
    SetWriter::new(sets.store(), sets.id(set), SetKind::Split, sets.geometry())
}
