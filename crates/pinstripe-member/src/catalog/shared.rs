//! A catalog that several hosts share, as the store sees it.

use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;

use super::query::{Query, SnapshotSeries};
use super::rows::{Change, Facts};
use crate::snapshot::{Snapshot, TreeRoot};

/// Takes in the changes of one snapshot, in path order. Nothing counts before
/// [`finish`](Self::finish); an unfinished intake that is dropped leaves no trace.
pub trait ChangeSink {
    /// Takes in some changes.
    ///
    /// # Errors
    /// Fails when the catalog cannot be written.
    fn write(&mut self, changes: &[Change]) -> Result<()>;

    /// Makes the snapshot the head of its series. Returns the number of versions that it added.
    ///
    /// # Errors
    /// Fails when the catalog cannot be written.
    fn finish(self: Box<Self>) -> Result<u64>;
}

/// The head of a series in a shared catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedHead {
    /// The snapshot.
    pub id: SnapshotId,
    /// Its tree.
    pub root: TreeRoot,
}

/// How a shared catalog differs from the snapshots of a store, as far as the caller may change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotSync {
    /// Snapshots of the store that the catalog lacks and the caller may send.
    pub missing: Vec<SnapshotId>,
    /// Snapshots of the store that the catalog lacks and only another host or an administrator may
    /// send.
    pub of_others: Vec<SnapshotId>,
    /// Snapshots that only the catalog has, and that the caller may remove from it.
    pub gone: Vec<SnapshotId>,
}

/// The size of a shared catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CatalogSize {
    /// Snapshots.
    pub snapshots: u64,
    /// SnapshotSeries.
    pub series: u64,
    /// Versions of paths, about.
    pub versions: u64,
    /// Bytes of the database.
    pub bytes: u64,
}

/// What a shared catalog is asked.
#[derive(Debug, Clone)]
pub enum CatalogQuestion {
    /// The versions that match.
    Find(Query),
    /// All versions of one path.
    History(Vec<u8>),
    /// The versions that one of these two snapshots has and the other has not. The answer has no
    /// series if the snapshots are not of one series.
    Diff(SnapshotId, SnapshotId),
    /// All snapshots.
    Snapshots,
}

/// A row of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRow {
    /// The position of the series among those of the answer.
    pub series: usize,
    /// The path.
    pub path: Vec<u8>,
    /// What the catalog stores of the version.
    pub facts: Facts,
    /// The first ordinal that holds the version.
    pub first: i64,
    /// The last ordinal; `None` when the head still holds the version.
    pub last: Option<i64>,
}

/// A part of an answer. SnapshotSeries come before the rows that name them.
#[derive(Debug)]
pub enum CatalogAnswer {
    /// All series of the answer.
    Series(Vec<SnapshotSeries>),
    /// A row.
    Row(AnswerRow),
    /// A snapshot.
    Snapshot(Box<Snapshot>),
}

/// A catalog of a store that several hosts share. All methods have deadlines.
pub trait SharedCatalog: Send + Sync {
    /// Compares the catalog with the snapshots that the store lists.
    ///
    /// # Errors
    /// Fails when the catalog does not answer; with
    /// [`Kind::NotAllowed`](pinstripe_base::error::Kind::NotAllowed) when `all_hosts` is set and
    /// the caller may not see the snapshots of other hosts.
    fn compare(&self, listed: &[SnapshotId], all_hosts: bool) -> Result<SnapshotSync>;

    /// The head of the series to which a snapshot belongs, if there is one.
    ///
    /// # Errors
    /// Fails when the catalog does not answer.
    fn head(&self, snapshot: &Snapshot) -> Result<Option<SharedHead>>;

    /// Begins to take in a snapshot, as the next one after `base` or as the first of a new series.
    ///
    /// # Errors
    /// Fails when the catalog does not answer.
    fn take_in(
        &self,
        snapshot: &Snapshot,
        base: Option<SnapshotId>,
    ) -> Result<Box<dyn ChangeSink + '_>>;

    /// Removes snapshots that the store does not have any more. Returns how many were removed.
    ///
    /// # Errors
    /// Fails when the catalog does not answer or the caller may not remove them.
    fn let_go(&self, gone: &[SnapshotId]) -> Result<u64>;

    /// Removes all snapshots that the caller may remove.
    ///
    /// # Errors
    /// Fails when the catalog does not answer.
    fn clear(&self) -> Result<u64>;

    /// The size of the catalog.
    ///
    /// # Errors
    /// Fails when the catalog does not answer.
    fn size(&self) -> Result<CatalogSize>;

    /// Passes the parts of the answer to a question to `take`.
    ///
    /// # Errors
    /// Fails with the errors of [`compare`](Self::compare) and of `take`.
    fn ask(
        &self,
        question: &CatalogQuestion,
        all_hosts: bool,
        take: &mut dyn FnMut(CatalogAnswer) -> Result<()>,
    ) -> Result<()>;
}
