//! The view that `versions` shows: the catalog as of its last update.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::catalog::{Catalog, VersionRow};
use crate::ops::catalog::{current_unless, rebuild_unless};
use crate::store::Store;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SnapshotId, StoreId};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::{Wake, lock, wait_timeout};
use pinstripe_member::{Holder, SnapshotSeries};

/// How long programs wait, from the first request on, for a catalog that is being brought up to
/// date: a small catalog is ready by then, and the rest of the mount is not delayed longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The number of positions from which listings can continue.
const CURSORS: usize = 1024;
/// The number of database connections that are kept for later requests.
const CONNECTIONS: usize = 8;

/// The current view, and the requests that wait for one.
pub(in super::super) struct VersionsState {
    place: PathBuf,
    asked: Mutex<ViewRequest>,
    answered: Condvar,
}

#[derive(Default)]
struct ViewRequest {
    view: Option<Arc<View>>,
    /// Why there is no view.
    failed: Option<Error>,
    /// A program has requested a view that does not exist.
    is_wanted: bool,
    /// The catalog must be rebuilt.
    is_damaged: bool,
    /// The time at which the programs that wait for a view get EAGAIN.
    until: Option<Instant>,
    /// Views so far.
    views: u32,
}

impl VersionsState {
    pub(in super::super) fn new(place: PathBuf) -> Self {
        VersionsState { place, asked: Mutex::default(), answered: Condvar::new() }
    }

    /// The path of the catalog.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the current view, if there is one.
    pub(super) fn known(&self) -> Option<Arc<View>> {
        lock(&self.asked).view.clone()
    }

    /// Returns the view, after a bounded wait; `wake` wakes the thread that makes it.
    pub(super) fn view(&self, wake: &Wake) -> Result<Arc<View>> {
        let mut asked = lock(&self.asked);
        loop {
            if let Some(view) = &asked.view {
                return Ok(Arc::clone(view));
            }
            if let Some(error) = &asked.failed {
                let error = error.duplicate();
                asked.is_wanted = true;
                return Err(error);
            }
            if !std::mem::replace(&mut asked.is_wanted, true) {
                asked.until = Some(clock::monotonic() + PATIENCE);
                wake.call();
            }
            let until = asked.until.unwrap_or_else(clock::monotonic);
            let left = until.saturating_duration_since(clock::monotonic());
            if left.is_zero() {
                return Err(Error::new(Kind::Busy, "the catalog is being brought up to date"));
            }
            asked = wait_timeout(&self.answered, asked, left);
        }
    }

    /// Returns the work that is due, if the top directories have changed `changes` times.
    pub(super) fn due(&self, changes: u32) -> Option<Due> {
        let asked = lock(&self.asked);
        let is_due = match &asked.view {
            None => asked.is_wanted,
            // Another process may have rebuilt the catalog.
            Some(view) => view.changes != changes || Catalog::file_at(&self.place) != view.file,
        };
        is_due.then_some(if asked.is_damaged { Due::Rebuild } else { Due::Update })
    }

    /// Stores a new view, or the reason why it could not be made.
    pub(super) fn arrived(&self, made: Result<View>) -> Result<()> {
        let mut asked = lock(&self.asked);
        (asked.is_wanted, asked.until) = (false, None);
        let told = match made {
            Ok(mut view) => {
                asked.is_damaged = false;
                asked.views = (asked.views + 1) % 1_000_000_000;
                view.number = asked.views;
                (asked.view, asked.failed) = (Some(Arc::new(view)), None);
                Ok(())
            }
            Err(error) => {
                let told = error.duplicate();
                // The view shown before is still valid for the snapshots that are left.
                asked.failed = Some(error).filter(|_| asked.view.is_none());
                Err(told)
            }
        };
        self.answered.notify_all();
        told
    }

    /// Discards an unusable view: the next request has a new one made.
    pub(super) fn mistrust(&self, view: &View, is_damaged: bool) {
        let mut asked = lock(&self.asked);
        if asked.view.as_ref().is_some_and(|known| known.number == view.number) {
            asked.view = None;
            asked.is_damaged |= is_damaged;
        }
    }
}

/// The work that the catalog needs: an update or a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Bring the catalog up to date.
    Update,
    /// The catalog is damaged and must be rebuilt.
    Rebuild,
}

/// One state of the catalog.
pub(in super::super) struct View {
    number: u32,
    /// The number of changes of the top directories when the view was made.
    changes: u32,
    place: PathBuf,
    file: Option<(u64, u64)>,
    /// The series of the catalog, each with only the snapshots that are shown.
    series: Vec<SnapshotSeries>,
    ordinals: HashMap<SnapshotId, u64>,
    newest: i64,
    connections: Mutex<Vec<Catalog>>,
    cursors: Mutex<Cursors>,
}

/// A version of a file, and the shown snapshots that hold it.
pub(super) struct VersionOfFile<'v> {
    pub(super) row: &'v VersionRow,
    pub(super) holders: &'v [Holder],
    pub(super) first: &'v Holder,
}

impl View {
    /// Brings the catalog up to date and reads it.
    pub(super) fn make(
        due: Due,
        stop: &AtomicBool,
        store: &Store,
        place: &Path,
        monitor: &Monitor,
        ordinals: HashMap<SnapshotId, u64>,
        changes: u32,
    ) -> Result<View> {
        let catalog = match due {
            Due::Update => current_unless(stop, store, place, monitor)?,
            Due::Rebuild => rebuild_unless(stop, store, place, monitor)?,
        };
        let mut series = catalog.series()?;
        for one in &mut series {
            one.snapshots.retain(|snapshot| ordinals.contains_key(&snapshot.id));
        }
        series.retain(|one| !one.snapshots.is_empty());
        let all = series.iter().flat_map(|one| &one.snapshots);
        let newest = all.map(|snapshot| snapshot.created.seconds).max().unwrap_or(0);
        Ok(View {
            number: 0,
            changes,
            place: place.to_path_buf(),
            file: Catalog::file_at(place),
            series,
            ordinals,
            newest,
            connections: Mutex::default(),
            cursors: Mutex::default(),
        })
    }

    /// Runs a query on a connection that no other thread is using.
    pub(super) fn ask<T>(
        &self,
        store: StoreId,
        ask: impl FnOnce(&Catalog) -> Result<T>,
    ) -> Result<T> {
        let connection = lock(&self.connections).pop();
        let catalog = match connection {
            Some(catalog) => catalog,
            None => {
                let catalog = Catalog::open_to_look(&self.place, store);
                // Numbers of series are invalid in a rebuilt catalog.
                if Catalog::file_at(&self.place) != self.file {
                    return Err(Error::new(Kind::Busy, "the catalog is being rebuilt"));
                }
                catalog?
            }
        };
        let answer = ask(&catalog)?;
        let mut connections = lock(&self.connections);
        if connections.len() < CONNECTIONS {
            connections.push(catalog);
        }
        Ok(answer)
    }

    pub(super) fn series(&self) -> &[SnapshotSeries] {
        &self.series
    }

    /// Returns the ordinal of a snapshot in the mount.
    pub(super) fn ordinal(&self, id: SnapshotId) -> Option<u64> {
        self.ordinals.get(&id).copied()
    }

    /// Returns when the newest snapshot began; the nanoseconds distinguish views.
    pub(super) fn time(&self) -> (i64, u32) {
        (self.newest, self.number)
    }

    fn holders(&self, row: &VersionRow) -> &[Holder] {
        self.series[row.series].holders(row.first, row.last)
    }

    /// Whether any shown snapshot has a directory at this path.
    pub(super) fn has_directory(&self, rows: &[VersionRow]) -> bool {
        rows.iter().any(|row| row.is_directory() && !self.holders(row).is_empty())
    }

    /// Returns the versions of a file that shown snapshots hold.
    pub(super) fn files<'v>(&'v self, rows: &'v [VersionRow]) -> Vec<VersionOfFile<'v>> {
        let files = rows.iter().filter(|row| !row.is_directory());
        let versions = files.filter_map(|row| {
            let holders = self.holders(row);
            holders.first().map(|first| VersionOfFile { row, holders, first })
        });
        versions.collect()
    }

    pub(super) fn cursors(&self) -> MutexGuard<'_, Cursors> {
        lock(&self.cursors)
    }
}

/// A position from which a listing can continue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The number of entries before the name.
    pub(super) place: u64,
    pub(super) name: Vec<u8>,
}

/// The names at which listings stopped.
#[derive(Default)]
pub(super) struct Cursors {
    /// The names, by directory and position.
    names: BTreeMap<(u64, u64), Vec<u8>>,
    oldest: VecDeque<(u64, u64)>,
}

impl Cursors {
    /// Returns the last remembered name of a directory at or before a position.
    pub(super) fn before(&self, directory: u64, place: u64) -> Cursor {
        let mut before = self.names.range((directory, 0)..=(directory, place));
        let last = before.next_back();
        last.map_or_else(Cursor::default, |((_, place), name)| Cursor {
            place: *place,
            name: name.clone(),
        })
    }

    /// Remembers that `place` entries precede a name in a directory.
    pub(super) fn keep(&mut self, directory: u64, place: u64, name: &[u8]) {
        if self.names.insert((directory, place), name.to_vec()).is_none() {
            self.oldest.push_back((directory, place));
        }
        if self.oldest.len() > CURSORS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.names.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_from_the_nearest_name() {
        let mut cursors = Cursors::default();
        assert_eq!(cursors.before(1, 500), Cursor::default());
        cursors.keep(1, 100, b"h");
        cursors.keep(1, 200, b"p");
        cursors.keep(2, 150, b"z");
        assert_eq!(cursors.before(1, 99), Cursor::default());
        assert_eq!(cursors.before(1, 199), Cursor { place: 100, name: b"h".to_vec() });
        assert_eq!(cursors.before(1, u64::MAX), Cursor { place: 200, name: b"p".to_vec() });
        for place in 0..CURSORS as u64 {
            cursors.keep(3, place, b"n");
        }
        assert_eq!(cursors.names.len(), CURSORS);
        assert_eq!(cursors.before(1, 199), Cursor::default());
    }
}
