//! Finds snapshots: every intact snapshot object on any member, and the latest one.

use std::collections::{HashMap, HashSet};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::gc::{DeletionStep, GcObject};
use pinstripe_member::label::Encryption;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName, SharedMember};

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
    let listed = store.list(ExtentKind::Snapshots)?;
    let ids: Vec<_> = listed.keys().copied().collect();
    let decode = |id, bytes: &[u8]| decode(store, SnapshotId(id), bytes);
    let ahead = store.read_ahead(ExtentKind::Snapshots, &ids, needed(store), decode);
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
        // After a later gc the mark is gone too, and only a member that fails may still have a copy.
        let name = ExtentName::snapshot(id);
        let is_there = || store.may_have(name).len() >= store.votes_on_damage();
        if !marks.is_forgotten(id) && is_there() {
            monitor.loss(name.path(), error);
        }
    }
    known.iter_mut().for_each(|it| it.is_forgotten = marks.is_forgotten(it.snapshot.id));
    known.sort_by_key(|Known { snapshot, .. }| {
        (snapshot.created_seconds, snapshot.created_nanos, snapshot.id)
    });
    Ok(known)
}

/// Whether all of these snapshots exist and none is forgotten, at this moment.
///
/// # Errors
/// Fails with the errors of [`Store::objects`], or with the error of reading a snapshot if it
/// exists.
pub(crate) fn are_wanted(store: &Store, ids: &[SnapshotId]) -> Result<bool> {
    if ids.is_empty() {
        return Ok(true);
    }
    let marks = forgotten::load(store, Quorum::Backup)?;
    let dead = deletion::dead(store, ExtentKind::Snapshots)?;
    if ids.iter().any(|id| marks.is_forgotten(*id) || dead.contains(&id.0)) {
        return Ok(false);
    }
    for &id in ids {
        match read(store, id) {
            Ok(_) => {}
            Err(error) if error.kind() == Kind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Whether a void has the name of a snapshot, because its session was ended from outside. A
/// snapshot on any member takes precedence.
pub fn is_void(store: &Store, id: SnapshotId) -> bool {
    store.read_object(ExtentName::snapshot(id), |bytes| read_void(store, id.0, bytes)).is_ok()
}

/// Whether this member has a void under the name of a snapshot. Anything else under the name of a
/// future snapshot is damaged or forged, and does not prevent a backup from committing.
pub(crate) fn is_void_on(store: &Store, member: &SharedMember, name: ExtentName) -> bool {
    let ExtentName::In(ExtentKind::Snapshots, id) = name else { return false };
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
    store.verify(ExtentName::In(ExtentKind::Snapshots, name), bytes)?;
    match GcObject::decode(bytes)? {
        GcObject { step: DeletionStep::Void { .. }, condemnation, .. }
            if condemnation.0 == name =>
        {
            Ok(())
        }
        _ => Err(Error::new(Kind::Corrupt, "this object is not the mark of an ended session")),
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

/// 2020-01-01: no snapshot is older than the program.
const EARLIEST_SECONDS: i64 = 1_577_836_800;

/// When a snapshot was made, by the clock of its host.
pub(crate) fn created(snapshot: &Snapshot) -> (i64, u32) {
    (snapshot.created_seconds, snapshot.created_nanos)
}

/// Whether a time is before that of any snapshot: the clock was never set.
pub(crate) fn is_before_all(created: (i64, u32)) -> bool {
    created.0 < EARLIEST_SECONDS
}

/// Returns the snapshots whose clock was behind when they were made: their time is before that of
/// their own parent, or before the program existed. A parent from the future proves nothing.
pub(crate) fn behind(snapshots: &[Snapshot], now: (i64, u32)) -> HashSet<SnapshotId> {
    let times: HashMap<_, _> = snapshots.iter().map(|it| (it.id, created(it))).collect();
    let is_behind = |it: &&Snapshot| {
        let parent = it.parent.and_then(|parent| times.get(&parent));
        let is_after = |parent: &(i64, u32)| *parent <= now && created(it) < *parent;
        is_before_all(created(it)) || parent.is_some_and(is_after)
    };
    snapshots.iter().filter(is_behind).map(|it| it.id).collect()
}

/// Returns the latest of some snapshots, which come sorted by time. One from the future is not, as
/// long as there is another one; one that continues the latest is later, whatever its time says.
pub(crate) fn latest<'a>(
    snapshots: impl DoubleEndedIterator<Item = &'a Snapshot> + Clone,
    now: (i64, u32),
) -> Option<&'a Snapshot> {
    let is_past = |it: &&Snapshot| created(it) <= now;
    let mut latest = snapshots.clone().rev().find(is_past).or(snapshots.clone().next_back())?;
    // Each step goes to an earlier time, so this ends.
    let continues = |it: &&Snapshot, latest: &Snapshot| {
        it.parent == Some(latest.id) && created(it) < created(latest)
    };
    while let Some(next) = snapshots.clone().rev().find(|it| continues(it, latest)) {
        latest = next;
    }
    Some(latest)
}

/// Warns if clocks disagree about which snapshot is the latest one.
pub(crate) fn warn_of_clocks(snapshots: &[Snapshot], monitor: &Monitor) {
    let now = clock::now();
    let future: Vec<_> = snapshots.iter().filter(|it| created(it) > now).collect();
    if let [first, others @ ..] = &future[..] {
        let more = match others.len() {
            0 => String::new(),
            count => format!(", and so are those of {count} other snapshots"),
        };
        let host = String::from_utf8_lossy(&first.host);
        let what =
            format!("the time of snapshot {} of {host} is in the future{more}", first.id.short());
        monitor.warning("the clock", Error::new(Kind::Usage, what).advice(ON_CLOCKS));
    }
    let behind = behind(snapshots, now);
    let mut behind = snapshots.iter().filter(|it| behind.contains(&it.id));
    if let Some(first) = behind.next() {
        let more = match behind.count() {
            0 => String::new(),
            count => format!(", and the same is true for {count} other snapshots"),
        };
        let host = String::from_utf8_lossy(&first.host);
        let short = first.id.short();
        let what = format!(
            "the clock of {host} was behind the correct time when snapshot {short} was made{more}"
        );
        monitor.warning("the clock", Error::new(Kind::Usage, what).advice(ON_CLOCKS));
    }
}

const ON_CLOCKS: &str = "'latest' and the rules of 'forget' do not use the time of such a \
                         snapshot, and the rules keep it; to remove it, run 'pinstripe forget \
                         SNAPSHOT'";

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::id::{ChunkId, StoreId};
    use pinstripe_member::snapshot::TreeRoot;

    const NOW: (i64, u32) = (1_700_000_000, 0);
    const DAY: i64 = 86_400;

    /// Snapshot `number`, made `days` days before now, which continues `parent`.
    fn snapshot(number: u8, days: i64, parent: Option<u8>) -> Snapshot {
        Snapshot {
            store: StoreId([0; 16]),
            id: SnapshotId([number; 16]),
            created_seconds: NOW.0 - days * DAY,
            created_nanos: 0,
            host: b"h".to_vec(),
            program: String::new(),
            sources: Vec::new(),
            parent: parent.map(|parent| SnapshotId([parent; 16])),
            root: TreeRoot { id: ChunkId([0; ChunkId::LEN]), height: 0, entries: 0 },
            counts: Vec::new(),
            tags: Vec::new(),
            comment: String::new(),
        }
    }

    /// The number of the latest, and those whose clock was behind.
    fn judged(mut all: Vec<Snapshot>) -> (u8, Vec<u8>) {
        all.sort_by_key(created);
        let latest = latest(all.iter(), NOW).unwrap().id.0[0];
        let mut behind: Vec<_> = behind(&all, NOW).into_iter().map(|id| id.0[0]).collect();
        behind.sort_unstable();
        (latest, behind)
    }

    #[test]
    fn no_clock_decides_alone_which_snapshot_is_the_latest() {
        let (one, two) = (snapshot(1, 3, None), snapshot(2, 2, Some(1)));
        assert_eq!(judged(vec![one.clone(), two.clone()]), (2, vec![]));
        // One from the future, and what was made after it by a clock that was right.
        let future = snapshot(3, -365, Some(2));
        let after = snapshot(4, 1, Some(3));
        assert_eq!(judged(vec![one.clone(), two.clone(), future.clone()]), (2, vec![]));
        let all = vec![one.clone(), two.clone(), future.clone(), after];
        assert_eq!(judged(all), (4, vec![]));
        assert_eq!(judged(vec![future]), (3, vec![]), "there is no other one");
        // Two made by a clock that was at 1970.
        let (third, fourth) = (snapshot(3, 19_600, Some(2)), snapshot(4, 19_601, Some(3)));
        assert_eq!(judged(vec![one.clone(), two.clone(), third, fourth]), (4, vec![3, 4]));
        // A clock that was some days behind.
        let late = snapshot(3, 9, Some(2));
        assert_eq!(judged(vec![one, two, late]), (3, vec![3]));
    }
}
