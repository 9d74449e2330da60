//! `snapshots`: what was backed up, when, and how much.

use crate::error::Result;
use crate::format::snapshot::Snapshot;
use crate::monitor::Monitor;
use crate::store::{Store, snapshots};

/// All snapshots, oldest first.
///
/// # Errors
/// When a member cannot be listed. Damaged snapshot objects are reported as losses.
pub fn run(store: &Store, monitor: &Monitor) -> Result<Vec<Snapshot>> {
    snapshots::load(store, monitor)
}
