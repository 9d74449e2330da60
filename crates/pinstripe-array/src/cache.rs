//! Writes to an array that are not on its members yet.
//!
//! ```text
//! write --> gathering --begin--> under way --end--> gone: it is on the members
//!               ^                    |
//!               +------ give back ---+   (what was written meanwhile lies above it)
//! ```
//! A row gathers writes until it is full or due. While it is under way its bytes can be read and do
//! not change; writes that come meanwhile gather anew, and wait. A row that is held does not change
//! on the members: the flusher waits until no reader holds it before it writes the row, and a reader
//! that wants to hold it waits while it is under way.
//!
//! Invariants: a read returns the last write; a row is under way at most once; the bytes of a row
//! are dropped only when the caller says that they are on the members.
//!
//! Never here: clocks (the time is an argument), members, plans.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use super::geometry::{RowMap, Shape, Span, Spot};
use super::plan::{Class, Mark};
use super::runs::{RunBytes, Runs};

/// Memory that is kept to be used again.
const SPARE_BYTES: usize = 16 << 20;
/// Ages that mean nothing and may stay, beside as many as rows gather.
const AGES_SPARE: usize = 64;

/// The new bytes of one row.
#[derive(Debug, Clone, Default)]
pub struct Dirty {
    shards: Vec<Runs>,
    /// The time of the first write.
    since: Duration,
    bytes: u64,
}

impl Dirty {
    fn new(data: usize, since: Duration) -> Self {
        Dirty { shards: vec![Runs::default(); data], since, bytes: 0 }
    }

    /// The new bytes of a data chunk.
    pub fn shard(&self, data: usize) -> &Runs {
        &self.shards[data]
    }

    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it has all bytes of the row.
    pub fn is_full(&self, map: &RowMap) -> bool {
        self.bytes == map.data() as u64 * u64::from(map.len())
    }

    /// Its marks for the planner: blocks that are new, as a whole or in part.
    pub fn marks(&self, block_bytes: u32) -> Vec<Mark> {
        let mut marks = Vec::new();
        self.marks_within(&(0..u32::MAX), block_bytes, &mut marks);
        marks
    }

    /// The same of a window of whole blocks, added to `marks`.
    pub fn marks_within(&self, window: &Range<u32>, block_bytes: u32, marks: &mut Vec<Mark>) {
        for (shard, runs) in self.shards.iter().enumerate() {
            runs.each_within(window, |start, bytes| {
                mark(shard, start..start + bytes.len() as u32, block_bytes, marks);
            });
        }
    }

    fn write(&mut self, data: usize, start: u32, bytes: &[u8], spare: &mut Spare) {
        let memory = || spare.take(RunBytes::room(bytes.len()));
        self.bytes += self.shards[data].write_into(start, bytes, memory);
    }

    fn take(&mut self, data: usize, start: u32, bytes: RunBytes, spare: &mut Spare) {
        match self.shards[data].take(start, bytes) {
            Ok(added) => self.bytes += added,
            Err(bytes) => {
                self.write(data, start, &bytes, spare);
                spare.put(bytes.into_memory());
            }
        }
    }
}

/// Buffers of rows that are on the members: memory that is used again is mapped and cached already.
#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Empty memory for so many bytes.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let Some(buffer) = self.buffers.pop() else { return Vec::with_capacity(bytes) };
        self.bytes -= buffer.capacity();
        // A buffer that is much too long would be wasted on a short run.
        match (bytes..=4 * bytes).contains(&buffer.capacity()) {
            true => buffer,
            false => Vec::with_capacity(bytes),
        }
    }

    fn put(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= SPARE_BYTES {
            self.bytes += buffer.capacity();
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

/// All rows with something that is not on the members.
#[derive(Debug)]
pub struct Cache {
    /// The placement of rows.
    shape: Shape,
    gathering: HashMap<u64, Dirty>,
    under_way: HashMap<u64, Arc<Dirty>>,
    /// Rows that gather and are full.
    full: BTreeSet<u64>,
    /// Rows by the time they began to gather; an entry with another time than its row's is stale.
    ages: VecDeque<(Duration, u64)>,
    /// Rows that are not to change on the members, and how many want that.
    held: HashMap<u64, usize>,
    bytes: u64,
    spare: Spare,
    rows_changed: Arc<Condvar>,
}

/// Which of the rows that gather are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Those that are full, or began to gather then or earlier.
    FullOr(Duration),
    /// Those that began to gather then or earlier.
    Since(Duration),
}

impl Cache {
    /// An empty one for the rows of a shape.
    pub fn new(shape: Shape) -> Self {
        let (gathering, under_way, full, ages, held, spare, rows_changed) = Default::default();
        Cache { shape, gathering, under_way, full, ages, held, bytes: 0, spare, rows_changed }
    }

    /// The placement of rows.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Changes the placement of rows: gathered bytes move to the rows that hold them now, and keep
    /// their age.
    ///
    /// # Panics
    /// If a row is under way.
    pub fn reshape(&mut self, shape: Shape) {
        assert!(self.under_way.is_empty(), "a row is under way");
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
            self.bytes -= dirty.bytes;
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

    /// Has a row gather since a time at the latest, which may be long ago.
    fn gather_since(&mut self, row: u64, since: Duration) {
        let fresh = || Dirty::new(self.shape.data(row), since);
        let gathers = self.gathering.entry(row).or_insert_with(fresh);
        gathers.since = gathers.since.min(since);
        let at = self.ages.partition_point(|(known, _)| *known <= since);
        self.ages.insert(at, (since, row));
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether everything is on the members.
    pub fn is_empty(&self) -> bool {
        self.gathering.is_empty() && self.under_way.is_empty()
    }

    /// Takes the bytes of a span. Returns whether its row is full now. Times may be slightly out of
    /// order: each counts as no earlier than the one before.
    pub fn write(&mut self, span: &Span, bytes: &[u8], now: Duration) -> bool {
        self.change(span.row, now, |row, spare| {
            row.write(span.data, span.column.start, bytes, spare);
        })
    }

    /// The same of bytes that are in memory of their own already.
    pub fn take(&mut self, span: &Span, bytes: RunBytes, now: Duration) -> bool {
        self.change(span.row, now, |row, spare| {
            row.take(span.data, span.column.start, bytes, spare);
        })
    }

    /// Memory for so many bytes, to be filled without the lock around the cache.
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
        let before = row.bytes;
        change(row, &mut self.spare);
        self.bytes += row.bytes - before;
        let is_full = row.bytes == self.shape.row_bytes(number);
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

    /// Rows that are due and may be begun, at most `most`, and no more once they have `most_bytes`:
    /// full ones first, then the oldest. They come in the order of their numbers.
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
        // One that was begun and gathers again since the same time has two ages.
        rows.dedup();
        rows
    }

    /// When the first byte came of what gathers longest.
    pub fn oldest(&self) -> Option<Duration> {
        self.ages.front().map(|(since, _)| *since)
    }

    /// Whether there is a row that is full.
    pub fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Marks a row as being written.
    ///
    /// # Panics
    /// If it is under way, or nothing gathered.
    pub fn begin(&mut self, row: u64) -> Arc<Dirty> {
        let dirty = Arc::new(self.gathering.remove(&row).expect("a row that gathers"));
        self.full.remove(&row);
        self.forget_ages();
        let before = self.under_way.insert(row, Arc::clone(&dirty));
        assert!(before.is_none(), "row {row} is under way already");
        dirty
    }

    /// Drops the first ages that mean nothing.
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
    /// If it is not under way.
    pub fn end(&mut self, row: u64) {
        let dirty = self.under_way.remove(&row).expect("a row that is under way");
        self.bytes -= dirty.bytes;
    }

    /// Takes what a row had that is on the members, to use its memory again.
    pub fn recycle(&mut self, dirty: Dirty) {
        let memory = dirty.shards.into_iter().flat_map(Runs::into_memory);
        memory.for_each(|buffer| self.spare.put(buffer));
    }

    /// Whether a row is under way.
    pub fn is_under_way(&self, row: u64) -> bool {
        self.under_way.contains_key(&row)
    }

    /// Keeps a row that is not under way from changing: a flusher that begins it has to wait.
    pub fn hold(&mut self, row: u64) {
        *self.held.entry(row).or_default() += 1;
    }

    /// Releases a row that was held.
    pub fn release(&mut self, row: u64) {
        if let Entry::Occupied(mut held) = self.held.entry(row) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// Marks a row as under repair, as if it were under way, until it has [`end`](Self::end)ed.
    ///
    /// # Panics
    /// If it is under way.
    pub fn occupy(&mut self, row: u64) {
        let nothing = Arc::new(Dirty::new(self.shape.data(row), Duration::ZERO));
        assert!(self.under_way.insert(row, nothing).is_none(), "row {row} is under way already");
    }

    /// Whether any reader holds a row.
    pub fn is_held(&self, row: u64) -> bool {
        self.held.contains_key(&row)
    }

    /// Notified when rows were written or are released; used with the lock around the cache.
    pub fn rows_changed(&self) -> Arc<Condvar> {
        Arc::clone(&self.rows_changed)
    }

    /// Takes back a row that could not be written: it gathers again, below newer writes.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn give_back(&mut self, row: u64) {
        let below = self.under_way.remove(&row).expect("a row that is under way");
        self.bytes -= below.bytes;
        let mut all = Arc::unwrap_or_clone(below);
        if let Some(above) = self.gathering.remove(&row) {
            self.bytes -= above.bytes;
            for (data, runs) in above.shards.iter().enumerate() {
                runs.each(|start, bytes| all.write(data, start, bytes, &mut self.spare));
            }
        }
        self.bytes += all.bytes;
        if all.bytes == self.shape.row_bytes(row) {
            self.full.insert(row);
        }
        let at = self.ages.partition_point(|(since, _)| *since <= all.since);
        self.ages.insert(at, (all.since, row));
        self.gathering.insert(row, all);
        self.forget_ages();
    }
}

/// Marks the blocks of a run: whole ones, and those that it begins or ends in. A block that the run
/// before ended in is marked already.
fn mark(shard: usize, run: Range<u32>, block: u32, marks: &mut Vec<Mark>) {
    let whole = run.start.next_multiple_of(block)..run.end / block * block;
    let mut add = |class: Class, column: Range<u32>| {
        let is_known = |last: &Mark| last.shard == shard && last.column.end > column.start;
        if !column.is_empty() && !marks.last().is_some_and(is_known) {
            marks.push(Mark { shard, class, column });
        }
    };
    if run.start < whole.start {
        add(Class::Partial, whole.start - block..whole.start);
    }
    add(Class::Dirty, whole.clone());
    if run.end > whole.end && whole.end >= whole.start {
        add(Class::Partial, whole.end..whole.end + block);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geometry::{ArrayGeometry, Layout, Level};

    const CHUNK: u32 = 32;
    const DATA: usize = 2;

    fn geometry(members: usize) -> ArrayGeometry {
        let chunk = u64::from(CHUNK);
        ArrayGeometry::cut(Level::Raid0, members, chunk, Layout::Fixed, 40 * chunk).unwrap()
    }

    fn span(row: u64, data: usize, column: std::ops::Range<u32>) -> Span {
        let start = (row * DATA as u64 + data as u64) * u64::from(CHUNK);
        let user = start + u64::from(column.start)..start + u64::from(column.end);
        Span { row, data, column, user }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, usize, u32, u32, u8),
        Begin(u64),
        End(u64),
        GiveBack(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let row = 0..3u64;
        prop_oneof![
            4 => (row.clone(), 0..DATA, 0..CHUNK, 1..CHUNK, any::<u8>())
                .prop_map(|(row, data, at, len, byte)| {
                    Step::Write(row, data, at, len.min(CHUNK - at), byte)
                }),
            1 => row.clone().prop_map(Step::Begin),
            1 => row.clone().prop_map(Step::End),
            1 => row.prop_map(Step::GiveBack),
        ]
    }

    proptest! {
        /// Against a model of bytes: on the members, and above.
        #[test]
        fn what_was_written_last_is_read(steps in prop::collection::vec(step(), 1..60)) {
            let mut cache = Cache::new(Shape::of(geometry(DATA)));
            let none = || vec![None; CHUNK as usize * DATA * 3];
            let (mut above, mut below): (Vec<Option<u8>>, Vec<Option<u8>>) = (none(), none());
            let of = |row: u64| {
                let bytes = CHUNK as usize * DATA;
                row as usize * bytes..(row as usize + 1) * bytes
            };
            for step in steps {
                match step {
                    Step::Write(row, data, at, len, byte) => {
                        let span = span(row, data, at..at + len);
                        let bytes = vec![byte; len as usize];
                        let full = match byte % 2 {
                            0 => cache.write(&span, &bytes, Duration::ZERO),
                            _ => {
                                let memory = cache.memory(bytes.len());
                                let copy = RunBytes::of(at, &bytes, memory);
                                cache.take(&span, copy, Duration::ZERO)
                            }
                        };
                        let user = span.user.start as usize..span.user.end as usize;
                        above[user].fill(Some(byte));
                        assert_eq!(full, above[of(row)].iter().all(Option::is_some));
                    }
                    Step::Begin(row) if cache.due(Due::Since(Duration::ZERO), 9, u64::MAX).contains(&row) => {
                        let dirty = cache.begin(row);
                        let there = above[of(row)].iter().flatten().count();
                        assert_eq!(dirty.bytes(), there as u64);
                        for at in of(row) {
                            below[at] = above[at].take();
                        }
                    }
                    Step::End(row) if cache.under_way.contains_key(&row) => {
                        cache.end(row);
                        below[of(row)].fill(None);
                    }
                    Step::GiveBack(row) if cache.under_way.contains_key(&row) => {
                        cache.give_back(row);
                        for at in of(row) {
                            above[at] = above[at].or(below[at].take());
                        }
                    }
                    _ => {}
                }
                for row in 0..3 {
                    for data in 0..DATA {
                        let span = span(row, data, 3..CHUNK - 2);
                        let mut buf = vec![0; span.column.len()];
                        let there = cache.snapshot(&span).read(span.column.start, &mut buf);
                        let range = span.user.start as usize..span.user.end as usize;
                        let wanted: Vec<_> =
                            range.map(|at| above[at].or(below[at])).collect();
                        assert_eq!(there, wanted.iter().flatten().count() as u64);
                        let wanted: Vec<u8> =
                            wanted.into_iter().map(Option::unwrap_or_default).collect();
                        assert_eq!(buf, wanted);
                    }
                }
                let there = above.iter().chain(&below).flatten().count();
                assert_eq!(cache.bytes(), there as u64);
                assert_eq!(cache.is_empty(), there == 0);
            }
        }
    }

    #[test]
    fn rows_come_due_when_they_are_full_or_old() {
        let mut cache = Cache::new(Shape::of(geometry(DATA)));
        let at = Duration::from_millis;
        cache.write(&span(7, 0, 0..8), &[1; 8], at(10));
        cache.write(&span(2, 1, 0..8), &[1; 8], at(20));
        cache.write(&span(2, 1, 8..9), &[1; 1], at(30));
        assert_eq!(cache.oldest(), Some(at(10)));
        assert!(cache.due(Due::FullOr(at(9)), 9, u64::MAX).is_empty());
        assert_eq!(cache.due(Due::FullOr(at(10)), 9, u64::MAX), [7]);
        assert_eq!(cache.due(Due::FullOr(at(20)), 9, u64::MAX), [2, 7]);
        assert_eq!(cache.due(Due::FullOr(at(20)), 1, u64::MAX), [7]);
        cache.write(&span(5, 0, 0..CHUNK), &[1; CHUNK as usize], at(40));
        assert!(cache.write(&span(5, 1, 0..CHUNK), &[1; CHUNK as usize], at(40)));
        assert_eq!(cache.due(Due::FullOr(at(0)), 9, u64::MAX), [5]);
        // A write to a row that is under way has to wait for that row.
        cache.begin(5);
        cache.write(&span(5, 1, 3..4), &[2], at(50));
        assert_eq!(cache.due(Due::FullOr(at(60)), 9, u64::MAX), [2, 7]);
        cache.end(5);
        assert_eq!(cache.due(Due::FullOr(at(60)), 9, u64::MAX), [2, 5, 7]);
        assert_eq!((cache.oldest(), cache.has_full()), (Some(at(10)), false));
        // One that comes back is as old as it was, and what came since does not count.
        cache.begin(7);
        assert_eq!(cache.oldest(), Some(at(20)));
        cache.write(&span(7, 1, 0..3), &[1; 3], at(70));
        cache.give_back(7);
        assert_eq!(cache.oldest(), Some(at(10)));
        assert_eq!(cache.due(Due::Since(at(10)), 9, u64::MAX), [7]);
    }

    /// So many that what leaves the cache at once is bounded, and always one.
    #[test]
    fn no_more_rows_come_due_than_bytes_are_wanted() {
        let mut cache = Cache::new(Shape::of(geometry(DATA)));
        let at = Duration::from_millis;
        for row in [3, 4] {
            (0..DATA).for_each(|data| {
                let span = span(row, data, 0..CHUNK);
                cache.take(&span, RunBytes::of(0, &[1; CHUNK as usize], Vec::new()), at(10));
            });
        }
        cache.write(&span(1, 0, 0..8), &[1; 8], at(20));
        cache.write(&span(2, 0, 0..8), &[1; 8], at(20));
        let full = cache.shape.row_bytes(3);
        let mut due = |most_bytes| cache.due(Due::FullOr(at(20)), 9, most_bytes);
        assert_eq!([due(1), due(full)], [[3], [3]]);
        assert_eq!([due(full + 1), due(2 * full)], [[3, 4], [3, 4]]);
        assert_eq!(due(2 * full + 8), [1, 3, 4]);
        assert_eq!(due(2 * full + 9), [1, 2, 3, 4]);
        assert!(cache.due(Due::Since(at(20)), 9, 1).len() == 1);
    }

    #[test]
    fn no_time_counts_as_earlier_than_one_before() {
        let mut cache = Cache::new(Shape::of(geometry(DATA)));
        let at = Duration::from_millis;
        cache.write(&span(1, 0, 0..8), &[1; 8], at(10));
        cache.write(&span(2, 0, 0..8), &[1; 8], at(9));
        assert_eq!(cache.due(Due::Since(at(10)), 9, u64::MAX), [1, 2]);
        cache.begin(1);
        assert_eq!(cache.oldest(), Some(at(10)));
    }

    #[test]
    fn what_gathers_goes_where_its_bytes_lie_now_and_grows_no_younger() {
        let at = Duration::from_millis;
        let shape = Shape::growing(geometry(DATA), geometry(DATA + 1)).unwrap();
        let mut cache = Cache::new(shape);
        let user = 100..150u64;
        let bytes: Vec<u8> = user.clone().map(|byte| byte as u8).collect();
        let write = |cache: &mut Cache, now| {
            let shape = *cache.shape();
            for span in shape.spans(user.clone()) {
                let from = (span.user.start - user.start) as usize;
                cache.write(&span, &bytes[from..from + span.column.len()], now);
            }
        };
        let read = |cache: &Cache| {
            let mut found = vec![0; bytes.len()];
            for span in cache.shape().spans(user.clone()) {
                let from = (span.user.start - user.start) as usize;
                let buf = &mut found[from..from + span.column.len()];
                cache.snapshot(&span).read(span.column.start, buf);
            }
            found
        };
        write(&mut cache, at(10));
        cache.write(&shape.spans(900..901).next().unwrap(), &[1], at(20));
        for moved in 1..=3 {
            cache.reshape(shape.moved_to(moved));
            assert_eq!((read(&cache), cache.bytes()), (bytes.clone(), 51));
            let rows: std::collections::BTreeSet<u64> =
                cache.shape().spans(user.clone()).map(|span| span.row).collect();
            assert!(cache.due(Due::Since(at(10)), 9, u64::MAX).into_iter().eq(rows));
        }
        write(&mut cache, at(30));
        assert_eq!(cache.oldest(), Some(at(10)));
    }
}
