//! Checkpoints: the durable progress of backups that have not ended.
//!
//! A checkpoint has the fields of a snapshot: the id of the snapshot that its backup would have
//! made, and a count that marks it as a checkpoint. A checkpoint has a random name under a kind of its
//! own. The object kind and the sealing context of a checkpoint differ from those of a snapshot, so
//! the two cannot be confused; in stores of format version 1 a checkpoint was a snapshot object. No
//! verb restores from a checkpoint: the next backup of the same host and sources reuses its
//! entries, and removes it at the end.
//!
//! Invariants: an unreadable checkpoint costs only time, so it is never a loss. The chunks below a
//! checkpoint are in use, like those of a snapshot. An object with the count `incomplete` is
//! refused where a snapshot is expected.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::label::Format;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName, snapshot};
use pinstripe_stripe::Sealer;

use super::Store;

/// The name of the count that marks a checkpoint.
pub const MARK: &str = "incomplete";

/// Refuses a snapshot object that is a checkpoint.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] for a checkpoint.
pub fn refuse(snapshot: &Snapshot) -> Result<()> {
    match snapshot.count(MARK) {
        None => Ok(()),
        Some(_) => Err(Error::new(
            Kind::Corrupt,
            "this object is the checkpoint of an interrupted backup, not a snapshot",
        )),
    }
}

/// Returns a name for a new checkpoint.
///
/// # Errors
/// Fails when the system provides no randomness.
pub(crate) fn new_name(store: &Store) -> Result<ExtentName> {
    Ok(ExtentName::In(ExtentKind::Checkpoints, store.new_name()?))
}

/// Encodes a checkpoint in the form that this store uses.
///
/// # Errors
/// Fails with [`Kind::Io`] when the cipher refuses.
pub fn encode(store: &Store, sealer: &Sealer, checkpoint: &Snapshot) -> Result<Vec<u8>> {
    match store.format {
        Format::V1 => sealer.snapshot(checkpoint),
        Format::V2 => sealer.checkpoint(checkpoint),
    }
}

/// Returns all checkpoints with their names, newest first; of the checkpoints of one backup, the
/// one with the most progress first. An unreadable checkpoint is reported as a warning.
///
/// # Errors
/// Fails with the errors of [`Store::list`].
pub fn load(store: &Store, monitor: &Monitor) -> Result<Vec<(ExtentName, Snapshot)>> {
    let mut found = Vec::new();
    for id in store.list(ExtentKind::Checkpoints)?.into_keys() {
        let name = ExtentName::In(ExtentKind::Checkpoints, id);
        match store.read_object(name, |bytes| decode(store, bytes)) {
            Ok(checkpoint) => found.push((name, checkpoint)),
            // Its backup reached an end meanwhile.
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => monitor.warning(name.path(), error),
        }
    }
    let order = |it: &Snapshot| (it.created_seconds, it.created_nanos, it.root.entries);
    found.sort_by_key(|(_, checkpoint)| std::cmp::Reverse(order(checkpoint)));
    Ok(found)
}

/// Checks that the bytes are a checkpoint of this store, as far as this is possible without a key.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] when they are damaged or belong to another store.
pub fn judge(store: &Store, bytes: &[u8]) -> Result<()> {
    if snapshot::parse_checkpoint(bytes)?.store != store.config.store {
        return Err(Error::new(Kind::Corrupt, "this object is not a checkpoint of this store"));
    }
    Ok(())
}

fn decode(store: &Store, bytes: &[u8]) -> Result<Snapshot> {
    let checkpoint = store.opener().checkpoint(bytes)?;
    if checkpoint.store != store.config.store || checkpoint.count(MARK).is_none() {
        return Err(Error::new(Kind::Corrupt, "this object is not a checkpoint of this store"));
    }
    Ok(checkpoint)
}
