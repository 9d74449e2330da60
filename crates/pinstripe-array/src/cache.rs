//! Writes to an array that are not on its members yet.
//!
//! ```text
//! write --> gathering --begin--> under way --end--> gone: it is on the members
//!               ^                    |
//!               +------ give back ---+   (what was written meanwhile lies above it)
//! ```
//!
//! A row gathers writes until it is full or due. While a row is in progress, its bytes can be read
//! and do not change; later writes to the row gather separately, and wait. A row that a reader
//! holds does not change on the members: the flusher writes a row only when no reader holds it, and
//! a reader waits before it holds a row that is in progress.
//!
//! Invariants: a read returns the last write; a row is in progress at most once; the bytes of a row
//! are dropped only when the caller reports that these bytes are on the members.
//!
//! This module has no clocks (the time is an argument), no members and no plans.

mod dirty;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar};
use std::time::Duration;

pub use dirty::Dirty;

use dirty::Spare;

use super::geometry::{Shape, Span, Spot};
use super::runs::{RunBytes, Runs};

/// The number of stale entries that `ages` may keep, in addition to one entry per gathering row.
const AGES_SPARE: usize = 64;

/// All rows with bytes that are not on the members.
#[derive(Debug)]
pub struct Cache {
    /// The placement of rows.
    shape: Shape,
    gathering: HashMap<u64, Dirty>,
    under_way: HashMap<u64, Arc<Dirty>>,
    /// Gathering rows that are full.
    full: BTreeSet<u64>,
    /// Rows by the time at which they began to gather; an entry is stale if its row began at
    /// another time.
    ages: VecDeque<(Duration, u64)>,
    /// Rows that may not change on the members, with the number of their readers.
    held: HashMap<u64, usize>,
    bytes: u64,
    spare: Spare,
    rows_changed: Arc<Condvar>,
}

/// Selects gathering rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Rows that are full, and rows that began to gather at this time or earlier.
    FullOr(Duration),
    /// Rows that began to gather at this time or earlier.
    Since(Duration),
}

impl Cache {
    /// An empty cache for the rows of a shape.
    pub fn new(shape: Shape) -> Self {
        let (gathering, under_way, full, ages, held, spare, rows_changed) = Default::default();
        Cache { shape, gathering, under_way, full, ages, held, bytes: 0, spare, rows_changed }
    }

    /// The placement of rows.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Changes the placement of rows: gathered bytes move to the rows that contain them under the
    /// new shape, and keep their age.
    ///
    /// # Panics
    /// Panics if a row is in progress.
    pub fn reshape(&mut self, shape: Shape) {
        assert!(self.under_way.is_empty(), "a row is in progress");
        let before = std::mem::replace(&mut self.shape, shape);
        let is_elsewhere = |row: &u64| {
            let spot = Spot { row: *row, data: 0, offset: 0 };
            let user = before.user_byte(spot);
            shape.spans(user..user + 1).next().is_none_or(|now| {
                (now.row, now.data) != (*row, 0) || before.data(*row) != shape.data(*row)
            })
        };
        let rows: Vec<u64> = self.gathering.keys().copied().filter(is_elsewhere).collect();
        let moved: Vec<_> =
            rows.iter().filter_map(|row| self.gathering.remove_entry(row)).collect();
        for (row, dirty) in moved {
            self.full.remove(&row);
            self.bytes -= dirty.bytes();
            for (data, runs) in dirty.shards.iter().enumerate() {
                runs.each(|offset, bytes| {
                    let start = before.user_byte(Spot { row, data, offset });
                    for span in shape.spans(start..start + bytes.len() as u64) {
                        let from = (span.user.start - start) as usize;
                        self.gather_since(span.row, dirty.since);
                        self.write(&span, &bytes[from..from + span.column.len()], dirty.since);
                    }
                });
            }
            self.recycle(dirty);
        }
        self.forget_ages();
    }

    /// Makes a row count as gathering since `since`, or since an earlier time that it already has;
    /// `since` may be long ago.
    fn gather_since(&mut self, row: u64, since: Duration) {
        let fresh = || Dirty::new(self.shape.data(row), since);
        let gathers = self.gathering.entry(row).or_insert_with(fresh);
        gathers.since = gathers.since.min(since);
        let at = self.ages.partition_point(|(known, _)| *known <= since);
        self.ages.insert(at, (since, row));
    }

    /// Bytes in the cache.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the cache is empty: everything that was written is on the members.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.gathering.is_empty() && self.under_way.is_empty()
    }

    /// Adds the bytes of a span to its row. Returns whether the row of the span is full now. The
    /// times of successive calls may be slightly out of order: a time earlier than the previous one
    /// counts as the previous one.
    pub fn write(&mut self, span: &Span, bytes: &[u8], now: Duration) -> bool {
        self.change(span.row, now, |row, spare| {
            row.write(span.data, span.column.start, bytes, spare);
        })
    }

    /// Like [`write`](Self::write), for bytes in an allocation of their own.
    pub fn take(&mut self, span: &Span, bytes: RunBytes, now: Duration) -> bool {
        self.change(span.row, now, |row, spare| {
            row.take(span.data, span.column.start, bytes, spare);
        })
    }

    /// Memory for this many bytes, to be filled without the lock around the cache.
    pub fn memory(&mut self, bytes: usize) -> Vec<u8> {
        self.spare.take(RunBytes::room(bytes))
    }

    fn change(
        &mut self,
        number: u64,
        now: Duration,
        change: impl FnOnce(&mut Dirty, &mut Spare),
    ) -> bool {
        let row = match self.gathering.entry(number) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(place) => {
                let since = self.ages.back().map_or(now, |(last, _)| now.max(*last));
                self.ages.push_back((since, number));
                place.insert(Dirty::new(self.shape.data(number), since))
            }
        };
        let before = row.bytes();
        change(row, &mut self.spare);
        self.bytes += row.bytes() - before;
        let is_full = row.bytes() == self.shape.row_bytes(number);
        if is_full {
            self.full.insert(number);
        }
        is_full
    }

    /// The cached bytes of a span.
    pub fn snapshot(&self, span: &Span) -> Runs {
        let within = |row: &Dirty| row.shards[span.data].within(&span.column);
        let below = self.under_way.get(&span.row).map(|row| within(row));
        let mut all = below.unwrap_or_default();
        if let Some(above) = self.gathering.get(&span.row) {
            above.shards[span.data]
                .each_within(&span.column, |start, bytes| _ = all.write(start, bytes));
        }
        all
    }

    /// Returns rows that are due and may be begun: at most `most` rows, and no further row once
    /// these have `most_bytes` bytes. Full rows are chosen first, then the oldest. The rows are
    /// returned in the order of their numbers.
    pub fn due(&mut self, due: Due, most: usize, most_bytes: u64) -> Vec<u64> {
        let is_free = |row: &u64| !self.under_way.contains_key(row);
        let mut bytes = 0;
        let mut has_room = |row: &u64| {
            let has_room = bytes < most_bytes;
            bytes += self.gathering.get(row).map_or(0, Dirty::bytes);
            has_room
        };
        let mut rows: Vec<u64> = match due {
            Due::FullOr(_) => {
                let full = self.full.iter().copied().filter(is_free);
                full.take(most).take_while(&mut has_room).collect()
            }
            Due::Since(_) => Vec::new(),
        };
        let full = rows.len();
        let (Due::FullOr(before) | Due::Since(before)) = due;
        for (since, row) in self.ages.iter().take_while(|(since, _)| *since <= before) {
            if rows.len() >= most {
                break;
            }
            let is_known = self.gathering.get(row).is_some_and(|it| it.since == *since);
            if is_known && is_free(row) && rows[..full].binary_search(row).is_err() {
                if !has_room(row) {
                    break;
                }
                rows.push(*row);
            }
        }
        rows.sort_unstable();
        // A row that was begun and gathers again since the same time has two ages.
        rows.dedup();
        rows
    }

    /// The time of the oldest first byte among gathering rows.
    pub fn oldest(&self) -> Option<Duration> {
        self.ages.front().map(|(since, _)| *since)
    }

    /// Whether a row is full.
    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Marks a row as being written.
    ///
    /// # Panics
    /// Panics if the row is in progress, or has no gathered bytes.
    pub fn begin(&mut self, row: u64) -> Arc<Dirty> {
        let dirty = Arc::new(self.gathering.remove(&row).expect("a row that gathers"));
        self.full.remove(&row);
        self.forget_ages();
        let before = self.under_way.insert(row, Arc::clone(&dirty));
        assert!(before.is_none(), "row {row} is in progress already");
        dirty
    }

    /// Drops stale ages at the front.
    fn forget_ages(&mut self) {
        while let Some((since, row)) = self.ages.front()
            && self.gathering.get(row).is_none_or(|it| it.since != *since)
        {
            self.ages.pop_front();
        }
        if self.ages.len() > 2 * self.gathering.len() + AGES_SPARE {
            let gathering = &self.gathering;
            let is_known =
                |since: Duration, row: u64| gathering.get(&row).map(|it| it.since) == Some(since);
            self.ages.retain(|(since, row)| is_known(*since, *row));
        }
    }

    /// Drops a row, which is on the members now.
    ///
    /// # Panics
    /// Panics if the row is not in progress.
    pub fn end(&mut self, row: u64) {
        let dirty = self.under_way.remove(&row).expect("a row that is in progress");
        self.bytes -= dirty.bytes();
    }

    /// Reuses the memory of a row that is on the members.
    pub(crate) fn recycle(&mut self, dirty: Dirty) {
        let memory = dirty.shards.into_iter().flat_map(Runs::into_memory);
        memory.for_each(|buffer| self.spare.put(buffer));
    }

    /// Whether a row is in progress.
    pub fn is_under_way(&self, row: u64) -> bool {
        self.under_way.contains_key(&row)
    }

    /// Protects a row that is not in progress from changes: a flusher that wants to begin the row
    /// has to wait.
    pub fn hold(&mut self, row: u64) {
        *self.held.entry(row).or_default() += 1;
    }

    /// Releases a held row.
    pub fn release(&mut self, row: u64) {
        if let Entry::Occupied(mut held) = self.held.entry(row) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// Marks a row as under repair, as if it were in progress, until [`end`](Self::end) is called
    /// for it.
    ///
    /// # Panics
    /// Panics if the row is in progress.
    pub fn occupy(&mut self, row: u64) {
        let nothing = Arc::new(Dirty::new(self.shape.data(row), Duration::ZERO));
        assert!(self.under_way.insert(row, nothing).is_none(), "row {row} is in progress already");
    }

    /// Whether any reader holds a row.
    pub fn is_held(&self, row: u64) -> bool {
        self.held.contains_key(&row)
    }

    /// Notified when rows were written or are released; used with the lock around the cache.
    pub(crate) fn rows_changed(&self) -> Arc<Condvar> {
        Arc::clone(&self.rows_changed)
    }

    /// Puts back a row that could not be written: the row gathers again, below newer writes.
    ///
    /// # Panics
    /// Panics if the row is not in progress.
    pub fn give_back(&mut self, row: u64) {
        let below = self.under_way.remove(&row).expect("a row that is in progress");
        self.bytes -= below.bytes();
        let mut all = Arc::unwrap_or_clone(below);
        if let Some(above) = self.gathering.remove(&row) {
            self.bytes -= above.bytes();
            for (data, runs) in above.shards.iter().enumerate() {
                runs.each(|start, bytes| all.write(data, start, bytes, &mut self.spare));
            }
        }
        self.bytes += all.bytes();
        if all.bytes() == self.shape.row_bytes(row) {
            self.full.insert(row);
        }
        let at = self.ages.partition_point(|(since, _)| *since <= all.since);
        self.ages.insert(at, (all.since, row));
        self.gathering.insert(row, all);
        self.forget_ages();
    }
}
