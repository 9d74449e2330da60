//! The one owner of an array's writes: rows from the cache, long work between batches, and changes
//! of members (`manage.rs`).
//!
//! It delegates: [`RowWriter`] puts rows on the members, [`LongWork`] does resync, heal, grow, fill
//! and scrub in slices, [`LoggedArray`] makes durable what both wrote.

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

/// Puts rows on the members. There is one for an array.
pub struct Flusher {
    pub(super) logged: LoggedArray,
    rows: RowWriter,
    /// Done in slices between batches.
    pub(super) long: LongWork,
    /// The rules for planning rows.
    pub rules: Rules,
    /// Neighbouring bytes of a member from which on a batch writes them as one, past the page cache
    /// where the device has that. Fewer go through it, since what is written in small pieces is
    /// soon read again for parity.
    pub long_write_bytes: usize,
}

impl Flusher {
    /// A flusher that continues where the superblock says.
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

    /// Writes rows that are full or were begun at `before` or earlier, at most `most` of them.
    /// Returns how many.
    ///
    /// # Errors
    /// `Kind::TooManyLosses` when too many members failed.
    /// Rows that were not written stay in the cache.
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

    /// Counts of the row pieces written so far; may be read while the flusher works.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.rows.tally
    }

    /// Sets the executor for independent tasks.
    pub(crate) fn set_executor(&mut self, executor: Arc<dyn Executor>) {
        self.logged.set_executor(executor);
    }

    /// Writes everything and makes it durable. While callers keep writing, this does not end.
    ///
    /// # Errors
    /// The errors of [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<()> {
        self.sync_since(Duration::MAX)
    }

    /// Writes all that was taken in at `before` or earlier, and makes it durable.
    ///
    /// # Errors
    /// The errors of [`flush`](Self::flush); `Kind::Corrupt`, once, when blocks could not be stored
    /// because the rest of them is lost. All else is durable then.
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

    /// Whether a sync puts the data into its record too: then one round of flushes makes them
    /// durable, where the record and the data in place would each take one. More bytes are written
    /// for it, so there must be few.
    fn logs_data(&self) -> bool {
        let array = &self.logged.array;
        let most = DATA_LOG_BYTES.min(self.logged.log.area_bytes / 16);
        let is_widened = self.rules.granule.is_some_and(|bytes| u64::from(bytes) > most / 4);
        array.consistency() == Consistency::Log && !is_widened && array.dirty_bytes() <= most
    }

    /// Makes the members' tables as new as their data: the log up to here is not needed any more.
    ///
    /// # Errors
    /// The errors of [`flush`](Self::flush).
    pub fn checkpoint(&mut self) -> Result<()> {
        self.logged.checkpoint()
    }

    /// Stops the array in order: everything is written, and the log is empty.
    ///
    /// # Errors
    /// The errors of [`flush`](Self::flush).
    pub fn stop(mut self) -> Result<()> {
        self.close()
    }

    /// Like [`stop`](Self::stop), while others still hold the flusher. Nothing may be written
    /// afterwards.
    ///
    /// # Errors
    /// The errors of [`flush`](Self::flush).
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
    /// Does a slice of pending long work, about `most_bytes` of each member. The first kind that is
    /// pending goes: resync, healing, growing, a spare for an empty slot, filling, scrubbing.
    ///
    /// # Errors
    /// `Kind::TooManyLosses` when too many members failed.
    pub fn step(&mut self, most_bytes: u64) -> Result<Step> {
        self.long.step(&mut self.logged, most_bytes)
    }

    /// Sets the bytes of a member between two updates of a fill's recorded point, where an
    /// interrupted fill resumes.
    pub fn set_fill_point_bytes(&mut self, bytes: u64) {
        self.long.between_points = Some(bytes);
    }

    /// Ends a scrub early. Returns its report, if there was one; a fill continues.
    ///
    /// # Errors
    /// The errors of [`step`](Self::step).
    pub fn cancel_work(&mut self) -> Result<Option<WorkReport>> {
        self.long.cancel(&self.logged.array)
    }

    /// Begins to read and compare everything, and to repair it if `repair` is set.
    ///
    /// # Errors
    /// `Kind::Busy` when that is being done already;
    /// `Kind::TooManyLosses` as for all that writes.
    pub fn scrub(&mut self, repair: bool) -> Result<()> {
        self.long.begin_scrub(&self.logged.array, repair)
    }

    /// Makes a spare one member more. The added capacity can be used when everything has moved; a
    /// mirror gets one copy more.
    ///
    /// # Errors
    /// `Kind::Refused` when members are absent, or there is no spare; `Kind::Busy` while other work
    /// is running; `Kind::Unsupported` for copies that are not near, and for a log that is too
    /// short for a journal; the errors of the device.
    pub fn grow(&mut self) -> Result<()> {
        self.long.begin_grow(&mut self.logged)
    }

    /// The same with a device that becomes a spare first, and stays one if the array cannot grow.
    ///
    /// # Errors
    /// The errors of [`grow`](Self::grow) and of [`add`](Self::add); the device is not written to
    /// where the array is known beforehand to be unable to grow.
    pub fn grow_by(&mut self, device: SharedDevice) -> Result<()> {
        self.long.wider(&self.logged)?;
        self.check_unused(&device)?;
        self.add_spare(device)?;
        self.grow()
    }
}

/// Rows of a batch, at most.
pub(crate) const BATCH_ROWS: usize = 1024;
