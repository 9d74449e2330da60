//! `repair`: rewrites damaged data from parity or from another copy.
//!
//! Every strip is read and verified; an extent with damage is rebuilt completely next to the old
//! one and replaces it only when it is durable. Snapshot objects, keys and labels are copied from a
//! member with an intact copy. An index run that cannot be read is rebuilt from the packs. The
//! label of a rebuilt member is written last: until then, the directory is not a member. If parity
//! cannot repair a pack, its readable data is rewritten into new packs, and the rest is given up
//! ([`anew`]).

pub(super) mod anew;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::copies::Copies;
use super::mender::{Done, Mender};
use super::standing::{Standing, Standings, is_object_wanted};
use super::strays;
use crate::pipeline::limits::Limits;
use crate::store::index::{self, Index, indexed_sets};
use crate::store::{Claim, Store, deletion, replace_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::pool::each;
use pinstripe_member::label::Encryption;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::{ExtentPart, SetReader};

/// The number of bytes of a rewritten extent that are collected before a write: a bucket gets an
/// extent when it is complete.
const COLLECTED_BYTES: u64 = 16 << 20;

/// The outcome.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct RepairOutcome {
    /// Stripe sets examined.
    pub sets: u64,
    /// Extents rewritten.
    pub repaired_extents: u64,
    /// Small objects copied.
    pub repaired_objects: u64,
    /// Objects that were set aside because no process of this store can have finished writing them.
    pub strays: u64,
    /// Packs that were replaced by new packs with the data that is in other packs or can still be
    /// read.
    pub relaid_packs: u64,
    /// Index runs rebuilt.
    pub rebuilt_runs: u64,
    /// Extents with rows that cannot be repaired.
    pub lost_extents: u64,
    /// Chunks that cannot be recovered, and that the store no longer counts as stored: a backup
    /// stores them again if its sources still have them.
    pub given_up_chunks: u64,
    /// Extents that no member can take, because every present member has another extent of the set.
    pub homeless_extents: u64,
    /// The store is encrypted and its key was not given: index runs were not rebuilt.
    pub without_key: bool,
}

/// Repairs the store.
///
/// # Errors
/// Fails with [`Kind::Busy`] while another process moves extents or repairs, or with the errors of
/// a member that cannot be written.
pub fn run(store: &mut Store, limits: Limits, monitor: &Monitor) -> Result<RepairOutcome> {
    let mut outcome = RepairOutcome::default();
    let claim = store.claim()?;
    store.sweep(monitor);
    drop_superseded(store, &claim, monitor)?;
    // First what counts goes to every member: an object on too few members may be one that counts on
    // the others.
    small_objects(store, monitor, &mut outcome)?;
    outcome.strays = strays::set_aside(store, &claim, monitor)?;
    store.remove_stale_keys()?;
    let unmended = stripe_sets(store, &claim, &limits, monitor, &mut outcome)?;
    if store.is_locked() {
        outcome.without_key = true;
    } else {
        index_runs(store, monitor, &mut outcome)?;
    }
    // Without the keys no label can be made that a store with MACs accepts.
    if !store.lacks_macs() {
        outcome.repaired_objects += store.write_labels_with(&claim)?;
    }
    let settled = anew::settle(store, unmended, limits, monitor)?;
    outcome.relaid_packs += settled.relaid_packs;
    outcome.lost_extents += settled.lost_extents;
    outcome.given_up_chunks += settled.given_up_chunks;
    Ok(outcome)
}

/// Reports members that were absent, and removes the superseded index runs that they brought back.
fn drop_superseded(store: &Store, claim: &Claim, monitor: &Monitor) -> Result<()> {
    let superseded = index::superseded(store)?;
    let stale = index::stale_members(store, &superseded)?;
    super::stale::report(store, &stale, super::stale::UPDATED, monitor);
    index::drop_superseded(store, Some(claim.session())).map(drop)
}

/// Copies small objects to members that lack them or have damaged copies.
pub(super) fn small_objects(
    store: &Store,
    monitor: &Monitor,
    outcome: &mut RepairOutcome,
) -> Result<()> {
    for name in store.lasting_objects()? {
        let copies = Copies::read(store, name)?;
        if copies.is_gone() {
            continue;
        }
        let good = match (name, copies.good) {
            (_, Some(good)) => good,
            // The keys were read into memory while those copies could still be read.
            (ExtentName::In(ExtentKind::Keys, _), None)
                if store.config.encryption == Encryption::None =>
            {
                store.keys()?.encode()
            }
            (_, None) if copies.are_too_few => {
                let what = "too few members have an identical copy of this object";
                let advice = "attach all members, then run 'pinstripe repair' again";
                monitor.warning(name.path(), Error::new(Kind::Corrupt, what).advice(advice));
                continue;
            }
            (_, None) if !is_object_wanted(store, name)? => continue,
            (_, None) => {
                monitor.loss(
                    name.path(),
                    Error::new(Kind::TooManyLosses, "no member has an intact copy of this object"),
                );
                outcome.lost_extents += 1;
                continue;
            }
        };
        for (_, member, _) in copies.unsound {
            replace_small(&**member, name, &good)?;
            outcome.repaired_objects += 1;
        }
    }
    Ok(())
}

fn stripe_sets(
    store: &Store,
    claim: &Claim,
    limits: &Limits,
    monitor: &Monitor,
    outcome: &mut RepairOutcome,
) -> Result<Vec<Unmended>> {
    let (mut unmended, mut full) = (Vec::new(), None);
    let mut indexed: BTreeSet<SetId> = indexed_sets(store)?.into_iter().collect();
    let indexed_before = indexed.clone();
    let (readers, standings) = (limits.set_readers(store, COLLECTED_BYTES), Standings::default());
    for kind in [ExtentKind::Packs, ExtentKind::Index] {
        let there = index::standing_sets(store, kind)?;
        // A short index run may be readable from fewer: it is tried, and rebuilt if it is not.
        let is_readable = |(set, members): &(&SetId, &Vec<usize>)| {
            kind == ExtentKind::Index || !index::is_leftover(store, **set, members)
        };
        let mut sets: BTreeSet<SetId> =
            there.iter().filter(is_readable).map(|(set, _)| *set).collect();
        if kind == ExtentKind::Packs {
            // A pack with too few extents is lost if an index run names it, otherwise it is a
            // leftover of an interrupted backup. One that is gone altogether is forgotten, below.
            let is_gone = |set: &SetId| !there.contains_key(set) && store.absent().next().is_none();
            sets.extend(std::mem::take(&mut indexed).into_iter().filter(|set| !is_gone(set)));
        }
        let sets: Vec<_> = sets.into_iter().collect();
        let repaired = each(readers, &sets, |set| {
            repair_set(store, claim, ExtentName::In(kind, set.0), monitor)
        })?;
        outcome.sets += sets.len() as u64;
        for (set, done) in sets.into_iter().zip(repaired) {
            outcome.repaired_extents += done.repaired;
            outcome.homeless_extents += done.homeless;
            full = full.or(done.full);
            let is_known = indexed_before.contains(&set);
            // A gc may have deleted the pack since the index was read.
            let is_wanted = || Ok(standings.of_pack(store, set, is_known)? != Standing::Gone);
            if !done.lost.is_empty() && is_wanted()? {
                unmended.push(Unmended { set, is_known, damage: done.lost });
            }
        }
    }
    if let Some(full) = full {
        let place = full.place().map(Path::to_path_buf).unwrap_or_default();
        monitor.warning(place, full);
    }
    Ok(unmended)
}

/// A pack with extents that parity cannot repair.
pub(super) struct Unmended {
    pub(super) set: SetId,
    /// Whether an index run names the pack: otherwise it may be left from an interrupted backup.
    pub(super) is_known: bool,
    /// The damaged parts with their places and the reasons.
    pub(super) damage: Vec<(PathBuf, Error)>,
}

/// The result for the damaged extents of one set.
#[derive(Default)]
struct Repaired {
    repaired: u64,
    lost: Vec<(PathBuf, Error)>,
    homeless: u64,
    /// The first error of a member without space.
    full: Option<Error>,
}

/// Rewrites the damaged extents of one set in place, and writes missing extents to members that
/// have none of the set, or to members of whose extent another member has a copy.
fn repair_set(
    store: &Store,
    claim: &Claim,
    name: ExtentName,
    monitor: &Monitor,
) -> Result<Repaired> {
    let mut done = Repaired::default();
    // An index run is derived: it is rebuilt later.
    let lost = |done: &mut Repaired, place: PathBuf, error: Error| match name {
        ExtentName::In(ExtentKind::Index, _) => {}
        _ => done.lost.push((place, error)),
    };
    let ExtentName::In(_, set) = name else { return Ok(done) };
    let reader = match store.open_to_judge(name, SetId(set)) {
        Ok(reader) => reader,
        // Not damaged, and nothing to be written over.
        Err(error) if error.kind() == Kind::Unsupported => return Err(error),
        Err(_) if deletion::is_going(store, name)? => return Ok(done),
        Err(error) => {
            lost(&mut done, name.path().into(), error);
            return Ok(done);
        }
    };
    let (repaired, is_all) = write_missing(store, claim, &reader, monitor)?;
    done.repaired = repaired;
    if is_all {
        return Ok(done);
    }
    // Opened again, to see the extents that were written.
    let reader = match repaired {
        0 => reader,
        _ => match store.open_to_judge(name, SetId(set)) {
            // Removed since it was written.
            Err(error) if error.kind() == Kind::NotFound => return Ok(done),
            opened => opened?,
        },
    };
    let verification = reader.verify(&mut |bytes| monitor.add(Counter::CheckedBytes, bytes));
    if !verification.damage.is_empty() && deletion::is_going(store, name)? {
        return Ok(done);
    }
    let mender = Mender { store, reader: &reader, claim: Some(claim) };
    let jobs = mender.plan(verification.damage.iter());
    mender.carry_out(&jobs, &mut |job, became| {
        match became {
            Done::Written => {
                monitor.add(Counter::RepairedExtents, 1);
                done.repaired += 1;
            }
            Done::Homeless => done.homeless += 1,
            Done::Full(error) => {
                done.homeless += 1;
                done.full.get_or_insert(error);
            }
            Done::Failed(error) if error.kind() == Kind::TooManyLosses => {
                let place = job.to.map(|number| store.member_slots[number].place.as_path());
                lost(&mut done, place.unwrap_or(Path::new("")).join(name.path()), error);
            }
            Done::Failed(error) => return Err(error),
        }
        Ok(())
    })?;
    Ok(done)
}

/// Writes the missing slots of a set in one pass if nothing else can be wrong with the set: as many
/// slots are missing as parity replaces, so that rebuilding them reads and verifies every existing
/// strip. Returns the number of slots written, and whether the set is now known to be complete; if
/// not, the caller verifies it strip by strip.
fn write_missing(
    store: &Store,
    claim: &Claim,
    reader: &SetReader,
    monitor: &Monitor,
) -> Result<(u64, bool)> {
    let (damage, slots) = (reader.verify_ends_only().damage, 0..reader.geometry().members());
    let missing: Vec<usize> = damage.iter().map(|damage| damage.slot).collect();
    let is_all_missing = damage.iter().all(|damage| damage.part == ExtentPart::Extent);
    let has_twins = slots.clone().any(|slot| reader.holders_of(slot).len() > 1);
    if !is_all_missing || has_twins || missing.len() != reader.geometry().parity() {
        return Ok((0, false));
    }
    let mender = Mender { store, reader, claim: Some(claim) };
    let jobs = mender.plan(damage.iter());
    let (mut repaired, mut failed) = (0, None);
    mender.carry_out(&jobs, &mut |_, became| {
        match became {
            Done::Written => repaired += 1,
            Done::Homeless | Done::Full(_) => {}
            Done::Failed(error) if error.kind() == Kind::TooManyLosses => {}
            Done::Failed(error) => failed = Some(error),
        }
        Ok(())
    })?;
    monitor.add(Counter::RepairedExtents, repaired);
    if let Some(error) = failed {
        return Err(error);
    }
    let is_whole = repaired == missing.len() as u64 && reader.is_last_row_sound(&missing);
    if repaired > 0 && is_whole {
        let there = slots.filter(|slot| !missing.contains(slot));
        monitor.add(Counter::CheckedBytes, there.map(|it| reader.layout().extent_bytes(it)).sum());
    }
    Ok((repaired, repaired > 0 && is_whole))
}

/// Writes an index run for packs that no readable run lists, and removes runs that are unreadable
/// or list packs that no member has; this is possible because packs have an index of their own.
fn index_runs(store: &Store, monitor: &Monitor, outcome: &mut RepairOutcome) -> Result<()> {
    let mended = Index::load(store, monitor)?.repair()?;
    outcome.rebuilt_runs += mended.written;
    store.present().try_for_each(|(_, member)| member.sync())
}
