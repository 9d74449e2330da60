//! `snapshots`: lists the backups, with times and sizes.

pub use crate::store::snapshots::Known;
use crate::store::{Store, snapshots};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::snapshot::Snapshot;

/// Returns all snapshots, including forgotten ones, oldest first.
///
/// # Errors
/// Fails with the errors of [`run`].
pub fn all(store: &Store, monitor: &Monitor) -> Result<Vec<Known>> {
    snapshots::load_all(store, monitor)
}

/// Returns all snapshots that are not forgotten, oldest first.
///
/// # Errors
/// Fails when a member cannot be listed. Damaged snapshot objects are reported as losses.
pub fn run(store: &Store, monitor: &Monitor) -> Result<Vec<Snapshot>> {
    snapshots::load(store, monitor)
}
