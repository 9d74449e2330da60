//! The only writer of an array: it writes rows from the cache, does long work between batches, and
//! changes members (`manage.rs`).
//!
//! The flusher delegates: [`RowWriter`] writes rows to the members, [`LongWork`] does resync, heal,
//! grow, fill and scrub in slices, and [`LoggedArray`] makes durable what the two wrote.

use std::sync::Arc;
use std::time::Duration;

use super::Array;
use super::logged::LoggedArray;
use super::rows::RowWriter;
use super::step::{Step, WorkReport};
use super::work::LongWork;
use crate::cache::Due;
use crate::executor::Executor;
use crate::format::superblock::Consistency;
use crate::limits::{DATA_LOG_BYTES, LONG_WRITE_BYTES};
use crate::plan::Rules;
use crate::traffic::Tally;
use pinstripe_base::error::Result;
use pinstripe_io::device::SharedDevice;

/// Puts rows on the members. An array has only one flusher.
pub struct Flusher {
    pub(super) logged: LoggedArray,
    rows: RowWriter,
    /// Long work, done in slices between batches.
    pub(super) long: LongWork,
    /// The rules for planning rows.
    pub rules: Rules,
    /// The least number of neighbouring bytes of a member that a batch writes in one long write,
    /// which bypasses the page cache where the device can. Shorter writes go through the page
    /// cache, since bytes that are written in small pieces are soon read again for parity.
    pub long_write_bytes: usize,
}

impl Flusher {
    /// A flusher that continues where the superblock says that the last one stopped.
    pub(super) fn new(array: Arc<Array>) -> Self {
        let granule = Some(array.superblock().granule).filter(|bytes| *bytes > 0);
        let rules = Rules { granule, ..Rules::default() };
        let (rows, long) = Default::default();
        let logged = LoggedArray::new(array);
        Flusher { logged, rows, long, rules, long_write_bytes: LONG_WRITE_BYTES }
    }

    /// The array.
    pub fn array(&self) -> &Arc<Array> {
        &self.logged.array
    }

    /// Writes at most `most` rows that are full or began to gather at `before` or earlier. Returns
    /// how many.
    ///
    /// # Errors
    /// Fails with `Kind::TooManyLosses` when too many members failed. Rows that were not written
    /// stay in the cache.
    pub fn flush(&mut self, before: Duration, most: usize) -> Result<usize> {
        self.flush_due(Due::FullOr(before), most)
    }

    fn flush_due(&mut self, due: Due, most: usize) -> Result<usize> {
        let array = Arc::clone(&self.logged.array);
        let begun = array.begin(due, most);
        let Flusher { logged, rows, long, rules, long_write_bytes } = self;
        rows.long_write_bytes = *long_write_bytes;
        let done = rows.write(logged, long, *rules, &begun);
        rows.clear();
        let count = begun.len();
        array.complete_rows(begun, done.is_ok());
        done.map(|()| count)
    }

    /// The counts of the row pieces written so far, which may be read while the flusher works.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.rows.tally
    }

    /// Sets the executor for independent tasks.
    pub(crate) fn set_executor(&mut self, executor: Arc<dyn Executor>) {
        self.logged.set_executor(executor);
    }

    /// Writes everything and makes it durable. Does not return while callers keep writing.
    ///
    /// # Errors
    /// Fails with the errors of [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<()> {
        self.sync_since(Duration::MAX)
    }

    /// Writes everything that callers wrote at `before` or earlier, and makes it durable.
    ///
    /// # Errors
    /// Fails with the errors of [`flush`](Self::flush); with `Kind::Corrupt`, once, when partly
    /// written blocks could not be stored because their old bytes are lost. After `Kind::Corrupt`,
    /// all other writes are durable.
    pub fn sync_since(&mut self, before: Duration) -> Result<()> {
        self.rows.logs_data = self.logs_data();
        let flushed = self.flush_since(before);
        self.rows.logs_data = false;
        flushed?;
        if !self.logged.is_covered {
            self.logged.sync_members()?;
            if self.logged.array.consistency() == Consistency::Log {
                self.logged.mark_durable()?;
            }
        }
        match self.logged.array.consistency() {
            Consistency::Log => {}
            // Only the log would bring the checksums back after a power cut, and there is none.
            Consistency::Bitmap | Consistency::None => self.logged.write_tables()?,
        }
        self.rows.salvage.report_unstored()
    }

    fn flush_since(&mut self, before: Duration) -> Result<()> {
        while self.flush_due(Due::Since(before), BATCH_ROWS)? > 0 {}
        Ok(())
    }

    /// Whether a sync also puts the data into its log record, so that it waits for one flush of the
    /// disks instead of two (one for the record, one for the data in place). Data in the record is
    /// written twice, so this is done only for few bytes.
    fn logs_data(&self) -> bool {
        let array = &self.logged.array;
        let most = DATA_LOG_BYTES.min(self.logged.log.area_bytes / 16);
        let is_widened = self.rules.granule.is_some_and(|bytes| u64::from(bytes) > most / 4);
        array.consistency() == Consistency::Log && !is_widened && array.dirty_bytes() <= most
    }

    /// Makes the members' tables as new as their data, so that the log up to here is no longer
    /// needed.
    ///
    /// # Errors
    /// Fails with the errors of [`flush`](Self::flush).
    pub fn checkpoint(&mut self) -> Result<()> {
        self.logged.checkpoint()
    }

    /// Stops the array cleanly: everything is written, and the log is empty.
    ///
    /// # Errors
    /// Fails with the errors of [`flush`](Self::flush).
    pub fn stop(mut self) -> Result<()> {
        self.close()
    }

    /// Like [`stop`](Self::stop), for a flusher that others still hold. The caller must not write
    /// afterwards.
    ///
    /// # Errors
    /// Fails with the errors of [`flush`](Self::flush).
    pub fn close(&mut self) -> Result<()> {
        self.sync()?;
        self.logged.checkpoint()?;
        // With a resync pending, the next assembly has to find out again that parity may be stale.
        let is_clean = self.long.resync.is_none();
        self.logged.array.update_superblocks(|superblock| superblock.is_clean = is_clean)
    }
}

/// Long work.
impl Flusher {
    /// Does a slice of pending long work, which moves about `most_bytes` of each member. The first
    /// pending work in this order is done: resync, healing, growing, filling an empty slot from a
    /// spare, filling, scrubbing.
    ///
    /// # Errors
    /// Fails with `Kind::TooManyLosses` when too many members failed.
    pub fn step(&mut self, most_bytes: u64) -> Result<Step> {
        self.long.step(&mut self.logged, most_bytes)
    }

    /// Sets how many bytes of a member a fill writes between two updates of its recorded point,
    /// from which an interrupted fill resumes.
    pub fn set_fill_point_bytes(&mut self, bytes: u64) {
        self.long.between_points = Some(bytes);
    }

    /// Ends a scrub early. Returns the report of the scrub, if one was running; a fill continues.
    ///
    /// # Errors
    /// Fails with the errors of [`step`](Self::step).
    pub fn cancel_work(&mut self) -> Result<Option<WorkReport>> {
        self.long.cancel(&self.logged.array)
    }

    /// Begins to read and compare everything, and to repair it if `repair` is set.
    ///
    /// # Errors
    /// Fails with `Kind::Busy` when a scrub is already running; with `Kind::TooManyLosses` when too
    /// many members failed.
    pub fn scrub(&mut self, repair: bool) -> Result<()> {
        self.long.begin_scrub(&self.logged.array, repair)
    }

    /// Grows the array by one member, which is one of its spares. The added capacity can be used
    /// when everything has moved; a mirror gets one more copy and no capacity.
    ///
    /// # Errors
    /// Fails with `Kind::Refused` when members are absent, or there is no spare; with `Kind::Busy`
    /// while other work is running; with `Kind::Unsupported` for layouts of level 10 other than
    /// near, and for a log that is too short for a journal; with the errors of the device.
    pub fn grow(&mut self) -> Result<()> {
        self.long.begin_grow(&mut self.logged)
    }

    /// Like [`grow`](Self::grow), with a device that first becomes a spare, and remains one if the
    /// array cannot grow.
    ///
    /// # Errors
    /// Fails with the errors of [`grow`](Self::grow) and of [`add`](Self::add); the device is not
    /// written to if it is known beforehand that the array cannot grow.
    pub fn grow_by(&mut self, device: SharedDevice) -> Result<()> {
        self.long.wider(&self.logged)?;
        self.check_unused(&device)?;
        self.add_spare(device)?;
        self.grow()
    }
}

/// The most rows of a batch.
pub(crate) const BATCH_ROWS: usize = 1024;
