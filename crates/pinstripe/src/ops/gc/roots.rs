//! The roots: everything that must be kept, read in an order in which no snapshot can be missed.

use std::collections::{BTreeMap, BTreeSet};

use super::at_work::sessions_at_work;
use super::mark::Root;
use crate::store::deletion::{Cases, decide};
use crate::store::forgotten::{self, Marks};
use crate::store::index::Index;
use crate::store::objects::{Belief, Quorum};
use crate::store::{Store, checkpoints, deletion, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SessionId, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentKind;
use pinstripe_member::snapshot::TreeRoot;

/// The names of all snapshots that exist or existed: a backup whose snapshot has one of these names
/// is finished, or cannot be finished any more.
///
/// # Errors
/// Fails with the errors of [`Store::names`].
pub(super) fn names(store: &Store) -> Result<BTreeSet<SnapshotId>> {
    let names = store.names(ExtentKind::Snapshots, Quorum::Deletion)?;
    let mut names: BTreeSet<_> = names.into_iter().map(SnapshotId).collect();
    names.extend(deletion::load(store, Quorum::Deletion)?.dead_snapshots());
    Ok(names)
}

/// The state of the store at about one moment.
pub(super) struct StoreObservation {
    marks: Marks,
    /// Every snapshot that is not deleted, with its tree; `None` for a snapshot that cannot be
    /// read.
    snapshots: BTreeMap<SnapshotId, Option<TreeRoot>>,
    /// Snapshots that must be kept.
    pub roots: BTreeSet<SnapshotId>,
    /// All condemnations.
    pub cases: Cases,
    /// Snapshots that a member brought back after they were deleted.
    pub returned: Vec<SnapshotId>,
}

impl StoreObservation {
    /// Reads sessions, marks, sessions again, snapshots and condemnations, in this order.
    /// Condemnations are read after the snapshots, since a tombstone lists by then what was
    /// deleted. The snapshots in `forgotten` count as forgotten, for a dry run.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::objects`] and [`deletion::load`], or with [`Kind::Locked`]
    /// without the key.
    pub fn read(store: &Store, own: Option<SessionId>, forgotten: &[SnapshotId]) -> Result<Self> {
        let mut sessions = sessions_at_work(store, own)?;
        let mut marks = forgotten::load(store, Quorum::Deletion)?;
        forgotten.iter().for_each(|id| marks.count_as_forgotten(*id));
        sessions.extend(sessions_at_work(store, own)?);
        let mut snapshots = snapshots(store)?;
        let cases = deletion::load(store, Quorum::Deletion)?;
        let dead = cases.dead_snapshots();
        snapshots.retain(|id, _| !dead.contains(id));
        let ids = snapshots.keys().copied().collect();
        let roots = decide::roots(&marks, &sessions, &ids);
        Ok(StoreObservation { marks, snapshots, roots, cases, returned: Vec::new() })
    }

    /// Removes snapshots whose tree is gone and whose deletion is reported by too few members to be
    /// believed. A snapshot whose tree still exists is kept: the members that report its deletion
    /// may be malicious.
    ///
    /// # Errors
    /// Fails with the errors of the index.
    pub(crate) fn leave_out_returned(&mut self, index: &Index<'_>) -> Result<()> {
        for id in self.cases.snapshots_dead_by_few() {
            let Some(Some(tree)) = self.snapshots.get(&id) else { continue };
            if index.find(&tree.id)?.is_none() {
                self.snapshots.remove(&id);
                self.roots.remove(&id);
                self.returned.push(id);
            }
        }
        Ok(())
    }

    /// The trees of the roots.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when a tree cannot be read: the chunks that it needs are
    /// unknown.
    pub fn trees(&self) -> Result<Vec<Root>> {
        let tree = |id: &SnapshotId| {
            let whose = format!("snapshot {}", id.short());
            let tree = self.snapshots.get(id).cloned().flatten().ok_or_else(|| {
                Error::new(
                    Kind::Refused,
                    "no member has an intact copy of this snapshot, so the data that it needs is \
                     unknown",
                )
                .at(&whose)
                .advice(format!(
                    "run 'pinstripe repair', or remove the snapshot with 'pinstripe forget {id}'"
                ))
            })?;
            Ok(Root { whose, tree })
        };
        self.roots.iter().map(tree).collect()
    }

    /// Returns the trees of the snapshots that are not roots, as far as they can be read.
    pub(crate) fn forgotten_trees(&self) -> Vec<Root> {
        let forgotten = self.snapshots.iter().filter(|(id, _)| !self.roots.contains(id));
        let tree = |(id, tree): (&SnapshotId, &Option<TreeRoot>)| {
            let whose = format!("forgotten snapshot {}", id.short());
            tree.map(|tree| Root { whose, tree })
        };
        forgotten.filter_map(tree).collect()
    }

    /// Returns the snapshots that may be deleted, with their marks.
    pub fn doomed(&self) -> Vec<(SnapshotId, u32)> {
        let ids = self.snapshots.keys().copied().collect();
        decide::doomed(&self.marks, &self.roots, &ids)
    }
}

/// All snapshots, including deleted ones that have reappeared.
fn snapshots(store: &Store) -> Result<BTreeMap<SnapshotId, Option<TreeRoot>>> {
    let found =
        store.objects(ExtentKind::Snapshots, Quorum::Deletion, Belief::One, |name, bytes| {
            let snapshot = snapshots::open(store, bytes)?;
            if snapshot.id.0 != name || snapshot.store != store.config.store {
                return Err(Error::new(
                    Kind::Corrupt,
                    "the content of this snapshot object does not match its name",
                ));
            }
            checkpoints::refuse(&snapshot)?;
            Ok(snapshot.root)
        })?;
    let mut snapshots: BTreeMap<_, _> =
        found.sound.into_iter().map(|(id, tree)| (SnapshotId(id), Some(tree))).collect();
    for (name, error) in found.unsound {
        let pinstripe_member::ExtentName::In(_, id) = name else { continue };
        if error.kind().is_about_keys() {
            return Err(error);
        }
        if !snapshots::is_void(store, SnapshotId(id)) {
            snapshots.insert(SnapshotId(id), None);
        }
    }
    Ok(snapshots)
}

/// The trees of interrupted backups: they are kept so that the backups can be resumed, but never
/// trusted to be complete.
pub(super) fn interrupted(store: &Store, monitor: &Monitor) -> Vec<Root> {
    let found = checkpoints::load(store, monitor).unwrap_or_default();
    let root = |tree| Root { whose: "interrupted backup".to_owned(), tree };
    found.into_iter().map(|(_, checkpoint)| root(checkpoint.root)).collect()
}
