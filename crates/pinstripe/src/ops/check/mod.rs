//! `check`: verifies that the members have everything that the snapshots need, unchanged.
//!
//! A check answers three questions, in this order: does every member have its small objects and
//! extents, is every strip intact (with `read_data`), does every snapshot find all of its chunks?
//! Damage that parity or another copy can repair is a warning; other damage is a loss, reported
//! with the snapshots and paths that it affects.

mod records;
pub(super) mod sets;
mod survey;
#[cfg(test)]
mod tests;
mod trees;

use std::collections::{BTreeMap, HashSet};

use super::copies::{AHEAD_OBJECTS, Copies, ReadAhead};
pub use super::judge::judge;
use super::standing::is_object_wanted;
use super::strays;
use sets::{lost_chunks, stripe_sets};
use survey::survey;
use trees::Trees;

use crate::pipeline::limits::Limits;
use crate::store::index::{self, Index, Stale};
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::{Store, attach_or_replace, read_small, redundancy, snapshots};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::label::Encryption;
use pinstripe_member::{ExtentKind, ExtentName, PrefetchHint, SharedMember};

/// Options of a check.
pub struct CheckOptions {
    /// Read every strip and decode every record.
    pub read_data: bool,
    /// Threads.
    pub limits: Limits,
}

/// The findings.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct CheckOutcome {
    /// Snapshots examined.
    pub snapshots: u64,
    /// Packs examined.
    pub packs: u64,
    /// Damaged or missing parts that `repair` can rewrite.
    pub repairable: u64,
    /// Objects on members that no process of this store can have finished writing.
    pub strays: u64,
    /// Damaged parts that cannot be repaired.
    pub lost: u64,
    /// Chunks that are in no intact record.
    pub lost_chunks: u64,
    /// Snapshots that lost something.
    pub hurt_snapshots: u64,
    /// Entries of these snapshots that a restore cannot restore completely, counted for every
    /// snapshot; entries on lost pages of a tree are counted too, though their names are lost.
    pub hurt_paths: u64,
    /// The store is encrypted and its key was not given: checksums were compared, but nothing was
    /// decoded, and it is unknown which data each snapshot needs.
    pub without_key: bool,
}

/// What a check lists, and how often: it examines the store at about one moment, so one listing
/// serves several steps; objects that are missing in the listing are looked up again.
const CHECKED: [PrefetchHint; 11] = [
    PrefetchHint::new(ExtentKind::Packs, 4),
    PrefetchHint::new(ExtentKind::Index, 8),
    PrefetchHint::new(ExtentKind::Snapshots, 8),
    PrefetchHint::new(ExtentKind::Keys, 4),
    PrefetchHint::new(ExtentKind::Sessions, 4),
    PrefetchHint::new(ExtentKind::Forgotten, 8),
    PrefetchHint::new(ExtentKind::Gc, 20),
    PrefetchHint::new(ExtentKind::Checkpoints, 4),
    PrefetchHint::new(ExtentKind::Scrub, 4),
    PrefetchHint::new(ExtentKind::Strays, 2),
    PrefetchHint::new(ExtentKind::Heartbeats, 2),
];

/// Checks the store.
///
/// # Errors
/// Fails only if the check cannot run; damage is reported in the outcome and in the ledger.
pub fn run(store: &Store, options: &CheckOptions, monitor: &Monitor) -> Result<CheckOutcome> {
    let mut outcome = examine(store, options, monitor)?;
    let is_any_wrong = outcome.lost + outcome.lost_chunks + outcome.repairable + outcome.strays > 0;
    if is_any_wrong || outcome.hurt_snapshots > 0 {
        // What looks like damage may be what newer keys open.
        store.refuse_older_keys()?;
    }
    // Each was reported when it stopped answering.
    outcome.repairable += store.silent().count() as u64;
    Ok(outcome)
}

fn examine(store: &Store, options: &CheckOptions, monitor: &Monitor) -> Result<CheckOutcome> {
    let mut outcome = CheckOutcome::default();
    store.prefetch(&CHECKED);
    absent_members(store, monitor, &mut outcome);
    let superseded = index::superseded(store)?;
    let stale = index::stale_members(store, &superseded)?;
    super::stale::report(store, &stale, super::stale::UNTOUCHED, monitor);
    // Such an object is found by its name here, but not by readers that rely on listings.
    outcome.repairable += stale.values().filter(|one| one.lists_too_little()).count() as u64;
    let superseded = superseded.into_iter().map(|run| run.set).collect();
    small_objects(store, &stale, monitor, &mut outcome)?;
    if store.is_locked() {
        outcome.without_key = true;
        outcome.snapshots = store.list(ExtentKind::Snapshots)?.len() as u64;
        let bad = stripe_sets(store, &superseded, options, monitor, &mut outcome)?;
        sets::report(bad, None, monitor, &mut outcome);
        return Ok(outcome);
    }
    let snapshots = snapshots::load(store, monitor)?;
    outcome.snapshots = snapshots.len() as u64;
    let index = Index::load(store, monitor)?;
    // A member that cannot be listed is reported by what needs it.
    let _ = redundancy::count(store, &index, monitor);
    let bad = stripe_sets(store, &superseded, options, monitor, &mut outcome)?;
    let packs = PackReader::new(store, monitor);
    let mut chunks = ChunkReader::new(&packs, &index);
    let (lost, hurt) = lost_chunks(&index, &mut chunks, &bad)?;
    let (known, unknown): (Vec<_>, Vec<_>) = bad.into_iter().partition(|pack| pack.is_known);
    let survey = survey(&snapshots, &mut chunks, &index)?;
    let lost_chunks = (lost.len() + survey.missing.len()) as u64;
    // Most stores are intact, and their trees need not be read again for names.
    if !(survey.is_whole && survey.missing.is_empty() && lost.is_empty()) {
        let mut trees = Trees::new(chunks, &index, lost, survey);
        for snapshot in &snapshots {
            trees.check(store, snapshot, monitor, &mut outcome)?;
        }
    }
    // A chunk that only an interrupted backup stored, or a deleted snapshot needed, is lost to none.
    if outcome.hurt_snapshots > 0 {
        outcome.lost_chunks = lost_chunks;
        sets::report(known, Some(&hurt), monitor, &mut outcome);
    } else {
        sets::report_unneeded(known, &hurt, monitor, &mut outcome);
    }
    sets::report_unknown(unknown, monitor, &mut outcome);
    Ok(outcome)
}

/// Lists the paths of all snapshots that need lost data, as [`run`] does; returns the number of
/// damaged snapshots and paths.
///
/// # Errors
/// Fails with the errors of reading the index and the snapshots.
pub(super) fn name_hurt(
    store: &Store,
    lost: HashSet<ChunkId>,
    monitor: &Monitor,
) -> Result<CheckOutcome> {
    let mut outcome = CheckOutcome::default();
    let snapshots = snapshots::load(store, monitor)?;
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let mut chunks = ChunkReader::new(&packs, &index);
    let survey = survey(&snapshots, &mut chunks, &index)?;
    let mut trees = Trees::new(chunks, &index, lost, survey);
    let mut snapshots = snapshots.iter();
    snapshots.try_for_each(|snapshot| trees.check(store, snapshot, monitor, &mut outcome))?;
    Ok(outcome)
}

fn absent_members(store: &Store, monitor: &Monitor, outcome: &mut CheckOutcome) {
    for number in store.absent() {
        let slot = &store.member_slots[number];
        let error = store
            .absence_as(number, &format!("member {number} is absent"))
            .advice(attach_or_replace(number));
        monitor.warning(&slot.place, error);
        outcome.repairable += 1;
    }
}

/// Checks that every member has complete labels, keys, snapshots, marks and tombstones.
fn small_objects(
    store: &Store,
    stale: &BTreeMap<usize, Stale>,
    monitor: &Monitor,
    outcome: &mut CheckOutcome,
) -> Result<()> {
    labels(store, monitor, outcome);
    for (_, member) in store.present() {
        if let Some(error) = ExtentKind::ALL.into_iter().find_map(|kind| member.list(kind).err()) {
            if error.kind() != Kind::Unanswered {
                outcome.repairable += 1;
            }
            monitor.warning(member.place(), error.advice("the disk may be failing: replace it"));
        }
    }
    let names: Vec<_> = store.lasting_objects()?.into_iter().collect();
    let members: Vec<usize> = store.present().map(|(number, _)| number).collect();
    for names in names.chunks(AHEAD_OBJECTS) {
        let of =
            |name: &ExtentName| members.iter().map(|number| (*number, *name)).collect::<Vec<_>>();
        let mut ahead = ReadAhead::of(store, names.iter().flat_map(of));
        for name in names {
            small_object(store, *name, &mut ahead, stale, monitor, outcome)?;
        }
    }
    for stray in strays::find(store, None)? {
        monitor.warning(stray.place(store), stray.error);
        outcome.strays += 1;
    }
    Ok(())
}

/// A damaged label can be rebuilt from the other labels.
fn labels(store: &Store, monitor: &Monitor, outcome: &mut CheckOutcome) {
    for (number, member) in store.present() {
        let name = ExtentName::Label;
        let judged = read_small(&**member, name);
        if let Err(error) = judged.and_then(|bytes| judge(store, number, name, &bytes)) {
            let error = error.advice("run 'pinstripe repair' to rewrite the object");
            monitor.warning(member.place().join(name.path()), error);
            outcome.repairable += 1;
        }
    }
}

fn small_object(
    store: &Store,
    name: ExtentName,
    ahead: &mut ReadAhead,
    stale: &BTreeMap<usize, Stale>,
    monitor: &Monitor,
    outcome: &mut CheckOutcome,
) -> Result<()> {
    let copies = Copies::read_with(store, name, ahead)?;
    if copies.is_gone() {
        return Ok(());
    }
    let place = |member: &SharedMember| member.place().join(name.path());
    if copies.good.is_some() {
        for (number, member, error) in copies.unsound {
            // A member that was away was named, with how much it lacks.
            if error.kind() == Kind::NotFound && stale.contains_key(&number) {
                outcome.repairable += 1;
                continue;
            }
            let advice = "run 'pinstripe repair' to copy the object from another member";
            monitor.warning(place(member), error.advice(advice));
            outcome.repairable += 1;
        }
        return Ok(());
    }
    if !is_object_wanted(store, name)? {
        return Ok(());
    }
    let are_too_few = copies.are_too_few;
    let mut damaged = copies.unsound.into_iter();
    let damaged = damaged.find(|(_, _, error)| error.kind() != Kind::NotFound);
    let Some((_, member, error)) = damaged else { return Ok(()) };
    let place = place(member);
    match name {
        // Reported where the snapshots are read, unless the snapshot is not wanted any more.
        ExtentName::In(ExtentKind::Snapshots, _) if !store.is_locked() => {}
        ExtentName::In(ExtentKind::Forgotten, _) => monitor.warning(
            place,
            error.advice(
                "no member has an intact copy of this mark, so a forgotten snapshot may be shown \
                 again",
            ),
        ),
        // Without MACs members vote: the others may be those that are absent.
        ExtentName::In(ExtentKind::Keys, _) if are_too_few => {
            outcome.repairable += 1;
            let advice = "attach all members, then run 'pinstripe repair'";
            monitor.warning(place, error.advice(advice));
        }
        ExtentName::In(ExtentKind::Keys, _) if store.config.encryption != Encryption::None => {
            outcome.lost += 1;
            let advice = "no member has an intact copy of this key slot; if another key slot opens \
                          the store, add a new key slot with 'pinstripe key add', and remove this \
                          one with 'pinstripe key remove'";
            monitor.loss(place, error.advice(advice));
        }
        _ => {
            outcome.lost += 1;
            monitor.loss(place, error.advice("no member has an intact copy of this object"));
        }
    }
    Ok(())
}
