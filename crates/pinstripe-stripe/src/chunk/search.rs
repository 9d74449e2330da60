//! The conditions that make a position a cut, and the search for the next cut.
//!
//! A content-defined chunk ends at the first position that is a cut. Positions count from the
//! beginning of the chunk.
//!
//! * A cut is at `min` or later, and below the smaller of `max` and the length of the rest of the
//!   run, rounded down to an even number: FastCDC 2020 examines positions in pairs, and never half
//!   a pair.
//! * Below `avg`, a cut must meet the strict condition, and from `avg` on the loose one, with a
//!   hash that begins at zero at `min`.
//!
//! If no position is a cut, the chunk ends at `max` or with the run. From one window after `min`
//! on, it no longer matters where the hash began: there, the candidates that a scan finds without
//! knowing the start of the chunk are exact. The few positions before that are hashed here.
//!
//! Not in this module: state that is kept from segment to segment. A chunk's only state that lasts
//! from segment to segment is its hash, which the caller keeps.

use std::ops::Range;

use pinstripe_kernel::gear::{CutCandidate, WINDOW};

use super::cutter::{Candidates, GearRules};

/// The largest number of bytes scanned at once, which is also limited to a quarter of the mean
/// chunk length, so that few bytes are scanned in vain.
const BLOCK_BYTES: u64 = 32 << 10;
/// The smallest number of bytes scanned at once, because short blocks are slow.
const BLOCK_BYTES_LEAST: u64 = 4 << 10;

/// What one segment shows about the end of a chunk; positions count from the start of the run.
pub(super) enum Outcome {
    /// The chunk ends at this position.
    Cut(u64),
    /// The chunk ends at this position if the run continues after this segment. If the run does not
    /// continue, the chunk ends with the run: the position is the first of an incomplete pair.
    Held(u64),
    /// The chunk continues after this segment, or ends with the run.
    Open,
}

/// The search for cuts in one segment of a run.
pub(super) struct Search<'a> {
    rules: &'a GearRules,
    /// The end of what precedes the segment: one byte less than a window, or all that precedes it.
    before: &'a [u8],
    segment: &'a [u8],
    base: u64,
    found: &'a Candidates,
    /// Candidates beyond those in `found`, as far as they were needed.
    again: Vec<CutCandidate>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        rules: &'a GearRules,
        before: &'a [u8],
        segment: &'a [u8],
        base: u64,
        found: &'a Candidates,
    ) -> Search<'a> {
        Search { rules, before, segment, base, found, again: Vec::new() }
    }

    /// Looks for the end of the chunk that begins at `start`. `hash` belongs to the chunk: it is
    /// zero at first, and is passed from segment to segment until the chunk has ended.
    pub(super) fn chunk_end(&mut self, start: u64, hash: &mut u64) -> Outcome {
        let rules = self.rules;
        let segment_end = self.base + self.segment.len() as u64;
        let longest = start + rules.max;
        let average = start + rules.avg;
        let first = start + rules.min;
        let exact = first + WINDOW as u64 - 1;
        let until = segment_end.min(longest);

        for place in first.max(self.base)..exact.min(until) {
            *hash = rules.gear.roll(*hash, self.segment[(place - self.base) as usize]);
            let masks = rules.masks;
            let met = if place < average { masks.strict(*hash) } else { masks.loose(*hash) };
            if met {
                return self.judge(start, place);
            }
        }
        let from = exact.max(self.base);
        let place = self
            .first(from..until.min(average), |candidate| candidate.strict)
            .or_else(|| self.first(from.max(average)..until, |candidate| candidate.loose));
        match place {
            Some(place) => self.judge(start, place),
            None if until == longest => Outcome::Cut(longest),
            None => Outcome::Open,
        }
    }

    /// Decides whether a position that meets its condition is a cut: it is one if its pair is
    /// complete.
    fn judge(&self, start: u64, place: u64) -> Outcome {
        let is_first_of_pair = (place - start).is_multiple_of(2);
        if is_first_of_pair && place + 1 == self.base + self.segment.len() as u64 {
            return Outcome::Held(place);
        }
        Outcome::Cut(place)
    }

    /// Returns the first candidate within `places` for which `wanted` is true: from the list, and
    /// beyond the list by another scan.
    fn first(&mut self, places: Range<u64>, wanted: impl Fn(&CutCandidate) -> bool) -> Option<u64> {
        let list = &self.found.list;
        let at = list.partition_point(|candidate| candidate.position < places.start);
        let mut listed = list[at..].iter().take_while(|candidate| candidate.position < places.end);
        if let Some(candidate) = listed.find(|candidate| wanted(candidate)) {
            return Some(candidate.position);
        }
        let step = (self.rules.avg / 4).clamp(BLOCK_BYTES_LEAST, BLOCK_BYTES);
        let mut from = places.start.max(self.found.through);
        while from < places.end {
            let end = places.end.min(from + step);
            self.look_again(from..end);
            if let Some(candidate) = self.again.iter().find(|candidate| wanted(candidate)) {
                return Some(candidate.position);
            }
            from = end;
        }
        None
    }

    /// Fills `again` with the candidates within `places`.
    fn look_again(&mut self, places: Range<u64>) {
        let [at, end] = [places.start, places.end].map(|place| (place - self.base) as usize);
        let (inside, block) = self.segment[..end].split_at(at);
        let joined;
        let before = if at < WINDOW {
            joined = [self.before, inside].concat();
            &joined
        } else {
            inside
        };
        self.again.clear();
        let GearRules { gear, masks, .. } = self.rules;
        gear.scan(*masks, before, block, places.start, &mut self.again);
    }
}
