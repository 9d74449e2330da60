//! Accepts writes, and counts the bytes that wait for the members.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Array;
use crate::cache::{Cache, Dirty, Due};
use crate::geometry::{Shape, Span};
use crate::ranked::{LockRank, Rank, RankGuard};
use crate::runs::RunBytes;
use crate::traffic::{MemberTraffic, Timer};
use pinstripe_base::error::{Kind, Result};

/// Writes of at least this length are copied before the lock of the cache is taken: copying takes
/// longer than taking the lock a second time.
const COPIED_APART_BYTES: usize = 32 << 10;

/// The most dirty bytes that are flushed before any of them leave the cache: a few batches. With a
/// larger value, all writers that wait for room would wait for the last of these batches.
const FLUSH_BYTES: u64 = 16 << 20;

/// Writes that wait for the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirtyStats {
    /// The number of bytes, including those of rows that are being written.
    pub bytes: u64,
    /// When the first byte of the longest gathering row was written.
    pub oldest: Option<Duration>,
    /// Whether a row is full.
    pub has_full: bool,
}

impl Array {
    /// Takes bytes at `offset` into the cache; a flusher puts them on the members later. Returns
    /// the statistics of all writes that wait after this one.
    ///
    /// # Errors
    /// Fails with [`Kind::NoSpace`] beyond the end.
    pub fn write(&self, offset: u64, bytes: &[u8], now: Duration) -> Result<DirtyStats> {
        self.check(offset, bytes.len(), Kind::NoSpace)?;
        let range = offset..offset + bytes.len() as u64;
        let of = |span: &Span| {
            let from = (span.user.start - offset) as usize;
            &bytes[from..from + span.column.len()]
        };
        let (shape, copies) = match bytes.len() < COPIED_APART_BYTES {
            true => (None, Vec::new()),
            false => self.copies(&range, of),
        };
        let mut cache = self.cache.lock();
        let now_shape = *cache.shape();
        // Copies for rows that have moved meanwhile are of no use.
        let mut copies = copies.into_iter().filter(|_| shape == Some(now_shape));
        for span in now_shape.spans(range) {
            match copies.next() {
                Some(copy) => cache.take(&span, copy, now),
                None => cache.write(&span, of(&span), now),
            };
        }
        Ok(cache.dirty_stats())
    }

    /// Copies of a long write's bytes, by span: made without the lock of the cache, so that other
    /// threads can write and the flusher can begin rows meanwhile.
    fn copies<'b>(
        &self,
        range: &Range<u64>,
        of: impl Fn(&Span) -> &'b [u8],
    ) -> (Option<Shape>, Vec<RunBytes>) {
        let mut cache = self.cache.lock();
        let shape = *cache.shape();
        let spans = shape.spans(range.clone());
        let memory: Vec<_> = spans.map(|span| (cache.memory(span.column.len()), span)).collect();
        drop(cache);
        let copy = |(memory, span): (Vec<u8>, Span)| {
            RunBytes::from_bytes(span.column.start, of(&span), memory)
        };
        (Some(shape), memory.into_iter().map(copy).collect())
    }

    /// The statistics of all writes that wait for the members.
    pub fn dirty_stats(&self) -> DirtyStats {
        self.cache.lock().dirty_stats()
    }

    /// Bytes moved to and from the members, by slot; `None` for absent members.
    pub fn traffic(&self) -> Vec<Option<MemberTraffic>> {
        self.members().iter().map(|member| Some(member.as_ref()?.traffic())).collect()
    }

    /// Makes the members measure the time of their transfers.
    pub(crate) fn set_timer(&self, timer: Timer) {
        self.members().iter().flatten().for_each(|member| member.set_timer(timer));
    }

    /// The number of bytes that have gone from the cache to the members so far.
    pub(crate) fn drained_bytes(&self) -> u64 {
        self.drained_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were written to the array and are not on the members yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_stats().bytes
    }
}

impl Array {
    /// Begins rows that are due, and waits until no reader holds any of them.
    pub(super) fn begin(&self, due: Due, most: usize) -> Vec<(u64, Arc<Dirty>)> {
        // Readers, for which this waits below, take locks that come after a row.
        Rank::Row.check();
        let mut cache = self.cache.lock();
        let rows = cache.due(due, most, FLUSH_BYTES);
        let begun: Vec<_> = rows.into_iter().map(|row| (row, cache.begin(row))).collect();
        // All rows are begun before the wait: from then on no new reader can hold one, so it ends.
        let rows_changed = cache.rows_changed();
        while begun.iter().any(|(row, _)| cache.is_held(*row)) {
            cache = cache.wait(&rows_changed);
        }
        begun
    }

    /// Ends rows that were begun: they are on the members, or they go back to the cache.
    pub(super) fn complete_rows(&self, rows: Vec<(u64, Arc<Dirty>)>, are_written: bool) {
        let mut cache = self.cache.lock();
        for (row, dirty) in rows {
            match are_written {
                true => {
                    self.drained_bytes.fetch_add(dirty.bytes(), Ordering::Relaxed);
                    cache.end(row);
                }
                false => cache.give_back(row),
            }
            if let Some(dirty) = Arc::into_inner(dirty) {
                cache.recycle(dirty);
            }
        }
        cache.rows_changed().notify_all();
    }

    /// Waits until a row is not in progress, and prevents the flusher from beginning it.
    pub(super) fn hold(&self, row: u64) -> Hold<'_> {
        let held = RankGuard::take(Rank::Row);
        let mut cache = self.cache.lock();
        let rows_changed = cache.rows_changed();
        while cache.is_under_way(row) {
            cache = cache.wait(&rows_changed);
        }
        cache.hold(row);
        Hold { array: self, row, _rank: held }
    }
}

impl Array {
    /// Keeps readers away from a row while it is repaired, and waits for the readers that hold it.
    /// The row is not in progress: only the flusher repairs, and it begins no rows during a repair.
    pub(super) fn occupy(&self, row: u64) -> Occupied<'_> {
        let held = RankGuard::take(Rank::Row);
        let mut cache = self.cache.lock();
        cache.occupy(row);
        let rows_changed = cache.rows_changed();
        while cache.is_held(row) {
            cache = cache.wait(&rows_changed);
        }
        Occupied { array: self, row, _rank: held }
    }
}

/// A row under repair.
pub(super) struct Occupied<'a> {
    array: &'a Array,
    row: u64,
    _rank: RankGuard,
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        let mut cache = self.array.cache.lock();
        cache.end(self.row);
        cache.rows_changed().notify_all();
    }
}

/// A row that is held, so that it does not change on the members.
pub(super) struct Hold<'a> {
    array: &'a Array,
    row: u64,
    _rank: RankGuard,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut cache = self.array.cache.lock();
        cache.release(self.row);
        cache.rows_changed().notify_all();
    }
}

impl Cache {
    fn dirty_stats(&self) -> DirtyStats {
        DirtyStats { bytes: self.bytes(), oldest: self.oldest(), has_full: self.has_full() }
    }
}
