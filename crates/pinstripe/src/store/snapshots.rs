//! Finds snapshots: every intact snapshot object on any member, and snapshots by the names that
//! users give.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SnapshotId, find_by_name};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::gc::{DeletionStep, GcObject};
use pinstripe_member::label::Encryption;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentName, Room, SharedMember};

use super::objects::Quorum;
use super::{Store, checkpoints, deletion, forgotten, read_small};

/// A snapshot, and whether it is marked as forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Whether the snapshot is marked as forgotten.
    pub is_forgotten: bool,
}

/// Returns all snapshots that are wanted, oldest first. A snapshot is reported as a loss if every
/// copy of it is damaged.
///
/// # Errors
/// Fails with the errors of [`load_all`].
pub fn load(store: &Store, monitor: &Monitor) -> Result<Vec<Snapshot>> {
    let known = load_all(store, monitor)?.into_iter();
    Ok(known.filter(|known| !known.is_forgotten).map(|known| known.snapshot).collect())
}

/// Returns all snapshots, including forgotten ones, oldest first. Deleted snapshots that a member
/// brought back after an absence are not included, nor are voids of sessions that were ended from
/// outside.
///
/// # Errors
/// Fails with the errors of [`Store::list`], with [`Kind::Unsupported`] when a newer version wrote
/// a snapshot, or with [`Kind::Locked`] when one is sealed with a key that is not available.
pub fn load_all(store: &Store, monitor: &Monitor) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    let mut lost = Vec::new();
    let listed = store.list(Room::Snapshots)?;
    let ids: Vec<_> = listed.keys().copied().collect();
    let decode = |id, bytes: &[u8]| decode(store, SnapshotId(id), bytes);
    let ahead = store.read_ahead(Room::Snapshots, &ids, needed(store), decode);
    for ((id, holders), ahead) in listed.into_iter().zip(ahead) {
        let id = SnapshotId(id);
        match ahead.map_or_else(|| read(store, id), Ok) {
            Ok(snapshot) => known.push(Known { snapshot, is_forgotten: false }),
            // Deleted since it was listed.
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(_) if is_void(store, id) => {}
            // On too few members to be a snapshot that any backup finished: a stray.
            Err(error) if error.kind() == Kind::KeysChanged => return Err(error),
            Err(error) if holders.len() < store.votes_on_damage() => {
                monitor.warning(ExtentName::snapshot(id).path(), error);
            }
            Err(error) if error.kind() == Kind::Unsupported || error.kind().is_about_keys() => {
                return Err(error);
            }
            Err(error) => lost.push((id, error)),
        }
    }
    // Read last: a collector removes the mark only after the snapshot, so a snapshot that was
    // deleted meanwhile still has its mark and is not reported as a loss.
    let marks = forgotten::load(store, Quorum::Backup)?;
    for (id, error) in lost {
        if !marks.is_forgotten(id) {
            monitor.loss(ExtentName::snapshot(id).path(), error);
        }
    }
    known.iter_mut().for_each(|it| it.is_forgotten = marks.is_forgotten(it.snapshot.id));
    known.sort_by_key(|Known { snapshot, .. }| {
        (snapshot.created_seconds, snapshot.created_nanos, snapshot.id)
    });
    Ok(known)
}

/// Whether a snapshot exists and is not forgotten, at this moment.
///
/// # Errors
/// Fails with the errors of [`Store::objects`], or with the error of reading the snapshot if it
/// exists.
pub fn is_wanted(store: &Store, id: SnapshotId) -> Result<bool> {
    if forgotten::load(store, Quorum::Backup)?.is_forgotten(id)
        || deletion::dead(store, Room::Snapshots)?.contains(&id.0)
    {
        return Ok(false);
    }
    match read(store, id) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == Kind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a void has the name of a snapshot, because its session was ended from outside. A
/// snapshot on any member takes precedence.
pub fn is_void(store: &Store, id: SnapshotId) -> bool {
    store.read_object(ExtentName::snapshot(id), |bytes| read_void(store, id.0, bytes)).is_ok()
}

/// Whether this member has a void under the name of a snapshot. Anything else under the name of a
/// future snapshot is damaged or forged, and does not prevent a backup from committing.
pub(crate) fn is_void_on(store: &Store, member: &SharedMember, name: ExtentName) -> bool {
    let ExtentName::In(Room::Snapshots, id) = name else { return false };
    let void = read_small(&**member, name).and_then(|bytes| read_void(store, id, &bytes));
    // With newer keys only a rotation puts something there, to end this session.
    void.map_or_else(|error| error.kind() == Kind::KeysChanged, |()| true)
}

/// Whether this member has a snapshot with this name.
pub(crate) fn is_on(store: &Store, member: &SharedMember, name: ExtentName) -> bool {
    let snapshot = read_small(&**member, name).and_then(|bytes| open(store, &bytes));
    snapshot.is_ok_and(|it| ExtentName::snapshot(it.id) == name)
}

/// Reads the void that has a certain name.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for anything else.
pub(crate) fn read_void(store: &Store, name: [u8; 16], bytes: &[u8]) -> Result<()> {
    store.verify(ExtentName::In(Room::Snapshots, name), bytes)?;
    match GcObject::decode(bytes)? {
        GcObject { step: DeletionStep::Void { .. }, condemnation, .. }
            if condemnation.0 == name =>
        {
            Ok(())
        }
        _ => Err(Error::new(Kind::Corrupt, "this is not a void mark")),
    }
}

/// Reads one snapshot from any member with an intact copy.
///
/// # Errors
/// Fails when none has.
pub fn read(store: &Store, id: SnapshotId) -> Result<Snapshot> {
    let decode = |bytes: &[u8]| decode(store, id, bytes);
    match store.config.encryption {
        Encryption::None => store.read_agreed(ExtentName::snapshot(id), decode),
        _ => store.read_object(ExtentName::snapshot(id), decode),
    }
}

/// Returns the number of members that must have the same snapshot. In a store without encryption,
/// only this number distinguishes a snapshot from one that a member forged under its name.
fn needed(store: &Store) -> usize {
    if store.config.encryption == Encryption::None { store.votes() } else { 1 }
}

fn decode(store: &Store, id: SnapshotId, bytes: &[u8]) -> Result<Snapshot> {
    let snapshot = open(store, bytes)?;
    if snapshot.id != id || snapshot.store != store.config.store {
        return Err(Error::new(
            Kind::Corrupt,
            "the content of this snapshot object does not match its name",
        )
        .expected(id, snapshot.id));
    }
    checkpoints::refuse(&snapshot)?;
    Ok(snapshot)
}

/// Opens a snapshot object, which may have been sealed with newer keys.
///
/// # Errors
/// Fails with [`Kind::KeysChanged`] when the keys were rotated since this process opened the store,
/// or with the errors of the opener.
pub(crate) fn open(store: &Store, bytes: &[u8]) -> Result<Snapshot> {
    store.opener().snapshot(bytes).map_err(|error| store.newer_or_forged(error))
}

/// Finds the snapshot for `name`: `latest`, or the beginning of an id.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is none, with [`Kind::Usage`] when several ids begin
/// with this text.
pub fn find<'a>(snapshots: &'a [Snapshot], name: &str) -> Result<&'a Snapshot> {
    let list = "'pinstripe snapshots' lists the snapshots";
    if name == "latest" {
        return snapshots.last().ok_or_else(|| {
            Error::new(Kind::NotFound, "the store has no snapshot yet")
                .advice("make a snapshot with 'pinstripe backup PATH'")
        });
    }
    find_by_name(snapshots, |snapshot| snapshot.id, name, "snapshot")
        .map_err(|error| error.advice(list))
}
