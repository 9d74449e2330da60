//! The catalog: every version of every path in all snapshots, in one SQLite file outside the store.
//!
//! The catalog is derived data: it is made from the snapshots' trees, backups and restores do not
//! use it, and it is discarded and rebuilt when it is damaged or of another version. A version of a
//! path is one row with the range of snapshots that hold it, so unchanged paths take no space.
//!
//! Snapshots of the same host and sources form a *series*; a snapshot's number in its series is its
//! *ordinal*, given in the order in which snapshots were taken in, so no clock is trusted. A row
//! holds `first..=last`; if `last` is missing, the newest snapshot of the series, its *head*, still
//! has the version.
//!
//! Invariants: a transaction takes in complete snapshots only. Every row belongs to at least one
//! existing snapshot. Every path of `versions` is exactly once in the blocks of `names`. Ids of
//! directories are chosen here and never read back. The file has mode 0600, because the names in it
//! are not encrypted. Not in this module: reading trees (the caller gives the changes), threads.

#![allow(
    clippy::disallowed_methods,
    reason = "the catalog is a separate file, which is not on a member"
)]

mod children;
mod history;
mod intake;
mod prune;
mod schema;
mod search;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

pub(crate) use children::{ChildOfDirectory, VersionRow};
pub use intake::Base;
pub(crate) use intake::change_of;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SnapshotId, StoreId};

/// The name of the catalog's file in the directory that the command line chooses.
pub const FILE_NAME: &str = "catalog.sqlite";

/// Whether a catalog was found, created or rebuilt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogStart {
    /// A usable catalog was found.
    Found,
    /// There was none.
    New,
    /// A catalog was found that cannot be used, for this reason, and a new one was begun.
    Anew(String),
}

/// An open catalog.
pub struct Catalog {
    db: Connection,
    place: PathBuf,
}

/// The size of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Size {
    /// Snapshots taken in.
    pub snapshots: u64,
    /// The number of series: hosts with their sources.
    pub series: u64,
    /// Directories.
    pub directories: u64,
    /// Versions of paths.
    pub versions: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

impl Catalog {
    /// Opens the catalog of a store, or begins one. A file that is not a catalog of this store and
    /// version, or whose first pages are damaged, is replaced by an empty catalog.
    ///
    /// # Errors
    /// Fails when the file can be neither used nor replaced.
    pub fn open(place: &Path, store: StoreId) -> Result<(Self, CatalogStart)> {
        let begun = match fs::symlink_metadata(place) {
            Ok(_) => match schema::open(place, store) {
                Ok(db) => {
                    return Ok((Catalog { db, place: place.to_path_buf() }, CatalogStart::Found));
                }
                Err(error) if error.kind() == Kind::Corrupt => {
                    CatalogStart::Anew(error.what().into())
                }
                Err(error) => return Err(error),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => CatalogStart::New,
            Err(error) => return Err(Error::io("cannot stat the catalog", place, error)),
        };
        Ok((Catalog::create(place, store)?, begun))
    }

    /// Opens an existing catalog without changing it.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when there is no catalog, or with [`Kind::Corrupt`] when it
    /// cannot be used.
    pub fn open_existing(place: &Path, store: StoreId) -> Result<Self> {
        fs::symlink_metadata(place)
            .map_err(|e| Error::io("the catalog does not exist yet", place, e))?;
        Ok(Catalog { db: schema::open(place, store)?, place: place.to_path_buf() })
    }

    /// Opens an existing catalog for one of several concurrent readers, which use little memory
    /// each, and which try again later rather than wait long while the catalog is being filled.
    ///
    /// # Errors
    /// Fails with the errors of [`open_existing`](Self::open_existing).
    pub(crate) fn open_to_look(place: &Path, store: StoreId) -> Result<Self> {
        let catalog = Catalog::open_existing(place, store)?;
        schema::spare(&catalog.db).map_err(|error| catalog.failed(error))?;
        Ok(catalog)
    }

    /// Begins an empty catalog, replacing any file at `place`.
    ///
    /// # Errors
    /// Fails when the file cannot be removed or created, or with [`Kind::Refused`] for a file that
    /// is not a catalog.
    pub fn create(place: &Path, store: StoreId) -> Result<Self> {
        schema::remove(place)?;
        Ok(Catalog { db: schema::create(place, store)?, place: place.to_path_buf() })
    }

    /// The path of the catalog's file.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the device and inode of the file at a place: they change when the catalog is
    /// rebuilt.
    pub(crate) fn file_at(place: &Path) -> Option<(u64, u64)> {
        let found = fs::symlink_metadata(place).ok()?;
        Some((found.dev(), found.ino()))
    }

    /// Returns the snapshots that were taken in.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read: in every method, [`Kind::Corrupt`] with the catalog's
    /// own path means that the catalog is damaged.
    pub fn snapshots(&self) -> Result<BTreeSet<SnapshotId>> {
        let mut known = self.prepare("SELECT id FROM snapshots")?;
        let ids = known.query_map([], |row| row.get::<_, [u8; 16]>(0).map(SnapshotId));
        ids.and_then(Iterator::collect).map_err(|error| self.failed(error))
    }

    /// The size of the catalog.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read.
    pub fn size(&self) -> Result<Size> {
        let count = |table: &str| {
            let rows = format!("SELECT count(*) FROM {table}");
            let rows = self.db.query_row(&rows, [], |row| row.get::<_, i64>(0));
            rows.map(|rows| rows as u64).map_err(|error| self.failed(error))
        };
        let file = fs::metadata(&self.place);
        Ok(Size {
            snapshots: count("snapshots")?,
            series: count("series")?,
            directories: count("dirs")?,
            versions: count("versions")?,
            bytes: file.map_err(|e| Error::io("cannot stat the catalog", &self.place, e))?.len(),
        })
    }

    /// Begins a change of the catalog; waits for another writer.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when the wait takes too long.
    pub fn begin(&self) -> Result<()> {
        self.run("BEGIN IMMEDIATE")
    }

    /// Makes the changes since [`begin`](Self::begin) durable.
    ///
    /// # Errors
    /// Fails with [`Kind::NoSpace`] on a full disk.
    pub fn commit(&self) -> Result<()> {
        self.run("COMMIT")
    }

    /// Undoes the changes since [`begin`](Self::begin).
    pub(crate) fn abandon(&self) {
        // Where it fails, SQLite has taken them back by itself.
        let _ = self.db.execute_batch("ROLLBACK");
    }

    /// Sets a savepoint within a change.
    ///
    /// # Errors
    /// Fails when the catalog cannot be written, as the next two methods do.
    pub fn mark(&self) -> Result<()> {
        self.run("SAVEPOINT mark")
    }

    /// Keeps the changes since [`mark`](Self::mark).
    ///
    /// # Errors
    /// As there.
    pub(crate) fn keep_since_mark(&self) -> Result<()> {
        self.run("RELEASE mark")
    }

    /// Undoes the changes since [`mark`](Self::mark).
    ///
    /// # Errors
    /// As there.
    pub(crate) fn undo_to_mark(&self) -> Result<()> {
        self.run("ROLLBACK TO mark; RELEASE mark")
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.db.execute_batch(sql).map_err(|error| self.failed(error))
    }

    fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>> {
        self.db.prepare_cached(sql).map_err(|error| self.failed(error))
    }

    /// Returns the id of a directory of a series.
    fn directory(&self, series: i64, path: &[u8]) -> Result<Option<i64>> {
        let mut find = self.prepare("SELECT id FROM dirs WHERE series = ?1 AND path = ?2")?;
        let found = find.query_row(params![series, path], |row| row.get(0)).optional();
        found.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> Error {
        schema::failed(&self.place, error)
    }
}
