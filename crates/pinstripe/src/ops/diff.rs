//! `diff`: the differences between two snapshots, by their trees alone.

use super::same_bytes::have_same_bytes;
use super::select::select;
use crate::store::Store;
use crate::store::choice::SnapshotName;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::{Difference, TreeDiff, TreeReader};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;

/// How a path differs between the two snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Only the second snapshot has the path.
    Added,
    /// Only the first snapshot has the path.
    Deleted,
    /// The path has another file type: for example, a file became a directory.
    Retyped,
    /// The path has other content or another target.
    Modified,
    /// The content is the same, but owner, mode, times or attributes differ.
    Metadata,
}

/// Totals of the differences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Paths that only the second snapshot has.
    pub added: u64,
    /// Paths that only the first snapshot has.
    pub deleted: u64,
    /// Paths with another file type.
    pub retyped: u64,
    /// Paths with other content.
    pub modified: u64,
    /// Paths whose metadata alone differ.
    pub metadata: u64,
    /// Bytes in files that only the second snapshot has, or whose content there differs.
    pub new_bytes: u64,
    /// Bytes in files that only the first snapshot has, or whose content there differs.
    pub old_bytes: u64,
}

/// Receives a difference: its kind, the old entry and the new entry.
pub type Show<'a> = dyn FnMut(Sort, Option<&Entry>, Option<&Entry>) -> Result<()> + 'a;

/// Passes every difference to `show`, in path order: its kind, then the old and the new entry, if
/// they exist.
///
/// # Errors
/// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is no such
/// snapshot, when the root of a tree cannot be read, or with the errors of `show`. A page that
/// cannot be read is a loss in the ledger, and the paths that it may have held are not compared.
pub fn run<'o, 'n>(
    store: &Store,
    old: impl Into<SnapshotName<'o>>,
    new: impl Into<SnapshotName<'n>>,
    monitor: &Monitor,
    show: &mut Show<'_>,
) -> Result<Totals> {
    let old = select(store, old.into(), b"", monitor)?.snapshot();
    let new = select(store, new.into(), b"", monitor)?.snapshot();
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let reader = || ChunkReader::new(&packs, &index);
    let mut diff = TreeDiff::new(Some((reader(), &old.root)), (reader(), &new.root))?;
    let mut lists = TreeReader::new(reader(), &new.root, b"")?;
    let mut totals = Totals::default();
    loop {
        let difference = match diff.next_difference() {
            Ok(Some(difference)) => difference,
            Ok(None) => return Ok(totals),
            Err(error) if error.kind() == Kind::TooManyLosses => {
                monitor.add(Counter::LostEntries, diff.lost_entries());
                monitor.loss("snapshots", error.advice(NOT_COMPARED));
                continue;
            }
            Err(error) => return Err(error),
        };
        let (old, new) = match &difference {
            Difference::Added(new) => (None, Some(&**new)),
            Difference::Removed(old) => (Some(&**old), None),
            Difference::Changed(old, new) => (Some(&**old), Some(&**new)),
        };
        let mut sort = sort(old, new);
        if let (Some(Sort::Modified), Some(one), Some(other)) = (sort, old, new)
            && one.extents != other.extents
            // A file that cannot be read counts as different.
            && have_same_bytes(&mut lists, reader, one, other).unwrap_or(false)
        {
            sort = (one.meta != other.meta).then_some(Sort::Metadata);
        }
        if let Some(sort) = sort {
            totals.count(sort, old, new);
            show(sort, old, new)?;
        }
    }
}

const NOT_COMPARED: &str = "the other snapshot was not compared under this path; 'pinstripe check \
                            --read-data' lists everything that is lost";

fn sort(old: Option<&Entry>, new: Option<&Entry>) -> Option<Sort> {
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) => (old, new),
        (None, _) => return Some(Sort::Added),
        (_, None) => return Some(Sort::Deleted),
    };
    if old.meta.kind != new.meta.kind {
        Some(Sort::Retyped)
    } else if old.meta.kind != FileKind::Directory && !old.holds_alike(new) {
        Some(Sort::Modified)
    } else {
        (old.meta != new.meta).then_some(Sort::Metadata)
    }
}

impl Totals {
    pub(super) fn count(&mut self, sort: Sort, old: Option<&Entry>, new: Option<&Entry>) {
        let bytes = |entry: Option<&Entry>| {
            entry.filter(|it| it.meta.kind == FileKind::File).map_or(0, |it| it.size)
        };
        match sort {
            Sort::Added => self.added += 1,
            Sort::Deleted => self.deleted += 1,
            Sort::Retyped => self.retyped += 1,
            Sort::Modified => self.modified += 1,
            Sort::Metadata => {
                self.metadata += 1;
                return;
            }
        }
        self.new_bytes += bytes(new);
        self.old_bytes += bytes(old);
    }
}
