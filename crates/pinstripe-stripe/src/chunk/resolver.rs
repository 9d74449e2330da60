//! Turns the segments of a run, in order, into the ends of its chunks.

use pinstripe_kernel::gear::WINDOW;

use super::cutter::{Candidates, GearRules, Rules};
use super::search::{Outcome, Search};

/// Knows how far a run has been cut. It keeps no content but the last few bytes, so a segment may
/// be dropped as soon as its chunks are done with; cheap as long as candidates come with the
/// segments.
pub struct Resolver {
    rules: Rules,
    /// The start of the chunk in progress.
    start: u64,
    /// The end of all segments so far.
    end: u64,
    /// The hash of the chunk in progress, while its first possible places are examined.
    hash: u64,
    /// The end of the chunk in progress, provided that there is more content.
    held: Option<u64>,
    /// The last bytes before `end`: the hash of the next place depends on them.
    tail: Vec<u8>,
}

impl Resolver {
    pub(super) fn new(rules: Rules, offset: u64) -> Resolver {
        Resolver { rules, start: offset, end: offset, hash: 0, held: None, tail: Vec::new() }
    }

    /// Takes the next segment with the candidates that [`Cutter::scan`](super::Cutter::scan) found
    /// in it, and appends the ends of all chunks that are certain now to `ends`.
    ///
    /// Ends are positions in the run, counted like the first segment's `offset`; each is also where
    /// the next chunk begins. With [`Candidates::default`], the candidates are searched here. Empty
    /// segments change nothing.
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

    /// The start of the chunk in progress: content from here on is not yet cut.
    pub fn chunk_start(&self) -> u64 {
        self.start
    }

    /// Says that the run has ended. Returns the end of its last chunk, `None` when there is nothing
    /// left since the last cut.
    pub fn finish(self) -> Option<u64> {
        (self.start < self.end).then_some(self.end)
    }
}
