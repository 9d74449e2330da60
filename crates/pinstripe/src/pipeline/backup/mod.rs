//! A backup's threads: walkers, ingest workers, packers, assembler, member writers.
//!
//! The caller's thread is the join: it takes entries from the walk in path order, holds them
//! against the previous snapshot, and hands out what must be read. Order of the end: data packs,
//! then the index run, then nothing more; the snapshot object is the caller's to put.

mod assemble;
mod beside;
mod entry;
mod ingest;
mod join;
mod large;
mod record;
mod shared;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::Scope;

use crossbeam_channel::{Receiver, bounded, unbounded};

use assemble::Assembler;
use beside::Ended;
use ingest::Worker;
use join::{Handout, Join};
use shared::Ingest;

use crate::chunk::Cutter;
use crate::codec::Codec;
use crate::dedup::Claims;
use crate::error::Result;
use crate::format::meta::Time;
use crate::format::snapshot::{Snapshot, TreeRoot};
use crate::member::ExtentName;
use crate::monitor::Monitor;
use crate::pipeline::abort::Abort;
use crate::pipeline::fleet::Fleet;
use crate::pipeline::limits::{Limits, PUBLISH_CHUNKS, WINDOW_JOBS};
use crate::pipeline::pack::{self, FinishedRecord};
use crate::pipeline::publish::Publisher;
use crate::pipeline::spare::Spare;
use crate::source;
use crate::store::Store;
use crate::store::index::Index;
use crate::store::tree::TreeReader;
use crate::walk::Exclude;

/// What to back up, and against what.
pub struct Plan<'a> {
    /// The store.
    pub store: &'a Store,
    /// Its chunks.
    pub index: &'a Index<'a>,
    /// Absolute paths without the leading slash, sorted in path order, none below another.
    pub sources: &'a [Vec<u8>],
    /// What to leave out.
    pub exclude: &'a Exclude,
    /// Do not enter other file systems.
    pub one_file_system: bool,
    /// The store may have lost something since the previous snapshot: unchanged files are taken
    /// over only if every chunk of theirs is found in the index, not by its filters alone.
    pub is_doubtful: bool,
    /// The previous snapshot's entries, and when it began.
    pub previous: Option<(TreeReader<'a>, Time)>,
    /// Count what there is to do beside the backup, for a progress bar.
    pub estimate: bool,
    /// Cuts content.
    pub cutter: &'a Cutter,
    /// Compresses records.
    pub codec: Codec,
    /// Threads and queues.
    pub limits: Limits,
}

/// Runs a backup up to its commit. `commit` makes the snapshot object of the finished tree; it is
/// put on every member after all that it names is durable.
///
/// # Errors
/// Whatever ends the run: a full member, more members lost than parity replaces, a walk that
/// cannot begin. What single entries met is in the ledger.
pub fn run(
    plan: Plan<'_>,
    monitor: &Monitor,
    commit: impl FnOnce(TreeRoot) -> Snapshot,
) -> Result<Snapshot> {
    let root = source::open_root()?;
    let abort = Abort::default();
    let records = Spare::new(2 * plan.limits.records_queued);
    let sealer = plan.store.sealer()?;
    let segments = Arc::new(Spare::new(plan.limits.segments));
    let claims = Claims::default();
    let has_ended = AtomicBool::new(false);
    let shared = Ingest {
        root: root.as_fd(),
        keys: plan.store.keys()?,
        cutter: plan.cutter,
        codec: plan.codec,
        index: plan.index,
        claims: &claims,
        monitor,
        abort: &abort,
        sealer: &sealer,
        records: &records,
        segments: &segments,
    };
    std::thread::scope(|scope| {
        let (store, index) = (plan.store, plan.index);
        let _ended = Ended(&has_ended);
        let (_end, end) = bounded(0);
        scope.spawn(move || beside::watch(index, &end));
        scope.spawn(|| beside::merge(index, &has_ended, &abort, monitor));
        let queued = plan.limits.strips_queued(store.config.strip_bytes);
        let fleet = Fleet::start(scope, store, queued, &abort, monitor);
        let publisher =
            Publisher::new(store, index, &sealer, &claims, &fleet, monitor, PUBLISH_CHUNKS);
        let tree = ingest(scope, &shared, plan, &publisher)?;
        publisher.publish()?;
        store.confirm_takers()?;
        let snapshot = commit(tree);
        fleet.put(ExtentName::snapshot(snapshot.id), sealer.snapshot(&snapshot)?);
        fleet.barrier()?;
        Ok(snapshot)
    })
}

/// Everything between the walk and the sealed packs.
fn ingest<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Ingest<'env>,
    plan: Plan<'env>,
    publisher: &Publisher<'_>,
) -> Result<TreeRoot> {
    let limits = plan.limits;
    std::thread::scope(|stages| {
        let (jobs, job_queue) = bounded(limits.jobs_queued);
        let (outcomes, outcome_queue) = unbounded();
        let (window, window_queue) = bounded(WINDOW_JOBS);
        let (data, data_queue) = bounded::<FinishedRecord>(limits.records_queued);
        let (tree, tree_queue) = bounded::<FinishedRecord>(limits.records_queued);
        let packers = [data_queue, tree_queue].map(|queue: Receiver<FinishedRecord>| {
            stages.spawn(move || {
                let packed = pack::run(&queue, publisher, shared.records);
                // A packer that stops early must not stop those who feed it.
                queue.iter().for_each(drop);
                packed
            })
        });
        for _ in 0..limits.workers {
            let worker = Worker::new(shared, data.clone())?;
            let (job_queue, outcomes) = (job_queue.clone(), outcomes.clone());
            stages.spawn(move || {
                let _guard = shared.abort.on_panic();
                worker.run(&job_queue, &outcomes);
            });
        }
        drop((data, job_queue));
        let assembler = Assembler::new(shared, tree)?;
        let assembler = stages.spawn(move || assembler.run(&outcome_queue, &window_queue));
        let queues = Handout { jobs, outcomes, window, segments: limits.segments };
        let mut join = Join::new(shared, plan, queues);
        let joined = join.run(scope);
        drop(join);
        if let Err(error) = joined {
            shared.abort.raise(error);
        }
        let root = assembler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for packer in packers {
            packer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        shared.abort.check()?;
        root
    })
}
