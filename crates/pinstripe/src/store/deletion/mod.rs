//! Deletion concurrent with writers: condemned, acknowledged, reaping, tombstone.
//!
//! ```text
//! collector                                     writer (backup)
//! read marks, sessions, snapshots -> roots      put session
//! mark what they need; choose packs             read marks: parent must not be forgotten
//! put CONDEMNED                                 load index, then read steps: the packs that they
//!                                                  name are unknown, also those of a TOMBSTONE
//! every session there is: ended, dead or ACK    now and then: flag what is condemned as unknown,
//! read again what is needed -> what is left        then put ACK with what was used before
//! put REAPING; sessions, marks, CONDEMNED again put snapshot; remove session
//! delete; put TOMBSTONE
//! remove CONDEMNED, REAPING, ACKs
//! ```
//!
//! Invariants: the objects of deletion are put once and never changed. A process that puts an
//! object checks afterwards for any object that forbids this, so at least one of two racing
//! processes sees the other. No decision depends on a clock. The safety argument for each race is
//! in doc/decisions/0011-deletion.md. An object that deletes, hides or answers for a writer counts
//! only if a holder of the keys put it, or if as many members have it as any writer must have
//! reached; an object that only makes a writer or a collector more cautious counts even on one
//! member.
//!
//! Not in this module: choosing packs to condemn (ops/), waiting (ops/), and the extents of packs
//! in use.

pub mod acknowledge;
pub mod decide;
#[cfg(test)]
mod model;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{CondemnationId, SessionId, SetId, SnapshotId};
use pinstripe_member::gc::{DeletionStep, GcObject, Lists, reaping_name};
use pinstripe_member::session::Work;
use pinstripe_member::{ExtentKind, ExtentName};

use super::objects::{Belief, KindObjects, Quorum};
use super::{Store, read_small, sessions};

/// The objects of one condemnation, by what they say.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Case {
    /// The session of the collector that condemned.
    pub by: Option<SessionId>,
    /// The lists that were condemned.
    pub condemned: Option<Lists>,
    /// The sessions that answered, and the packs on which each relies.
    pub acks: BTreeMap<SessionId, Vec<SetId>>,
    /// The lists that are being deleted.
    pub reaping: Option<Lists>,
    /// The lists that were deleted.
    pub tombstone: Option<Lists>,
}

/// All condemnations: those that count, and those that too few members have to be acted upon.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Cases(pub BTreeMap<CondemnationId, Case>, BTreeMap<CondemnationId, Case>);

impl Case {
    /// Records one object. Voids have no effect here.
    fn add(&mut self, object: GcObject) {
        let case = self;
        match object.step {
            DeletionStep::Condemned(lists) => {
                case.by = Some(object.by);
                case.condemned = Some(lists);
            }
            DeletionStep::Ack { session, packs } => drop(case.acks.insert(session, packs)),
            DeletionStep::Reaping(lists) => {
                case.by = Some(object.by);
                case.reaping = Some(lists);
            }
            DeletionStep::Tombstone(lists) => case.tombstone = Some(lists),
            DeletionStep::Void { .. } => {}
        }
    }
}

impl Cases {
    /// Records one object that counts. Voids have no effect here.
    pub fn add(&mut self, object: GcObject) {
        Self::add_to(&mut self.0, object);
    }

    fn add_to(cases: &mut BTreeMap<CondemnationId, Case>, object: GcObject) {
        if !matches!(object.step, DeletionStep::Void { .. }) {
            cases.entry(object.condemnation).or_default().add(object);
        }
    }

    /// Returns the packs on which no writer may begin to rely: condemned and not yet deleted,
    /// except those of `except`. A condemnation on one member is enough, because a chunk that is
    /// not relied upon is merely stored again.
    pub(crate) fn condemned(&self, except: Option<CondemnationId>) -> HashSet<SetId> {
        let open = self.0.iter().chain(&self.1).filter(|(id, _)| Some(**id) != except);
        let lists = open.flat_map(|(_, case)| case.condemned.iter().chain(&case.reaping));
        lists.flat_map(|lists| lists.packs.iter().copied()).collect()
    }

    /// Returns every condemnation that any member has: a writer answers all of them, which is
    /// harmless.
    pub(crate) fn said_by_any(self) -> BTreeMap<CondemnationId, Case> {
        let mut all = self.1;
        all.extend(self.0);
        all
    }

    /// Returns the packs that no longer count: those that other collectors have condemned, and
    /// those deleted. A chunk that such a pack has must be in another pack too, or a backup must
    /// store it again.
    pub(crate) fn lost_to_others(&self, own: Option<CondemnationId>) -> HashSet<SetId> {
        let mut packs = self.condemned(own);
        packs.extend(self.dead_packs());
        packs
    }

    /// The lists of all tombstones: an object on them that reappears belongs to no writer.
    pub(crate) fn tombstones(&self) -> impl Iterator<Item = &Lists> {
        self.0.values().filter_map(|case| case.tombstone.as_ref())
    }

    /// The lists whose content is being deleted.
    pub fn reaping(&self) -> impl Iterator<Item = &Lists> {
        self.0.values().filter_map(|case| case.reaping.as_ref())
    }

    /// The lists that any member says are being deleted: too late to be undone.
    pub(crate) fn reaping_by_any(&self) -> impl Iterator<Item = &Lists> {
        self.0.values().chain(self.1.values()).filter_map(|case| case.reaping.as_ref())
    }

    /// Returns the packs that are deleted.
    pub(crate) fn dead_packs(&self) -> HashSet<SetId> {
        self.tombstones().flat_map(|lists| lists.packs.iter().copied()).collect()
    }

    /// Returns the packs or snapshots in tombstones that too few members have to be believed.
    fn dead_by_few(&self, kind: ExtentKind) -> HashSet<[u8; 16]> {
        let lists = self.1.values().filter_map(|case| case.tombstone.as_ref());
        let ids = lists.flat_map(|lists| match kind {
            ExtentKind::Packs => lists.packs.iter().map(|id| id.0).collect(),
            ExtentKind::Snapshots => lists.snapshots.iter().map(|(id, _)| id.0).collect(),
            _ => Vec::new(),
        });
        ids.collect()
    }

    /// Returns packs that are deleted or being deleted according to objects on too few members to
    /// be believed.
    fn packs_going_by_few(&self) -> HashSet<[u8; 16]> {
        let reaping = self.1.values().filter_map(|case| case.reaping.as_ref());
        let mut packs = self.dead_by_few(ExtentKind::Packs);
        packs.extend(reaping.flat_map(|lists| lists.packs.iter().map(|id| id.0)));
        packs
    }

    /// Returns the snapshots in tombstones that too few members have to be believed.
    pub(crate) fn snapshots_dead_by_few(&self) -> BTreeSet<SnapshotId> {
        self.dead_by_few(ExtentKind::Snapshots).into_iter().map(SnapshotId).collect()
    }

    /// The lists of tombstones on any member: nothing on them can be undeleted any more.
    pub(crate) fn tombstones_by_any(&self) -> impl Iterator<Item = &Lists> {
        self.0.values().chain(self.1.values()).filter_map(|case| case.tombstone.as_ref())
    }

    /// Returns the packs that are deleted or being deleted: repair rebuilds none of them.
    pub(crate) fn going_packs(&self) -> HashSet<SetId> {
        let lists = self.tombstones().chain(self.reaping());
        lists.flat_map(|lists| lists.packs.iter().copied()).collect()
    }

    /// Returns the snapshots that are deleted, or that their writers never finished.
    pub(crate) fn dead_snapshots(&self) -> BTreeSet<SnapshotId> {
        let dead = |lists: &Lists| {
            let marked: Vec<_> = lists.snapshots.iter().map(|(id, _)| *id).collect();
            marked.into_iter().chain(lists.abandoned.clone())
        };
        self.tombstones().flat_map(dead).collect()
    }
}

/// Reads all condemnations. A damaged acknowledgement counts as missing: the collector waits for
/// it. A list without an intact copy on any member is ignored, unless a gc is running.
///
/// # Errors
/// Fails with the errors of [`Store::objects`], or with [`Kind::Busy`] when another process
/// collects and a step of deletion cannot be read.
pub fn load(store: &Store, quorum: Quorum) -> Result<Cases> {
    let found = list(store, quorum)?;
    if let Some((name, error)) = found.unsound.into_iter().next()
        && is_another_gc_at_work(store, quorum)?
    {
        return Err(Error::new(
            Kind::Busy,
            format!("another 'pinstripe gc' is running: {}", error.what()),
        )
        .at(name.path())
        .advice(
            "no member has an intact copy of this record of the deletion; run this command again \
             when the other 'pinstripe gc' has ended",
        ));
    }
    Ok(cases(found.sound, found.few))
}

/// Whether another process is collecting. If none is, a step that no member can read has no owner:
/// its gc would have put its session before the step.
fn is_another_gc_at_work(store: &Store, quorum: Quorum) -> Result<bool> {
    let own = store.process();
    let at_work = sessions::readable_at_work(store, None, quorum)?;
    Ok(at_work.iter().any(|it| it.work == Work::Collect && it.process != own))
}

/// Returns the names of steps that no member can read.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(crate) fn unreadable(store: &Store) -> Result<Vec<ExtentName>> {
    let found = list(store, Quorum::Deletion)?;
    Ok(found.unsound.into_iter().map(|(name, _)| name).collect())
}

/// Returns the names of all steps that count.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(crate) fn names(store: &Store) -> Result<Vec<ExtentName>> {
    let sound = list(store, Quorum::Backup)?.sound.into_keys();
    Ok(sound.map(|id| ExtentName::In(ExtentKind::Gc, id)).collect())
}

fn readable(store: &Store, quorum: Quorum) -> Result<Cases> {
    list(store, quorum).map(|found| cases(found.sound, found.few))
}

/// Times that the steps are read while steps that it lists are removed meanwhile.
const LOOKS_MAX: usize = 8;

/// Reads the steps until none is removed between the list and the read: before a collector removes
/// a step it puts a later one, which the list may lack. A malicious member can list names of objects
/// that do not exist, so a name is missed once.
fn list(store: &Store, quorum: Quorum) -> Result<KindObjects<GcObject>> {
    let look = || {
        store
            .objects(ExtentKind::Gc, quorum, Belief::Agreed, |name, bytes| read(store, name, bytes))
    };
    let (mut found, mut missed) = (look()?, BTreeSet::new());
    for _ in 1..LOOKS_MAX {
        if found.vanished.is_subset(&missed) {
            break;
        }
        missed.append(&mut found.vanished);
        // Prefetched answers are older than the step that was just missed.
        store.prefetch(&[]);
        found = look()?;
    }
    Ok(found)
}

fn cases(sound: BTreeMap<[u8; 16], GcObject>, few: BTreeMap<[u8; 16], GcObject>) -> Cases {
    let mut cases = Cases::default();
    sound.into_values().for_each(|object| cases.add(object));
    few.into_values().for_each(|object| Cases::add_to(&mut cases.1, object));
    cases
}

/// Returns the names of a kind that are deleted, as far as tombstones can be read.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub fn dead(store: &Store, kind: ExtentKind) -> Result<HashSet<[u8; 16]>> {
    let cases = readable(store, Quorum::Backup)?;
    Ok(match kind {
        ExtentKind::Packs => cases.dead_packs().into_iter().map(|id| id.0).collect(),
        ExtentKind::Snapshots => cases.dead_snapshots().into_iter().map(|id| id.0).collect(),
        _ => HashSet::new(),
    })
}

/// Removes deleted extents from a kind's list of extents and their members. A tombstone that too
/// few members have counts only for extents that no more members have: a member brought these back.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(super) fn leave_out_dead(
    store: &Store,
    kind: ExtentKind,
    extents: &mut BTreeMap<[u8; 16], Vec<usize>>,
) -> Result<()> {
    let (dead, few) = (dead(store, kind)?, readable(store, Quorum::Backup)?.dead_by_few(kind));
    let votes = store.votes();
    extents.retain(|id, holders| !(dead.contains(id) || few.contains(id) && holders.len() < votes));
    Ok(())
}

/// Returns the snapshots that are being deleted, each with the generation of its mark. A collector
/// lists only snapshots with a mark that counts, so the list proves the mark even while the members
/// that have the mark are absent.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(super) fn reaped_marks(store: &Store, quorum: Quorum) -> Result<Vec<(SnapshotId, u32)>> {
    let cases = readable(store, quorum)?;
    Ok(cases.reaping().flat_map(|lists| lists.snapshots.iter().copied()).collect())
}

/// Returns the packs that are deleted or being deleted, as far as the objects of deletion can be
/// read: the absence of these packs is not a loss.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(crate) fn going_packs(store: &Store) -> Result<HashSet<SetId>> {
    // Prefetched answers may be older than the read that the caller missed.
    store.prefetch(&[]);
    let cases = readable(store, Quorum::Backup)?;
    let mut going = cases.going_packs();
    let few = cases.packs_going_by_few();
    if !few.is_empty() {
        let mut holders: BTreeMap<[u8; 16], usize> = BTreeMap::new();
        for (_, member) in store.present() {
            let listed = member.names(ExtentKind::Packs).unwrap_or_default();
            listed.into_iter().for_each(|id| *holders.entry(id).or_default() += 1);
        }
        let votes = store.votes();
        let is_left = |id: &[u8; 16]| holders.get(id).copied().unwrap_or(0) < votes;
        going.extend(few.into_iter().filter(is_left).map(SetId));
    }
    Ok(going)
}

/// Whether this pack is being deleted, perhaps only since the caller began to read it: then a
/// missing extent is not damage, and is not rebuilt.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(crate) fn is_going(store: &Store, name: ExtentName) -> Result<bool> {
    let ExtentName::In(ExtentKind::Packs, id) = name else { return Ok(false) };
    Ok(going_packs(store)?.contains(&SetId(id)))
}

/// Reads one object of deletion.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] if the bytes are not an object of deletion, or belong to another
/// name.
pub fn read(store: &Store, name: [u8; 16], bytes: &[u8]) -> Result<GcObject> {
    let object = GcObject::decode(bytes)?;
    store.verify(ExtentName::In(ExtentKind::Gc, name), bytes)?;
    if object.name() != name || object.store != store.config.store {
        return Err(Error::new(
            Kind::Corrupt,
            "the content of this step of deletion does not match its name",
        ));
    }
    Ok(object)
}

/// Puts a step of deletion on the members.
///
/// # Errors
/// Fails with [`Kind::Exists`] when another object has the name, or with the errors of the members.
pub fn put(
    store: &Store,
    condemnation: CondemnationId,
    by: SessionId,
    step: DeletionStep,
    quorum: Quorum,
) -> Result<()> {
    let object = GcObject { store: store.config.store, condemnation, by, step };
    store.put_all(ExtentName::In(ExtentKind::Gc, object.name()), &object.encode(), quorum)
}

/// Returns the names of all tombstones that can be read: they are kept on every member.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(crate) fn tombstone_names(store: &Store) -> Result<Vec<ExtentName>> {
    let cases = readable(store, Quorum::Backup)?.0.into_iter();
    let dead = cases.filter(|(_, case)| case.tombstone.is_some());
    Ok(dead.map(|(id, _)| step_name(id, DeletionStep::Tombstone)).collect())
}

/// Whether this condemnation is in force: a reaping object is on some member, and the condemned
/// object is on all members except as many as parity replaces. The collector put the condemned
/// object on at least this many members before it deleted anything, whichever members were absent
/// then. If the condemnation was withdrawn while members were absent, fewer members return with the
/// object.
///
/// # Errors
/// Fails with a member's own error when it does not answer.
pub fn stands(store: &Store, condemnation: CondemnationId) -> Result<bool> {
    let holders = |name: ExtentName| {
        let ExtentName::In(_, id) = name else { return Ok(0) };
        store.present().try_fold(0, |holders, (_, member)| {
            match read_small(&**member, name).and_then(|bytes| read(store, id, &bytes)) {
                Ok(_) => Ok(holders + 1),
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Corrupt) => Ok(holders),
                Err(error) => store.or_without(member, Err(error)).map(|()| holders),
            }
        })
    };
    let reaping: usize = holders(ExtentName::In(ExtentKind::Gc, reaping_name(condemnation)))?;
    let condemned = holders(step_name(condemnation, DeletionStep::Condemned))?;
    Ok(reaping > 0 && condemned >= store.least_members(Quorum::Backup))
}

/// Withdraws a condemnation, as if it had never been put. The condemned object is removed last, so
/// that a reaping object without it is always a leftover.
///
/// # Errors
/// Fails with the errors of the members.
pub(crate) fn withdraw(store: &Store, condemnation: CondemnationId, case: &Case) -> Result<()> {
    store.delete_all(ExtentName::In(ExtentKind::Gc, reaping_name(condemnation)))?;
    store.delete_all(step_name(condemnation, DeletionStep::Condemned))?;
    remove_acks(store, condemnation, case)
}

/// Removes the other objects of a condemnation that was carried out; its tombstone stays. The
/// objects may be removed in any order; an object that returns is ignored because the tombstone
/// exists.
///
/// # Errors
/// Fails with the errors of the members.
pub fn clear(store: &Store, condemnation: CondemnationId, case: &Case) -> Result<()> {
    store.drop_all(step_name(condemnation, DeletionStep::Condemned))?;
    store.drop_all(ExtentName::In(ExtentKind::Gc, reaping_name(condemnation)))?;
    remove_acks(store, condemnation, case)?;
    store.sync_all()
}

/// Removes a tombstone, once no member or index has anything that it lists.
///
/// # Errors
/// Fails with the errors of the members.
pub(crate) fn remove_tombstone(store: &Store, condemnation: CondemnationId) -> Result<()> {
    store.delete_all(step_name(condemnation, DeletionStep::Tombstone))
}

fn remove_acks(store: &Store, condemnation: CondemnationId, case: &Case) -> Result<()> {
    case.acks.keys().try_for_each(|&session| {
        let ack = DeletionStep::Ack { session, packs: Vec::new() };
        store.drop_all(object_name(condemnation, ack))
    })
}

fn step_name(condemnation: CondemnationId, step: impl Fn(Lists) -> DeletionStep) -> ExtentName {
    object_name(condemnation, step(Lists::default()))
}

fn object_name(condemnation: CondemnationId, step: DeletionStep) -> ExtentName {
    let by = SessionId([0; 16]);
    let object = GcObject { store: pinstripe_base::id::StoreId([0; 16]), condemnation, by, step };
    ExtentName::In(ExtentKind::Gc, object.name())
}
