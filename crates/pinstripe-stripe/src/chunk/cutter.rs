//! A store's chunking rules in working form: it cuts content in memory, and scans segments of a run
//! for cut candidates. The conditions for a cut are in `search`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pinstripe_kernel::gear::{CutCandidate, Gear, Masks};

use super::search::{Outcome, Search};
use super::{Chunking, Resolver};
use pinstripe_base::error::Result;
use pinstripe_member::keys::GearKey;
use pinstripe_member::label::Chunker;

/// The number of bytes scanned in one call: long enough for the scan kernel to be fast.
const BLOCK_BYTES: usize = 64 << 10;
/// A scan stops when it finds more than one candidate per this many bytes, so that its memory stays
/// a fraction of the content's. Content normally has one candidate per several thousand bytes; only
/// a short repeated pattern can have more, if its hash happens to meet a condition.
const BYTES_PER_CANDIDATE: usize = 128;

/// Cuts content by the rules of one store. A clone is cheap and shares the tables.
#[derive(Clone)]
pub struct Cutter {
    chunking: Chunking,
    rules: Rules,
}

#[derive(Clone)]
pub(super) enum Rules {
    /// The length of chunks, in bytes.
    Fixed(u64),
    Gear(Arc<GearRules>),
}

/// The parameters of content-defined chunking.
pub(super) struct GearRules {
    pub(super) gear: Gear,
    pub(super) masks: Masks,
    pub(super) min: u64,
    pub(super) avg: u64,
    pub(super) max: u64,
}

/// Positions in one segment where chunks may end, as [`Cutter::scan`] found them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// The candidates in order of position, counted from the beginning of the run.
    pub(super) list: Vec<CutCandidate>,
    /// The list has every candidate of the segment below this position; the resolver searches the
    /// rest of the segment. An empty list with 0 here is always correct, but slow.
    pub(super) through: u64,
}

impl Cutter {
    /// Makes a cutter for `chunking`. `seed` is the store's secret: it moves all content-defined
    /// cuts, so that lengths of chunks reveal less about known content. 0 gives the cuts of plain
    /// FastCDC.
    ///
    /// # Errors
    /// Fails with the errors of [`Chunking::validate`].
    pub fn new(chunking: Chunking, seed: u64) -> Result<Cutter> {
        Self::with_gear(chunking, Gear::new(seed))
    }

    /// Makes a cutter for a store: with the store's own gear table, or with the one that all stores
    /// share.
    ///
    /// # Errors
    /// Fails with the errors of [`Chunking::validate`].
    pub fn for_store(chunking: Chunking, chunker: Chunker, key: &GearKey) -> Result<Cutter> {
        match (chunker, key) {
            (Chunker::Plain, _) => Self::new(chunking, 0),
            (Chunker::Keyed, GearKey::Seed(seed)) => Self::new(chunking, *seed),
            (Chunker::Keyed, GearKey::Table(_)) => {
                Self::with_gear(chunking, Gear::of_table(&key.table()))
            }
        }
    }

    fn with_gear(chunking: Chunking, gear: Gear) -> Result<Cutter> {
        chunking.validate()?;
        let rules = match chunking {
            Chunking::Fixed { bytes } => Rules::Fixed(u64::from(bytes)),
            Chunking::ContentDefined { min, avg, max } => {
                let masks = Masks::for_average(avg).expect("a valid average has masks");
                let [min, avg, max] = [min, avg, max].map(u64::from);
                Rules::Gear(Arc::new(GearRules { gear, masks, min, avg, max }))
            }
        };
        Ok(Cutter { chunking, rules })
    }

    /// The chunking that this cutter was made for.
    pub fn chunking(&self) -> Chunking {
        self.chunking
    }

    /// The least number of bytes of every chunk except the last of a run (with fixed chunks: except
    /// the first and the last).
    pub(crate) fn min_bytes(&self) -> usize {
        match self.chunking {
            Chunking::Fixed { bytes } => bytes as usize,
            Chunking::ContentDefined { min, .. } => min as usize,
        }
    }

    /// No chunk has more bytes than this.
    pub fn max_bytes(&self) -> usize {
        match self.chunking {
            Chunking::Fixed { bytes } => bytes as usize,
            Chunking::ContentDefined { max, .. } => max as usize,
        }
    }

    /// Whether a run at this range of its file is a single chunk, whatever its content.
    pub fn is_one_chunk(&self, run: &Range<u64>) -> bool {
        match self.chunking {
            Chunking::Fixed { bytes } => {
                let bytes = u64::from(bytes);
                !run.is_empty() && run.start / bytes == (run.end - 1) / bytes
            }
            Chunking::ContentDefined { min, .. } => {
                !run.is_empty() && run.end - run.start <= u64::from(min)
            }
        }
    }

    /// Returns the length of the first chunk of `data`, if `data` begins at byte `offset` of its
    /// file; 0 only when `data` is empty. Scans no further than necessary.
    ///
    /// `last` says that the run ends with `data`; otherwise `data` must have
    /// [`max_bytes`](Cutter::max_bytes) or more.
    pub fn next_cut(&self, offset: u64, data: &[u8], last: bool) -> usize {
        debug_assert!(last || data.len() >= self.max_bytes());
        let len = data.len().min(self.max_bytes());
        match &self.rules {
            Rules::Fixed(bytes) => len.min((bytes - offset % bytes) as usize),
            Rules::Gear(rules) if len > self.min_bytes() => {
                let nothing = Candidates::default();
                match Search::new(rules, &[], &data[..len], 0, &nothing).chunk_end(0, &mut 0) {
                    Outcome::Cut(end) => end as usize,
                    Outcome::Held(_) | Outcome::Open => len,
                }
            }
            Rules::Gear(_) => len,
        }
    }

    /// Finds the positions where chunks may end in one segment of a run; the result does not depend
    /// on other segments, and many threads may scan at once.
    ///
    /// `base` is the position of `data[0]`; `before` is the part of the run before `data`: only its
    /// last 64 bytes matter, and it may be shorter only if the run has no more.
    pub fn scan(&self, before: &[u8], data: &[u8], base: u64) -> Candidates {
        let mut found = Candidates::default();
        let Rules::Gear(rules) = &self.rules else {
            return found;
        };
        let most = data.len() / BYTES_PER_CANDIDATE;
        let mut at = 0;
        while at < data.len() && found.list.len() <= most {
            let end = data.len().min(at + BLOCK_BYTES);
            let before = if at == 0 { before } else { &data[..at] };
            rules.gear.scan(rules.masks, before, &data[at..end], base + at as u64, &mut found.list);
            at = end;
        }
        found.through = base + at as u64;
        found
    }

    /// Begins to cut a run that starts at byte `offset` of its file; the run is then given in
    /// segments.
    pub fn resolver(&self, offset: u64) -> Resolver {
        Resolver::new(self.rules.clone(), offset)
    }
}

impl fmt::Debug for Cutter {
    /// Leaves out the tables, because they reveal the seed, and the seed is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cutter").field("chunking", &self.chunking).finish_non_exhaustive()
    }
}
