//! Index runs that were replaced by others, on members that were absent at that time.
//!
//! A merge writes a new run and removes the old ones, but cannot remove them from an absent member.
//! When that member returns, it has extents of runs that are not needed any more: these runs are
//! superseded, not damaged, and other members without an extent of them do not count as damaged.
//!
//! Invariants: a run counts as superseded only while all members are present, and is removed only
//! while no other writer is running that may be about to write or remove such a run. A run that
//! more members have than may be absent at once is not superseded, unless other runs list all its
//! packs.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::objects::Quorum;
use crate::store::{Store, deletion, sessions, snapshots};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::{SessionId, SetId, SnapshotId};
use pinstripe_member::index_run::RunPack;
use pinstripe_member::{ExtentKind, ExtentName};

use super::cut::geometry_of;
use super::load::packs_of_run;

/// An index run that other runs have replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superseded {
    /// The name.
    pub set: SetId,
    /// The members that have an extent of the run.
    pub holders: Vec<usize>,
    /// The run cannot be read, so its list of lost packs is unknown.
    pub is_unreadable: bool,
}

/// The superseded runs that a member has after an absence, and the snapshots that it lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stale {
    /// Superseded index runs with an extent on this member.
    pub superseded_runs: u64,
    /// The number of snapshots that the member lacks and the other members have.
    pub lacking_snapshots: u64,
    /// The number of snapshots that the member has but does not list.
    pub unlisted_snapshots: u64,
}

impl Stale {
    /// Whether the member's listing lags behind its content, as the listing of some endpoints does.
    pub(crate) fn lists_too_little(&self) -> bool {
        self.unlisted_snapshots > 0
    }

    /// Describes the member for people: `member 3 was absent or failed: it lacks 2 snapshots that
    /// the other members have`. If the member is full: `member 3 is full: it lacks 2 snapshots that
    /// the other members have`.
    pub fn describe(&self, number: usize, is_full: bool) -> String {
        let why = if is_full { "is full" } else { "was absent or failed" };
        let counted = |count: u64, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        if self.lists_too_little() {
            let unlisted = counted(self.unlisted_snapshots, "snapshot");
            return format!("the listing of member {number} lacks {unlisted} that the member has");
        }
        let lacks = counted(self.lacking_snapshots, "snapshot");
        let has = counted(self.superseded_runs, "superseded index run");
        match (self.lacking_snapshots, self.superseded_runs) {
            (0, _) => format!("member {number} has {has}: the other members have newer index runs"),
            (_, 0) => {
                format!("member {number} {why}: it lacks {lacks} that the other members have")
            }
            _ => format!(
                "member {number} {why}: it lacks {lacks} that the other members have, and it has \
                 {has}"
            ),
        }
    }
}

/// Returns the runs that others have replaced: those on too few members to be read and on no more
/// than may be absent at once, and those whose packs are all listed by complete runs. Returns none
/// while a member is absent or cannot be listed.
///
/// # Errors
/// Fails with the errors of reading what is deleted.
pub fn superseded(store: &Store) -> Result<Vec<Superseded>> {
    if store.absent().next().is_some() {
        return Ok(Vec::new());
    }
    let mut runs: BTreeMap<SetId, Vec<usize>> = BTreeMap::new();
    for (number, member) in store.present() {
        let Ok(listed) = member.list(ExtentKind::Index) else { return Ok(Vec::new()) };
        listed.into_iter().for_each(|(id, _)| runs.entry(SetId(id)).or_default().push(number));
    }
    let (mut found, mut short, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let members = store.present().count();
    for (set, holders) in runs {
        let geometry = match holders.len() {
            // A run on every member cannot lack anything.
            all if all == members => None,
            _ => geometry_of(store, ExtentName::index(set), &holders),
        };
        match geometry {
            Some(it) if holders.len() < it.data() && holders.len() <= it.parity() => {
                found.push(Superseded { set, holders, is_unreadable: true });
            }
            Some(it) if holders.len() < it.members() && holders.len() >= it.data() => {
                short.push((set, holders));
            }
            Some(it) if holders.len() < it.data() => {}
            _ => whole.push((set, holders.len())),
        }
    }
    if !short.is_empty() {
        let covered = covered_by(store, &whole)?;
        let is_covered = |pack: &RunPack| covered.contains(&(pack.set, pack.is_lost));
        let is_spoken_of = |(set, holders): &(SetId, Vec<usize>)| {
            let packs = packs_of_run(store, *set, holders.len());
            packs.is_ok_and(|packs| packs.iter().all(is_covered))
        };
        let short = short.into_iter().filter(is_spoken_of);
        found.extend(short.map(|(set, holders)| Superseded { set, holders, is_unreadable: false }));
    }
    Ok(found)
}

/// Returns the packs that some runs list, and the deleted packs, which no run needs to list.
fn covered_by(store: &Store, runs: &[(SetId, usize)]) -> Result<BTreeSet<(SetId, bool)>> {
    let going = deletion::going_packs(store)?;
    let mut covered: BTreeSet<_> =
        going.into_iter().flat_map(|set| [(set, false), (set, true)]).collect();
    for (set, extents) in runs {
        // One that cannot be read lists nothing.
        let packs = packs_of_run(store, *set, *extents).unwrap_or_default();
        covered.extend(packs.iter().map(|pack| (pack.set, pack.is_lost)));
    }
    Ok(covered)
}

/// Removes superseded runs and returns them; removes none while another writer than `own` is
/// running.
///
/// # Errors
/// Fails with the errors of the members.
pub(crate) fn drop_superseded(store: &Store, own: Option<SessionId>) -> Result<Vec<Superseded>> {
    let before = superseded(store)?;
    if before.is_empty() {
        return Ok(Vec::new());
    }
    store.prefetch(&[]);
    // In this order: a writer that was putting a run when it was listed has a session still, or has
    // ended and the run is complete, or is dead.
    match sessions::at_work(store, own, Quorum::Backup) {
        Ok(others) if others.is_empty() => {}
        // An object there that no member can read may be a writer's.
        Err(error) if error.kind() != Kind::Corrupt => return Err(error),
        _ => return Ok(Vec::new()),
    }
    let now = superseded(store)?;
    let dropped: Vec<_> = before.into_iter().filter(|run| now.contains(run)).collect();
    for run in &dropped {
        store.drop_all(ExtentName::index(run.set))?;
    }
    store.sync_all()?;
    Ok(dropped)
}

/// Returns the members that seem to have been absent: they have superseded runs, or lack snapshots
/// that the other members have. A member that lacks a single snapshot is not included: the snapshot
/// may have been lost alone. A member that cannot be listed is not included, because its snapshots
/// are unknown.
///
/// # Errors
/// Fails with the errors of [`Store::list`].
pub(crate) fn stale_members(
    store: &Store,
    superseded: &[Superseded],
) -> Result<BTreeMap<usize, Stale>> {
    // A run or snapshot missing on more members than may be absent at once points to none of them.
    let may_be_away = usize::from(store.config.parity);
    let mut stale: BTreeMap<usize, Stale> = BTreeMap::new();
    let (found, unlisted) = store.list_by_members(ExtentKind::Snapshots)?;
    let present = store.present().map(|(number, _)| number);
    let listed: Vec<usize> = present.filter(|number| !unlisted.contains(number)).collect();
    // The last one found of each that lacks some: the listing may be behind.
    let mut last: BTreeMap<usize, SnapshotId> = BTreeMap::new();
    for (id, holders) in found {
        let lacking: Vec<_> = listed.iter().filter(|number| !holders.contains(number)).collect();
        // A void is of the members that there were when a session was ended.
        if lacking.is_empty() || snapshots::is_void(store, SnapshotId(id)) {
            continue;
        }
        for number in lacking.iter().filter(|_| lacking.len() <= may_be_away) {
            stale.entry(**number).or_default().lacking_snapshots += 1;
            last.insert(**number, SnapshotId(id));
        }
    }
    let runs = superseded.iter().filter(|run| run.holders.len() <= may_be_away);
    for number in runs.flat_map(|run| &run.holders) {
        stale.entry(*number).or_default().superseded_runs += 1;
    }
    stale.retain(|_, one| one.superseded_runs > 0 || one.lacking_snapshots > 1);
    for (number, one) in stale.iter_mut().filter(|(_, one)| one.lacking_snapshots > 1) {
        let member = store.member_slots[*number].member.as_ref();
        let name = last.get(number).map(|id| ExtentName::snapshot(*id));
        if member.zip(name).is_some_and(|(member, name)| member.len(name).is_ok()) {
            one.unlisted_snapshots = std::mem::take(&mut one.lacking_snapshots);
        }
    }
    Ok(stale)
}
