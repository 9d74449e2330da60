//! The survey before any change: the existing packs, the needed packs, and those that may be
//! deleted.

use std::collections::HashSet;

use super::mark::OptionalRoots;
use super::roots::{self, StoreObservation};
use super::{GcOptions, GcOutcome, mark, usage};
use crate::pipeline::backup::EvacuatingPack;
use crate::store::Store;
use crate::store::deletion::decide;
use crate::store::index::{self, Index, Pack, standing_sets};
use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SessionId, SetId, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentKind;
use pinstripe_member::gc::{Lists, PACKS_MAX, SNAPSHOTS_MAX};

/// Which packs go.
pub(super) enum PackSelection {
    /// Packs that nothing needs, and those with the most waste until no more than this fraction is
    /// waste.
    Waste(f64),
    /// Delete exactly the packs in `sets`; nothing needs the chunks in `given_up`.
    These { sets: HashSet<SetId>, given_up: HashSet<ChunkId> },
}

impl PackSelection {
    /// Trees of forgotten snapshots that are kept for now: they can be undeleted until a gc deletes
    /// them.
    pub fn spared(&self, observed: &StoreObservation) -> Vec<mark::Root> {
        match self {
            PackSelection::Waste(_) => Vec::new(),
            PackSelection::These { .. } => observed.forgotten_trees(),
        }
    }

    /// Chunks that count as not needed.
    pub fn given_up(&self) -> HashSet<ChunkId> {
        match self {
            PackSelection::Waste(_) => HashSet::new(),
            PackSelection::These { given_up, .. } => given_up.clone(),
        }
    }
}

/// The findings before anything is done.
pub(super) struct Survey<'a> {
    pub index: Index<'a>,
    pub observed: StoreObservation,
    /// Packs that other processes have condemned or deleted.
    pub others: HashSet<SetId>,
    pub plan: decide::GcPlan,
    pub evacuating: Vec<EvacuatingPack>,
    /// Pages that lack a second copy.
    pub thin: Vec<ChunkId>,
    /// The approximate number of bytes to move.
    pub moved_bytes: u64,
    pub lists: Lists,
    pub missing: u64,
}

impl<'a> Survey<'a> {
    /// Surveys the store as if the snapshots in `forgotten` were forgotten too.
    pub fn take(
        store: &'a Store,
        own: Option<SessionId>,
        selection: &PackSelection,
        options: &GcOptions,
        forgotten: &[SnapshotId],
        monitor: &'a Monitor,
    ) -> Result<Self> {
        let mut observed = StoreObservation::read(store, own, forgotten)?;
        let others = observed.cases.lost_to_others(None);
        // After the roots: the chunks of a snapshot were in the index before it.
        let index = Index::load(store, monitor)?;
        observed.leave_out_returned(&index)?;
        let trees = observed.trees()?;
        let optional = OptionalRoots {
            spared: selection.spared(&observed),
            begun: roots::interrupted(store, monitor),
            given_up: selection.given_up(),
        };
        let threads = options.limits.workers;
        // While a member is absent, what seems to have no place may be there.
        let takers =
            store.absent().next().is_none().then(|| store.takers().iter().flatten().count());
        let is_short = |pack: &Pack| takers.is_some_and(|takers| pack.is_short_for(takers));
        let (plan, (evacuating, thin), moved_bytes, missing, lacking) =
            index.over_rows(|rows| {
                let marked = mark::mark(store, &index, rows, &trees, &optional, threads, monitor)?;
                let usages = usage::count(rows, &marked, &others, &is_short)?;
                let mut plan = match selection {
                    PackSelection::Waste(share) => usages.plan(*share),
                    PackSelection::These { sets, .. } => usages.plan_of(sets),
                };
                plan.repack.truncate(PACKS_MAX / 2);
                let evacuating = usage::evacuating(rows, &marked, &plan.repack, &others)?;
                let moved_bytes = usages.live_bytes(&plan.repack);
                Ok((plan, evacuating, moved_bytes, marked.missing, marked.lacking))
            })?;
        let mut packs: Vec<SetId> = plan.dead.iter().chain(&plan.repack).copied().collect();
        // A pack that no run names may hold what a snapshot lacks.
        if missing == 0 && lacking == 0 && store.absent().next().is_none() {
            let is_picked = |set: &SetId| match selection {
                PackSelection::Waste(_) => true,
                PackSelection::These { sets, .. } => sets.contains(set),
            };
            packs.extend(leftovers(store, &index)?.into_iter().filter(is_picked));
        }
        let mut snapshots = match selection {
            PackSelection::Waste(_) => observed.doomed(),
            PackSelection::These { .. } => Vec::new(),
        };
        snapshots.truncate(SNAPSHOTS_MAX);
        packs.truncate(PACKS_MAX);
        packs.sort_unstable();
        let lists = Lists { packs, snapshots, abandoned: Vec::new() };
        Ok(Survey { index, observed, others, plan, evacuating, thin, moved_bytes, lists, missing })
    }

    pub fn outcome(&self, store: &Store) -> GcOutcome {
        GcOutcome {
            kept_snapshots: self.observed.roots.len() as u64,
            deleted_snapshots: self.lists.snapshots.len() as u64,
            deleted_packs: self.lists.packs.len() as u64,
            deleted_bytes: bytes_of(store, &self.lists.packs),
            repacked_packs: self.evacuating.len() as u64,
            moved_bytes: self.moved_bytes,
            thin_pages: self.thin.len() as u64,
            kept_bytes: self.plan.kept_bytes,
            waste_bytes: self.plan.waste_bytes,
            missing_chunks: self.missing,
            ..GcOutcome::default()
        }
    }
}

/// Sets that the index does not know because they cannot be read: left by backups that were
/// interrupted while they sealed them, and possibly damaged since.
///
/// Leftovers are collected only if no snapshot lacks anything, so that nothing can need what these
/// sets held.
fn leftovers(store: &Store, index: &Index<'_>) -> Result<Vec<SetId>> {
    let packs = index.packs();
    let unknown = standing_sets(store, ExtentKind::Packs)?.into_iter();
    let unknown = unknown.filter(|(set, _)| packs.find(set).is_none());
    let is_leftover = |(set, members): &(SetId, Vec<usize>)| {
        index::is_leftover(store, *set, members) || index::is_beyond_reading(store, *set)
    };
    Ok(unknown.filter(is_leftover).map(|(set, _)| set).collect())
}

/// Returns the bytes that some packs take on the present members.
pub(super) fn bytes_of(store: &Store, packs: &[SetId]) -> u64 {
    let wanted: HashSet<[u8; 16]> = packs.iter().map(|set| set.0).collect();
    let listed =
        store.present().filter_map(|(_, member)| member.list(ExtentKind::Packs).ok()).flatten();
    listed.filter(|(id, _)| wanted.contains(id)).map(|(_, bytes)| bytes).sum()
}
