//! Predicts which records of an object a reader will want next, from the reads so far. The module
//! is pure: it has no clock, no thread, and no state except its own.
//!
//! The planner sees offsets and lengths in bytes. Reads that continue each other are a *run*; the
//! beginnings of runs are called points. A stream is an arithmetic progression of records. A stream
//! is found when three points are at equal distances, when a run continues, or when reads densely
//! cover a range in any order. A stream that reaches the end of the object may continue in laps, as
//! when a program reads the columns of a matrix. Each stream has a window: the number of records
//! that are prefetched for its reader. The window doubles when the reader had to wait for a record
//! in flight, as long as doubling makes the reader faster; it never exceeds the number of records
//! that the stream has consumed.
//!
//! Invariants: the bytes planned and not yet read, together with those planned in vain, never
//! exceed the bytes read, or one record if that is more; the bytes planned and not yet read never
//! exceed the memory limit. State is kept per object, not per handle, so any number of readers may
//! share it.
//!
//! Sources: the rules of stream detection and growth go back to AMP (Gill and Bathen, FAST 2007),
//! the majority over recent strides to Leap (Maruf and Chowdhury, ATC 2020).

mod credit;
mod detect;
mod laps;
mod recent;
mod stream;
mod terms;
#[cfg(test)]
mod tests;
mod window;

use std::ops::Range;

use credit::Credit;
use recent::{Recent, Sighting};
use stream::{Place, Progression, Stream, Taken};
pub use terms::{Bounds, FetchPlan, Hint, Presence, ReadCounts, StreamStatus};
use window::Window;

/// The most streams that one object may have at once.
const STREAMS_MAX: usize = 32;
/// The number of ended streams whose length is remembered.
const ENDED_KEPT: usize = 8;
/// The number of times that a stream's records may be dropped unread before the stream is stopped
/// for good.
const DROPS_MAX: u32 = 3;
/// A stream that was not read during this many reads of the object is removed to make room for
/// others.
const IDLE_READS: u64 = 64;
/// With many streams, the limit of idle reads is this number for each stream instead.
const IDLE_TURNS: u64 = 8;
/// The number of records that must be read to prove a stream whose stride is not the usual one.
const PROVEN: u64 = 8;

/// The planner of one object.
#[derive(Debug)]
pub(crate) struct ReadPlanner {
    bounds: Bounds,
    recent: Recent,
    /// The streams, least recently read first.
    streams: Vec<Stream>,
    window: Window,
    credit: Credit,
    counts: ReadCounts,
    /// The lengths, in records, of the streams that ended last.
    ended: Vec<u64>,
    /// The usual stride for which streams were last begun.
    adopted: Option<i64>,
    is_off: bool,
}

impl ReadPlanner {
    /// A planner that has seen no reads.
    pub fn new(bounds: Bounds) -> Self {
        ReadPlanner {
            bounds,
            recent: Recent::default(),
            streams: Vec::new(),
            window: Window::default(),
            credit: Credit::default(),
            counts: ReadCounts::default(),
            ended: Vec::new(),
            adopted: None,
            is_off: false,
        }
    }

    /// Processes a read of `range` at time `now` (nanoseconds of any clock); `found` says whether
    /// its bytes were present. The returned plan is meant to be fetched together with the read
    /// itself.
    pub fn read(&mut self, now: u64, range: Range<u64>, found: Presence) -> FetchPlan {
        let mut plan = FetchPlan::default();
        if range.is_empty() || self.is_off {
            return plan;
        }
        self.recent.tick();
        self.counts.read += range.end - range.start;
        let sighting = self.recent.see(&range);
        let found_in = self.stream_of(&range, sighting).or_else(|| self.lap_of(&range));
        match found_in {
            Some(at) => {
                let taken = self.streams[at].consume(&range, self.recent.now());
                self.settle(&taken, found, now);
                self.forget_elsewhere(at, &range);
                self.bring_to_front(at);
            }
            None if self.is_trailing(&range, sighting) => {}
            None => self.begin(&range, sighting, &mut plan),
        }
        self.adopt(&mut plan);
        self.retire_idle(&mut plan);
        self.extend(&range, &mut plan);
        plan
    }

    /// Tells the planner that a planned range was dropped before it was read.
    pub fn dropped(&mut self, range: &Range<u64>) {
        for stream in &mut self.streams {
            if stream.forget(range) {
                stream.punish();
                self.window.halve();
                self.counts.wasted += range.end - range.start;
                self.credit.wasted();
                return;
            }
        }
    }

    /// Processes a hint from a program. A hint makes a stream that needs no proof; its plans have
    /// the same limits as those of other streams.
    pub fn hint(&mut self, hint: Hint, next: u64) -> FetchPlan {
        let mut plan = FetchPlan::default();
        self.is_off = hint == Hint::Random;
        match hint {
            Hint::Random | Hint::DontNeed => {
                while let Some(stream) = self.streams.pop() {
                    self.end(stream, &mut plan);
                }
            }
            Hint::Sequential => {
                self.begin_hinted(self.bounds.record as i64, self.bounds.record, next)
            }
            Hint::Stride { length, distance } => self.begin_hinted(distance, length, next),
            Hint::WillNeed(ranges) => plan.fetch = self.needed(ranges),
        }
        plan
    }

    /// The streams, most recently read first.
    pub fn statuses(&self) -> Vec<StreamStatus> {
        self.streams
            .iter()
            .rev()
            .filter(|stream| stream.is_confirmed())
            .map(Stream::status)
            .collect()
    }

    /// Counts so far.
    pub fn counts(&self) -> ReadCounts {
        self.counts
    }

    /// The number of bytes that were planned and neither read nor dropped.
    pub fn outstanding(&self) -> u64 {
        self.streams.iter().map(Stream::outstanding).sum()
    }

    /// The stream of a read: one that planned the read, else one that expects it, else the one with
    /// the shortest stride that the read may continue.
    fn stream_of(&self, range: &Range<u64>, sighting: Sighting) -> Option<usize> {
        let usual = self.usual_stride();
        // Where streams lie side by side, one read of each is a progression too, but a short one.
        let is_likely = |stream: &Stream| {
            usual.is_none_or(|usual| usual == stream.stride()) || stream.used() >= PROVEN
        };
        let rank = |stream: &Stream| match stream.place(range) {
            Place::Planned => Some((0, 0)),
            Place::Inside => Some((1, 0)),
            Place::Next | Place::Skipped if !is_likely(stream) => None,
            Place::Next => Some((2, stream.distance())),
            // A run that continues is not the record after the next one of another stream.
            Place::Skipped if !sighting.is_continued => Some((3, stream.distance())),
            Place::Skipped | Place::Elsewhere => None,
        };
        let ranked =
            self.streams.iter().enumerate().filter_map(|(at, stream)| Some((rank(stream)?, at)));
        ranked.min().map(|(_, at)| at)
    }

    /// Whether a read that continues another one only follows a strided reader, so that it begins
    /// no stream.
    fn is_trailing(&self, range: &Range<u64>, sighting: Sighting) -> bool {
        let slack = self.bounds.record;
        sighting.is_continued && self.streams.iter().any(|stream| stream.trails(range, slack))
    }

    /// The stream for which this read begins another lap; the stream continues with that lap.
    fn lap_of(&mut self, range: &Range<u64>) -> Option<usize> {
        let object = self.bounds.object;
        let goes_round =
            |stream: &mut Stream| stream.used() >= PROVEN && stream.goes_round(range, object);
        self.streams.iter_mut().position(goes_round)
    }

    fn settle(&mut self, taken: &Taken, found: Presence, now: u64) {
        self.counts.wasted += taken.unread;
        for _ in 0..taken.records {
            self.window.consumed(found != Presence::Ready, now);
        }
        for _ in 0..taken.planned {
            self.credit.used();
            match found {
                Presence::Ready => self.counts.hits += 1,
                Presence::InFlight | Presence::Absent => self.counts.stalls += 1,
            }
        }
    }

    /// Removes a record that was read from the plans of all other streams; the part of it that its
    /// reader did not read was fetched in vain.
    fn forget_elsewhere(&mut self, reader: usize, range: &Range<u64>) {
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if at != reader && stream.forget(range) {
                self.counts.wasted += stream.record().saturating_sub(range.end - range.start);
            }
        }
    }

    fn bring_to_front(&mut self, at: usize) {
        let stream = self.streams.remove(at);
        self.streams.push(stream);
    }

    /// Looks for a new stream that this read begins.
    fn begin(&mut self, range: &Range<u64>, sighting: Sighting, plan: &mut FetchPlan) {
        if !sighting.is_continued {
            self.note_seek();
        }
        let Some(progression) = self.find(range, sighting) else { return };
        let mut stream = Stream::new(progression, self.recent.now());
        stream.consume(range, self.recent.now());
        if let Some(dense) = self.recent.dense(self.bounds.record)
            && dense.stride == progression.stride
        {
            stream.plan_from(dense.base, self.recent.lately());
        }
        self.add(stream, plan);
    }

    fn add(&mut self, stream: Stream, plan: &mut FetchPlan) {
        if self.streams.len() >= STREAMS_MAX {
            // The oldest of those that are the least likely.
            let usual = self.usual_stride();
            let rank = |stream: &Stream| (stream.is_confirmed(), usual == Some(stream.stride()));
            let ranked = self.streams.iter().enumerate().map(|(at, stream)| (rank(stream), at));
            let given_up = ranked.min().map_or(0, |(_, at)| at);
            let given_up = self.streams.remove(given_up);
            self.end(given_up, plan);
        }
        self.streams.push(stream);
    }

    fn begin_hinted(&mut self, stride: i64, record: u64, next: u64) {
        if stride == 0 || record == 0 {
            return;
        }
        let base = next.saturating_add_signed(-stride);
        let mut stream = Stream::new(Progression { base, stride, record }, self.recent.now());
        stream.trust();
        self.streams.push(stream);
    }

    fn retire_idle(&mut self, plan: &mut FetchPlan) {
        let now = self.recent.now();
        let most = IDLE_READS.max(IDLE_TURNS * self.streams.len() as u64);
        while self.streams.first().is_some_and(|oldest| oldest.idle(now) > most) {
            let oldest = self.streams.remove(0);
            self.end(oldest, plan);
        }
    }

    fn end(&mut self, stream: Stream, plan: &mut FetchPlan) {
        self.counts.wasted += stream.left();
        for range in stream.unread(self.bounds.object) {
            self.counts.wasted += range.end - range.start;
            plan.drop.push(range);
            self.credit.wasted();
        }
        if stream.is_confirmed() {
            self.note_length(stream.used());
        }
    }

    /// Records the length of a run when its reader reads elsewhere.
    fn note_seek(&mut self) {
        let now = self.recent.now();
        if let Some(left) =
            self.streams.last().filter(|stream| stream.idle(now) == 1 && stream.is_run())
        {
            self.note_length(left.used());
        }
    }

    fn note_length(&mut self, records: u64) {
        if self.ended.len() >= ENDED_KEPT {
            self.ended.remove(0);
        }
        self.ended.push(records);
    }

    /// Plans further records of the stream that was read most recently.
    fn extend(&mut self, range: &Range<u64>, plan: &mut FetchPlan) {
        let room = self.room();
        let active = self.active();
        let share = (self.window.records() / active as u32).clamp(1, self.bounds.window);
        let memory = self.bounds.total / active as u64;
        let run = self.usual_run(self.streams.last().is_some_and(Stream::is_run));
        let Some(stream) = self.streams.last_mut() else { return };
        if stream.place(range) == Place::Elsewhere || stream.drops() >= DROPS_MAX {
            return;
        }
        let left = run.map_or(u64::MAX, |run| match run.checked_sub(stream.used()) {
            Some(left) if left > 0 => left,
            _ => (stream.used() / 2).max(1),
        });
        let most = u64::from(share)
            .min((memory / stream.record()).max(1))
            .min(left)
            .min(stream.allowance(self.credit.is_full()));
        let object = self.bounds.object;
        let rest = stream.plan_rest(range, (room, object), &mut plan.fetch);
        let room = room - rest;
        self.counts.planned += rest;
        self.counts.planned += stream.plan(most, room, object, &mut plan.fetch);
    }

    /// The number of streams that share the window; streams that were not read for several turns of
    /// all streams do not count.
    fn active(&self) -> usize {
        let (now, most) = (self.recent.now(), IDLE_TURNS * self.streams.len() as u64);
        let is_active = |stream: &&Stream| stream.is_confirmed() && stream.idle(now) <= most;
        self.streams.iter().filter(is_active).count().max(1)
    }

    /// The number of bytes that may be planned now.
    fn room(&self) -> u64 {
        let outstanding = self.outstanding();
        // The first record may be planned on the word of a few short reads.
        let earned = self.counts.read.max(self.bounds.record);
        let within_memory = self.bounds.total.saturating_sub(outstanding);
        within_memory.min(earned.saturating_sub(outstanding + self.counts.wasted))
    }

    /// The median length of the streams that ended, if there were enough of them.
    fn usual_run(&self, is_run: bool) -> Option<u64> {
        let enough = if is_run { 1 } else { ENDED_KEPT / 2 };
        (self.ended.len() >= enough).then(|| {
            let mut sorted = self.ended.clone();
            sorted.sort_unstable();
            sorted[sorted.len() / 2]
        })
    }

    /// The ranges of a hint that are fetched: those within the object, up to the size of the
    /// window.
    fn needed(&self, ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let within = ranges.into_iter().map(|range| range.start..range.end.min(self.bounds.object));
        within.filter(|range| !range.is_empty()).take(self.bounds.window as usize).collect()
    }
}
