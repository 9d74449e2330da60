//! Decides about deletion, on plain values.
//!
//! All decisions are pure functions in this module, so that a model can test the real code with
//! every order of events (`model.rs`). The decisions are right only for values that were read in
//! the order given at each function; `mod.rs` and its callers ensure that order
//! (doc/decisions/0011-deletion.md).

use std::collections::{BTreeSet, HashSet};
use std::hash::BuildHasher;

use crate::store::forgotten::Marks;
use pinstripe_base::id::{SessionId, SetId, SnapshotId};
use pinstripe_member::gc::Lists;
use pinstripe_member::session::{Session, Work};

/// Whether a session has ended although its object still exists, because its snapshot has been put.
/// Snapshots must be read after the session.
pub fn is_over(session: &Session, snapshots: &BTreeSet<SnapshotId>) -> bool {
    session.work == Work::Backup && snapshots.contains(&SnapshotId(session.commit))
}

/// Returns the snapshots that must be kept: those that are wanted, and those on which a session
/// depends. The objects must be read in this order: sessions, marks, sessions again, snapshots;
/// `sessions` are those of both reads. A backup puts its session and then reads marks, so the
/// second read finds its session; an undelete puts a mark and then ends its session, so the first
/// read finds its session.
pub(crate) fn roots(
    marks: &Marks,
    sessions: &[Session],
    snapshots: &BTreeSet<SnapshotId>,
) -> BTreeSet<SnapshotId> {
    let parents: BTreeSet<_> = sessions.iter().flat_map(|session| &session.parents).collect();
    let stays = |id: &&SnapshotId| !marks.is_forgotten(**id) || parents.contains(id);
    snapshots.iter().filter(stays).copied().collect()
}

/// Returns the snapshots that may be deleted, with their marks.
pub fn doomed(
    marks: &Marks,
    roots: &BTreeSet<SnapshotId>,
    snapshots: &BTreeSet<SnapshotId>,
) -> Vec<(SnapshotId, u32)> {
    snapshots.difference(roots).map(|&id| (id, marks.generation(id))).collect()
}

/// Returns the sessions that must still acknowledge what they rely on: those of backups, since only
/// backups reuse chunks that they did not store. Other collectors are protected by their own
/// condemnations, and an undelete by the last check before the first deletion.
pub fn silent<'a>(
    sessions: &'a [Session],
    answered: &BTreeSet<SessionId>,
    snapshots: &BTreeSet<SnapshotId>,
) -> Vec<&'a Session> {
    let is_silent = |session: &&Session| {
        session.work == Work::Backup
            && !answered.contains(&session.id)
            && !is_over(session, snapshots)
    };
    sessions.iter().filter(is_silent).collect()
}

/// What a condemnation means for one needed chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A pack that no collector has condemned has the chunk.
    Standing,
    /// Only condemned packs have the chunk; this one, which this gc condemned, must be kept.
    Rescue(SetId),
    /// No pack that this gc condemned has the chunk, but others' condemned packs do.
    Elsewhere,
    /// No pack has the chunk.
    Lost,
}

/// Decides which pack must be kept for a chunk with these places. Packs that other gcs have
/// condemned count as gone, and the others count this gc's packs as gone: of two condemnations that
/// each rely on the other's copy, neither copy may be deleted. So a pack that only this gc
/// condemned is kept rather than one that others have condemned too.
pub fn need<A: BuildHasher, B: BuildHasher>(
    places: impl IntoIterator<Item = SetId>,
    ours: &HashSet<SetId, A>,
    others: &HashSet<SetId, B>,
) -> Need {
    let (mut only_ours, mut shared, mut elsewhere) = (None, None, false);
    // A place outside of all condemnations ends the search; only without one a pack is rescued.
    for set in places {
        match (ours.contains(&set), others.contains(&set)) {
            (false, false) => return Need::Standing,
            (true, false) => only_ours = only_ours.or(Some(set)),
            (true, true) => shared = shared.or(Some(set)),
            (false, true) => elsewhere = true,
        }
    }
    match only_ours.or(shared) {
        Some(set) => Need::Rescue(set),
        None if elsewhere => Need::Elsewhere,
        None => Need::Lost,
    }
}

/// Returns the part of a condemnation that is left after all answers.
pub fn remaining<S: BuildHasher>(
    condemned: &Lists,
    rescued: &HashSet<SetId, S>,
    roots: &BTreeSet<SnapshotId>,
) -> Lists {
    let mut left = condemned.clone();
    left.packs.retain(|set| !rescued.contains(set));
    left.snapshots.retain(|(id, _)| !roots.contains(id));
    left
}

/// Whether to continue after the reaping object was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// No other process can intervene any more: delete.
    Reap,
    /// An undelete is running: it will put a mark, or find that it is too late. Check again.
    Wait,
    /// An undelete put its mark before the reaping object was put: nothing was deleted.
    Withdraw,
}

/// The last check before anything is deleted, and before every resumption. The objects must be read
/// in this order, after the reaping object is on the members: sessions, marks, the condemned
/// object.
pub(crate) fn last_look(reaping: &Lists, sessions: &[Session], marks: &Marks, stands: bool) -> Go {
    let changed = |(id, at): &(SnapshotId, u32)| marks.generation(*id) != *at;
    // A changed generation means that an undelete took the mark back and reported success.
    if !stands || reaping.snapshots.iter().any(changed) {
        return Go::Withdraw;
    }
    let wanted =
        |(id, _): &(SnapshotId, u32)| sessions.iter().any(|session| session.parents.contains(id));
    if reaping.snapshots.iter().any(wanted) { Go::Wait } else { Go::Reap }
}

/// Whether an undelete comes too late, because a collector may be deleting already. The check is
/// done after the session of the undelete was put, so that one of the two processes sees the other.
pub(crate) fn is_too_late<'a>(
    snapshot: SnapshotId,
    reaping: impl IntoIterator<Item = &'a Lists>,
    tombstones: impl IntoIterator<Item = &'a Lists>,
) -> bool {
    let lists = |it: &Lists| it.snapshots.iter().any(|(id, _)| *id == snapshot);
    reaping.into_iter().any(lists) || tombstones.into_iter().any(lists)
}

/// What to do with a condemnation that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseAction {
    /// The collector that owns it is running: leave it alone.
    Leave,
    /// The deletion was finished: remove the other objects of the condemnation.
    Clear,
    /// The deletion was past the point of no return: continue with it.
    Resume,
    /// The deletion was before the point of no return: remove it without effect.
    Withdraw,
}

/// Decides about a condemnation by its existing objects. A reaping object without the condemned
/// object is a leftover: a collector keeps both until it has put the tombstone.
pub fn judge(
    condemned: bool,
    reaping: bool,
    tombstone: bool,
    is_owner_at_work: bool,
) -> CaseAction {
    match (condemned, reaping, tombstone) {
        _ if is_owner_at_work => CaseAction::Leave,
        (_, _, true) => CaseAction::Clear,
        (true, true, false) => CaseAction::Resume,
        _ => CaseAction::Withdraw,
    }
}

/// One pack, as the planner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The pack.
    pub set: SetId,
    /// Bytes of the pack's records, as stored.
    pub bytes: u64,
    /// The number of bytes of records, or of parts of them, that are needed.
    pub live_bytes: u64,
    /// The pack lacks an extent that no member can take: every present member already has one of
    /// its extents.
    pub is_short: bool,
}

/// The packs to condemn and to repack, and the figures on which that choice is based.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GcPlan {
    /// Packs in which nothing is needed.
    pub dead: Vec<SetId>,
    /// Packs whose live records are moved to new packs; those with the most waste first.
    pub repack: Vec<SetId>,
    /// Bytes in the remaining packs that nothing needs.
    pub waste_bytes: u64,
    /// Bytes in the remaining packs.
    pub kept_bytes: u64,
}

/// Selects the packs to condemn directly and those to repack, so that at most a fraction
/// `max_waste` (0 to 1) of the remaining bytes is not needed, and every remaining pack has the
/// required parity.
pub fn plan(packs: &[Usage], max_waste: f64) -> GcPlan {
    let mut plan = GcPlan::default();
    let mut kept = Vec::new();
    for pack in packs {
        if pack.live_bytes == 0 {
            plan.dead.push(pack.set);
        } else {
            plan.kept_bytes += pack.bytes;
            plan.waste_bytes += pack.bytes.saturating_sub(pack.live_bytes);
            kept.push(pack);
        }
    }
    let share = |pack: &Usage| pack.live_bytes as f64 / pack.bytes.max(1) as f64;
    // The least live share first: it frees the most bytes for each byte that is moved.
    kept.sort_by(|left, right| share(left).total_cmp(&share(right)).then(left.set.cmp(&right.set)));
    for pack in kept {
        let waste = pack.bytes.saturating_sub(pack.live_bytes);
        let is_enough = plan.waste_bytes as f64 <= max_waste * plan.kept_bytes as f64;
        if !pack.is_short && (is_enough || waste == 0) {
            continue;
        }
        plan.repack.push(pack.set);
        plan.waste_bytes -= waste;
        plan.kept_bytes -= waste;
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(n: u8) -> SetId {
        SetId([n; 16])
    }

    #[test]
    fn a_chunk_in_condemned_packs_only_rescues_one_of_ours() {
        let ours = HashSet::from([set(1), set(2), set(3)]);
        let others = HashSet::from([set(3), set(4)]);
        for (places, wanted) in [
            (&[1, 9][..], Need::Standing),
            (&[9], Need::Standing),
            (&[4, 1, 2], Need::Rescue(set(1))),
            (&[3], Need::Rescue(set(3))),
            (&[3, 2], Need::Rescue(set(2))),
            (&[4], Need::Elsewhere),
            (&[], Need::Lost),
        ] {
            let found = need(places.iter().map(|n| set(*n)), &ours, &others);
            assert_eq!(found, wanted, "{places:?}");
        }
    }

    #[test]
    fn the_worst_packs_are_repacked_until_little_is_wasted() {
        let pack =
            |n, bytes, live_bytes| Usage { set: set(n), bytes, live_bytes, is_short: n == 9 };
        let packs =
            [pack(1, 100, 0), pack(2, 100, 90), pack(3, 100, 10), pack(4, 100, 50), pack(5, 0, 0)];
        for (max_waste, repack) in [
            (1.0, &[][..]),
            (0.5, &[]),
            (0.4, &[3]),
            (0.3, &[3]),
            (0.2, &[3, 4]),
            (0.05, &[3, 4, 2]),
            (0.0, &[3, 4, 2]),
        ] {
            let plan = plan(&packs, max_waste);
            assert_eq!(plan.dead, [set(1), set(5)]);
            assert_eq!(plan.repack, repack.iter().map(|n| set(*n)).collect::<Vec<_>>());
            assert!(plan.waste_bytes as f64 <= max_waste * plan.kept_bytes as f64);
        }
        assert_eq!(plan(&[], 0.0), GcPlan::default());
        assert!(plan(&[pack(1, 100, 100)], 0.0).repack.is_empty(), "nothing to gain");
        let short = plan(&[pack(2, 100, 90), pack(9, 100, 100)], 1.0);
        assert_eq!((short.repack, short.waste_bytes, short.kept_bytes), (vec![set(9)], 10, 200));
    }

    #[test]
    fn only_who_is_past_the_point_of_no_return_is_resumed() {
        assert_eq!(judge(true, true, false, false), CaseAction::Resume);
        assert_eq!(judge(true, true, false, true), CaseAction::Leave);
        assert_eq!(judge(true, false, false, false), CaseAction::Withdraw);
        assert_eq!(judge(false, true, false, false), CaseAction::Withdraw);
        assert_eq!(judge(false, false, false, false), CaseAction::Withdraw);
        assert_eq!(judge(true, true, true, false), CaseAction::Clear);
    }
}
