//! The last reads of an object, and the patterns in them.

use std::collections::VecDeque;
use std::ops::Range;

use super::stream::Progression;

/// The number of runs that are remembered: four points for each of sixteen streams.
const RUNS_KEPT: usize = 64;
/// The number of reads that are examined for streams in no strict order.
const LATELY: usize = 8;
/// The largest ratio between the length of a densely read range and the bytes read in it.
const SPREAD_MAX: u64 = 2;
/// The largest ratio between lengths of runs that count as equal: the kernel's own read-ahead makes
/// some of them longer.
const LENGTHS_ALIKE: u64 = 2;

/// The number of neighbouring runs on either side whose distance is examined.
const NEAR: usize = 4;
/// The number of pairs of runs at the same distance that may be chance, in addition to those that
/// are likely by chance.
const PAIRS_MIN: u64 = 1;
/// How many times more pairs than chance makes likely a frequent distance must have.
const PAIRS_OVER_CHANCE: u64 = 3;

/// A run: reads that each begin where the previous one ended.
#[derive(Debug, Clone, Copy)]
struct ReadRun {
    start: u64,
    end: u64,
    reads: u32,
}

/// The relation of a read to the reads before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting {
    /// Whether the read begins where another one ended.
    pub(super) is_continued: bool,
    /// The beginning of the run that the read belongs to.
    pub(super) start: u64,
    /// The number of reads in the run.
    pub(super) reads: u32,
}

/// The last reads.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The runs, least recently read first.
    runs: VecDeque<ReadRun>,
    lately: VecDeque<Range<u64>>,
    reads: u64,
}

impl Recent {
    pub(super) fn tick(&mut self) {
        self.reads += 1;
    }

    /// The number of reads so far, which the planner uses as a clock for idle streams.
    pub(super) fn now(&self) -> u64 {
        self.reads
    }

    /// Recent reads; the latest one is last.
    pub(super) fn lately(&self) -> &VecDeque<Range<u64>> {
        &self.lately
    }

    /// The runs, most recently read first.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().rev().map(|run| run.start..run.end)
    }

    /// Remembers a read.
    pub(super) fn see(&mut self, range: &Range<u64>) -> Sighting {
        if self.lately.len() >= LATELY {
            self.lately.pop_front();
        }
        self.lately.push_back(range.clone());
        let continued = self.runs.iter().rposition(|run| run.end == range.start);
        let run = match continued.and_then(|at| self.runs.remove(at)) {
            Some(run) => ReadRun { end: range.end, reads: run.reads + 1, ..run },
            None => ReadRun { start: range.start, end: range.end, reads: 1 },
        };
        if self.runs.len() >= RUNS_KEPT {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
        Sighting { is_continued: continued.is_some(), start: run.start, reads: run.reads }
    }

    /// The progression that ends with the read at `range`: `points(distance)` beginnings of runs,
    /// including this read, must be at equal distances. If there are several progressions, the one
    /// that needs the fewest points is chosen, and then the one with the shortest distance, because
    /// a coincidence seldom has either.
    pub(super) fn stride(
        &self,
        range: &Range<u64>,
        points: impl Fn(i64) -> usize,
        record_max: u64,
    ) -> Option<Progression> {
        let here = range.start as i64;
        let candidates = self.runs.iter().rev().skip(1).filter_map(|run| {
            let stride = here - run.start as i64;
            let points = points(stride);
            let record = self.chain(here, stride, points)?.max(range.end - range.start);
            let is_apart = record <= stride.unsigned_abs() && record <= record_max;
            is_apart.then_some((points, stride.unsigned_abs(), stride, record))
        });
        let (_, _, stride, record) = candidates.min()?;
        Some(Progression { base: range.start, stride, record })
    }

    /// The length of the records, if `points` runs are `stride` apart and the last one is at
    /// `here`.
    fn chain(&self, here: i64, stride: i64, points: usize) -> Option<u64> {
        if stride == 0 {
            return None;
        }
        let mut length: Option<u64> = None;
        for back in 1..points as i64 {
            let start = here.checked_sub(stride.checked_mul(back)?)?;
            let run = self.runs.iter().find(|run| run.start as i64 == start)?;
            let bytes = run.end - run.start;
            let alike = length.is_none_or(|length| {
                bytes <= length * LENGTHS_ALIKE && length <= bytes * LENGTHS_ALIKE
            });
            if !alike {
                return None;
            }
            length = Some(length.map_or(bytes, |length| length.max(bytes)));
        }
        length
    }

    /// A distance that far more pairs of runs have than is likely by chance: a read that makes
    /// another pair with this distance begins a stream. To limit the cost, only the nearest runs
    /// are examined.
    pub(super) fn frequent(&self, range: &Range<u64>, record_max: u64) -> Option<Progression> {
        let mut starts: Vec<u64> = self.runs.iter().map(|run| run.start).collect();
        starts.sort_unstable();
        let here = starts.binary_search(&range.start).ok()?;
        let near = here.saturating_sub(NEAR)..(here + NEAR + 1).min(starts.len());
        let length = (range.end - range.start).max(1);
        let places = (starts.last()? - starts.first()?) / length + 1;
        let by_chance = (starts.len() * starts.len()) as u64 / places;
        let distances = starts[near].iter().map(|&start| range.start as i64 - start as i64);
        let record = |stride: i64| {
            let run =
                self.runs.iter().find(|run| run.start as i64 == range.start as i64 - stride)?;
            let record = (run.end - run.start).max(length);
            (stride != 0 && record <= stride.unsigned_abs() && record <= record_max)
                .then_some(record)
        };
        let pairs = |stride: i64| {
            let other = |start: &u64| start.checked_add_signed(stride.abs());
            let is_there = |place: &u64| starts.binary_search(place).is_ok();
            starts.iter().filter_map(other).filter(is_there).count() as u64
        };
        let found = distances
            .filter(|&stride| pairs(stride) > PAIRS_MIN + PAIRS_OVER_CHANCE * by_chance)
            .filter_map(|stride| Some((stride.unsigned_abs(), stride, record(stride)?)));
        let (_, stride, record) = found.min()?;
        Some(Progression { base: range.start, stride, record })
    }

    /// A range that is read densely, though in no strict order: the last reads are within twice
    /// their total length, none is read twice, and most of them go in one direction.
    pub(super) fn dense(&self, record: u64) -> Option<Progression> {
        if self.lately.len() < LATELY {
            return None;
        }
        let (start, end) = self.lately.iter().fold((u64::MAX, 0), |(start, end), range| {
            (start.min(range.start), end.max(range.end))
        });
        let bytes: u64 = self.lately.iter().map(|range| range.end - range.start).sum();
        let is_twice = |at: usize, range: &Range<u64>| {
            self.lately
                .iter()
                .skip(at + 1)
                .any(|other| other.start < range.end && range.start < other.end)
        };
        if end - start > SPREAD_MAX * bytes
            || bytes < record * LATELY as u64 / 2
            || self.lately.iter().enumerate().any(|(at, range)| is_twice(at, range))
        {
            return None;
        }
        let half = LATELY / 2;
        let middle = |ranges: &mut dyn Iterator<Item = &Range<u64>>| -> u64 {
            ranges.map(|range| range.start / LATELY as u64).sum()
        };
        let (before, after) = (
            middle(&mut self.lately.iter().take(half)),
            middle(&mut self.lately.iter().skip(half)),
        );
        let base = start / record * record;
        match after > before {
            true => Some(Progression { base, stride: record as i64, record }),
            false => Some(Progression {
                base: (end - 1) / record * record,
                stride: -(record as i64),
                record,
            }),
        }
    }
}
