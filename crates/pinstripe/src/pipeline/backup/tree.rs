//! Makes one snapshot from given entries: without a walk or content, only the tree.
//!
//! This module is for callers whose entries have content that is in the store already: any number
//! of such writers may work on one store at once, each with packs of its own. The end has the order
//! of every backup: packs, index run, snapshot object, each durable before the next.

use crossbeam_channel::bounded;

use super::background;
use super::record::RecordBuilder;
use super::shared::Writing;
use super::write_session::write_session;
use super::{joined, packer};
use crate::pipeline::limits::Limits;
use crate::pipeline::pack::Laying;
use crate::pipeline::publish::Publisher;
use crate::store::Store;
use crate::store::deletion::acknowledge::Acknowledger;
use crate::store::index::Index;
use crate::store::tree::TreeWriter;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentName;
use pinstripe_member::entry::Entry;
use pinstripe_member::record::RecordKind;
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_stripe::Abort;

/// Writes the tree of the entries that `fill` returns, in path order, and commits it. `fill`
/// changes the entry that it gets into the next one, and returns whether there is one.
/// `acknowledger` answers condemnations for the session of this writer.
///
/// # Errors
/// Fails with the errors that end any backup: a member is full, or more members are lost than
/// parity replaces.
pub fn write_tree(
    store: &Store,
    index: &Index<'_>,
    acknowledger: &mut Acknowledger,
    limits: Limits,
    monitor: &Monitor,
    fill: &mut dyn FnMut(&mut Entry) -> bool,
    commit: impl FnOnce(TreeRoot) -> Snapshot,
) -> Result<Snapshot> {
    // The commit checks for newer keys itself.
    let unheeded = Abort::default();
    std::thread::scope(|scope| {
        let (_end, end) = bounded(0);
        scope.spawn(|| background::watch(store, index, acknowledger, &unheeded, &{ end }));
        write_session(store, index, limits, monitor, |shared, publisher| {
            let tree = pages(shared, limits, publisher, fill)?;
            publisher.publish()?;
            store.confirm_takers()?;
            let snapshot = commit(tree);
            let object = publisher.sealer.snapshot(&snapshot)?;
            publisher.writers.commit(store, ExtentName::snapshot(snapshot.id), &object, None)?;
            publisher.writers.barrier()?;
            Ok(snapshot)
        })
    })
}

/// Turns entries into pages in sealed packs.
fn pages(
    shared: &Writing<'_>,
    limits: Limits,
    publisher: &Publisher<'_>,
    fill: &mut dyn FnMut(&mut Entry) -> bool,
) -> Result<TreeRoot> {
    std::thread::scope(|stages| {
        let laying = Laying::of_pages(publisher.store.config.parity);
        let (records, packer) = packer(stages, shared, publisher, limits.records_queued, laying);
        let mut record = RecordBuilder::of_kind(shared, RecordKind::Tree, records)?;
        let mut tree = TreeWriter::new();
        let mut entry = Entry::default();
        while !shared.abort.is_raised() && fill(&mut entry) {
            tree.push(&entry, &mut |bytes| Ok(record.add(&bytes)?.id))?;
        }
        let root = tree.finish(&mut |bytes| Ok(record.add(&bytes)?.id))?;
        record.flush()?;
        drop(record);
        joined(packer);
        shared.abort.check()?;
        Ok(root)
    })
}
