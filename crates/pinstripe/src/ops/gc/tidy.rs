//! Cleans up after a deletion: index runs that list deleted packs, objects that members bring back
//! after an absence, and finally the tombstones themselves.
//!
//! Invariant: a tombstone is removed only when all members are present, nothing on them is listed
//! in it, no index run lists its packs, and no writer is running that might write such a run.

use std::collections::{BTreeSet, HashSet};

use super::settle::remove_ended;
use super::{Collector, GcOutcome};
use crate::store::deletion;
use crate::store::index::{Index, drop_superseded, sets_spoken_of};
use crate::store::objects::Quorum;
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::{CondemnationId, SetId, SnapshotId};
use pinstripe_member::forgotten::Mark;
use pinstripe_member::gc::Lists;
use pinstripe_member::{ExtentKind, ExtentName};

/// The number of times that merging is tried if other writers are faster.
const MERGE_TRIES: usize = 4;

/// Tidies up. `earlier` are the condemnations that were carried out before this gc began.
///
/// # Errors
/// Fails with the errors of the members; the next gc tries everything again.
pub(super) fn run(
    gc: &Collector<'_>,
    earlier: &BTreeSet<CondemnationId>,
    outcome: &mut GcOutcome,
) -> Result<()> {
    outcome.ended_sessions += remove_ended(gc)?;
    outcome.stale_objects += remove_stale(gc)?;
    forget_in_index(gc)?;
    remove_tombstones(gc, earlier)
}

/// Removes objects that tombstones list but members still have, or have again.
fn remove_stale(gc: &Collector<'_>) -> Result<u64> {
    let cases = deletion::load(gc.store, Quorum::Deletion)?;
    let packs: HashSet<[u8; 16]> = cases.dead_packs().into_iter().map(|set| set.0).collect();
    let snapshots: HashSet<[u8; 16]> = cases.dead_snapshots().into_iter().map(|id| id.0).collect();
    let mut removed = 0;
    for (kind, dead) in [(ExtentKind::Packs, packs), (ExtentKind::Snapshots, snapshots)] {
        for (_, member) in gc.store.present().filter(|_| !dead.is_empty()) {
            let before = removed;
            // Objects on a member that cannot be listed are removed by a later gc: the tombstone
            // stays.
            let listed = member.list(kind).unwrap_or_default();
            let mut stale = listed.into_iter().filter(|(id, _)| dead.contains(id));
            let deleted = stale.try_for_each(|(id, _)| {
                member.delete(ExtentName::In(kind, id))?;
                removed += 1;
                Ok(())
            });
            let synced =
                deleted.and_then(|()| if removed > before { member.sync() } else { Ok(()) });
            gc.store.or_without(member, synced)?;
        }
    }
    Ok(removed)
}

/// Merges index runs that list deleted packs, so that no run lists them any more.
fn forget_in_index(gc: &Collector<'_>) -> Result<()> {
    drop_superseded(gc.store, Some(gc.session.session.id))?;
    let index = Index::load(gc.store, gc.monitor)?;
    for _ in 0..MERGE_TRIES {
        // Runs that were left unfinished are completed on the way.
        let Some(merge) = index.plan_forgetting().or_else(|| index.plan_loose()) else { break };
        match index.merge(merge, &|| false) {
            Ok(_) => {}
            // Too few members, or no room: an index is derived, so it may stay larger than needed.
            Err(error) if matches!(error.kind(), Kind::TooManyLosses | Kind::NoSpace) => break,
            Err(error) => return Err(error),
        }
        index.refresh_packs()?;
    }
    // A run that another writer is sealing looks like an interrupted one.
    let is_quiet = gc.others_at_work()?.is_empty();
    if is_quiet && gc.store.absent().next().is_none() && index.has_unreadable_runs()? {
        // For example one that a returning member brought back after it was merged.
        index.repair()?;
    }
    index.remove_redundant()
}

fn remove_tombstones(gc: &Collector<'_>, earlier: &BTreeSet<CondemnationId>) -> Result<()> {
    let store = gc.store;
    let is_quiet = gc.others_at_work()?.is_empty();
    if earlier.is_empty() || !is_quiet || store.absent().next().is_some() {
        return Ok(());
    }
    let mut named: HashSet<SetId> = HashSet::new();
    for (_, packs) in sets_spoken_of(store)? {
        match packs {
            Ok(packs) => named.extend(packs.iter().map(|pack| pack.set)),
            // The packs that this run names are unknown, so any of them may still be named.
            Err(_) => return Ok(()),
        }
    }
    let mut snapshots: BTreeSet<SnapshotId> = BTreeSet::new();
    for (_, member) in store.present() {
        // A member that cannot be listed may have anything.
        let Ok(packs) = member.names(ExtentKind::Packs) else { return Ok(()) };
        let Ok(listed) = member.names(ExtentKind::Snapshots) else { return Ok(()) };
        named.extend(packs.into_iter().map(SetId));
        snapshots.extend(listed.into_iter().map(SnapshotId));
    }
    for (id, case) in deletion::load(store, Quorum::Deletion)?.0 {
        let Some(lists) = case.tombstone.filter(|_| earlier.contains(&id)) else { continue };
        let is_there = |(id, _): &(SnapshotId, u32)| snapshots.contains(id);
        if lists.packs.iter().any(|set| named.contains(set)) || lists.snapshots.iter().any(is_there)
        {
            continue;
        }
        remove_marks(gc, &lists)?;
        deletion::remove_tombstone(store, id)?;
    }
    Ok(())
}

/// Durably removes the marks of snapshots that no longer exist anywhere: a mark that is left after
/// its tombstone would never be removed.
fn remove_marks(gc: &Collector<'_>, lists: &Lists) -> Result<()> {
    for &(snapshot, last) in &lists.snapshots {
        for generation in 1..=last {
            let mark = Mark { store: gc.store.config.store, snapshot, generation };
            gc.store.drop_all(ExtentName::In(ExtentKind::Forgotten, mark.name()))?;
        }
    }
    gc.store.sync_all()
}
