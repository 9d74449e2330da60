//! The threads of a backup: walkers, ingest workers, packers, assembler, member writers.
//!
//! The caller's thread is the join: it takes entries from the walk in path order, compares them
//! with the previous snapshot, and sends out what must be read. Order at the end: first the data
//! packs, then the index run, and nothing more; then the caller puts the snapshot object.

mod assemble;
mod background;
mod bring;
mod checkpoint;
mod content;
mod dispatch;
mod entry;
mod ingest;
mod join;
mod large;
mod other_copies;
mod previous;
mod record;
mod repack;
mod shared;
mod survey;
mod tree;
mod write_session;

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Sender, bounded, unbounded};

use assemble::Assembler;
use background::Ended;
use checkpoint::{Checkpoints, SealRounds};
use dispatch::JobDispatcher;
use ingest::Worker;
use join::Join;
use shared::{Reading, Writing};

pub(crate) use bring::Bringing;
pub use bring::bring;
pub use join::Comparison;
pub use previous::Earlier;
pub(crate) use previous::Previous;
pub(crate) use repack::{EvacuatingPack, RepackPlan, repack};
pub use shared::cutting;
pub use survey::{Wanted, survey};
pub use tree::write_tree;

use crate::pipeline::limits::{Limits, WINDOW_JOBS};
use crate::pipeline::member_writers::MemberWriters;
use crate::pipeline::pack::{self, Laying, ToPacker};
use crate::pipeline::publish::Publisher;
use crate::pipeline::scratch_pool::ScratchPool;
use crate::source;
use crate::store::deletion::acknowledge::Acknowledger;
use crate::store::index::Index;
use crate::store::{Store, checkpoints, redundancy};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::entry::Entry;
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_member::{ExtentKind, ExtentName, PlannedStep, PrefetchHint};
use pinstripe_stripe::{Abort, Claims, Codec, Cutter};

/// The input of a backup.
pub enum Input<'a> {
    /// Trees to walk, and earlier trees with which they are compared.
    Trees(Box<Comparison<'a>>),
    /// A stream, and the entry, without content, of the file that it becomes.
    Stream(Box<dyn Read + 'a>, Box<Entry>),
}

/// The tree of the snapshot.
pub enum Tree<'a> {
    /// It is made from an input.
    Made(Input<'a>),
    /// It is the tree of an earlier snapshot.
    Stored(TreeRoot),
}

/// The parameters of a backup.
pub(crate) struct BackupPlan<'a> {
    /// The store.
    pub store: &'a Store,
    /// The chunks.
    pub index: &'a Index<'a>,
    /// The tree.
    pub tree: Tree<'a>,
    /// Cuts content.
    pub cutter: &'a Cutter,
    /// Compresses records.
    pub codec: Codec,
    /// Threads and queues.
    pub limits: Limits,
    /// Says whether a checkpoint is due; if `None`, no checkpoints are made.
    pub checkpoint_due: Option<&'a (dyn Fn() -> bool + Sync)>,
    /// Wait until each checkpoint is durable before continuing.
    pub checkpoint_waits: bool,
    /// Set by another thread to end the run early.
    pub stop: &'a AtomicBool,
    /// What the end of the run needs.
    pub ending: Ending<'a>,
}

/// What the end of a run needs.
pub(crate) struct Ending<'a> {
    /// The session that was begun for this run.
    pub session: ExtentName,
    /// Checkpoints of earlier runs, to be removed when this run is finished.
    pub superseded: Vec<ExtentName>,
    /// Make no snapshot if nothing differs from this one.
    pub unless: Option<Unless<'a>>,
}

/// The snapshot that a backup without changes would only repeat.
#[derive(Clone, Copy)]
pub(crate) struct Unless<'a> {
    /// Its tree.
    pub root: TreeRoot,
    /// Whether an entry at or below a source has changed.
    pub changed: &'a AtomicBool,
}

impl Unless<'_> {
    /// Whether a tree has the same entries at and below the sources. The directories above them do
    /// not count.
    fn is_repeated_by(&self, root: &TreeRoot) -> bool {
        let is_changed = self.changed.load(Ordering::Relaxed);
        self.root == *root || (!is_changed && self.root.entries == root.entries)
    }
}

/// Whether a tree is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// All sources.
    Whole,
    /// The tree is a part, in path order.
    Part,
}

/// Makes the snapshot or checkpoint object for a tree.
pub type Describe<'a> = &'a (dyn Fn(TreeRoot, Completeness) -> Snapshot + Sync);

/// Runs a backup up to its commit; returns the snapshot, and whether it was committed: one that
/// repeats [`Ending::unless`] is not. `describe` makes the snapshot object of the finished tree,
/// and those of checkpoints; the snapshot object is put on every member after everything that it
/// refers to is durable. A run that was stopped puts a final checkpoint. `acknowledger` answers
/// condemnations for the session that was begun for this run.
///
/// # Errors
/// Fails with the error that ends the run: a member is full, more members are lost than parity
/// replaces, or the walk cannot begin, or with [`Kind::Interrupted`] when it was stopped, or with
/// [`Kind::Busy`] when its session was ended from outside. Errors of single entries are in the
/// ledger.
pub fn run(
    plan: BackupPlan<'_>,
    acknowledger: &mut Acknowledger,
    monitor: &Monitor,
    describe: Describe<'_>,
) -> Result<(Snapshot, bool)> {
    let root = source::open_root()?;
    let abort = Abort::default();
    let records = ScratchPool::new(2 * plan.limits.records_queued);
    let sealer = plan.store.sealer()?;
    let segments = Arc::new(ScratchPool::new(plan.limits.segments));
    let claims = Claims::default();
    let has_ended = AtomicBool::new(false);
    let writing = Writing {
        keys: plan.store.keys()?,
        codec: plan.codec,
        index: plan.index,
        claims: &claims,
        monitor,
        abort: &abort,
        sealer: &sealer,
        records: &records,
    };
    let reading = Reading {
        root: root.as_fd(),
        cutter: plan.cutter,
        monitor,
        abort: &abort,
        stop: plan.stop,
        segments: &segments,
        proc_is_reported: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let (store, index) = (plan.store, plan.index);
        let _ended = Ended(&has_ended);
        let (_end, end) = bounded(0);
        scope.spawn(|| background::watch(store, index, acknowledger, &abort, &{ end }));
        scope.spawn(|| background::merge(index, &has_ended, &abort, monitor));
        let limits = plan.limits;
        let queued = limits.strips_queued(store.config.strip_bytes);
        let writers = MemberWriters::start(scope, store, queued, &abort, monitor);
        let publisher =
            Publisher::new(store, index, &sealer, &claims, &writers, monitor, limits.publish_packs);
        let due = (plan.checkpoint_due, plan.checkpoint_waits);
        let ingested = match plan.tree {
            Tree::Stored(root) => Ingested::stored(root),
            Tree::Made(input) => {
                ingest(scope, (&reading, &writing), (input, limits), due, &publisher, describe)?
            }
        };
        let made = commit(&publisher, ingested, plan.ending, describe)?;
        redundancy::state(store, index, &writers.failed(), monitor);
        Ok(made)
    })
}

/// The kinds that are listed right before the commit.
const COMMIT: [PrefetchHint; 2] = [
    PrefetchHint { label: true, ..PrefetchHint::new(ExtentKind::Index, 1) },
    PrefetchHint::new(ExtentKind::Keys, 2),
];

/// Makes everything durable that was ingested: the index run, then the snapshot or, for an
/// incomplete tree, a checkpoint; then removes the checkpoints that this one replaces.
fn commit(
    publisher: &Publisher<'_>,
    ingested: Ingested,
    ending: Ending<'_>,
    describe: Describe<'_>,
) -> Result<(Snapshot, bool)> {
    let Ending { superseded, session, unless } = ending;
    let Ingested { root, completeness, checkpoint } = ingested;
    let Publisher { store, writers, sealer, .. } = *publisher;
    // A member that has left since the session began can lack nothing if nothing was written.
    if writers.has_written_nothing() {
        store.plan(&[PlannedStep::Look(COMMIT.to_vec())]);
    }
    // The writes that remain discard what is prefetched here.
    store.prefetch(&COMMIT);
    publisher.publish()?;
    store.confirm_takers()?;
    let snapshot = describe(root, completeness);
    let is_unwanted = completeness == Completeness::Whole
        && unless.is_some_and(|unless| unless.is_repeated_by(&root));
    match completeness {
        Completeness::Whole if is_unwanted => {}
        Completeness::Whole => {
            let object = sealer.snapshot(&snapshot)?;
            // Nothing else remains to be done in this session.
            let is_last = checkpoint.is_none() && superseded.is_empty() && !store.has_one_writer();
            let ends = is_last.then_some(session);
            writers.commit(store, ExtentName::snapshot(snapshot.id), &object, ends)?;
        }
        Completeness::Part => {
            let object = checkpoints::encode(store, sealer, &snapshot)?;
            writers.put(checkpoints::new_name(store)?, object);
        }
    }
    writers.barrier()?;
    // Only now is what they name in another object too.
    checkpoint.into_iter().for_each(|name| writers.delete(name));
    if completeness == Completeness::Part {
        writers.barrier()?;
        return Err(Error::new(Kind::Interrupted, "the backup was stopped before it was complete")
            .advice("run the same command again to continue"));
    }
    superseded.into_iter().for_each(|name| writers.delete(name));
    writers.barrier()?;
    Ok((snapshot, !is_unwanted))
}

/// The results of all stages.
struct Ingested {
    root: TreeRoot,
    completeness: Completeness,
    /// The name of the last checkpoint of this run.
    checkpoint: Option<ExtentName>,
}

impl Ingested {
    /// A tree that an earlier backup stored.
    fn stored(root: TreeRoot) -> Self {
        Ingested { root, completeness: Completeness::Whole, checkpoint: None }
    }
}

/// Runs all stages between the walk and the sealed packs.
fn ingest<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    (reading, writing): (&'env Reading<'env>, &'env Writing<'env>),
    (input, limits): (Input<'env>, Limits),
    (checkpoint_due, waits): (Option<&'env (dyn Fn() -> bool + Sync)>, bool),
    publisher: &Publisher<'_>,
    describe: Describe<'_>,
) -> Result<Ingested> {
    let abort = writing.abort;
    let (data_rounds, tree_rounds) = (SealRounds::default(), SealRounds::default());
    let mut checkpoint = None;
    let object = |root| {
        let checkpoint = describe(root, Completeness::Part);
        let object = checkpoints::encode(publisher.store, writing.sealer, &checkpoint)?;
        Ok((checkpoints::new_name(publisher.store)?, object))
    };
    let (root, completeness) = std::thread::scope(|stages| {
        let (jobs, job_queue) = bounded(limits.jobs_queued);
        let (outcomes, outcome_queue) = unbounded();
        let (window, window_queue) = bounded(WINDOW_JOBS);
        let (partials, partial_queue) = unbounded();
        let (completes, completed) = bounded(1);
        let packer = |laying| packer(stages, writing, publisher, limits.records_queued, laying);
        let (data, data_packer) = packer(Laying::Striped);
        let (tree, tree_packer) = packer(Laying::of_pages(publisher.store.config.parity));
        for _ in 0..limits.workers {
            let worker = Worker::new(reading, writing, data_rounds.feeder(), data.clone())?;
            let (job_queue, outcomes) = (job_queue.clone(), outcomes.clone());
            stage(stages, abort, move || worker.run(&job_queue, &outcomes));
        }
        drop(job_queue);
        let (object, last) = (&object, &mut checkpoint);
        let checkpoints = checkpoint_due.map(|due| {
            let feeders = [data_rounds.feeder(), tree_rounds.feeder()];
            Checkpoints::new(due, feeders, partials, completed, data, waits)
        });
        let assembler = Assembler::new(writing, tree, checkpoints)?;
        let completer = stage(stages, abort, move || {
            checkpoint::complete(
                &partial_queue,
                publisher.writers,
                abort,
                &completes,
                object,
                last,
            );
        });
        let assembler = stage(stages, abort, move || assembler.run(&outcome_queue, &window_queue));
        let dispatcher = JobDispatcher::new(reading, jobs, outcomes, window, limits.segments);
        let completeness = take_in(scope, reading, writing.claims, input, dispatcher);
        let root = joined(assembler);
        joined(data_packer);
        joined(tree_packer);
        // No feeder is left: a checkpoint that still waits would wait for ever.
        data_rounds.close();
        tree_rounds.close();
        joined(completer);
        abort.check()?;
        Ok::<_, Error>((root?, completeness))
    })?;
    Ok(Ingested { root, completeness, checkpoint })
}

/// Starts a thread whose panic ends the run.
fn stage<'scope, T: Send + 'scope>(
    stages: &'scope Scope<'scope, '_>,
    abort: &'scope Abort,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    stages.spawn(move || {
        let _guard = abort.on_panic();
        work()
    })
}

/// Returns the result of a stage, or passes its panic on.
fn joined<T>(stage: ScopedJoinHandle<'_, T>) -> T {
    stage.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Starts a packer with a queue of `queued` records. An error of the packer ends the run.
fn packer<'scope>(
    stages: &'scope Scope<'scope, '_>,
    shared: &'scope Writing<'_>,
    publisher: &'scope Publisher<'_>,
    queued: usize,
    laying: Laying,
) -> (Sender<ToPacker>, ScopedJoinHandle<'scope, ()>) {
    let (records, queue) = bounded::<ToPacker>(queued);
    let packer = stage(stages, shared.abort, move || {
        if let Err(error) = pack::run(&queue, publisher, laying, shared.records) {
            shared.abort.raise(error);
        }
        // A packer that stops early drains its queue, so that its feeders do not block.
        queue.iter().for_each(drop);
    });
    (records, packer)
}

/// Sends out all of the input and returns how far that went. The workers end when the dispatcher is
/// dropped.
fn take_in<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Reading<'env>,
    claims: &'env Claims,
    input: Input<'env>,
    mut dispatcher: JobDispatcher<'env>,
) -> Completeness {
    let Reading { root, monitor, abort, stop, .. } = *shared;
    let done = match input {
        Input::Trees(trees) => {
            Join::new(root, monitor, abort, *trees, dispatcher, claims, stop).run(scope)
        }
        Input::Stream(mut stream, entry) => dispatcher.stream(&mut *stream, *entry).map(|()| true),
    };
    match done {
        Ok(true) => Completeness::Whole,
        Ok(false) => Completeness::Part,
        Err(error) => {
            abort.raise(error);
            Completeness::Part
        }
    }
}
