//! Keeps the catalog consistent with the store: updates, rebuilds and examines it.
//!
//! Backups and restores do not need the catalog. Errors in the catalog are reported, and repaired
//! by rebuilding the catalog from the snapshots.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::catalog::{Catalog, CatalogStart, Size};
use crate::pipeline::fill;
use crate::store::index::Index;
use crate::store::objects::Quorum;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeDiff;
use crate::store::{Store, forgotten, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_member::ChangeSink;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName};

/// The number of versions after which the catalog is committed, so that an interrupted update
/// resumes from there.
const COMMIT_VERSIONS: u64 = 500_000;

/// A stop flag that is never set: to stop a search, its process is ended.
pub(super) static NEVER: AtomicBool = AtomicBool::new(false);

/// Opens the catalog at `place` and brings it up to date.
///
/// # Errors
/// Fails when the store's snapshots cannot be listed or the catalog cannot be written.
pub fn current(store: &Store, place: &Path, monitor: &Monitor) -> Result<Catalog> {
    current_unless(&NEVER, store, place, monitor)
}

/// Opens the catalog and brings it up to date, in a process that continues after `stop` is set.
///
/// # Errors
/// Fails with the errors of [`current`], or with [`Kind::Interrupted`] when `stop` was set.
pub(crate) fn current_unless(
    stop: &AtomicBool,
    store: &Store,
    place: &Path,
    monitor: &Monitor,
) -> Result<Catalog> {
    let (catalog, begun) = Catalog::open(place, store.config.store)?;
    match &begun {
        CatalogStart::Found => {}
        CatalogStart::New => {
            monitor.note(&format!("a new catalog is created in the file {}", place.display()))
        }
        CatalogStart::Anew(why) => note_anew(place, why, monitor),
    }
    match update(stop, store, &catalog, monitor) {
        Err(error) if is_damage(&error, place) => {
            drop(catalog);
            note_anew(place, error.what(), monitor);
            rebuild_unless(stop, store, place, monitor)
        }
        updated => updated.map(|()| catalog),
    }
}

/// Runs a search. If the catalog turns out to be damaged during the search, it is rebuilt and
/// searched again, unless a result was shown already: the second value of `search` tells that.
///
/// # Errors
/// Fails with the errors of [`current`] and of `search`.
pub fn searched<T>(
    store: &Store,
    place: &Path,
    monitor: &Monitor,
    search: &mut dyn FnMut(&Catalog) -> (Result<T>, bool),
) -> Result<T> {
    let catalog = current(store, place, monitor)?;
    match search(&catalog) {
        (Err(error), false) if is_damage(&error, place) => {
            drop(catalog);
            note_anew(place, error.what(), monitor);
            search(&rebuild(store, place, monitor)?).0
        }
        (searched, _) => searched,
    }
}

/// Rebuilds the catalog from the store's snapshots.
///
/// # Errors
/// Fails with the errors of [`current`].
pub fn rebuild(store: &Store, place: &Path, monitor: &Monitor) -> Result<Catalog> {
    rebuild_unless(&NEVER, store, place, monitor)
}

/// Rebuilds the catalog, in a process that continues after `stop` is set.
///
/// # Errors
/// Fails with the errors of [`current_unless`].
pub(crate) fn rebuild_unless(
    stop: &AtomicBool,
    store: &Store,
    place: &Path,
    monitor: &Monitor,
) -> Result<Catalog> {
    let catalog = Catalog::create(place, store.config.store)?;
    update(stop, store, &catalog, monitor)?;
    Ok(catalog)
}

/// The state of a catalog compared with its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogStatus {
    /// The size of its content.
    pub size: Size,
    /// The number of the store's snapshots that the catalog does not have yet.
    pub missing: u64,
    /// The number of snapshots that the catalog has but the store does not have any more.
    pub gone: u64,
}

/// Reads the state of the catalog without changing it.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no catalog, or with [`Kind::Corrupt`] when it cannot
/// be used.
pub fn status(store: &Store, place: &Path) -> Result<CatalogStatus> {
    let advice = "'pinstripe find' and 'pinstripe catalog rebuild' create the catalog";
    let catalog =
        Catalog::open_existing(place, store.config.store).map_err(|error| error.advice(advice))?;
    let (known, there) = (catalog.snapshots()?, listed(store)?);
    Ok(CatalogStatus {
        size: catalog.size()?,
        missing: there.difference(&known).count() as u64,
        gone: known.difference(&there).count() as u64,
    })
}

fn note_anew(place: &Path, why: &str, monitor: &Monitor) {
    monitor.note(&format!("the catalog {} is being rebuilt, because {why}", place.display()));
}

/// Whether an error means that the catalog itself is damaged, and not the store from which it is
/// made.
fn is_damage(error: &Error, place: &Path) -> bool {
    error.kind() == Kind::Corrupt && error.place() == Some(place)
}

/// Returns the existing snapshots that are not forgotten. No snapshot is read, so a search in an
/// up-to-date catalog costs only a listing.
pub(super) fn listed(store: &Store) -> Result<BTreeSet<SnapshotId>> {
    let there: Vec<_> = store.list(ExtentKind::Snapshots)?.into_keys().map(SnapshotId).collect();
    // Read last: a deletion removes the snapshot first and its mark afterwards, so a snapshot that
    // is listed while it is being deleted still has its mark.
    let marks = forgotten::load(store, Quorum::Backup)?;
    Ok(there.into_iter().filter(|id| !marks.is_forgotten(*id)).collect())
}

/// Whether a snapshot that could not be taken in is still wanted: it may have been deleted in the
/// meantime, or be the void of a session that was ended from outside.
pub(super) fn is_wanted(store: &Store, id: SnapshotId) -> Result<bool> {
    Ok(listed(store)?.contains(&id) && !snapshots::is_void(store, id))
}

fn update(stop: &AtomicBool, store: &Store, catalog: &Catalog, monitor: &Monitor) -> Result<()> {
    let there = listed(store)?;
    if catalog.snapshots()? == there {
        return Ok(());
    }
    catalog.begin()?;
    // Asked again: another process may have been here while we waited for our turn.
    let brought = catalog.snapshots().and_then(|known| {
        let gone: Vec<_> = known.difference(&there).copied().collect();
        if !gone.is_empty() {
            monitor.note(&format!("removing {} from the catalog", counted(gone.len())));
            catalog.let_go(&gone)?;
        }
        take_in(stop, store, catalog, there.difference(&known).copied().collect(), monitor)
    });
    match brought {
        Ok(()) => catalog.commit(),
        Err(error) => {
            catalog.abandon();
            Err(error)
        }
    }
}

pub(super) fn counted(count: usize) -> String {
    format!("{count} snapshot{}", if count == 1 { "" } else { "s" })
}

fn take_in(
    stop: &AtomicBool,
    store: &Store,
    catalog: &Catalog,
    new: Vec<SnapshotId>,
    monitor: &Monitor,
) -> Result<()> {
    let mut snapshots = Vec::with_capacity(new.len());
    for id in new {
        match snapshots::read(store, id) {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(error) if error.kind() == Kind::Unsupported || error.kind().is_about_keys() => {
                return Err(error);
            }
            Err(error) if is_stray(store, id)? => {
                monitor.warning(ExtentName::snapshot(id).path(), error);
            }
            Err(error) => left_out(store, id, error, monitor)?,
        }
    }
    if snapshots.is_empty() {
        return Ok(());
    }
    snapshots.sort_by_key(|it| (it.created_seconds, it.created_nanos, it.id));
    monitor.note(&format!("adding {} to the catalog", counted(snapshots.len())));
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let trees = SnapshotTrees { packs: &packs, index: &index, stop };
    let mut uncommitted = 0;
    for snapshot in &snapshots {
        match trees.take_in(catalog, snapshot) {
            Ok(versions) => {
                uncommitted += versions;
                monitor.add(Counter::CataloguedVersions, versions);
            }
            Err(error) if error.place() == Some(catalog.place()) => return Err(error),
            // The next update continues after the last commit.
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            Err(error) => left_out(store, snapshot.id, error, monitor)?,
        }
        if uncommitted >= COMMIT_VERSIONS {
            uncommitted = 0;
            catalog.commit()?;
            catalog.begin()?;
        }
    }
    Ok(())
}

/// Whether the unreadable object of this name is on too few members to be a snapshot that any
/// backup finished.
fn is_stray(store: &Store, id: SnapshotId) -> Result<bool> {
    let holders = store.list(ExtentKind::Snapshots)?.get(&id.0).map_or(0, Vec::len);
    Ok(holders > 0 && holders < store.votes_on_damage())
}

/// Handles a snapshot that cannot be read: the catalog lacks it. The missing snapshot is a loss,
/// unless it is not wanted any more.
fn left_out(store: &Store, id: SnapshotId, error: Error, monitor: &Monitor) -> Result<()> {
    if is_wanted(store, id)? {
        monitor.loss(format!("snapshot {} is not in the catalog", id.short()), error);
    }
    Ok(())
}

/// Reads the trees of snapshots.
pub(super) struct SnapshotTrees<'a> {
    pub packs: &'a PackReader<'a>,
    pub index: &'a Index<'a>,
    pub stop: &'a AtomicBool,
}

impl<'a> SnapshotTrees<'a> {
    pub(super) fn reader(&self) -> ChunkReader<'a> {
        ChunkReader::new(self.packs, self.index)
    }

    /// Takes in what differs between a snapshot and the one before it; if the one before cannot be
    /// read any more, the snapshot becomes the first of a new series.
    fn take_in(&self, catalog: &Catalog, snapshot: &Snapshot) -> Result<u64> {
        let base = catalog.base(snapshot)?;
        let mut attempts = vec![None];
        attempts.extend(base.map(Some));
        let mut result = Ok(0);
        while let Some(base) = attempts.pop() {
            catalog.mark()?;
            result = self.fill(catalog, snapshot, base.as_ref());
            match &result {
                Ok(_) => {
                    catalog.keep_since_mark()?;
                    break;
                }
                Err(error) => {
                    catalog.undo_to_mark()?;
                    if error.kind() == Kind::Interrupted {
                        break;
                    }
                }
            }
        }
        result
    }

    fn fill(
        &self,
        catalog: &Catalog,
        snapshot: &Snapshot,
        base: Option<&crate::catalog::Base>,
    ) -> Result<u64> {
        let old = base.map(|base| (self.reader(), &base.root));
        let diff = TreeDiff::new(old, (self.reader(), &snapshot.root))?;
        let mut intake: Box<dyn ChangeSink> = Box::new(catalog.take_in(snapshot, base)?);
        fill::run(diff, &mut *intake, self.stop)?;
        intake.finish()
    }
}
