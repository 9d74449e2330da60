//! The catalog: every version of every path in all snapshots, in one SQLite file outside the store.
//!
//! Derived and disposable: made from the snapshots' trees, not used by backups or restores, and
//! discarded and rebuilt when it is of another version or damaged. A version of a path is one row
//! with the range of snapshots that hold it, so unchanged paths cost nothing.
//!
//! Snapshots of the same host and sources form a *series*; a snapshot's number in its series is its
//! *ordinal*, given in the order in which they were taken in, so no clock is trusted. A row says
//! `first..=last`; no `last` means that the newest snapshot of the series, its *head*, still has
//! it.
//!
//! Invariants: one transaction takes in whole snapshots or none; every row is held by at least one
//! snapshot that exists; every path of `versions` is exactly once in the blocks of `names`; ids of
//! directories are chosen here and never read back. The file has mode 0600, since names are in the
//! clear. Not in this module: reading trees (the caller gives the changes), threads.

#![allow(clippy::disallowed_methods, reason = "the catalog is a file of its own, not in a member")]

mod children;
mod history;
mod intake;
mod names;
mod prune;
mod schema;
mod search;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

pub(crate) use children::{ChildOfDirectory, VersionRow};
pub use history::Version;
pub use intake::{Base, Change, Intake};
pub(crate) use search::Series;
pub use search::{FoundVersion, Holder, Query};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SnapshotId, StoreId};

/// The name of the file in the directory that the command line keeps it in.
pub const FILE_NAME: &str = "catalog.sqlite";

/// Why a catalog was created or rebuilt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogStart {
    /// It was there and is of use.
    Found,
    /// There was none.
    New,
    /// There was one that is of no use, for this reason.
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
    /// Hosts with their sources.
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
    /// When the file can be neither used nor replaced.
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
    /// [`Kind::NotFound`] when there is none, [`Kind::Corrupt`] when it is of no use.
    pub fn open_existing(place: &Path, store: StoreId) -> Result<Self> {
        fs::symlink_metadata(place)
            .map_err(|e| Error::io("the catalog does not exist yet", place, e))?;
        Ok(Catalog { db: schema::open(place, store)?, place: place.to_path_buf() })
    }

    /// The same for one of several readers at once, who each give it little memory, and who come
    /// back later rather than wait long while it is being filled.
    ///
    /// # Errors
    /// The errors of [`open_existing`](Self::open_existing).
    pub(crate) fn open_to_look(place: &Path, store: StoreId) -> Result<Self> {
        let catalog = Catalog::open_existing(place, store)?;
        schema::spare(&catalog.db).map_err(|error| catalog.failed(error))?;
        Ok(catalog)
    }

    /// Begins an empty catalog, replacing any file at `place`.
    ///
    /// # Errors
    /// When the file cannot be removed or made; [`Kind::Refused`] for a file that is not a catalog.
    pub fn create(place: &Path, store: StoreId) -> Result<Self> {
        schema::remove(place)?;
        Ok(Catalog { db: schema::create(place, store)?, place: place.to_path_buf() })
    }

    /// The place of the file.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the device and inode of the file at a place: they differ after the catalog was
    /// rebuilt.
    pub(crate) fn file_at(place: &Path) -> Option<(u64, u64)> {
        let found = fs::symlink_metadata(place).ok()?;
        Some((found.dev(), found.ino()))
    }

    /// The snapshots that were taken in.
    ///
    /// # Errors
    /// When the catalog cannot be read: [`Kind::Corrupt`] at its own place means that it is
    /// damaged, here and in every other method.
    pub fn snapshots(&self) -> Result<BTreeSet<SnapshotId>> {
        let mut known = self.prepare("SELECT id FROM snapshots")?;
        let ids = known.query_map([], |row| row.get::<_, [u8; 16]>(0).map(SnapshotId));
        ids.and_then(Iterator::collect).map_err(|error| self.failed(error))
    }

    /// The size of the catalog.
    ///
    /// # Errors
    /// When it cannot be read.
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

    /// Begins to change the catalog; a writer that is running already is waited for.
    ///
    /// # Errors
    /// [`Kind::Busy`] when it takes too long.
    pub fn begin(&self) -> Result<()> {
        self.run("BEGIN IMMEDIATE")
    }

    /// Makes the changes since [`begin`](Self::begin) durable.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] on a full disk.
    pub fn commit(&self) -> Result<()> {
        self.run("COMMIT")
    }

    /// Takes back the changes since [`begin`](Self::begin).
    pub(crate) fn abandon(&self) {
        // Where it fails, SQLite has taken them back by itself.
        let _ = self.db.execute_batch("ROLLBACK");
    }

    /// Remembers this point within a change.
    ///
    /// # Errors
    /// When the catalog cannot be written, as in the next two.
    pub fn mark(&self) -> Result<()> {
        self.run("SAVEPOINT mark")
    }

    /// Keeps what was done since [`mark`](Self::mark).
    ///
    /// # Errors
    /// As there.
    pub(crate) fn keep_since_mark(&self) -> Result<()> {
        self.run("RELEASE mark")
    }

    /// Takes back what was done since [`mark`](Self::mark).
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

    /// The id of a directory of a series.
    fn directory(&self, series: i64, path: &[u8]) -> Result<Option<i64>> {
        let mut find = self.prepare("SELECT id FROM dirs WHERE series = ?1 AND path = ?2")?;
        let found = find.query_row(params![series, path], |row| row.get(0)).optional();
        found.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> Error {
        schema::failed(&self.place, error)
    }
}

/// Splits a path into its directory and its name there.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// A directory and a name as a path.
fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}
