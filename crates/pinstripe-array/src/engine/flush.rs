//! The way of rows from the cache to the members, a batch at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Array;
use super::batch::{Batch, Fresh};
use super::job::Job;
use super::log::Log;
use super::salvage::UnplannableWindow;
use super::work::LongWork;
use crate::cache::{Dirty, Due};
use crate::executor::{Executor, SerialExecutor, TaskKind};
use crate::format::log::{Head, LogPiece, PayloadCheck};
use crate::format::superblock::{Consistency, Superblock};
use crate::lock;
use crate::member::ArrayMember;
use crate::plan::{Planner, Rules};
use crate::set::MemberSet;
use crate::traffic::Tally;
use pinstripe_base::error::Result;

/// Puts rows on the members. There is one for an array.
pub struct Flusher {
    pub(super) array: Arc<Array>,
    pub(super) log: Log,
    pub(super) planner: Planner,
    /// Rules by which rows are planned.
    pub rules: Rules,
    /// LongWork work, done in slices between batches.
    pub(super) long: LongWork,
    pub(super) batch: Batch,
    /// Columns in which the last batch wrote blocks for the first time.
    fresh: Fresh,
    pub(super) executor: Arc<dyn Executor>,
    tally: Arc<Tally>,
    /// Windows that could not be planned and wait for `salvage`.
    pub(super) unplannable: Vec<UnplannableWindow>,
    /// Blocks whose new content could not be stored; the next sync reports them and resets this.
    pub(super) unstored: u64,
}

impl Flusher {
    /// A flusher that continues at the given position of the log.
    pub(super) fn with_log(array: Arc<Array>, log: Log, rules: Rules) -> Self {
        let (planner, long, batch, fresh, tally, unplannable) = Default::default();
        let unstored = 0;
        let executor = Arc::new(SerialExecutor);
        Flusher {
            array,
            log,
            planner,
            rules,
            long,
            batch,
            fresh,
            executor,
            tally,
            unplannable,
            unstored,
        }
    }

    /// The array.
    pub fn array(&self) -> &Arc<Array> {
        &self.array
    }

    /// Writes rows that are full or were begun at `before` or earlier, at most `most` of them.
    /// Returns how many.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`](pinstripe_base::error::Kind::TooManyLosses) when too many members failed.
    /// Rows that were not written stay in the cache.
    pub fn flush(&mut self, before: Duration, most: usize) -> Result<usize> {
        self.flush_due(Due::FullOr(before), most)
    }

    fn flush_due(&mut self, due: Due, most: usize) -> Result<usize> {
        let array = Arc::clone(&self.array);
        let begun = array.begin(due, most);
        let done = self.put(&begun);
        self.batch.clear();
        let count = begun.len();
        array.complete_rows(begun, done.is_ok());
        done.map(|()| count)
    }

    /// Counts of the row pieces written so far; may be read while the flusher works.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Sets the executor for independent tasks.
    pub fn set_executor(&mut self, executor: Arc<dyn Executor>) {
        self.array.members.set_executor(Arc::clone(&executor));
        self.executor = executor;
    }

    /// Writes everything and makes it durable. While callers keep writing, this does not end.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<()> {
        self.sync_since(Duration::MAX)
    }

    /// Writes all that was taken in at `before` or earlier, and makes it durable.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt), once, when blocks
    /// could not be stored because the rest of them is lost. All else is durable then.
    pub fn sync_since(&mut self, before: Duration) -> Result<()> {
        while self.flush_due(Due::Since(before), BATCH_ROWS)? > 0 {}
        self.sync_members()?;
        match self.array.consistency() {
            Consistency::Log => {}
            // Only the log would bring the checksums back after a power cut, and there is none.
            Consistency::Bitmap | Consistency::None => self.write_tables()?,
        }
        self.report_unstored()
    }

    pub(super) fn write_tables(&self) -> Result<()> {
        self.each_member(TaskKind::Tables, &|_, member| member.write_tables())?;
        self.array.drop_failed_replacement()
    }

    pub(super) fn sync_members(&self) -> Result<()> {
        self.each_member(TaskKind::Tables, &|_, member| member.sync())?;
        self.array.drop_failed_replacement()
    }

    /// Does something with each member that is present, and marks those failed for which it does not succeed.
    pub(super) fn each_member(
        &self,
        load: TaskKind,
        act: &(dyn Fn(usize, &ArrayMember) -> Result<()> + Sync),
    ) -> Result<()> {
        let members = self.array.members();
        let failed = Mutex::new(MemberSet::EMPTY);
        self.executor.each(load, members.len(), &|slot| {
            if members[slot].as_ref().is_some_and(|member| act(slot, member).is_err()) {
                let mut failed = lock(&failed);
                *failed = failed.with(slot);
            }
        });
        let failed = *lock(&failed);
        failed.iter().try_for_each(|slot| self.array.fail(slot))
    }

    /// Puts rows on the members, in as many batches as needed.
    fn put(&mut self, begun: &[(u64, Arc<Dirty>)]) -> Result<()> {
        // Some of the record stays free: a job grows when it is planned again after a bad read.
        let most = self.log.area_bytes / 8 * 3;
        let (slots, window) = (self.array.geometry().members(), self.window());
        for (row, dirty) in begun {
            // Before planning: parity that may be stale must not be the base of a
            // read-modify-write.
            self.resync_first(*row)?;
            let len = self.array.shape().map(*row).len();
            for start in (0..len).step_by(window as usize) {
                let window = start..len.min(start + window);
                let mut job = match self.job(*row, dirty, window.clone()) {
                    Ok(Some(job)) => job,
                    Ok(None) => continue,
                    Err(error) => {
                        let dirty = Arc::clone(dirty);
                        self.put_aside(error, UnplannableWindow { row: *row, dirty, window })?;
                        continue;
                    }
                };
                let is_slow = self.executor.is_slow(TaskKind::Log);
                if !self.batch.is_empty() && !self.batch.has_room(&job, most, is_slow) {
                    self.carry_out()?;
                    // The plan was made before that batch, in which a member may have failed.
                    let rules = self.job_rules();
                    if let Err(error) = job.plan(&self.array, &mut self.planner, rules) {
                        let dirty = Arc::clone(dirty);
                        self.put_aside(
                            error,
                            UnplannableWindow { row: *row, dirty, window: job.window },
                        )?;
                        continue;
                    }
                }
                self.batch.push(job, slots);
            }
        }
        self.carry_out()?;
        self.salvage()
    }

    /// Reads, computes, logs and writes what is in the batch.
    pub(super) fn carry_out(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        // The order is what makes a power cut harmless: the record is durable before the first
        // write in place, members that failed are marked failed before checksums are installed
        // (`install_checksums` skips absent ones), and checksums change only after the write that they
        // describe.
        self.fetch()?;
        // A write may tear over what the last batch put there, because the log has both. It must
        // never tear over what stood on the device before the array did: no checksum tells that
        // content from data (see `replay`). So a block's first write is durable before its second
        // begins.
        if self.batch.meets(&self.fresh) {
            self.sync_members()?;
        }
        self.batch.fresh(&mut self.fresh);
        let pieces = self.record()?;
        let members = self.array.members();
        let failed = self.batch.write(&members, &*self.executor);
        failed.iter().try_for_each(|slot| self.array.fail(slot))?;
        pieces.iter().try_for_each(|piece| self.array.install_checksums(piece))?;
        for job in &self.batch.jobs {
            self.long.note(&job.map);
            job.methods().for_each(|method| self.tally.count(method));
        }
        self.batch.clear();
        Ok(())
    }

    /// Reads what the batch needs; what is bad is obtained from the rest of its row.
    fn fetch(&mut self) -> Result<()> {
        let members = self.array.members();
        loop {
            let again = self.batch.fetch(&members, &*self.executor, |map, bad| {
                let place = map.place(bad.shard);
                let start = place.start + u64::from(bad.column.start);
                self.array.heal_later(place.member, start, bad.column.len() as u64);
            });
            if again.is_empty() {
                return Ok(());
            }
            // This ends: a block that was read as bad once stays marked, so each round can only
            // read less.
            let rules = self.job_rules();
            // From the back, so that `remove` does not shift the numbers still to come.
            for number in again.into_iter().rev() {
                let job = &mut self.batch.jobs[number];
                if let Err(error) = job.plan(&self.array, &mut self.planner, rules) {
                    let Job { map, dirty, window, .. } = self.batch.jobs.remove(number);
                    self.put_aside(error, UnplannableWindow { row: map.index(), dirty, window })?;
                }
            }
        }
    }

    /// Computes what the batch writes, and writes its record durably. Members that could not take
    /// it are marked failed. Returns the pieces of the record, job by job.
    fn record(&mut self) -> Result<Vec<LogPiece>> {
        let slots = self.array.geometry().members();
        let piece_bytes = self.batch.jobs.iter().map(Job::head_bytes).sum();
        let head_bytes = Head::bytes_of(slots, piece_bytes);
        self.batch.records.resize_with(slots, Vec::new);
        self.batch.records.iter_mut().for_each(Vec::clear);
        let pieces = self.batch.compute(head_bytes)?;
        if self.array.consistency() != Consistency::Log {
            return self.mark_regions_dirty(&pieces).map(|()| pieces);
        }
        let payload = |record: &Vec<u8>| PayloadCheck::of(&record[head_bytes as usize..]);
        let kept: Vec<PayloadCheck> = self.batch.records.iter().map(payload).collect();
        let (mut head, is_full) = self.log.next(kept, pieces);
        if is_full {
            self.checkpoint()?;
            head = self.log.next(head.kept, head.pieces).0;
        }
        let Flusher { array, log, batch, executor, .. } = self;
        for slot in log.append(array, &head, &mut batch.records, &**executor)?.iter() {
            array.fail(slot)?;
        }
        array.drop_failed_replacement()?;
        Ok(head.pieces)
    }

    /// Makes the members' tables as new as their data: the log up to here is not needed any more.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn checkpoint(&mut self) -> Result<()> {
        self.checkpoint_with(|_| {})
    }

    /// A checkpoint whose superblock carries a further change.
    pub(super) fn checkpoint_with(&mut self, say: impl FnOnce(&mut Superblock)) -> Result<()> {
        // Data before tables, tables before the superblock: a checksum on disk never describes data
        // that is not, and the old records are only dropped when nothing needs them.
        self.sync_members()?;
        self.array.members().iter().flatten().for_each(|member| member.unmark());
        self.write_tables()?;
        let log = (self.log.position, self.log.sequence);
        self.array.update_superblocks(|superblock| {
            superblock.log = log;
            say(superblock);
        })?;
        self.log.used_bytes = 0;
        Ok(())
    }

    /// Stops the array in order: everything is written, and the log is empty.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn stop(mut self) -> Result<()> {
        self.close()
    }

    /// As [`stop`](Self::stop), while others still hold the flusher. Nothing may be written
    /// afterwards.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn close(&mut self) -> Result<()> {
        self.sync()?;
        self.checkpoint()?;
        // With a resync pending, the next assembly has to find out again that parity may be stale.
        let is_clean = self.long.resync.is_none();
        self.array.update_superblocks(|superblock| superblock.is_clean = is_clean)
    }
}

/// Rows of a batch, at most.
pub const BATCH_ROWS: usize = 1024;
