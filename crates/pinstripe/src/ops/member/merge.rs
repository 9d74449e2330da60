//! `member merge`: copies snapshots from another half of the same store.
//!
//! Content that a snapshot needs and this half lacks is stored again, as a backup stores it; no
//! object of the other half is copied unchanged, and the other half is not changed. So a merge can
//! be repeated, and interrupted anywhere: a snapshot that was copied stays, the others are copied
//! by the next merge.

use crate::ops::backup::{Writer, end, prepare};
use crate::pipeline::backup::{Bringing, bring};
use crate::pipeline::heartbeat;
use crate::pipeline::limits::Limits;
use crate::store::index::Index;
use crate::store::{Store, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentKind;

/// The snapshots of the other half, by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Brought {
    /// Snapshots that were copied, or would be in a dry run, oldest first.
    #[serde(skip)]
    pub brought: Vec<SnapshotId>,
    /// The number of snapshots in `brought`.
    pub brought_snapshots: u64,
    /// The number of snapshots that this half already has.
    pub known_snapshots: u64,
    /// The number of snapshots that were deleted in this half and remain deleted.
    pub deleted_snapshots: u64,
}

/// Copies the snapshots that `other`, another half of the same store, has and this half lacks.
/// With `dry_run`, the snapshots are only reported. Content that `other` cannot read is a loss in
/// the ledger.
///
/// # Errors
/// Fails with [`Kind::WrongMember`] when `other` is not another half of this store, with
/// [`Kind::Locked`] without the keys of both, or with the errors that end any backup.
pub fn merge(
    store: &Store,
    other: &Store,
    dry_run: bool,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Brought> {
    refuse_strangers(store, other)?;
    let (ever, here) = (store.snapshots_ever()?, store.list(ExtentKind::Snapshots)?);
    let mut merged = Brought::default();
    let mut lacking = Vec::new();
    for snapshot in snapshots::load(other, monitor)? {
        match (here.contains_key(&snapshot.id.0), ever.contains(&snapshot.id)) {
            (true, _) => merged.known_snapshots += 1,
            (false, true) => merged.deleted_snapshots += 1,
            (false, false) => lacking.push(snapshot),
        }
    }
    merged.brought = lacking.iter().map(|snapshot| snapshot.id).collect();
    merged.brought_snapshots = lacking.len() as u64;
    if dry_run || lacking.is_empty() {
        return Ok(merged);
    }
    monitor.set_total(0, lacking.iter().map(|snapshot| snapshot.root.entries).sum());
    prepare(store, monitor);
    let there = Index::load(other, monitor)?;
    for snapshot in &lacking {
        let Writer { session, mut acknowledger, index, .. } =
            Writer::begin(store, snapshot.id, monitor)?;
        let plan = Bringing { from: (other, &there), to: (store, &index), limits: *limits };
        heartbeat::beside(store, &session, || bring(&plan, snapshot, &mut acknowledger, monitor))?;
        end(store, session, monitor)?;
    }
    Ok(merged)
}

/// Refuses a store that is not another half of this one.
fn refuse_strangers(store: &Store, other: &Store) -> Result<()> {
    let at = |error: Error| error.at(other.named());
    if store.config.store != other.config.store {
        let what = "this is a member of another store";
        return Err(at(Error::new(Kind::WrongMember, what)
            .expected(store.config.store, other.config.store)
            .advice(
                "only halves of the same store can be merged; to copy the data of another store, \
                 restore it and back up the restored files",
            )));
    }
    if store.table == other.table {
        let what = "there is nothing to merge, because this is already a member of the store";
        return Err(at(Error::new(Kind::WrongMember, what)
            .advice("'pinstripe repair' writes the objects that the member lacks")));
    }
    let name = |store: &Store| -> Result<ChunkId> { Ok(store.keys()?.chunk_id(b"pinstripe")) };
    if name(store)? != name(other)? {
        return Err(at(Error::new(
            Kind::WrongMember,
            "the keys of this member differ from the keys of this store",
        )
        .advice(
            "only halves of the same store can be merged; to copy the data of another store, \
             restore it and back up the restored files",
        )));
    }
    Ok(())
}
