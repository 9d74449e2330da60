//! The batches of the walk: entries are packed in runs, so that no entry has an allocation of its
//! own.
//!
//! The paths of the entries that one task found are concatenated in one buffer, their metadata in
//! another; a run is a range of these entries, and a batch is a list of runs. A path vector per
//! entry was measured instead: it took 1.5 times the user time on one thread, and more on several,
//! because one thread frees what another allocated.

use std::ops::Range;
use std::sync::Arc;

use pinstripe_base::error::Error;
use pinstripe_member::meta::Stat;

/// The memory of one entry without its path.
pub(super) const ENTRY_BYTES: usize = size_of::<BatchEntry>();

/// One item of the stream.
#[derive(Debug, Clone, Copy)]
pub enum WalkItem<'a> {
    /// An entry.
    Found(FoundEntry<'a>),
    /// A gap: an entry that could not be read or, directly after a directory's entry, a directory
    /// that could not be listed.
    Trouble(Trouble<'a>),
}

/// One entry of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundEntry<'a> {
    /// The path below the root, without a leading slash; empty for the root itself.
    pub path: &'a [u8],
    /// The metadata.
    pub stat: &'a Stat,
}

/// An entry or directory that could not be read. The walk continued without this entry.
#[derive(Debug, Clone, Copy)]
pub struct Trouble<'a> {
    /// The path, as in [`FoundEntry`].
    pub path: &'a [u8],
    /// The error, with the absolute path as its place.
    /// The error is [`Changed`](pinstripe_base::error::Kind::Changed) when the entry vanished or
    /// was replaced in the meantime, as happens on a tree in use.
    pub error: &'a Error,
}

impl<'a> WalkItem<'a> {
    /// The path below the root.
    pub fn path(&self) -> &'a [u8] {
        match self {
            WalkItem::Found(found) => found.path,
            WalkItem::Trouble(trouble) => trouble.path,
        }
    }
}

/// Consecutive items in path order.
#[derive(Debug, Default)]
pub struct EntryBatch {
    runs: Vec<Run>,
    items: usize,
}

impl EntryBatch {
    /// The items in path order.
    pub fn iter(&self) -> impl Iterator<Item = WalkItem<'_>> {
        self.runs.iter().flat_map(|run| run.range.clone().map(|index| run.entries.item(index)))
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items
    }

    /// Whether there are no items, which is never the case in a batch from a walker.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    pub(super) fn push(&mut self, run: Run) {
        self.items += run.range.len();
        self.runs.push(run);
    }
}

/// The entries that one task of the walk found.
#[derive(Debug, Default)]
pub(super) struct Entries {
    paths: Vec<u8>,
    entries: Vec<BatchEntry>,
}

#[derive(Debug)]
struct BatchEntry {
    path_end: usize,
    seen: Result<Stat, Error>,
}

impl Entries {
    pub fn push(&mut self, path: &[u8], seen: Result<Stat, Error>) {
        self.paths.extend_from_slice(path);
        self.entries.push(BatchEntry { path_end: self.paths.len(), seen });
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Moves the content to buffers of the exact size and keeps the large ones for the next task.
    pub(crate) fn take_exact(&mut self) -> Entries {
        let paths = self.paths.as_slice().to_vec();
        self.paths.clear();
        let mut entries = Vec::with_capacity(self.entries.len());
        entries.append(&mut self.entries);
        Entries { paths, entries }
    }

    fn path_begin(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.entries[before].path_end)
    }

    fn item(&self, index: usize) -> WalkItem<'_> {
        let BatchEntry { path_end, seen } = &self.entries[index];
        let path = &self.paths[self.path_begin(index)..*path_end];
        match seen {
            Ok(stat) => WalkItem::Found(FoundEntry { path, stat }),
            Err(error) => WalkItem::Trouble(Trouble { path, error }),
        }
    }
}

/// A range of a task's entries without a further task between them.
#[derive(Debug)]
pub(super) struct Run {
    entries: Arc<Entries>,
    range: Range<usize>,
}

impl Run {
    /// Makes a run of a range that must not be empty.
    pub fn new(entries: Arc<Entries>, range: Range<usize>) -> Self {
        Run { entries, range }
    }

    /// Returns the memory that the run takes.
    pub fn bytes(&self) -> usize {
        let Range { start, end } = self.range;
        let paths = self.entries.path_begin(end) - self.entries.path_begin(start);
        paths + self.range.len() * ENTRY_BYTES
    }
}
