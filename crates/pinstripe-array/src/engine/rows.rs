//! Writes rows from the cache to the members, a batch at a time.

use std::ops::Range;
use std::sync::Arc;

use super::Array;
use super::batch::{Batch, Fresh};
use super::job::{Job, rules_within, window_bytes};
use super::logged::LoggedArray;
use super::salvage::{Salvage, UnplannableWindow};
use super::work::LongWork;
use crate::cache::Dirty;
use crate::executor::TaskKind;
use crate::format::BLOCK_BYTES;
use crate::format::log::{LogPiece, PayloadCheck, RecordHeader};
use crate::format::superblock::Consistency;
use crate::plan::{Planner, Rules};
use crate::traffic::Tally;
use pinstripe_base::error::Result;

/// Plans rows, and carries the plans out in batches.
#[derive(Default)]
pub(super) struct RowWriter {
    pub(super) planner: Planner,
    pub(super) batch: Batch,
    /// Columns in which the last batch wrote data blocks for the first time.
    fresh: Fresh,
    /// Whether records hold the new data (see [`LoggedArray::is_covered`]).
    pub(super) logs_data: bool,
    /// See [`Flusher::long_write_bytes`](super::Flusher::long_write_bytes).
    pub(super) long_write_bytes: usize,
    pub tally: Arc<Tally>,
    pub salvage: Salvage,
}

impl RowWriter {
    /// Forgets the rows that were not written to the members. The forgotten rows go back to the
    /// cache, to be planned again.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.salvage.clear();
    }

    /// Puts rows on the members, in as many batches as needed.
    pub fn write(
        &mut self,
        logged: &mut LoggedArray,
        long: &mut LongWork,
        rules: Rules,
        begun: &[(u64, Arc<Dirty>)],
    ) -> Result<()> {
        // Some of the record stays free: a job grows when it is planned again after a bad read.
        let most = logged.log.area_bytes / 8 * 3;
        let geometry = logged.array.geometry();
        let (slots, window) = (geometry.members(), window_bytes(&geometry, &logged.log));
        let rules = rules_within(rules, window);
        for (row, dirty) in begun {
            // Before planning: parity that may be stale must not be the base of a
            // read-modify-write.
            if long.resync_first(&logged.array, *row)? {
                logged.sync_members()?;
            }
            let len = logged.array.shape().map(*row).len();
            for start in (0..len).step_by(window as usize) {
                let window = start..len.min(start + window);
                let mut job = match self.job(&logged.array, rules, *row, dirty, window.clone()) {
                    Ok(Some(job)) => job,
                    Ok(None) => continue,
                    Err(error) => {
                        let dirty = Arc::clone(dirty);
                        self.salvage.put_aside(
                            &logged.array,
                            error,
                            UnplannableWindow { row: *row, dirty, window },
                        )?;
                        continue;
                    }
                };
                let is_slow = logged.executor.is_slow(TaskKind::Log);
                if !self.batch.is_empty() && !self.batch.has_room(&job, most, is_slow) {
                    self.carry_out(logged, long, rules)?;
                    // The plan was made before that batch, in which a member may have failed.
                    if let Err(error) = job.plan(&logged.array, &mut self.planner, rules) {
                        let dirty = Arc::clone(dirty);
                        self.salvage.put_aside(
                            &logged.array,
                            error,
                            UnplannableWindow { row: *row, dirty, window: job.window },
                        )?;
                        continue;
                    }
                }
                self.batch.push(job, slots);
            }
        }
        self.carry_out(logged, long, rules)?;
        self.salvage(logged, long, rules)
    }

    /// Reads, computes, logs and writes the rows in the batch.
    pub(super) fn carry_out(
        &mut self,
        logged: &mut LoggedArray,
        long: &mut LongWork,
        rules: Rules,
    ) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        // The order is what makes a power cut harmless: the record is durable before the first
        // write in place, members that did not take a write are marked failed before checksums are
        // installed (`install_checksums` skips absent ones), and checksums change only after the
        // write that they describe.
        self.fetch(logged, rules)?;
        // A write may tear over the bytes of the last batch, because the log has both. It must
        // never tear over bytes that were on the device before the array: no checksum distinguishes
        // those from data (see `replay`). So a block's first write is durable before its second
        // begins.
        if self.batch.meets(&self.fresh) {
            logged.sync_members()?;
        }
        self.batch.fresh(&mut self.fresh);
        let pieces = self.record(logged)?;
        let members = logged.array.members();
        let failed = self.batch.write(&members, self.long_write_bytes, &*logged.executor);
        failed.iter().try_for_each(|slot| logged.array.fail(slot))?;
        logged.is_covered = self.batch.jobs.iter().all(|job| job.logs_data);
        pieces.iter().try_for_each(|piece| logged.array.install_checksums(piece))?;
        for job in &self.batch.jobs {
            long.note(&job.map);
            job.methods().for_each(|method| self.tally.count(method));
        }
        self.batch.clear();
        Ok(())
    }

    /// Reads what the batch needs; computes bad blocks from the rest of their rows.
    fn fetch(&mut self, logged: &LoggedArray, rules: Rules) -> Result<()> {
        let members = logged.array.members();
        // This ends: a block that was read as bad once stays marked, so each round can only read
        // less.
        loop {
            let again = self.batch.fetch(&members, &*logged.executor, |map, bad| {
                let place = map.place(bad.shard);
                let start = place.start + u64::from(bad.column.start);
                logged.array.heal_later(place.member, start, bad.column.len() as u64);
            });
            if again.is_empty() {
                return Ok(());
            }
            // From the back, so that `remove` does not shift the numbers still to come.
            for number in again.into_iter().rev() {
                let job = &mut self.batch.jobs[number];
                if let Err(error) = job.plan(&logged.array, &mut self.planner, rules) {
                    let Job { map, dirty, window, .. } = self.batch.jobs.remove(number);
                    self.salvage.put_aside(
                        &logged.array,
                        error,
                        UnplannableWindow { row: map.index(), dirty, window },
                    )?;
                }
            }
        }
    }

    /// Computes the bytes that the batch writes, and writes its record durably. Members on which
    /// the record could not be written are marked as failed. Returns the pieces of the record, job
    /// by job.
    fn record(&mut self, logged: &mut LoggedArray) -> Result<Vec<LogPiece>> {
        let slots = logged.array.geometry().members();
        let piece_bytes = self.batch.jobs.iter().map(Job::head_bytes).sum();
        let head_bytes = RecordHeader::bytes_of(slots, piece_bytes);
        self.batch.records.resize_with(slots, Vec::new);
        self.batch.records.iter_mut().for_each(Vec::clear);
        let pieces = self.batch.compute(head_bytes)?;
        if logged.array.consistency() != Consistency::Log {
            return logged.mark_regions_dirty(&pieces).map(|()| pieces);
        }
        let payload = |record: &Vec<u8>| PayloadCheck::from_payload(&record[head_bytes as usize..]);
        let kept: Vec<PayloadCheck> = self.batch.records.iter().map(payload).collect();
        let (mut head, is_full) = logged.log.next(kept, pieces);
        if is_full {
            logged.checkpoint()?;
            head = logged.log.next(head.kept, head.pieces).0;
        }
        let LoggedArray { array, log, executor, .. } = logged;
        for slot in log.append(array, &head, &mut self.batch.records, &**executor)?.iter() {
            array.fail(slot)?;
        }
        array.drop_failed_replacement()?;
        Ok(head.pieces)
    }
}

impl RowWriter {
    /// Plans the dirty part of a window of a row; returns `None` if nothing in the window is dirty.
    pub(super) fn job(
        &mut self,
        array: &Array,
        rules: Rules,
        row: u64,
        dirty: &Arc<Dirty>,
        window: Range<u32>,
    ) -> Result<Option<Job>> {
        let map = array.shape().map(row);
        let mut memory = self.batch.spare.pop().unwrap_or_default();
        memory.makes_at.clear();
        memory.marks.clear();
        dirty.marks_within(&window, BLOCK_BYTES as u32, &mut memory.marks);
        let columns = memory.marks.iter().map(|mark| mark.column.clone());
        let Some(mut touched) = columns.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        else {
            self.batch.spare.push(memory);
            return Ok(None);
        };
        if let Some(granule) = rules.granule {
            touched = touched.start / granule * granule..touched.end.next_multiple_of(granule);
        }
        touched = touched.start..touched.end.min(map.len());
        if !dirty.is_full(&map) {
            let sums = &mut self.batch.sums;
            array.mark_unwritten(&map, &touched, sums, &mut memory.marks);
        }
        let logs_data = self.logs_data;
        let mut job = Job { map, window, logs_data, dirty: Arc::clone(dirty), memory };
        job.plan(array, &mut self.planner, rules)?;
        Ok(Some(job))
    }
}
