//! `restore`: bring a snapshot, or a subtree of it, back below a directory, or to its own place.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::select::{Selected, first_entry, select};
use crate::format::snapshot::Snapshot;
use crate::pipeline::limits::Limits;
use crate::pipeline::restore::{self, ChosenReader, Filter, Owners, Plan, Reuse};
use crate::pipeline::stream::Origin;
use crate::sink::{Removal, Rules, TreeSink};
use crate::source;
use crate::store::Store;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeReader;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

/// Options of a restore.
pub struct Options<'a> {
    /// `latest` or the beginning of an id.
    pub snapshot: &'a str,
    /// A path in the snapshot; empty for everything.
    pub path: &'a [u8],
    /// The target directory.
    pub to: &'a Path,
    /// Put restored files in the place of existing ones.
    pub overwrite: bool,
    /// Read everything again when it is written.
    pub verify: bool,
    /// Threads and queues.
    pub limits: Limits,
}

/// The manner of a restore; by default everything as it was, into an empty directory.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// Take over content that is in the target already, and replace the rest.
    pub reuse: Option<Reuse>,
    /// Keep full paths below the target also when a path in the snapshot is named: with the
    /// target `/`, everything returns to its own place.
    pub full_paths: bool,
    /// Remove what the target has and the snapshot has not.
    pub delete: Option<Delete>,
    /// Which entries.
    pub filter: Filter,
    /// The owners of restored entries.
    pub owners: Owners,
}

/// The limit of removing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delete {
    /// Only when no more entries go than the snapshot has there, and the snapshot is complete.
    WithinReason,
    /// No limit.
    Whatever,
}

/// Restores in the default manner. An entry that could not be restored is a loss in the ledger.
///
/// # Errors
/// As [`run_with`].
pub fn run(store: &Store, options: &Options<'_>, monitor: &Monitor) -> Result<Snapshot> {
    run_with(store, options, &Manner::default(), monitor)
}

/// Restores. What could not be restored is a loss in the ledger.
///
/// # Errors
/// [`Kind::Refused`] when the target is not empty and may not be overwritten, or when more would be
/// removed than is within reason; [`Kind::Usage`] for what does not go together; otherwise what
/// keeps the restore from beginning, or a full target.
pub fn run_with(
    store: &Store,
    options: &Options<'_>,
    manner: &Manner,
    monitor: &Monitor,
) -> Result<Snapshot> {
    check(manner)?;
    let Selected { snapshot, below } = select(store, options.snapshot, options.path, monitor)?;
    for number in store.absent() {
        let absent =
            Error::new(Kind::NotFound, "the member is absent; its strips are rebuilt from parity");
        monitor.warning(&store.seats[number].place, absent);
    }
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let all = || TreeReader::new(ChunkReader::new(&packs, &index), &snapshot.root, &below);
    let tree = || Ok(ChosenReader::new(all()?, &manner.filter, &manner.owners));
    if !below.is_empty() {
        first_entry(&mut all()?, &below)?;
    }
    if below.is_empty() && manner.filter.include.is_none() {
        let bytes = ["new_bytes", "changed_bytes", "unchanged_bytes"];
        let bytes = bytes.iter().filter_map(|name| snapshot.count(name)).sum();
        monitor.expect(bytes, snapshot.root.entries);
    }
    let rules = Rules {
        overwrite: options.overwrite || manner.reuse.is_some(),
        remove_full: manner.delete.is_some(),
        durable: manner.reuse.is_some(),
        owners: !manner.owners.leave,
    };
    let sink = TreeSink::create(options.to, rules)?;
    let origin =
        Origin { packs: &packs, index: &index, keys: store.keys()?, limits: options.limits };
    let text = mark_of(&snapshot, &below);
    let plan = Plan { mark: &text, ..plan(origin, &sink, options, manner, &below, monitor) };
    sink.begin(&text)?;
    if manner.full_paths {
        make_way(&sink, &below)?;
    }
    if manner.delete == Some(Delete::WithinReason) {
        refuse_beyond_reason(&plan, &snapshot, &below, &mut tree()?, &mut all()?)?;
    }
    let mut first_names = plan.files(&mut tree()?)?;
    if manner.delete.is_some() {
        restore::extras(&plan, &mut tree()?, &snapshot.sources, Removal::Done, &mut |_, _| ());
    }
    restore::finish_tree(&plan, &mut tree()?, &mut first_names)?;
    sink.end(&text);
    let disowned = plan.disowned.load(Ordering::Relaxed);
    if disowned > 0 {
        let entries = pinstripe_base::units::counted(
            disowned,
            "restored entry belongs",
            "restored entries belong",
        );
        let what = format!("{entries} to you, not to the original owner");
        let advice = "only root can change owners: restore as root to keep them";
        monitor.warning(options.to, Error::new(Kind::Refused, what).advice(advice));
    }
    if options.verify {
        let target = source::open_directory(options.to)?;
        restore::verify(&plan, &mut tree()?, target.as_fd())?;
    }
    Ok(snapshot)
}

/// The mark that an empty target carries until the restore has finished.
#[must_use]
pub fn mark_of(snapshot: &Snapshot, below: &[u8]) -> Vec<u8> {
    let what =
        format!("pinstripe restores snapshot {} here and has not ended; path: /", snapshot.id);
    [what.as_bytes(), below, b"\n"].concat()
}

pub(super) fn check(manner: &Manner) -> Result<()> {
    let is_filtered = manner.filter.include.is_some() || manner.filter.exclude.is_some();
    if manner.delete.is_some() && (manner.reuse.is_none() || is_filtered) {
        let what = "--delete works only when restoring in place, and without --include or \
                    --exclude";
        return Err(Error::new(Kind::Usage, what)
            .advice("add --in-place, and use a path instead of --include and --exclude"));
    }
    Ok(())
}

/// The plan of a restore, also for verbs that only look.
pub(super) fn plan<'a>(
    Origin { packs, index, keys, limits }: Origin<'a>,
    sink: &'a TreeSink,
    options: &Options<'a>,
    manner: &Manner,
    below: &'a [u8],
    monitor: &'a Monitor,
) -> Plan<'a> {
    Plan {
        packs,
        index,
        keys,
        sink,
        to: options.to,
        strip: if manner.full_paths { b"" } else { below },
        reuse: manner.reuse,
        limits,
        monitor,
        mark: b"",
        disowned: AtomicU64::new(0),
        lost: Mutex::default(),
        making: Mutex::default(),
    }
}

/// Makes the directories above `below` that are missing.
fn make_way(sink: &TreeSink, below: &[u8]) -> Result<()> {
    for (at, _) in below.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        if !sink.has(&below[..at]) {
            sink.make_directory(&below[..at])?;
        }
    }
    Ok(())
}

/// Looks before anything is removed: a wrong target has little in common with the snapshot.
fn refuse_beyond_reason(
    plan: &Plan<'_>,
    snapshot: &Snapshot,
    below: &[u8],
    tree: &mut ChosenReader<'_>,
    all: &mut TreeReader<'_>,
) -> Result<()> {
    let override_it = "check with --dry-run; if that is intended, add --yes";
    let lost = snapshot.count("losses").unwrap_or(0);
    if lost > 0 {
        let lost = pinstripe_base::units::counted(lost, "entry", "entries");
        let what =
            format!("{lost} could not be backed up: --delete would remove what the snapshot lacks");
        return Err(Error::new(Kind::Refused, what).advice(override_it));
    }
    let removed = restore::extras(plan, tree, &snapshot.sources, Removal::Counted, &mut |_, _| ());
    let mut entries = 0;
    if below.is_empty() {
        entries = snapshot.root.entries;
    } else {
        while entries < removed.entries && matches!(all.next_entry(), Ok(Some(_))) {
            entries += 1;
        }
    }
    if removed.entries > entries {
        let what = "more entries would be removed than the snapshot has there";
        return Err(Error::new(Kind::Refused, what)
            .at(plan.to)
            .expected(format!("at most {entries}"), removed.entries)
            .advice(override_it));
    }
    Ok(())
}
