//! `backup`: saves paths in the store as a new snapshot.

mod ancestry;
mod explain;
mod sources;
mod stream;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) use ancestry::Ancestry;
pub use explain::explain;
use sources::{exclude_own, refuse_members, sources};
pub use stream::{Stream, run_stream};
pub(super) use writer::Writer;

use crate::pipeline;
use crate::pipeline::backup::{
    Comparison, Completeness, Ending, Input, Previous, Tree, Unless, Wanted,
};
use crate::pipeline::heartbeat;
use crate::pipeline::limits::Limits;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::sessions::OpenSession;
use crate::store::{Store, checkpoints, snapshots};
use crate::walk::Exclude;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SnapshotId};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;
use pinstripe_member::snapshot::{Snapshot, TreeRoot};

/// Options of a backup.
pub struct BackupOptions {
    /// Files and directories, as the user named them.
    pub paths: Vec<PathBuf>,
    /// The paths come from a list that differs each time: a missing path is not a source of the
    /// snapshot. With or without a list, a missing path is a loss, and the other paths are backed
    /// up.
    pub paths_are_a_list: bool,
    /// Paths to leave out.
    pub exclude: Exclude,
    /// Do not enter other file systems.
    pub one_file_system: bool,
    /// The machine's name.
    pub host: Vec<u8>,
    /// Tags for the snapshot.
    pub tags: Vec<String>,
    /// A comment for the snapshot; none if it is empty.
    pub comment: String,
    /// The time that the snapshot gets instead of the present: seconds since 1970, in the past.
    pub time: Option<i64>,
    /// Make no snapshot if the tree is that of the parent.
    pub skip_unchanged: bool,
    /// Count the work, for a progress bar.
    pub estimate: bool,
    /// The interval between checkpoints; no checkpoints if `None`.
    pub checkpoints: Option<Interval>,
    /// Set by another thread to end the run early, with a checkpoint.
    pub stop: Arc<AtomicBool>,
    /// Threads and queues.
    pub limits: Limits,
}

/// When a checkpoint is due: after a time or an amount of content, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The time since the last checkpoint.
    pub time: Duration,
    /// The content read since the last checkpoint; 0 means a checkpoint after each job.
    pub read_bytes: u64,
    /// Wait until the checkpoint is durable before continuing. Waiting is slow; the option is for
    /// tests that count steps.
    pub waits: bool,
}

impl Default for Interval {
    fn default() -> Self {
        Interval { time: Duration::from_secs(30), read_bytes: 4 << 30, waits: false }
    }
}

impl BackupOptions {
    /// Options for a backup of `paths` without exclusions and with default settings.
    pub fn new(paths: Vec<PathBuf>, host: &[u8], limits: Limits) -> Self {
        BackupOptions {
            paths,
            paths_are_a_list: false,
            exclude: Exclude::default(),
            one_file_system: false,
            host: host.to_vec(),
            tags: Vec::new(),
            comment: String::new(),
            time: None,
            skip_unchanged: false,
            estimate: false,
            checkpoints: Some(Interval::default()),
            stop: Arc::default(),
            limits,
        }
    }
}

/// The counts that are stored in the snapshot.
const KEPT: &[Counter] = &[
    Counter::WalkedEntries,
    Counter::NewFiles,
    Counter::ChangedFiles,
    Counter::UnchangedFiles,
    Counter::NewBytes,
    Counter::ChangedBytes,
    Counter::UnchangedBytes,
    Counter::LinkedBytes,
    Counter::AclEntries,
    Counter::LabelEntries,
    Counter::DedupedBytes,
    Counter::CompressedBytes,
    Counter::WrittenBytes,
    Counter::Losses,
];

/// The count that stores which losses the store had when the snapshot was made: see
/// [`Index::losses_mark`].
const LOSSES_MARK: &str = "losses_mark";

/// The snapshot that has the state of the sources after a backup.
#[derive(Debug)]
pub struct Saved {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Whether this backup made it; otherwise it is the parent, and nothing has changed since.
    pub is_new: bool,
}

/// Runs the backup. Entries that could not be read are losses in the ledger; the snapshot is made
/// without them.
///
/// # Errors
/// Fails when nothing can be committed: no path exists, a member is full, or more members are lost
/// than parity replaces. After a failure, earlier snapshots are unchanged. Fails with
/// [`Kind::Usage`] for a time in the future.
pub fn run(store: &Store, options: BackupOptions, monitor: &Monitor) -> Result<Snapshot> {
    run_unless_unchanged(store, options, monitor).map(|saved| saved.snapshot)
}

/// Runs the backup, and says whether it made a snapshot: see [`BackupOptions::skip_unchanged`].
///
/// # Errors
/// Fails with the errors of [`run`].
pub fn run_unless_unchanged(
    store: &Store,
    options: BackupOptions,
    monitor: &Monitor,
) -> Result<Saved> {
    let began = clock::now();
    refuse_future(&options, began)?;
    let sources = sources(&options, monitor)?;
    refuse_members(store, &sources.named)?;
    sources.warn_of_excluded(&options.exclude, monitor);
    prepare(store, monitor);
    let exclude = exclude_own(store, options.exclude.clone(), &sources.there, monitor);
    let (cutter, codec) = pipeline::backup::cutting(store)?;
    let id = SnapshotId(store.new_name()?);
    let find = || Ancestry::find(store, &options.host, &sources.named, monitor);
    let (Writer { session, mut acknowledger, index, is_doubtful }, mut earlier) =
        Writer::begin_after(store, id, monitor, find)?;
    let packs = PackReader::new(store, monitor);
    earlier.note_bases(monitor);
    let previous = earlier.entries(|| ChunkReader::below(&packs, &index, b""), monitor)?;
    let is_doubtful = is_doubtful || earlier.is_doubtful(&index);
    let changed = AtomicBool::new(false);
    let known = Known { index: &index, is_doubtful, previous, changed: &changed };
    let comparison = comparison(known, &sources.there, &exclude, &options);
    let due = options.checkpoints.map(|interval| due(interval, monitor));
    let plan = pipeline::backup::BackupPlan {
        store,
        index: &index,
        tree: Tree::Made(Input::Trees(Box::new(comparison))),
        cutter: &cutter,
        codec,
        limits: options.limits.for_chunks(cutter.max_bytes()),
        checkpoint_due: due.as_ref().map(|due| due as &(dyn Fn() -> bool + Sync)),
        checkpoint_waits: options.checkpoints.is_some_and(|interval| interval.waits),
        stop: &options.stop,
        ending: Ending {
            session: session.name(),
            superseded: std::mem::take(&mut earlier.superseded),
            unless: (earlier.series_parent().filter(|_| options.skip_unchanged))
                .map(|it| Unless { root: it.root, changed: &changed }),
        },
    };
    let (parent, shown) = (earlier.series_parent(), options.time.map_or(began, |it| (it, 0)));
    // A snapshot that is older than its parent would count as made by a wrong clock.
    let follows = |it: &&Snapshot| options.time.is_none() || snapshots::created(it) <= shown;
    let parent_id = parent.filter(follows).map(|parent| parent.id);
    let losses_mark = index.losses_mark();
    let begun = begun(store, id, shown, &options, sources.named.clone(), parent_id);
    let describe = |root, completeness| {
        let is_part = completeness == Completeness::Part;
        let mark = is_part.then(|| (checkpoints::MARK.to_owned(), 1));
        let counts = counts(monitor, losses_mark).into_iter().chain(mark).collect();
        let (created_seconds, created_nanos) = if is_part { began } else { shown };
        Snapshot { root, counts, created_seconds, created_nanos, ..begun.clone() }
    };
    let (made, is_new) = heartbeat::beside(store, &session, || {
        pipeline::backup::run(plan, &mut acknowledger, monitor, &describe)
    })?;
    let snapshot = parent.filter(|_| !is_new).cloned().unwrap_or(made);
    end(store, session, monitor)?;
    Ok(Saved { snapshot, is_new })
}

/// Refuses a time for the snapshot that is later than now: files that change until then would count
/// as unchanged.
fn refuse_future(options: &BackupOptions, now: (i64, u32)) -> Result<()> {
    match options.time {
        Some(time) if time > now.0 => {
            Err(Error::new(Kind::Usage, "the time of the snapshot is in the future")
                .advice("give a time that has passed"))
        }
        _ => Ok(()),
    }
}

/// Prepares a store before it is written to.
pub(super) fn prepare(store: &Store, monitor: &Monitor) {
    report_absent(store, monitor);
    store.sweep(monitor);
    store.keep_labels_true(monitor);
}

/// Ends the session of a backup that is finished. A session that cannot be removed has no effect
/// any more.
///
/// # Errors
/// Fails with the errors of [`OpenSession::confirm_commit`].
pub(super) fn end(store: &Store, session: OpenSession<'_>, monitor: &Monitor) -> Result<()> {
    session.confirm_commit()?;
    // The writers report members that fail them; others may have stopped answering meanwhile.
    if monitor.get(Counter::DegradedMembers) == 0 {
        for number in store.silent() {
            monitor.degraded(&store.member_slots[number].place, store.absence(number));
        }
    }
    if let Err(error) = session.end() {
        monitor.warning(
            "session of this backup",
            error.advice("the next 'pinstripe gc' removes this session object"),
        );
    }
    Ok(())
}

/// Returns the snapshot as far as it is known at the beginning: everything but tree and counts.
fn begun(
    store: &Store,
    id: SnapshotId,
    began: (i64, u32),
    options: &BackupOptions,
    sources: Vec<Vec<u8>>,
    parent: Option<SnapshotId>,
) -> Snapshot {
    Snapshot {
        store: store.config.store,
        id,
        created_seconds: began.0,
        created_nanos: began.1,
        host: options.host.clone(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        sources,
        parent,
        root: TreeRoot { id: ChunkId([0; ChunkId::LEN]), height: 0, entries: 0 },
        counts: Vec::new(),
        tags: options.tags.clone(),
        comment: options.comment.clone(),
    }
}

/// Returns a function that says whether a checkpoint is due, and if so restarts the interval.
/// Without new content no checkpoint is due, whatever time has passed, because nothing would be
/// gained.
fn due(interval: Interval, monitor: &Monitor) -> impl Fn() -> bool + Sync + '_ {
    let last = Mutex::new((clock::monotonic(), 0));
    move || {
        let mut last = lock(&last);
        let read = monitor.get(Counter::ReadBytes);
        let since = read.saturating_sub(last.1);
        let is_late = since > 0 && clock::since(last.0) >= interval.time;
        let is_due = since >= interval.read_bytes || is_late;
        if is_due {
            *last = (clock::monotonic(), read);
        }
        is_due
    }
}

/// Walks and compares as [`run`] would, but reads no content and writes nothing, and passes every
/// file that would be read to `show`. The ledger counts as in a backup.
///
/// # Errors
/// Fails with the errors of [`run`] and the errors of `show`.
pub fn survey(
    store: &Store,
    options: &BackupOptions,
    monitor: &Monitor,
    show: &mut dyn FnMut(Wanted<'_>) -> Result<()>,
) -> Result<()> {
    let sources = sources(options, monitor)?;
    refuse_members(store, &sources.named)?;
    sources.warn_of_excluded(&options.exclude, monitor);
    let exclude = exclude_own(store, options.exclude.clone(), &sources.there, monitor);
    let index = Index::load(store, monitor)?;
    let earlier = Ancestry::find(store, &options.host, &sources.named, monitor)?;
    earlier.note_bases(monitor);
    let packs = PackReader::new(store, monitor);
    let previous = earlier.entries(|| ChunkReader::below(&packs, &index, b""), monitor)?;
    let (is_doubtful, changed) = (earlier.is_doubtful(&index), AtomicBool::new(false));
    let known = Known { index: &index, is_doubtful, previous, changed: &changed };
    let comparison = comparison(known, &sources.there, &exclude, options);
    pipeline::backup::survey(comparison, monitor, show)
}

/// What the store has of earlier backups.
struct Known<'a> {
    index: &'a Index<'a>,
    is_doubtful: bool,
    previous: Previous<'a>,
    /// See [`Comparison::changed`].
    changed: &'a AtomicBool,
}

fn comparison<'a>(
    known: Known<'a>,
    sources: &'a [Vec<u8>],
    exclude: &'a Exclude,
    options: &BackupOptions,
) -> Comparison<'a> {
    let Known { index, is_doubtful, previous, changed } = known;
    Comparison {
        index,
        is_doubtful,
        sources,
        exclude,
        report_covered: !options.paths_are_a_list,
        one_file_system: options.one_file_system,
        previous,
        estimate: options.estimate,
        walkers: options.limits.walkers,
        changed,
    }
}

fn counts(monitor: &Monitor, losses_mark: u64) -> Vec<(String, u64)> {
    let kept = Counter::ALL.iter().filter(|(counter, _)| KEPT.contains(counter));
    let mut counts: Vec<_> =
        kept.map(|&(counter, name)| (name.to_owned(), monitor.get(counter))).collect();
    if losses_mark != 0 {
        counts.push((LOSSES_MARK.to_owned(), losses_mark));
    }
    counts
}

/// Reports the members that a backup must do without, and those whose label does not prove that
/// they are members; one more fault would lose the latter.
fn report_absent(store: &Store, monitor: &Monitor) {
    for number in store.absent() {
        monitor.degraded(&store.member_slots[number].place, store.absence(number));
    }
    for slot in &store.member_slots {
        if let Some(error) = &slot.bad_label {
            let advice = "the backup writes to this member anyway; run 'pinstripe repair' to \
                          rewrite its label";
            monitor.warning(&slot.place, error.duplicate().advice_instead(advice));
        }
    }
}
