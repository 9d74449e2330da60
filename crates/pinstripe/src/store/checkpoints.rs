//! Checkpoints: what backups that have not come to their end have made durable so far.
//!
//! A checkpoint is a snapshot object in a room of its own, under a random name, with the id of the
//! snapshot that its backup would have made and a count that marks it. Nobody restores from one:
//! the next backup of the same host and sources takes entries over from it, and its end removes it.
//!
//! Invariants: one that cannot be read costs time and nothing else, so it is never a loss; the
//! chunks below one are in use, like those of a snapshot.

use crate::error::{Error, Kind, Result};
use crate::format::snapshot::{self, Snapshot};
use crate::member::{ExtentName, Room};
use crate::monitor::Monitor;

use super::Store;

/// The count that marks a snapshot object as a checkpoint.
pub const MARK: &str = "incomplete";

/// A name for a new checkpoint.
///
/// # Errors
/// When the system has no randomness.
pub fn new_name(store: &Store) -> Result<ExtentName> {
    Ok(ExtentName::In(Room::Checkpoints, store.new_name()?))
}

/// All checkpoints with their names, newest first: the latest begun, and of one backup the
/// furthest. What cannot be read is a warning.
///
/// # Errors
/// As [`Store::list`].
pub fn load(store: &Store, monitor: &Monitor) -> Result<Vec<(ExtentName, Snapshot)>> {
    let mut found = Vec::new();
    for id in store.list(Room::Checkpoints)?.into_keys() {
        let name = ExtentName::In(Room::Checkpoints, id);
        match store.read_object(name, |bytes| decode(store, bytes)) {
            Ok(checkpoint) => found.push((name, checkpoint)),
            // Its backup came to an end meanwhile.
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => monitor.warning(name.path(), error),
        }
    }
    let order = |it: &Snapshot| (it.created_seconds, it.created_nanos, it.root.entries);
    found.sort_by_key(|(_, checkpoint)| std::cmp::Reverse(order(checkpoint)));
    Ok(found)
}

/// Whether the bytes are those of a checkpoint, as far as can be told without a key.
///
/// # Errors
/// [`Kind::Corrupt`] when they are damaged or of another store.
pub fn judge(store: &Store, bytes: &[u8]) -> Result<()> {
    if snapshot::parse(bytes)?.store != store.config.store {
        return Err(Error::new(Kind::Corrupt, "this is no checkpoint of this store"));
    }
    Ok(())
}

fn decode(store: &Store, bytes: &[u8]) -> Result<Snapshot> {
    let checkpoint = store.opener().snapshot(bytes)?;
    if checkpoint.store != store.config.store || checkpoint.count(MARK).is_none() {
        return Err(Error::new(Kind::Corrupt, "this is no checkpoint of this store"));
    }
    Ok(checkpoint)
}
