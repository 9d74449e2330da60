//! `member replace`: a new member takes the place and the content of an old one, which is removed
//! from the table.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::carried::inherit_tombstones;
use super::super::mender::{lay, open_slot, salvage};
use super::super::repair::{Unmended, anew};
use super::add::assign_slot;
use super::plan::{Move, SetPlacement};
use super::{Moved, carry, finish_retiring, remove, survey};
use crate::ops::init::refuse_disk;
use crate::pipeline::limits::Limits;
use crate::store::index::indexed_sets;
use crate::store::{Claim, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::{ExtentKind, ExtentName, Replace, real};

/// The outcome.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Replaced {
    /// The number of the new member.
    pub replaced_by: usize,
    /// The extents copied from the old member.
    #[serde(flatten)]
    pub moved: Moved,
    /// Extents rebuilt from parity, because the old member was absent or lacked them.
    pub rebuilt_extents: u64,
    /// Small objects copied.
    pub copied_objects: u64,
    /// Extents with rows that cannot be repaired; their other rows were rebuilt.
    pub lost_extents: u64,
    /// Chunks that cannot be recovered, and that the store no longer counts as stored: a backup
    /// stores them again if its sources still have them.
    pub given_up_chunks: u64,
}

/// Replaces a member by a new one, in a directory that is missing or empty: extents that can be
/// read are moved; the others are rebuilt, even if the old member is present but lacks them. Rows
/// that cannot be repaired do not prevent this: all other rows get their parity again, the old
/// member leaves, and the damaged paths are reported ([`anew`]). If the command is interrupted,
/// running it again with the same directory resumes.
///
/// # Errors
/// Fails with [`Kind::Usage`] when there is no such member, with [`Kind::Refused`] when the
/// directory is not empty, or is on the disk of a member that stays and `same_disk` is not set,
/// with [`Kind::Busy`] when another process changes the members, or with the errors of the members.
pub fn replace(
    store: &mut Store,
    number: usize,
    place: &Path,
    same_disk: bool,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Replaced> {
    let claim = store.claim()?;
    let Some(old) = store.member_slots.get(number).filter(|member_slot| member_slot.row.is_some())
    else {
        finish_retiring(store, &claim, number)?;
        let replaced_by = store.join(place)?;
        return Ok(Replaced { replaced_by, ..Replaced::default() });
    };
    let is_present = old.member.is_some();
    if real(place).is_ok_and(|place| place == old.place) && is_present {
        return Err(Error::new(Kind::Usage, "a member cannot replace itself").at(place).advice(
            "give an empty directory; to repair a damaged member in place, run 'pinstripe repair'",
        ));
    }
    if !same_disk {
        refuse_disk(store, place, Some(number))?;
    }
    let (new, copied_objects) = assign_slot(store, &claim, place, monitor)?;
    let mut replaced = Replaced { replaced_by: new, copied_objects, ..Replaced::default() };
    if is_present {
        replaced.copied_objects += inherit_tombstones(store, (number, new))?;
        let remove::DrainingMember { moves, .. } = remove::plan_for(store, number, Some(new))?;
        monitor.set_total(moves.iter().map(|it| it.bytes).sum(), moves.len() as u64);
        replaced.moved = remove::empty(store, &claim, number, Some(new), limits, monitor)?;
        replaced.copied_objects += remove::take_over_objects(store, monitor)?;
    }
    // Also what the old member should have had and lacked.
    let lost = rebuild(store, &claim, (number, new), limits, monitor, &mut replaced)?;
    store.retire(&claim, number)?;
    // A backup that knew both members may have spread packs over them, and one of the two is gone.
    anew::rewrite_short_packs(store, limits, monitor)?;
    let settled = anew::settle(store, lost, *limits, monitor)?;
    replaced.lost_extents = settled.lost_extents;
    replaced.given_up_chunks = settled.given_up_chunks;
    Ok(replaced)
}

/// The outcome for one set.
#[derive(Default)]
struct RebuiltSet {
    extents: u64,
    /// The error for rows that cannot be repaired.
    lost: Option<Error>,
}

/// Rebuilds, on the new member, those slots of the old member that no member holds, several sets at
/// a time. Every strip is read once and compared with its checksum. Returns the packs with lost
/// rows.
fn rebuild(
    store: &Store,
    claim: &Claim,
    (old, new): (usize, usize),
    limits: &Limits,
    monitor: &Monitor,
    replaced: &mut Replaced,
) -> Result<Vec<Unmended>> {
    let indexed: BTreeSet<SetId> = indexed_sets(store)?.into_iter().collect();
    let spreads = survey(store)?;
    // A backup that does not know the new member may still write to the old one. The new member
    // gets this slot, not another one that the backup has not written yet.
    let is_late = |set: &&SetPlacement| !set.holders.contains_key(&new);
    let late = spreads.iter().filter(is_late).filter_map(|set| {
        let bytes = *set.holders.get(&old)?;
        Some(Move { name: set.name, from: old, to: new, bytes })
    });
    let late: Vec<_> = late.collect();
    replaced.moved += carry::moves(store, claim, &late, limits, monitor)?;
    let short: Vec<_> = spreads
        .iter()
        .filter(|spread| !spread.holders.contains_key(&new) && !spread.holders.contains_key(&old))
        .map(|spread| (spread.name, spread.holders.values().copied().max().unwrap_or(0)))
        .collect();
    let bytes: u64 = short.iter().map(|(_, bytes)| bytes).sum();
    monitor.set_total(monitor.get(Counter::MovedBytes) + bytes, short.len() as u64);
    let rebuilt =
        carry::each_until_error(carry::threads(store, limits), &short, |(name, bytes)| {
            let done = rebuild_set(store, claim, *name, (old, new), monitor)?;
            monitor.add(Counter::MovedBytes, *bytes);
            Ok(done)
        })?;
    let mut unmended = Vec::new();
    for ((name, _), RebuiltSet { extents, lost }) in short.iter().zip(rebuilt) {
        replaced.rebuilt_extents += extents;
        // An index run is derived; a pack that no run names is left from an interrupted backup.
        if let (Some(error), ExtentName::In(ExtentKind::Packs, id)) = (lost, *name)
            && indexed.contains(&SetId(id))
        {
            let damage = vec![(name.path().into(), error)];
            unmended.push(Unmended { set: SetId(id), is_known: true, damage });
        }
    }
    Ok(unmended)
}

fn rebuild_set(
    store: &Store,
    claim: &Claim,
    name: ExtentName,
    (old, new): (usize, usize),
    monitor: &Monitor,
) -> Result<RebuiltSet> {
    let lost = |extents, error| Ok(RebuiltSet { extents, lost: Some(error) });
    let Some(reader) = carry::open(store, name)? else {
        return lost(0, Error::corrupt("no trailer of this stripe set is intact", name.path()));
    };
    // Most likely the slot of its number was the old member's.
    let Some(slot) = open_slot(&reader, old) else { return Ok(RebuiltSet::default()) };
    let Some(to) = store.member_slots[new].member.as_ref() else {
        return Ok(RebuiltSet::default());
    };
    claim.confirm()?;
    match lay(&reader, slot, to, Replace::Never) {
        Ok(()) => {
            monitor.add(Counter::RepairedExtents, 1);
            Ok(RebuiltSet { extents: 1, lost: None })
        }
        // A writer that knows the new member writes this set over it.
        Err(error) if error.kind() == Kind::Exists => Ok(RebuiltSet::default()),
        Err(error) if matches!(error.kind(), Kind::TooManyLosses | Kind::Corrupt) => {
            salvage(&reader, slot, to, Replace::Never)?;
            lost(u64::from(to.len(name).is_ok()), error)
        }
        Err(error) => Err(error),
    }
}
