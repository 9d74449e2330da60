//! Finding snapshots: every sound snapshot object on any member, and names as people give them.

use crate::error::{Error, Kind, Result};
use crate::format::snapshot::Snapshot;
use crate::id::SnapshotId;
use crate::member::{ExtentName, Room};
use crate::monitor::Monitor;

use super::Store;

/// All snapshots, oldest first. One whose every copy is damaged is reported as a loss.
///
/// # Errors
/// As [`Store::list`]; [`Kind::Unsupported`] when a newer version wrote one, [`Kind::Locked`] when
/// one is sealed under a key that is not at hand.
pub fn load(store: &Store, monitor: &Monitor) -> Result<Vec<Snapshot>> {
    let mut snapshots = Vec::new();
    for id in store.list(Room::Snapshots)?.into_keys().map(SnapshotId) {
        match read(store, id) {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Locked) => {
                return Err(error);
            }
            Err(error) => monitor.loss(ExtentName::snapshot(id).path(), error),
        }
    }
    snapshots
        .sort_by_key(|snapshot| (snapshot.created_seconds, snapshot.created_nanos, snapshot.id));
    Ok(snapshots)
}

/// Reads one snapshot from whichever member has it sound.
///
/// # Errors
/// When none has.
pub fn read(store: &Store, id: SnapshotId) -> Result<Snapshot> {
    store.read_object(ExtentName::snapshot(id), |bytes| {
        let snapshot = store.opener().snapshot(bytes)?;
        if snapshot.id != id || snapshot.store != store.config.store {
            return Err(Error::new(Kind::Corrupt, "this snapshot has another name")
                .expected(id, snapshot.id));
        }
        Ok(snapshot)
    })
}

/// Picks the snapshot that `name` means: `latest`, or the beginning of an id.
///
/// # Errors
/// [`Kind::NotFound`] when there is none, [`Kind::Usage`] when several begin so.
pub fn find<'a>(snapshots: &'a [Snapshot], name: &str) -> Result<&'a Snapshot> {
    let list = "list them with: pinstripe snapshots";
    if name == "latest" {
        return snapshots.last().ok_or_else(|| {
            Error::new(Kind::NotFound, "the store has no snapshot yet")
                .advice("make one: pinstripe backup PATH")
        });
    }
    let mut matching =
        snapshots.iter().filter(|snapshot| snapshot.id.to_string().starts_with(name));
    match (matching.next(), matching.next()) {
        (Some(snapshot), None) if name.len() >= 4 => Ok(snapshot),
        (Some(_), _) => {
            Err(Error::new(Kind::Usage, format!("'{name}' is too short for one snapshot"))
                .advice(list))
        }
        (None, _) => Err(Error::new(Kind::NotFound, format!("no snapshot '{name}'")).advice(list)),
    }
}
