//! Marking: finds the rows of the index that some snapshots need.
//!
//! Trees are followed from their roots; a page is visited only once, so snapshots that share most
//! of their trees cost little more than one. Content chunks are looked up in large sorted batches,
//! so that each batch reads each page of the index at most once. Marking uses two bits of memory
//! per row, and one batch per thread.
//!
//! Invariants: a page that cannot be read ends the marking, since everything below it is unknown;
//! optional roots, which may fail, are marked after all others, because otherwise a subtree that
//! was only partly followed would count as marked.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::store::index::{Index, Pack, Rows};
use crate::store::packs::{ChunkReader, PackReader, missing_chunk};
use crate::store::tree::{Follow, follow};
use crate::store::{Store, page_copies};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Monitor;
use pinstripe_io::pool::each;
use pinstripe_member::record::ChunkRow;
use pinstripe_member::snapshot::TreeRoot;

/// The number of content chunks that are looked up together: 8 MiB of ids.
const BATCH_IDS: usize = 256 << 10;

/// Trees that are marked as far as they can be read.
pub(super) struct OptionalRoots {
    /// Roots of forgotten snapshots that can be undeleted: the chunks that they lack are counted.
    pub spared: Vec<Root>,
    /// Roots of interrupted backups, which are always incomplete.
    pub begun: Vec<Root>,
    /// Chunks that are known to be lost: nothing needs them any more, and pages among them are not
    /// followed.
    pub given_up: HashSet<ChunkId>,
}

/// The root of a tree, with a description of its owner for messages.
#[derive(Debug, Clone)]
pub(super) struct Root {
    pub whose: String,
    pub tree: TreeRoot,
}

/// One bit per row, set by many threads.
pub(super) struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(count: u64) -> Self {
        Bits((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Sets a bit; returns `true` if the bit was not set before.
    fn set(&self, at: u64) -> bool {
        let mask = 1 << (at % 64);
        self.0[(at / 64) as usize].fetch_or(mask, Ordering::Relaxed) & mask == 0
    }

    pub fn has(&self, at: u64) -> bool {
        self.0[(at / 64) as usize].load(Ordering::Relaxed) >> (at % 64) & 1 == 1
    }
}

/// The marks.
pub(super) struct Marked {
    /// Rows of needed chunks: all rows of each chunk.
    pub needed: Bits,
    /// At least one row of each needed page, node and content list.
    pub pages: Bits,
    /// The number of packs that should have a copy of each needed page.
    pub page_copies: usize,
    /// Content chunks without a readable copy in any pack.
    pub missing: u64,
    /// The number of missing content chunks and unreadable trees that only spared optional roots
    /// need.
    pub lacking: u64,
    /// Chunks that nothing needs any more although snapshots refer to them.
    pub given_up: HashSet<ChunkId>,
    /// A page was given up, so it is unknown what is needed below it: every chunk counts as needed.
    pub needs_all: bool,
}

impl Marked {
    /// Returns the number of packs that should have a chunk, judged by one of its rows.
    pub(crate) fn copies_of(&self, id: &ChunkId, row: u64) -> usize {
        if self.given_up.contains(id) {
            return 0;
        }
        match (self.needed.has(row), self.pages.has(row)) {
            (_, true) => self.page_copies,
            (true, false) => 1,
            (false, false) => usize::from(self.needs_all),
        }
    }
}

/// Returns the error for a tree that cannot be read, so that the chunks that it needs are unknown.
fn unknown_below(error: Error) -> Error {
    if !matches!(error.kind(), Kind::NotFound | Kind::Corrupt | Kind::TooManyLosses) {
        return error;
    }
    let what = format!(
        "the tree of this snapshot cannot be read, so the data that it needs is unknown: {error}"
    );
    Error::new(Kind::Refused, what).advice(
        "run 'pinstripe check' to see what else is affected; 'pinstripe forget' removes the \
         snapshot",
    )
}

/// Marks what `roots` need, and then what `optional` roots need, as far as these can be read.
///
/// # Errors
/// Fails with [`Kind::Refused`] when a tree of `roots` cannot be read, or when a page of the index
/// cannot be read.
pub(super) fn mark(
    store: &Store,
    index: &Index<'_>,
    rows: &Rows<'_>,
    roots: &[Root],
    optional: &OptionalRoots,
    threads: usize,
    monitor: &Monitor,
) -> Result<Marked> {
    let shared = MarkShared {
        rows,
        needed: Bits::new(rows.count()),
        entered: Bits::new(rows.count()),
        missing: AtomicU64::new(0),
        given_up: &optional.given_up,
        needs_all: AtomicBool::new(false),
    };
    let packs = PackReader::new(store, monitor);
    let walk = |root: &Root| {
        let chunks = ChunkReader::new(&packs, index);
        let mut walk = Walk { shared: &shared, chunks, content: Vec::new() };
        let entered = follow(&root.tree, &mut walk);
        walk.look_up()?;
        entered.map_err(|error| unknown_below(error).at(&root.whose))
    };
    each(threads, roots, walk)?;
    let missing = shared.missing.load(Ordering::Relaxed);
    let unread = optional.spared.iter().filter(|hope| walk(hope).is_err()).count() as u64;
    let lacking = shared.missing.load(Ordering::Relaxed) - missing + unread;
    for begun in &optional.begun {
        // Nothing needs it; the next backup may resume from it.
        let _ = walk(begun);
    }
    Ok(Marked {
        needed: shared.needed,
        pages: shared.entered,
        page_copies: page_copies(store.config.parity),
        missing,
        lacking,
        given_up: optional.given_up.clone(),
        needs_all: shared.needs_all.into_inner(),
    })
}

struct MarkShared<'r> {
    rows: &'r Rows<'r>,
    needed: Bits,
    entered: Bits,
    missing: AtomicU64,
    given_up: &'r HashSet<ChunkId>,
    needs_all: AtomicBool,
}

struct Walk<'r> {
    shared: &'r MarkShared<'r>,
    chunks: ChunkReader<'r>,
    content: Vec<ChunkId>,
}

impl Follow for Walk<'_> {
    fn page(&mut self, id: &ChunkId, _: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.shared.given_up.contains(id) {
            self.shared.needs_all.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        match self.enter(id)? {
            true => self.chunks.read(id).map(Some),
            false => Ok(None),
        }
    }

    fn content(&mut self, _: &[u8], rows: Vec<ChunkRow>) -> Result<()> {
        self.content.extend(rows.iter().map(|row| row.id));
        if self.content.len() >= BATCH_IDS { self.look_up() } else { Ok(()) }
    }
}

impl Walk<'_> {
    /// Marks a page; returns whether it must be read now.
    fn enter(&self, id: &ChunkId) -> Result<bool> {
        let (mut is_known, mut is_first) = (false, false);
        self.shared.rows.find_many(std::slice::from_ref(id), &mut |_, row, _| {
            self.shared.needed.set(row);
            is_first |= !is_known && self.shared.entered.set(row);
            is_known = true;
        })?;
        if is_known { Ok(is_first) } else { Err(missing_chunk(id)) }
    }

    fn look_up(&mut self) -> Result<()> {
        self.content.sort_unstable();
        self.content.dedup();
        let mut known = vec![false; self.content.len()];
        let rows = self.shared.rows;
        rows.find_many(&self.content, &mut |at, row, place| {
            self.shared.needed.set(row);
            known[at] |= rows.pack(place.record.pack).is_some_and(Pack::is_readable);
        })?;
        let missing = known.iter().filter(|known| !**known).count();
        self.shared.missing.fetch_add(missing as u64, Ordering::Relaxed);
        self.content.clear();
        Ok(())
    }
}
