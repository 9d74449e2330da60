//! One stream: an arithmetic progression of records, with the positions of its reader and of its
//! plan.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::StreamStatus;
use super::laps::Laps;

/// The number of records behind the reader for which reads of the kernel's read-ahead may still
/// arrive.
const TRAIL: i64 = 3;

/// Records with the same length and with equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progression {
    /// The beginning of record 0.
    pub(super) base: u64,
    /// Bytes from the beginning of a record to that of the next one; never 0.
    pub(super) stride: i64,
    /// Bytes of a record, at most as many as the stride.
    pub(super) record: u64,
}

impl Progression {
    /// The progression of consecutive records from the record that contains `start` on.
    pub(super) fn sequential(start: u64, record: u64) -> Self {
        Progression { base: start / record * record, stride: record as i64, record }
    }

    /// The number of the record that contains an offset; negative before the base.
    fn number(&self, at: u64) -> Option<i64> {
        let distance = at as i64 - self.base as i64;
        let number = match self.stride > 0 {
            true => distance.div_euclid(self.stride),
            // Record n begins at base - n * |stride|: the last beginning that is not behind it.
            false => -distance.div_euclid(-self.stride),
        };
        let within = distance - number * self.stride;
        ((0..self.record as i64).contains(&within)).then_some(number)
    }

    /// The bytes of a record; `None` if they are outside the object.
    fn range(&self, number: i64, object: u64) -> Option<Range<u64>> {
        let start = self.base.checked_add_signed(number.checked_mul(self.stride)?)?;
        (start < object).then(|| start..(start + self.record).min(object))
    }
}

/// The position of a read in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The read is of a record that was planned.
    Planned,
    /// The read is within the record that was read last.
    Inside,
    /// The read is of the first record that is neither read nor planned.
    Next,
    /// The read is of the record after that one.
    Skipped,
    /// The read does not belong to this stream.
    Elsewhere,
}

/// What a read consumed of a stream.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The number of records that were read for the first time.
    pub(super) records: u64,
    /// The number of these records that were planned.
    pub(super) planned: u64,
    /// The number of bytes that were planned and that the reader has passed without reading.
    pub(super) unread: u64,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    progression: Progression,
    /// The order in which the progression continues from the end of the object, once a lap was
    /// seen: record numbers then follow this order.
    laps: Option<Laps>,
    /// The records that are planned and not read.
    ahead: BTreeSet<i64>,
    /// The first record that is neither read nor planned.
    next: i64,
    /// The record that was read last.
    last: i64,
    /// The number of bytes of the record read last that were planned and are not read.
    left: u64,
    /// Records read.
    used: u64,
    /// The number of records that were read as predicted.
    matched: u64,
    drops: u32,
    /// The number of reads of the object when this stream was last read.
    read_at: u64,
    is_trusted: bool,
}

impl Stream {
    /// A stream that has no reads yet.
    pub(super) fn new(progression: Progression, reads: u64) -> Self {
        Stream {
            progression,
            laps: None,
            ahead: BTreeSet::new(),
            next: 0,
            last: -1,
            left: 0,
            used: 0,
            matched: 0,
            drops: 0,
            read_at: reads,
            is_trusted: false,
        }
    }

    /// Marks the stream as confirmed, because a program announced it.
    pub(super) fn trust(&mut self) {
        (self.next, self.last, self.is_trusted) = (1, 0, true);
    }

    /// Sets the plan of a dense stream so that it continues after the recent reads.
    pub(super) fn plan_from(&mut self, base: u64, lately: &VecDeque<Range<u64>>) {
        self.progression.base = base;
        let read: BTreeSet<i64> =
            lately.iter().filter_map(|range| self.number(range.start)).collect();
        let last = read.last().copied().unwrap_or(0);
        (self.next, self.last, self.used) = (last + 1, last, read.len() as u64);
        self.ahead = (0..=last).filter(|number| !read.contains(number)).collect();
    }

    /// The number of the record that contains an offset; negative before the first record.
    fn number(&self, at: u64) -> Option<i64> {
        match &self.laps {
            Some(laps) => laps.number(at),
            None => self.progression.number(at),
        }
    }

    /// The bytes of a record; `None` if they are outside the object.
    fn range(&self, number: i64, object: u64) -> Option<Range<u64>> {
        match &self.laps {
            Some(laps) => laps.range(number),
            None => self.progression.range(number, object),
        }
    }

    /// Continues with the next lap if the read begins one: the stream has reached the end of the
    /// object, and the read begins directly after one of the stream's own records, at its first
    /// record or before that. Returns whether the stream continues with a lap.
    pub(super) fn goes_round(&mut self, range: &Range<u64>, object: u64) -> bool {
        let Progression { base, stride, record } = self.progression;
        let is_over =
            self.laps.is_none() && self.ahead.is_empty() && self.range(self.next, object).is_none();
        let Some(origin) = range.start.checked_sub(record).filter(|_| is_over) else {
            return false;
        };
        let is_beside = stride > record as i64
            && base
                .checked_sub(origin)
                .is_some_and(|back| back.is_multiple_of(stride.unsigned_abs()));
        if !is_beside || object <= range.start {
            return false;
        }
        let laps = Laps { origin, stride: stride.unsigned_abs(), record, object };
        let Some(number) = laps.number(range.start) else { return false };
        (self.next, self.last) = (number, number - 1);
        self.laps = Some(laps);
        true
    }

    pub(super) fn place(&self, range: &Range<u64>) -> Place {
        let Some(number) = self.number(range.start) else { return Place::Elsewhere };
        if self.ahead.contains(&number) {
            Place::Planned
        } else if number == self.last {
            Place::Inside
        } else if number == self.next {
            Place::Next
        } else if number == self.next + 1 {
            Place::Skipped
        } else {
            Place::Elsewhere
        }
    }

    /// Whether a read belongs, or belonged, to this stream.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        self.number(range.start).is_some_and(|number| (0..=self.next).contains(&number))
    }

    /// Whether a read is in a record that the stream has just passed, or extends beyond the end of
    /// one by less than `slack`. Both kinds of reads are caused by the kernel's own read-ahead,
    /// which requests the rest of a record and a piece beyond it while the reader is already at the
    /// next record.
    pub(super) fn trails(&self, range: &Range<u64>, slack: u64) -> bool {
        let record = (self.progression.record + slack).min(self.distance());
        let reached = Progression { record, ..self.progression };
        self.is_confirmed()
            && self.laps.is_none()
            && self.distance() > self.progression.record
            && reached.number(range.start).is_some_and(|number| {
                (self.last.saturating_sub(TRAIL)..=self.last).contains(&number)
                    && !self.ahead.contains(&number)
            })
    }

    /// Processes a read of this stream.
    pub(super) fn consume(&mut self, range: &Range<u64>, reads: u64) -> Taken {
        self.read_at = reads;
        let mut taken = Taken::default();
        let Some(first) = self.number(range.start) else { return taken };
        // In laps the record behind this one is read much later.
        let is_whole = self.laps.is_some();
        let last = if is_whole { first } else { self.number(range.end - 1).unwrap_or(first) };
        for number in first.min(last)..=first.max(last) {
            if number != self.last {
                taken.unread += self.leave();
                self.enter(number, &mut taken);
            }
            if let Some(record) = self.range(number, u64::MAX) {
                let bytes = range.end.min(record.end).saturating_sub(range.start.max(record.start));
                self.left = self.left.saturating_sub(bytes);
            }
        }
        taken
    }

    fn enter(&mut self, number: i64, taken: &mut Taken) {
        let was_planned = self.ahead.remove(&number);
        taken.records += 1;
        taken.planned += u64::from(was_planned);
        self.left = if was_planned { self.progression.record } else { 0 };
        self.matched += u64::from(number > 0);
        self.used += 1;
        self.next = self.next.max(number + 1);
        self.last = number;
    }

    /// The number of bytes of the record read last that were planned and that its reader left
    /// unread.
    fn leave(&mut self) -> u64 {
        std::mem::take(&mut self.left)
    }

    /// Removes a planned record, because another stream's reader read it or because it was dropped;
    /// returns whether it was planned.
    pub(super) fn forget(&mut self, range: &Range<u64>) -> bool {
        self.number(range.start).is_some_and(|number| self.ahead.remove(&number))
    }

    /// Counts a record of this stream that was fetched in vain.
    pub(super) fn punish(&mut self) {
        self.drops += 1;
    }

    /// Plans the rest of a record that begins with this read and was not planned; returns the
    /// number of bytes planned.
    pub(super) fn plan_rest(
        &mut self,
        range: &Range<u64>,
        (room, object): (u64, u64),
        fetch: &mut Vec<Range<u64>>,
    ) -> u64 {
        let number = self.number(range.start);
        let record = number.and_then(|number| self.range(number, object));
        let Some(record) = record.filter(|record| record.start == range.start) else { return 0 };
        let rest = record.end.saturating_sub(range.end);
        let is_strided = self.distance() > self.progression.record;
        if !is_strided || self.left > 0 || rest == 0 || rest > room {
            return 0;
        }
        self.left = rest;
        fetch.push(range.end..record.end);
        rest
    }

    /// Plans until `most` records are ahead, but at most `room` new bytes; returns the number of
    /// bytes planned.
    pub(super) fn plan(
        &mut self,
        most: u64,
        room: u64,
        object: u64,
        fetch: &mut Vec<Range<u64>>,
    ) -> u64 {
        let mut planned = 0;
        while (self.ahead.len() as u64) < most
            && planned + self.progression.record <= room
            && let Some(range) = self.range(self.next, object)
        {
            planned += range.end - range.start;
            self.ahead.insert(self.next);
            fetch.push(range);
            self.next += 1;
        }
        planned
    }

    /// The records that are planned and not read.
    pub(super) fn unread(&self, object: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ahead.iter().filter_map(move |&number| self.range(number, object))
    }

    /// The number of records that may be ahead: as many as were read, or twice as many if plans
    /// were successful.
    pub(super) fn allowance(&self, is_credited: bool) -> u64 {
        match (self.is_trusted, is_credited) {
            (true, _) => u64::MAX,
            (false, true) => 2 * self.used,
            (false, false) => self.used,
        }
    }

    /// Whether a record was read as predicted: the reads before could be chance.
    pub(super) fn is_confirmed(&self) -> bool {
        self.is_trusted || self.matched > 0
    }

    /// The number of bytes that are planned and not read.
    pub(super) fn outstanding(&self) -> u64 {
        self.ahead.len() as u64 * self.progression.record + self.left
    }

    /// The number of bytes of the record read last that were planned and are not read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn record(&self) -> u64 {
        self.progression.record
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn drops(&self) -> u32 {
        self.drops
    }

    pub(super) fn stride(&self) -> i64 {
        self.progression.stride
    }

    /// Whether the stream's records are consecutive and ascending.
    pub(super) fn is_run(&self) -> bool {
        self.progression.stride == self.progression.record as i64
    }

    pub(super) fn distance(&self) -> u64 {
        self.progression.stride.unsigned_abs()
    }

    pub(super) fn idle(&self, reads: u64) -> u64 {
        reads - self.read_at
    }

    pub(super) fn status(&self) -> StreamStatus {
        StreamStatus {
            stride: self.progression.stride,
            record: self.progression.record,
            ahead: self.ahead.len() as u32,
            used: self.used,
        }
    }
}
