//! The catalog's file: its tables, its application id, and the mapping of SQLite's errors.
//!
//! The catalog uses a rollback journal and no write-ahead log: between changes the catalog is one
//! file, and replacing that file leaves no log that SQLite would replay into the new one.

#![allow(
    clippy::disallowed_methods,
    reason = "the catalog is a separate file, which is not on a member"
)]

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;

/// The version of tables and blocks: a catalog of any other version is rebuilt.
const VERSION: i32 = 1;
/// `psCT`: the application id in SQLite's header, which identifies a catalog.
const APPLICATION: i32 = 0x7073_4354;
/// How long a process waits for another one that is writing.
const WAIT: Duration = Duration::from_secs(60);

/// The page cache of a connection that reads single directories.
const LOOKING_KIB: i64 = 2048;
/// How long a connection that reads single directories waits for a writer.
const LOOKING_WAIT: Duration = Duration::from_secs(2);

const TABLES: &str = "
CREATE TABLE store(id BLOB NOT NULL);
CREATE TABLE series(
    id INTEGER PRIMARY KEY, host BLOB NOT NULL, sources BLOB NOT NULL,
    head INTEGER NOT NULL, root BLOB NOT NULL, height INTEGER NOT NULL, entries INTEGER NOT NULL);
CREATE TABLE snapshots(
    series INTEGER NOT NULL, ordinal INTEGER NOT NULL, id BLOB NOT NULL UNIQUE,
    seconds INTEGER NOT NULL, nanos INTEGER NOT NULL,
    root BLOB NOT NULL, height INTEGER NOT NULL, entries INTEGER NOT NULL,
    PRIMARY KEY(series, ordinal)) WITHOUT ROWID;
CREATE TABLE dirs(id INTEGER PRIMARY KEY, series INTEGER NOT NULL, path BLOB NOT NULL);
CREATE UNIQUE INDEX dirs_by_path ON dirs(series, path);
CREATE TABLE versions(
    dir INTEGER NOT NULL, name BLOB NOT NULL, first INTEGER NOT NULL, last INTEGER,
    mode INTEGER NOT NULL, size INTEGER NOT NULL, seconds INTEGER NOT NULL, nanos INTEGER NOT NULL,
    content INTEGER NOT NULL,
    PRIMARY KEY(dir, name, first)) WITHOUT ROWID;
CREATE TABLE names(id INTEGER PRIMARY KEY, series INTEGER NOT NULL, block BLOB NOT NULL);
CREATE INDEX names_by_series ON names(series);
";

/// Opens an existing catalog.
pub fn open(place: &Path, store: StoreId) -> Result<Connection> {
    let failed = |error| failed(place, error);
    let useless = |what: String| Error::new(Kind::Corrupt, what).at(place);
    let db = connect(place)?;
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    if number("application_id").map_err(failed)? != APPLICATION {
        return Err(useless("the file is not a catalog of pinstripe".into()));
    }
    let version = number("user_version").map_err(failed)?;
    if version != VERSION {
        return Err(useless(format!(
            "the catalog has version {version}, but this program needs version {VERSION}"
        )));
    }
    let found: [u8; 16] =
        db.query_row("SELECT id FROM store", [], |row| row.get(0)).map_err(failed)?;
    if found != store.0 {
        return Err(useless(format!("the catalog belongs to store {}", StoreId(found))));
    }
    Ok(db)
}

/// Makes an empty catalog at a place where no file is.
pub fn create(place: &Path, store: StoreId) -> Result<Connection> {
    let io = |error| Error::io("cannot create the catalog", place, error);
    if let Some(directory) = place.parent().filter(|path| !path.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io)?;
    }
    // SQLite would make it readable for all users.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(place).map_err(io)?;
    let db = connect(place)?;
    let make = || {
        db.pragma_update(None, "page_size", 8192)?;
        db.execute_batch("BEGIN IMMEDIATE")?;
        db.execute_batch(TABLES)?;
        db.execute("INSERT INTO store VALUES (?1)", [&store.0])?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.pragma_update(None, "user_version", VERSION)?;
        db.execute_batch("COMMIT")
    };
    make().map_err(|error| failed(place, error))?;
    Ok(db)
}

fn connect(place: &Path) -> Result<Connection> {
    let connect = || {
        let db = Connection::open(place)?;
        db.busy_timeout(WAIT)?;
        db.pragma_update(None, "journal_mode", "DELETE")?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        db.pragma_update(None, "cache_size", -65_536)?;
        db.pragma_update(None, "temp_store", "MEMORY")?;
        db.pragma_update(None, "cell_size_check", true)?;
        db.set_prepared_statement_cache_capacity(32);
        Ok(db)
    };
    connect().map_err(|error| failed(place, error))
}

/// Limits a connection's memory and its wait for a writer: a program that lists a directory must
/// not be delayed for long.
pub fn spare(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "cache_size", -LOOKING_KIB)?;
    db.busy_timeout(LOOKING_WAIT)
}

/// Removes a catalog, or a damaged file in its place. Only a file that SQLite could have written is
/// removed.
///
/// # Errors
/// Fails with [`Kind::Refused`] for any other file, which may be a user's.
pub fn remove(place: &Path) -> Result<()> {
    let mut head = [0; 16];
    let io = |error| Error::io("cannot replace the catalog", place, error);
    match std::fs::File::open(place) {
        Ok(mut file) => {
            if !file.metadata().map_err(io)?.is_file() {
                return Err(not_ours(place));
            }
            let read = file.read(&mut head).map_err(io)?;
            let is_default = place.file_name().is_some_and(|name| name == super::FILE_NAME);
            if read > 0 && &head != b"SQLite format 3\0" && !is_default {
                return Err(not_ours(place));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    }
    for path in [place.to_path_buf(), journal(place)] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("cannot replace the catalog", path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn not_ours(place: &Path) -> Error {
    Error::new(
        Kind::Refused,
        "this file is not overwritten, because it is not a catalog of pinstripe",
    )
    .at(place)
    .advice("give another file with --catalog FILE, or remove this one")
}

fn journal(place: &Path) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push("-journal");
    name.into()
}

/// Turns an error of SQLite into one of this crate.
pub fn failed(place: &Path, error: rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Kind::NoSpace,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Kind::Busy,
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::NoLargeFileSupport,
        ) => Kind::Io,
        // Damaged pages, missing tables, values of another type: it is not what was written.
        _ => Kind::Corrupt,
    };
    let error = Error::new(kind, format!("the catalog cannot be used: {error}")).at(place);
    match kind {
        Kind::Busy => error.advice("another process is updating the catalog; try again later"),
        Kind::Corrupt => error.advice("rebuild the catalog with 'pinstripe catalog rebuild'"),
        _ => error,
    }
}
