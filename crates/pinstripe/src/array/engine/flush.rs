//! Rows from the cache to the members, a batch at a time.

use std::sync::Arc;
use std::time::Duration;

use super::log::Log;
use super::work::Long;
use super::{Array, lock};
use crate::array::cache::{Dirty, Due};
use crate::array::compute::{Made, Operation};
use crate::array::geometry::RowMap;
use crate::array::plan::{Planner, RowPlan, Rules};
use crate::error::Result;
use crate::format::array::BLOCK_BYTES;
use crate::format::array::log::{Has, Kept, Piece};

/// Puts rows on the members. There is one for an array.
pub struct Flusher {
    pub(super) array: Arc<Array>,
    pub(super) log: Log,
    pub(super) planner: Planner,
    /// How rows are planned.
    pub rules: Rules,
    /// Long work that goes on between batches.
    pub(super) long: Long,
}

/// A row that is to be written.
struct Job {
    row: u64,
    map: RowMap,
    dirty: Arc<Dirty>,
    plan: RowPlan,
    reads: Vec<Vec<u8>>,
}

impl Job {
    fn operation(&self) -> Operation<'_> {
        Operation { row: &self.map, plan: &self.plan, reads: &self.reads, dirty: &self.dirty }
    }
}

impl Flusher {
    /// The array.
    pub fn array(&self) -> &Arc<Array> {
        &self.array
    }

    /// Writes rows that are full or were begun at `before` or earlier, at most `most` of them. Returns how
    /// many.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`](crate::error::Kind::TooManyLosses) when too many members failed. Rows that
    /// were not written stay in the cache.
    pub fn flush(&mut self, before: Duration, most: usize) -> Result<usize> {
        self.flush_due(Due::FullOr(before), most)
    }

    fn flush_due(&mut self, due: Due, most: usize) -> Result<usize> {
        let array = Arc::clone(&self.array);
        let begun: Vec<(u64, Arc<Dirty>)> = {
            let mut cache = lock(&array.cache);
            let rows = cache.due(due, most);
            rows.into_iter().map(|row| (row, cache.begin(row))).collect()
        };
        let done = self.batch(&begun);
        let mut cache = lock(&array.cache);
        for (row, _) in &begun {
            match &done {
                Ok(()) => cache.end(*row),
                Err(_) => cache.give_back(*row),
            }
        }
        done.map(|()| begun.len())
    }

    /// Writes everything, and makes it durable. Does not end while somebody goes on writing.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<()> {
        self.sync_since(Duration::MAX)
    }

    /// Writes all that was taken in at `before` or earlier, and makes it durable.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync_since(&mut self, before: Duration) -> Result<()> {
        while self.flush_due(Due::Since(before), BATCH_ROWS)? > 0 {}
        self.sync_members()
    }

    fn sync_members(&self) -> Result<()> {
        let members = self.array.members().clone();
        for (slot, member) in members.iter().enumerate() {
            if member.as_ref().is_some_and(|member| member.sync().is_err()) {
                self.array.fail(slot)?;
            }
        }
        Ok(())
    }

    fn batch(&mut self, begun: &[(u64, Arc<Dirty>)]) -> Result<()> {
        if begun.is_empty() {
            return Ok(());
        }
        let jobs: Vec<Job> =
            begun.iter().map(|(row, dirty)| self.prepare(*row, dirty)).collect::<Result<_>>()?;
        let made: Vec<Made> =
            jobs.iter().map(|job| job.operation().run_plan()).collect::<Result<_>>()?;
        let pieces = self.record(&jobs, &made)?;
        let mut rest = &pieces[..];
        for (job, made) in jobs.iter().zip(&made) {
            let (own, later) = rest.split_at(job.plan.pieces.len());
            self.write(job, made, own)?;
            self.long.note(&job.map);
            rest = later;
        }
        Ok(())
    }

    /// Plans a row and reads what it takes; what cannot be believed is had from the others.
    fn prepare(&mut self, row: u64, dirty: &Arc<Dirty>) -> Result<Job> {
        let map = self.array.geometry.map(row);
        let mut marks = dirty.marks(BLOCK_BYTES as u32);
        let columns = marks.iter().map(|mark| mark.column.clone());
        let touched = columns.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let mut touched = touched.unwrap_or(0..0);
        if let Some(granule) = self.rules.granule {
            touched = touched.start / granule * granule..touched.end.next_multiple_of(granule);
        }
        touched.end = touched.end.min(map.len());
        self.array.unwritten(row, &touched, &mut marks)?;
        let mut plan = RowPlan::default();
        loop {
            let absent = self.array.absent_at(&map);
            self.planner.plan_write(&map, absent, &marks, self.rules, &mut plan)?;
            let (reads, bad) = self.array.fetch_all(&plan);
            if bad.is_empty() {
                return Ok(Job { row, map, dirty: Arc::clone(dirty), plan, reads });
            }
            // What is read once as bad is bad: each round marks more, until nothing more can be read.
            marks.extend(bad);
        }
    }

    /// Writes the batch's record, durably, and gives up the members that could not take it. Returns what it
    /// says, job by job.
    fn record(&mut self, jobs: &[Job], made: &[Made]) -> Result<Vec<Piece>> {
        let slots = self.array.geometry.members();
        let mut payloads = vec![Vec::new(); slots];
        let mut pieces = Vec::new();
        for (job, made) in jobs.iter().zip(made) {
            for (piece, logged) in job.plan.pieces.iter().zip(&made.logged) {
                for (member, bytes) in [job.map.p(), job.map.q()].into_iter().zip(logged) {
                    if let Some(member) = member {
                        payloads[member].extend_from_slice(bytes);
                    }
                }
                let has = Has { p: piece.log.p, q: piece.log.q, data: piece.log.data.to_bits() };
                pieces.push(Piece {
                    row: job.row,
                    column: piece.column.clone(),
                    written: piece.writes.to_bits(),
                    has,
                    sums: made.sums(piece, &job.operation()),
                });
            }
        }
        let kept: Vec<Kept> = payloads.iter().map(|payload| Kept::of(payload)).collect();
        let (mut head, is_full) = self.log.next(kept, pieces);
        if is_full {
            self.checkpoint()?;
            head = self.log.next(head.kept, head.pieces).0;
        }
        for slot in self.log.append(&self.array, &head, &payloads)? {
            self.array.fail(slot)?;
        }
        Ok(head.pieces)
    }

    /// Writes a row in place, and says what its checksums are.
    fn write(&self, job: &Job, made: &Made, pieces: &[Piece]) -> Result<()> {
        for (number, it) in job.plan.writes.iter().enumerate() {
            let Some(member) = self.array.member(it.member) else { continue };
            if member.write(it.member_range.start, made.bytes(number, &job.operation())).is_err() {
                self.array.fail(it.member)?;
            }
        }
        pieces.iter().try_for_each(|piece| self.array.believe(piece))
    }

    /// Makes the members' tables as new as their data, so that the log up to here is needed no more.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn checkpoint(&mut self) -> Result<()> {
        self.sync_members()?;
        let members = self.array.members().clone();
        for (slot, member) in members.iter().enumerate() {
            if member.as_ref().is_some_and(|member| member.write_tables().is_err()) {
                self.array.fail(slot)?;
            }
        }
        self.sync_members()?;
        let log = (self.log.position, self.log.sequence);
        self.array.agree(|superblock| superblock.log = log)?;
        self.log.used_bytes = 0;
        Ok(())
    }

    /// Stops it in order: everything is written, and the log is empty.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn stop(mut self) -> Result<()> {
        self.close()
    }

    /// As [`stop`](Self::stop), for one that others may still hold. Nothing is to be written afterwards.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(&mut self) -> Result<()> {
        self.sync()?;
        self.checkpoint()?;
        self.array.agree(|superblock| superblock.is_clean = true)
    }
}

/// Rows of a batch, at most.
pub const BATCH_ROWS: usize = 64;
