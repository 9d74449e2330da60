//! The catalog that the hosts of a server share: sends it what it lacks, and asks it.
//!
//! Only a host can read the trees of snapshots, so hosts send the rows that a snapshot changed. The
//! answers of the catalog are limited to the snapshots that the store lists: a snapshot that was
//! forgotten or deleted is not found, whatever the catalog has. Backups do not need the catalog.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::catalog::{NEVER, SnapshotTrees, counted, is_wanted, listed};
use super::diff::{Show, Sort, Totals};
use super::select::clean;
use crate::pipeline::fill;
use crate::store::choice::{SnapshotName, find as find_snapshot};
use crate::store::index::Index;
use crate::store::packs::PackReader;
use crate::store::tree::TreeDiff;
use crate::store::{Store, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::{FileKind, Metadata};
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_member::{
    CatalogAnswer, CatalogQuestion, Change, ChangeSink, Facts, FoundVersion, Query, SORTED_MAX,
    SharedCatalog, SnapshotSeries, Version, history_of, sort_found,
};

/// How often a snapshot is sent again because another snapshot of its series came before it.
const ATTEMPTS: usize = 4;

/// The most differences that are kept in memory to be sorted; more of them are read from the trees.
const DIFFERENCES_MAX: usize = 1 << 19;

/// What an update of a shared catalog did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedUpdate {
    /// Snapshots that were sent.
    pub sent: u64,
    /// Snapshots that were removed from the catalog.
    pub removed: u64,
    /// Snapshots that only their host or an administrator can send.
    pub of_others: u64,
}

/// Sends the snapshots of this host that the catalog lacks, after a backup. The backup is complete,
/// whatever the result is.
///
/// # Errors
/// Fails when the catalog does not answer or a tree cannot be read.
pub fn send_own(
    store: &Store,
    shared: &dyn SharedCatalog,
    monitor: &Monitor,
) -> Result<SharedUpdate> {
    bring_up_to_date(store, shared, false, monitor, &mut |_, error| Err(error))
}

/// Sends the snapshots that the catalog lacks, and removes those that the store no longer lists. A
/// snapshot that cannot be read is a loss in the ledger.
///
/// # Errors
/// Fails when the catalog does not answer.
pub fn update(
    store: &Store,
    shared: &dyn SharedCatalog,
    monitor: &Monitor,
) -> Result<SharedUpdate> {
    let updated = bring_up_to_date(store, shared, true, monitor, &mut |id, error| {
        if is_wanted(store, id)? {
            let what = format!("snapshot {} is not in the shared catalog", id.short());
            monitor.loss(what, error);
        }
        Ok(())
    })?;
    if updated.of_others > 0 {
        monitor.note(&format!(
            "the shared catalog lacks {} of other hosts: the next backup of each host sends them, \
             or 'pinstripe find --all-hosts' with a token of the role admin",
            counted(updated.of_others as usize)
        ));
    }
    Ok(updated)
}

/// Empties the catalog, as far as the caller may change it, and sends everything again.
///
/// # Errors
/// Fails with the errors of [`update`].
pub fn rebuild(
    store: &Store,
    shared: &dyn SharedCatalog,
    monitor: &Monitor,
) -> Result<SharedUpdate> {
    shared.clear()?;
    update(store, shared, monitor)
}

type LeaveOut<'a> = dyn FnMut(SnapshotId, Error) -> Result<()> + 'a;

fn bring_up_to_date(
    store: &Store,
    shared: &dyn SharedCatalog,
    all_hosts: bool,
    monitor: &Monitor,
    leave_out: &mut LeaveOut<'_>,
) -> Result<SharedUpdate> {
    let there: Vec<_> = listed(store)?.into_iter().collect();
    let sync = shared.compare(&there, all_hosts)?;
    let mut updated = SharedUpdate { of_others: sync.of_others.len() as u64, ..<_>::default() };
    if !sync.gone.is_empty() {
        updated.removed = shared.let_go(&sync.gone)?;
    }
    let mut missing = Vec::with_capacity(sync.missing.len());
    for id in sync.missing {
        match snapshots::read(store, id) {
            Ok(snapshot) => missing.push(snapshot),
            Err(error) if error.kind() == Kind::Unsupported || error.kind().is_about_keys() => {
                return Err(error);
            }
            Err(error) => leave_out(id, error)?,
        }
    }
    if missing.is_empty() {
        return Ok(updated);
    }
    missing.sort_by_key(|it| (it.created_seconds, it.created_nanos, it.id));
    if all_hosts {
        monitor.note(&format!("adding {} to the shared catalog", counted(missing.len())));
    }
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let trees = SnapshotTrees { packs: &packs, index: &index, stop: &NEVER };
    for snapshot in &missing {
        match send(&trees, shared, snapshot) {
            Ok(versions) => {
                updated.sent += 1;
                monitor.add(Counter::CataloguedVersions, versions);
            }
            // Another process sent it meanwhile.
            Err(SendFault::Catalog(error)) if error.kind() == Kind::Exists => {}
            Err(SendFault::Catalog(error)) => return Err(error),
            Err(SendFault::Tree(error)) => leave_out(snapshot.id, error)?,
        }
    }
    Ok(updated)
}

/// Why a snapshot was not sent.
enum SendFault {
    /// The catalog does not take it.
    Catalog(Error),
    /// Its tree cannot be read.
    Tree(Error),
}

/// Sends what differs between a snapshot and the head of its series; if the head's tree cannot be
/// read any more, the snapshot becomes the first of a new series.
fn send(
    trees: &SnapshotTrees<'_>,
    shared: &dyn SharedCatalog,
    snapshot: &Snapshot,
) -> Result<u64, SendFault> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let head = shared.head(snapshot).map_err(SendFault::Catalog)?;
        let base = head.map(|head| (head.id, head.root));
        match send_after(trees, shared, snapshot, base) {
            Err(SendFault::Catalog(error))
                if error.kind() == Kind::Changed && attempts < ATTEMPTS => {}
            Err(SendFault::Tree(_)) if base.is_some() => {
                return send_after(trees, shared, snapshot, None);
            }
            sent => return sent,
        }
    }
}

fn send_after(
    trees: &SnapshotTrees<'_>,
    shared: &dyn SharedCatalog,
    snapshot: &Snapshot,
    base: Option<(SnapshotId, TreeRoot)>,
) -> Result<u64, SendFault> {
    let old = base.as_ref().map(|(_, root)| (trees.reader(), root));
    let diff = TreeDiff::new(old, (trees.reader(), &snapshot.root)).map_err(SendFault::Tree)?;
    let inner = shared.take_in(snapshot, base.map(|(id, _)| id)).map_err(SendFault::Catalog)?;
    let has_failed = Cell::new(false);
    let mut sink = WatchedSink { inner, has_failed: &has_failed };
    let filled = fill::run(diff, &mut sink, trees.stop);
    filled.map_err(|error| match has_failed.get() {
        true => SendFault::Catalog(error),
        false => SendFault::Tree(error),
    })?;
    sink.inner.finish().map_err(SendFault::Catalog)
}

/// Remembers whether an error came from the catalog.
struct WatchedSink<'a> {
    inner: Box<dyn ChangeSink + 'a>,
    has_failed: &'a Cell<bool>,
}

impl ChangeSink for WatchedSink<'_> {
    fn write(&mut self, changes: &[Change]) -> Result<()> {
        self.inner.write(changes).inspect_err(|_| self.has_failed.set(true))
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.inner.finish()
    }
}

/// The series of an answer without snapshots that the store does not list.
fn only_listed(series: Vec<SnapshotSeries>, there: &BTreeSet<SnapshotId>) -> Vec<SnapshotSeries> {
    let limited = series.into_iter().map(|mut it| {
        it.snapshots.retain(|holder| there.contains(&holder.id));
        it
    });
    limited.collect()
}

/// Brings the catalog up to date and passes every matching version of all hosts to `show`.
///
/// # Errors
/// Fails with the errors of [`update`] and of `show`.
pub fn find(
    store: &Store,
    shared: &dyn SharedCatalog,
    query: &Query,
    monitor: &Monitor,
    show: &mut dyn FnMut(FoundVersion) -> Result<()>,
) -> Result<()> {
    update(store, shared, monitor)?;
    let there = listed(store)?;
    let (mut all, mut found) = (Vec::new(), Vec::new());
    shared.ask(&CatalogQuestion::Find(query.clone()), true, &mut |part| {
        match part {
            CatalogAnswer::Series(series) => all = only_listed(series, &there),
            CatalogAnswer::Row(row) => {
                let of: Option<&SnapshotSeries> = all.get(row.series);
                found.extend(
                    of.and_then(|it| it.version(&row.path, &row.facts, row.first, row.last)),
                );
            }
            CatalogAnswer::Snapshot(_) => {}
        }
        if found.len() >= SORTED_MAX {
            sort_found(&mut found);
            found.drain(..).try_for_each(&mut *show)?;
        }
        Ok(())
    })?;
    sort_found(&mut found);
    found.into_iter().try_for_each(show)
}

/// Brings the catalog up to date and returns the versions of a path on all hosts: one list for each
/// series, oldest version first.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no snapshot has the path.
pub fn history(
    store: &Store,
    shared: &dyn SharedCatalog,
    path: &[u8],
    monitor: &Monitor,
) -> Result<Vec<Vec<Version>>> {
    update(store, shared, monitor)?;
    let (there, path) = (listed(store)?, clean(path));
    let mut all = Vec::new();
    let mut found: BTreeMap<usize, Vec<FoundVersion>> = BTreeMap::new();
    shared.ask(&CatalogQuestion::History(path.clone()), true, &mut |part| {
        match part {
            CatalogAnswer::Series(series) => all = only_listed(series, &there),
            CatalogAnswer::Row(row) => {
                let of: Option<&SnapshotSeries> = all.get(row.series);
                let version = of.and_then(|it| it.version(&path, &row.facts, row.first, row.last));
                found.entry(row.series).or_default().extend(version);
            }
            CatalogAnswer::Snapshot(_) => {}
        }
        Ok(())
    })?;
    let found = found.into_iter().filter(|(_, versions)| !versions.is_empty());
    let history: Vec<_> = found.map(|(at, versions)| history_of(&all[at], versions)).collect();
    if history.is_empty() {
        return Err(super::history::no_such_path(&path));
    }
    Ok(history)
}

/// The snapshots of all hosts that are not forgotten, oldest first: from the catalog, and from the
/// store those that the catalog lacks.
///
/// # Errors
/// Fails when the catalog does not answer or the store's snapshots cannot be listed.
pub fn snapshots(
    store: &Store,
    shared: &dyn SharedCatalog,
    monitor: &Monitor,
) -> Result<Vec<Snapshot>> {
    let there = listed(store)?;
    let mut all = Vec::with_capacity(there.len());
    shared.ask(&CatalogQuestion::Snapshots, true, &mut |part| {
        if let CatalogAnswer::Snapshot(snapshot) = part
            && there.contains(&snapshot.id)
        {
            all.push(*snapshot);
        }
        Ok(())
    })?;
    let known: HashSet<_> = all.iter().map(|it| it.id).collect();
    for id in there.into_iter().filter(|id| !known.contains(id)) {
        match snapshots::read(store, id) {
            Ok(snapshot) => all.push(snapshot),
            Err(error) if is_wanted(store, id)? => monitor.loss("snapshots", error),
            Err(_) => {}
        }
    }
    all.sort_by_key(|it| (it.created_seconds, it.created_nanos, it.id));
    Ok(all)
}

/// A path that two snapshots of one series have in different versions.
#[derive(Debug, Default)]
struct Sides {
    old: Option<(Facts, i64)>,
    new: Option<(Facts, i64)>,
}

/// Passes every difference between two snapshots to `show`, in path order. Returns `None`, and shows
/// nothing, if the rows of the catalog do not tell the differences: the snapshots are not of one
/// series, a path may have changed and changed back, or the differences are too many. Then the trees tell them.
///
/// # Errors
/// Fails with the errors of [`update`] and of `show`, and with [`Kind::NotFound`] when there is no
/// such snapshot.
pub fn diff(
    store: &Store,
    shared: &dyn SharedCatalog,
    (old, new): (SnapshotName<'_>, SnapshotName<'_>),
    monitor: &Monitor,
    show: &mut Show<'_>,
) -> Result<Option<Totals>> {
    update(store, shared, monitor)?;
    let known = snapshots(store, shared, monitor)?;
    let old = find_snapshot(&known, old, monitor)?.id;
    let new = find_snapshot(&known, new, monitor)?.id;
    if old == new {
        return Ok(None);
    }
    let (mut ordinals, mut is_long) = (None, false);
    let mut paths: BTreeMap<PathOrder, Sides> = BTreeMap::new();
    shared.ask(&CatalogQuestion::Diff(old, new), true, &mut |part| {
        match part {
            CatalogAnswer::Series(series) => {
                let held = |id| {
                    let holders = series.first()?.snapshots.iter();
                    holders.clone().find(|it| it.id == id).map(|it| it.ordinal)
                };
                ordinals = held(old).zip(held(new));
            }
            CatalogAnswer::Row(row) => {
                let Some((old, new)) = ordinals else { return Ok(()) };
                let has = |it| row.first <= it && row.last.is_none_or(|last| it <= last);
                is_long |= paths.len() >= DIFFERENCES_MAX;
                if is_long {
                    return Ok(());
                }
                let sides = paths.entry(PathOrder(row.path)).or_default();
                // The end of the range that is nearer to the other snapshot.
                let (last, first) = (row.last.unwrap_or(i64::MAX - 1), row.first);
                let is_forward = old < new;
                if has(old) {
                    sides.old = Some((row.facts, if is_forward { last } else { first }));
                }
                if has(new) {
                    sides.new = Some((row.facts, if is_forward { first } else { last }));
                }
            }
            CatalogAnswer::Snapshot(_) => {}
        }
        Ok(())
    })?;
    if ordinals.is_none() || is_long || paths.values().any(Sides::is_unclear) {
        return Ok(None);
    }
    let mut totals = Totals::default();
    for (PathOrder(path), sides) in &paths {
        let entry = |side: Option<(Facts, i64)>| side.map(|(facts, _)| entry(path, &facts));
        let (one, other) = (entry(sides.old), entry(sides.new));
        totals.count(sides.sort(), one.as_ref(), other.as_ref());
        show(sides.sort(), one.as_ref(), other.as_ref())?;
    }
    Ok(Some(totals))
}

impl Sides {
    /// Whether the rows leave open whether the versions differ: they look the same, and other
    /// versions may lie between them; or they are directories whose sizes alone differ, which
    /// file systems choose.
    fn is_unclear(&self) -> bool {
        let (Some((old, end)), Some((new, begin))) = (self.old, self.new) else { return false };
        let is_one_change = end + 1 == begin || begin + 1 == end;
        let is_directory = old.kind == FileKind::Directory && new.kind == old.kind;
        let is_same_meta = old.mode == new.mode && old.mtime == new.mtime;
        old == new && !is_one_change || is_directory && is_same_meta && old.size != new.size
    }

    fn sort(&self) -> Sort {
        let (Some((old, _)), Some((new, _))) = (self.old, self.new) else {
            return if self.old.is_none() { Sort::Added } else { Sort::Deleted };
        };
        let is_directory = old.kind == FileKind::Directory;
        if old.kind != new.kind {
            Sort::Retyped
        } else if !is_directory && (old.size, old.content) != (new.size, new.content) {
            Sort::Modified
        } else {
            Sort::Metadata
        }
    }
}

/// Orders paths as trees do.
#[derive(Debug, PartialEq, Eq)]
struct PathOrder(Vec<u8>);

impl Ord for PathOrder {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        pinstripe_member::tree::compare_paths(&self.0, &other.0)
    }
}

impl PartialOrd for PathOrder {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// An entry with what a catalog stores of it.
fn entry(path: &[u8], facts: &Facts) -> Entry {
    let Facts { kind, mode, size, mtime, .. } = *facts;
    let meta = Metadata { kind, mode, mtime, ..Metadata::default() };
    Entry { path: path.to_vec(), meta, size, ..Entry::default() }
}
