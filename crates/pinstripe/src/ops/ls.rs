//! `ls`: lists the entries of a snapshot at and below a path.

use super::select::{Selected, no_such_path, select};
use crate::store::Store;
use crate::store::choice::SnapshotName;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::{SEE_WHAT_IS_LOST, TreeReader};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::entry::Entry;

/// Passes every entry at and below `path` to `show`, in path order.
///
/// # Errors
/// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when there is no such
/// snapshot or path, or with the errors of `show`. A page that cannot be read is a loss in the
/// ledger.
pub fn run<'n>(
    store: &Store,
    snapshot: impl Into<SnapshotName<'n>>,
    path: &[u8],
    monitor: &Monitor,
    show: &mut dyn FnMut(&Entry) -> Result<()>,
) -> Result<()> {
    let named = select(store, snapshot.into(), path, monitor)?;
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let Selected { snapshot, below } = named.settle(&packs, &index, monitor);
    let chunks = ChunkReader::below(&packs, &index, &below);
    let mut tree = TreeReader::new(chunks, &snapshot.root, &below)?;
    let mut found = below.is_empty();
    loop {
        match tree.next_entry() {
            Ok(Some(entry)) => {
                found = true;
                show(&entry)?;
            }
            Ok(None) if found => return Ok(()),
            Ok(None) => return Err(no_such_path(&below)),
            Err(error) => {
                // The path may have been there.
                found = true;
                monitor.add(Counter::LostEntries, tree.lost_entries());
                let place = format!("snapshot {}", snapshot.id.short());
                monitor.loss(place, error.advice(SEE_WHAT_IS_LOST));
            }
        }
    }
}
