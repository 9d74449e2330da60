//! The dispatcher: entries about which the join has decided go in jobs to the workers, or directly
//! to the assembler when there is nothing to read.

use std::io::Read;

use crossbeam_channel::Sender;

use super::ingest::{Assembled, IngestJob, IngestOutcome};
use super::join::{DecisionSink, EntryPlan};
use super::large::{self, Queues};
use super::shared::Reading;
use crate::pipeline::limits::{JOB_BYTES, JOB_ENTRIES, LARGE_BYTES};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::{FileKind, Stat};

/// Consecutive entries that are collected into one job.
#[derive(Default)]
struct EntryBatch {
    items: Vec<EntryPlan>,
    bytes: u64,
    to_read: usize,
}

/// The queues into which the join sends jobs.
pub(crate) struct JobDispatcher<'a> {
    shared: &'a Reading<'a>,
    /// To the workers.
    jobs: Sender<IngestJob>,
    /// To the assembler.
    outcomes: Sender<IngestOutcome>,
    /// Holds one token per job that is not assembled yet.
    window: Sender<()>,
    /// The number of segments of a large file in memory.
    segments: usize,
    batch: EntryBatch,
    seq: u64,
}

impl DecisionSink for JobDispatcher<'_> {
    fn take(&mut self, plan: EntryPlan) -> Result<()> {
        let bytes = match &plan {
            EntryPlan::Read { path, stat, was_there } if stat.kind == FileKind::File => {
                if stat.size_bytes >= LARGE_BYTES {
                    return self.large(path, stat, *was_there);
                }
                stat.size_bytes
            }
            _ => 0,
        };
        self.push(plan, bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.hand_out()
    }
}

impl<'a> JobDispatcher<'a> {
    /// Makes a dispatcher for these queues.
    pub fn new(
        shared: &'a Reading<'a>,
        jobs: Sender<IngestJob>,
        outcomes: Sender<IngestOutcome>,
        window: Sender<()>,
        segments: usize,
    ) -> Self {
        JobDispatcher {
            shared,
            jobs,
            outcomes,
            window,
            segments,
            batch: EntryBatch::default(),
            seq: 0,
        }
    }

    fn push(&mut self, item: EntryPlan, bytes: u64) -> Result<()> {
        self.batch.to_read += usize::from(!matches!(item, EntryPlan::Unchanged(_)));
        self.batch.items.push(item);
        self.batch.bytes += bytes;
        if self.batch.items.len() >= JOB_ENTRIES || self.batch.bytes >= JOB_BYTES {
            self.hand_out()?;
        }
        Ok(())
    }

    /// Sends the batch to a worker, or directly to the assembler if nothing must be read.
    fn hand_out(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.items.is_empty() {
            return Ok(());
        }
        let seq = self.next_seq()?;
        let sent = if batch.to_read > 0 {
            self.jobs.send(IngestJob::Entries(seq, batch.items)).is_ok()
        } else {
            let ready = |item| match item {
                EntryPlan::Unchanged(entry) => Assembled::Ready(entry),
                EntryPlan::Read { .. } | EntryPlan::SameInode { .. } => {
                    unreachable!("nothing is to be read")
                }
            };
            let entries = batch.items.into_iter().map(ready).collect();
            self.outcomes.send(IngestOutcome::Entries(seq, entries)).is_ok()
        };
        if sent { Ok(()) } else { Err(gone()) }
    }

    fn next_seq(&mut self) -> Result<u64> {
        // The window opens only as jobs get done, so a plain wait could outlast a fatal error.
        self.shared.abort.send(&self.window, ())?;
        self.seq += 1;
        Ok(self.seq - 1)
    }

    /// Sends out a stream as the only file.
    ///
    /// # Errors
    /// Fails with the errors of reading it: nothing else is backed up, so they end the run.
    pub fn stream(&mut self, stream: &mut dyn Read, entry: Entry) -> Result<()> {
        let seq = self.next_seq()?;
        let queues = Queues { jobs: &self.jobs, outcomes: &self.outcomes, segments: self.segments };
        large::ingest_stream(self.shared, &queues, seq, stream, entry)
    }

    fn large(&mut self, path: &[u8], stat: &Stat, was_there: bool) -> Result<()> {
        self.hand_out()?;
        let seq = self.next_seq()?;
        let queues = Queues { jobs: &self.jobs, outcomes: &self.outcomes, segments: self.segments };
        let ingested = large::ingest(self.shared, &queues, seq, path);
        if let Ok(saved_bytes) = ingested {
            self.shared.count_length(stat.size_bytes, was_there, saved_bytes);
        }
        if let Err(error) = ingested {
            self.shared.abort.check()?;
            if error.kind() != Kind::Interrupted {
                self.shared.give_up(path, stat, was_there, error);
            }
            self.outcomes.send(IngestOutcome::Entries(seq, Vec::new())).map_err(|_| gone())?;
        }
        Ok(())
    }
}

fn gone() -> Error {
    Error::new(Kind::Io, "a thread of the backup ended early")
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::super::shared::with_reading;
    use super::*;
    use pinstripe_stripe::Abort;

    /// The wait has no timeout: a dispatcher that is not woken would hang the test.
    #[test]
    fn a_raised_abort_wakes_a_dispatcher_that_waits_for_the_window() {
        let abort = Abort::default();
        let ((jobs, _jobs), (outcomes, _outcomes)) = (bounded(1), bounded(1));
        let (window, tokens) = bounded(1);
        with_reading(&abort, |shared| {
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    let mut dispatcher = JobDispatcher::new(shared, jobs, outcomes, window, 1);
                    assert_eq!(dispatcher.next_seq().unwrap(), 0);
                    dispatcher.next_seq()
                });
                // Once the window is full, nothing but the abort ends the second wait.
                while tokens.is_empty() {
                    std::thread::yield_now();
                }
                abort.raise(Error::new(Kind::Corrupt, "broken on purpose"));
                assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Corrupt);
            });
        });
    }
}
