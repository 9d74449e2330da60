//! One snapshot out of entries that come as they are: no walk, no content, only the tree.
//!
//! For whatever has the entries already and their content under its names: any number of such
//! writers may work on one store at once, each with packs of its own. The order of the end is that
//! of every backup: packs, index run, snapshot object, each durable before the next.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::bounded;

use super::checkpoint::SealCall;
use super::record::RecordBuilder;
use super::shared::Ingest;
use crate::chunk::{Chunking, Cutter};
use crate::codec::Codec;
use crate::dedup::Claims;
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::record::RecordKind;
use crate::format::snapshot::{Snapshot, TreeRoot};
use crate::format::tree::PAGE_MAX_BYTES;
use crate::member::ExtentName;
use crate::monitor::Monitor;
use crate::pipeline::abort::Abort;
use crate::pipeline::fleet::Fleet;
use crate::pipeline::limits::{Limits, PUBLISH_CHUNKS, TREE_RECORD_RAW_BYTES};
use crate::pipeline::pack::{self, ToPacker};
use crate::pipeline::publish::Publisher;
use crate::pipeline::spare::Spare;
use crate::source;
use crate::store::Store;
use crate::store::index::Index;
use crate::store::tree::TreeWriter;

/// Writes the tree of the entries that `fill` gives, in path order, and commits it. `fill` changes
/// the entry that it is handed into the next one, and says whether there is one.
///
/// # Errors
/// Whatever ends a backup: a full member, more members lost than parity replaces.
pub fn run_stream(
    store: &Store,
    index: &Index<'_>,
    limits: Limits,
    monitor: &Monitor,
    fill: &mut dyn FnMut(&mut Entry) -> bool,
    commit: impl FnOnce(TreeRoot) -> Snapshot,
) -> Result<Snapshot> {
    let root = source::open_root()?;
    let abort = Abort::default();
    let claims = Claims::default();
    let records = Spare::new(2 * limits.records_queued);
    let sealer = store.sealer()?;
    let keys = store.keys()?;
    let chunking: Chunking = store.config.chunking.parse()?;
    let cutter = Cutter::for_store(chunking, store.config.chunker, &keys.gear)?;
    let codec: Codec = store.config.codec.parse()?;
    let shared = Ingest {
        root: root.as_fd(),
        keys,
        cutter: &cutter,
        codec,
        index,
        claims: &claims,
        monitor,
        abort: &abort,
        stop: &AtomicBool::new(false),
        seal_call: &SealCall::new(0),
        sealer: &sealer,
        records: &records,
        segments: &Arc::default(),
    };
    std::thread::scope(|scope| {
        let queued = limits.strips_queued(store.config.strip_bytes);
        let fleet = Fleet::start(scope, store, queued, &abort, monitor);
        let publisher =
            Publisher::new(store, index, &sealer, &claims, &fleet, monitor, PUBLISH_CHUNKS);
        let tree = lay(&shared, limits, &publisher, fill)?;
        publisher.publish()?;
        let snapshot = commit(tree);
        fleet.put(ExtentName::snapshot(snapshot.id), sealer.snapshot(&snapshot)?);
        fleet.barrier()?;
        Ok(snapshot)
    })
}

/// From entries to sealed packs.
fn lay(
    shared: &Ingest<'_>,
    limits: Limits,
    publisher: &Publisher<'_>,
    fill: &mut dyn FnMut(&mut Entry) -> bool,
) -> Result<TreeRoot> {
    std::thread::scope(|stages| {
        let (records, queue) = bounded::<ToPacker>(limits.records_queued);
        let packer = stages.spawn(move || {
            let packed = pack::run(&queue, publisher, shared.records);
            // A packer that stops early must not stop those who feed it.
            queue.iter().for_each(drop);
            packed
        });
        let room = TREE_RECORD_RAW_BYTES + 2 * PAGE_MAX_BYTES;
        let full = TREE_RECORD_RAW_BYTES;
        let mut record = RecordBuilder::new(shared, RecordKind::Tree, full, room, records)?;
        let mut tree = TreeWriter::new();
        let mut entry = Entry::default();
        while !shared.abort.is_raised() && fill(&mut entry) {
            tree.push(&entry, &mut |bytes| Ok(record.add(&bytes)?.id))?;
        }
        let root = tree.finish(&mut |bytes| Ok(record.add(&bytes)?.id))?;
        record.flush()?;
        drop(record);
        shared.abort.check()?;
        packer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(root)
    })
}
