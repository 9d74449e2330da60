//! Takes the segments of a run in order and returns the ends of its chunks.

use pinstripe_kernel::gear::WINDOW;

use super::cutter::{Candidates, GearRules, Rules};
use super::search::{Outcome, Search};

/// Records how far a run has been cut. A resolver keeps only the last few bytes of content, so a
/// segment may be dropped as soon as its chunks are processed. Resolving is cheap as long as
/// candidates come with the segments.
pub struct Resolver {
    rules: Rules,
    /// The start of the chunk in progress.
    start: u64,
    /// The end of all segments so far.
    end: u64,
    /// The hash of the chunk in progress, used while its first possible end positions are examined.
    hash: u64,
    /// The end of the chunk in progress, provided that more content follows.
    held: Option<u64>,
    /// The last bytes before `end`: the hash at the next position depends on them.
    tail: Vec<u8>,
}

impl Resolver {
    pub(super) fn new(rules: Rules, offset: u64) -> Resolver {
        Resolver { rules, start: offset, end: offset, hash: 0, held: None, tail: Vec::new() }
    }

    /// Takes the next segment with the candidates that [`Cutter::scan`](super::Cutter::scan) found
    /// in it, and appends to `ends` the ends of all chunks that are now certain.
    ///
    /// Ends are positions in the run, counted like the first segment's `offset`; each end is also
    /// the start of the next chunk. If `found` is [`Candidates::default`], this call searches for
    /// the candidates itself. An empty segment changes nothing.
    pub fn push(&mut self, segment: &[u8], found: &Candidates, ends: &mut Vec<u64>) {
        if segment.is_empty() {
            return;
        }
        let base = self.end;
        self.end += segment.len() as u64;
        match self.rules.clone() {
            Rules::Gear(rules) => self.push_gear(&rules, segment, base, found, ends),
            Rules::Fixed(bytes) => {
                while (self.start / bytes + 1) * bytes <= self.end {
                    self.cut((self.start / bytes + 1) * bytes, ends);
                }
            }
        }
    }

    fn push_gear(
        &mut self,
        rules: &GearRules,
        segment: &[u8],
        base: u64,
        found: &Candidates,
        ends: &mut Vec<u64>,
    ) {
        if let Some(place) = self.held.take() {
            self.cut(place, ends);
        }
        let tail = std::mem::take(&mut self.tail);
        let mut search = Search::new(rules, &tail, segment, base, found);
        loop {
            match search.chunk_end(self.start, &mut self.hash) {
                Outcome::Cut(place) => self.cut(place, ends),
                Outcome::Held(place) => {
                    self.held = Some(place);
                    break;
                }
                Outcome::Open => break,
            }
        }
        self.tail = tail;
        self.tail.extend_from_slice(&segment[segment.len().saturating_sub(WINDOW)..]);
        self.tail.drain(..self.tail.len().saturating_sub(WINDOW));
    }

    fn cut(&mut self, place: u64, ends: &mut Vec<u64>) {
        ends.push(place);
        self.start = place;
        self.hash = 0;
    }

    /// The start of the chunk in progress: content from this position on is not cut yet.
    pub fn chunk_start(&self) -> u64 {
        self.start
    }

    /// Ends the run. Returns the end of its last chunk, or `None` when no content follows the last
    /// cut.
    pub fn finish(self) -> Option<u64> {
        (self.start < self.end).then_some(self.end)
    }
}
