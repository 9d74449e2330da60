//! Determines the remaining redundancy of a store: how many more members may be lost.
//!
//! Redundancy is counted for each pack, by the extents that members list, and for each snapshot
//! object, by its copies, and is at most the number of members without which the store still opens.
//! Packs that deletion has condemned do not count, nor do leftovers of interrupted backups.
//!
//! Not in this module: reading content. `check --read-data` finds the damaged extents, which this
//! module cannot see.

use std::collections::BTreeMap;

use super::index::{Index, sets_in};
use super::{Store, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SetId, SnapshotId};
use pinstripe_base::monitor::{Counter, Monitor, Redundancy};
use pinstripe_member::ExtentKind;

/// The members with an extent of each pack, or with a copy of each snapshot.
type Holders<T> = BTreeMap<T, Vec<usize>>;

/// Determines the redundancy on the members that are present and not in `failed`. Packs and
/// snapshots are listed on each of these members, except on remote members if none failed, because
/// the index has just listed their packs.
///
/// # Errors
/// Fails with the errors of [`Store::list`].
pub fn redundancy(store: &Store, index: &Index<'_>, failed: &[usize]) -> Result<Redundancy> {
    if store.is_far() && failed.is_empty() {
        return Ok(of_packs(store, index, |_, known| known));
    }
    let packs = sets_in(store, ExtentKind::Packs)?;
    let there = store.list(ExtentKind::Snapshots)?;
    let mut counted = of_packs(store, index, |set, _| held(&packs, set, failed));
    // In a store without MACs copies vote; more than one is kept wherever a writer reaches more.
    for id in there.keys() {
        let spare = held(&there, id, failed).saturating_sub(1) as u64;
        // An object on few members may not be a snapshot.
        let is_one = || store.is_locked() || snapshots::read(store, SnapshotId(*id)).is_ok();
        if spare < counted.survives && is_one() {
            counted.survives = spare;
        }
    }
    Ok(counted)
}

/// Determines the redundancy on all present members, and reports it.
///
/// # Errors
/// Fails with the errors of [`redundancy`].
pub fn count(store: &Store, index: &Index<'_>, monitor: &Monitor) -> Result<Redundancy> {
    let counted = redundancy(store, index, &[])?;
    monitor.state_redundancy(counted);
    Ok(counted)
}

fn held<T: Ord>(holders: &Holders<T>, of: &T, failed: &[usize]) -> usize {
    holders.get(of).map_or(0, |held| held.iter().filter(|it| !failed.contains(it)).count())
}

/// `extents_of` returns the number of a pack's extents, given what the index knew when it was
/// loaded.
fn of_packs(
    store: &Store,
    index: &Index<'_>,
    extents_of: impl Fn(&SetId, usize) -> usize,
) -> Redundancy {
    let parity = u64::from(store.config.parity);
    let mut counted = Redundancy { survives: store.spare_members(), parity, thin_packs: 0 };
    for (_, pack) in index.packs().iter() {
        if pack.is_condemned() || !pack.is_reliable() {
            continue;
        }
        let (data, parity) = (usize::from(pack.data), usize::from(pack.parity));
        let extents = extents_of(&pack.set, pack.extents()).min(data + parity);
        let survives = extents.saturating_sub(data) as u64;
        counted.survives = counted.survives.min(survives);
        counted.thin_packs += u64::from(survives < counted.parity);
    }
    counted
}

/// Reports the redundancy at the end of a run that wrote packs, and warns if it is less than the
/// store's parity although no member failed. `failed` are the members that failed in this run.
///
/// A store in buckets is not listed again for this while all members take part: the listing from
/// when the index was loaded and the packs that this run wrote give the same result.
pub fn state(store: &Store, index: &Index<'_>, failed: &[usize], monitor: &Monitor) {
    let is_degraded = monitor.get(Counter::DegradedMembers) > 0;
    let counted = match store.is_far() && !is_degraded {
        true => Ok(of_packs(store, index, |_, known| known)),
        false => index.refresh().and_then(|()| redundancy(store, index, failed)),
    };
    // A member that cannot be listed was reported by those who needed it.
    let Ok(counted) = counted else { return };
    monitor.state_redundancy(counted);
    if counted.survives < counted.parity && !is_degraded {
        let error = Error::new(Kind::Changed, counted.describe());
        let members = store.takers().iter().flatten().count();
        let advice = match index.packs().iter().any(|(_, pack)| pack.is_short_for(members)) {
            true => {
                "run 'pinstripe gc' to rewrite the packs that have more extents than the store has \
                 members"
            }
            false => "run 'pinstripe repair' to restore the parity",
        };
        monitor.warning("packs", error.advice(advice));
    }
}
