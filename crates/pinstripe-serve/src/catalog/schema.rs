//! The tables of a store, in a schema that is named after the store.
//!
//! The id of a directory has the number of its series in its upper bits, so that the rows of a
//! series are together in the indexes, and streams of several hosts do not meet there. Paths are
//! found by a hash, because an index takes no long keys.

use pinstripe_base::checksum::checksum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SnapshotId, StoreId};
use pinstripe_member::SharedHead;
use pinstripe_member::snapshot::TreeRoot;
use tokio_postgres::{Client, Row};

use super::damaged;

/// The version of the tables.
const VERSION: i32 = 1;
/// The lower bits of the id of a directory.
const DIRECTORY_BITS: u32 = 32;

const TABLES: &str = "
BEGIN;
SELECT pg_advisory_xact_lock(7473001);
CREATE SCHEMA IF NOT EXISTS @;
CREATE TABLE IF NOT EXISTS @.format(version int NOT NULL);
INSERT INTO @.format SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM @.format);
CREATE TABLE IF NOT EXISTS @.series(
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key bytea NOT NULL, owner text NOT NULL,
    host bytea NOT NULL, sources bytea NOT NULL, head int NOT NULL, directories bigint NOT NULL,
    blocks int NOT NULL, generation int NOT NULL, versions bigint NOT NULL);
CREATE INDEX IF NOT EXISTS series_by_key ON @.series(key);
CREATE TABLE IF NOT EXISTS @.snapshots(
    id bytea PRIMARY KEY, series int NOT NULL, ordinal int NOT NULL, seconds bigint NOT NULL,
    nanos int NOT NULL, root bytea NOT NULL, height smallint NOT NULL, entries bigint NOT NULL,
    fields bytea NOT NULL, UNIQUE (series, ordinal));
CREATE TABLE IF NOT EXISTS @.dirs(id bigint PRIMARY KEY, hash bigint NOT NULL, path bytea NOT NULL);
CREATE INDEX IF NOT EXISTS dirs_by_hash ON @.dirs(hash);
CREATE TABLE IF NOT EXISTS @.versions(
    dir bigint NOT NULL, name bytea NOT NULL, first int NOT NULL, last int, mode int NOT NULL,
    size bigint NOT NULL, seconds bigint NOT NULL, nanos int NOT NULL, content bigint NOT NULL,
    PRIMARY KEY (dir, name, first));
CREATE TABLE IF NOT EXISTS @.names(
    series int NOT NULL, number int NOT NULL, block bytea NOT NULL, PRIMARY KEY (series, number));
ALTER TABLE @.names ALTER COLUMN block SET STORAGE EXTERNAL;
COMMIT;
";

/// The name of the schema of a store; it needs no quotes.
pub(super) fn name(store: StoreId) -> String {
    format!("pinstripe_{store}")
}

/// Creates the tables that are missing.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] for tables of another version.
pub(super) async fn create(client: &Client, schema: &str) -> Result<()> {
    let failed = |error: tokio_postgres::Error| {
        let why = error.as_db_error().map_or_else(String::new, |it| format!(": {}", it.message()));
        let what = format!("the tables of the shared catalog cannot be created{why}");
        Error::new(Kind::Io, what.clone())
            .expected("a user who may create a schema in the database", what)
    };
    // A notice for each table that exists would follow otherwise.
    client.batch_execute(&TABLES.replace('@', schema)).await.map_err(failed)?;
    let sql = format!("SELECT version FROM {schema}.format");
    let version: i32 = client.query_one(&sql, &[]).await.map_err(failed)?.get(0);
    match version {
        VERSION => Ok(()),
        other => {
            let what = format!("the shared catalog has version {other}, and not {VERSION}");
            Err(Error::new(Kind::Unsupported, what)
                .advice(format!("drop its tables: DROP SCHEMA {schema} CASCADE")))
        }
    }
}

/// The ids of the directories of a series.
pub(super) fn directories_of(series: i32) -> (i64, i64) {
    let first = i64::from(series) << DIRECTORY_BITS;
    (first, first + (1 << DIRECTORY_BITS) - 1)
}

/// The series of a directory.
pub(super) fn series_of(directory: i64) -> i32 {
    (directory >> DIRECTORY_BITS) as i32
}

/// The hash of a path, for the index.
pub(super) fn path_hash(path: &[u8]) -> i64 {
    i64::from_le_bytes(checksum(path)[..8].try_into().expect("a checksum has 16 bytes"))
}

/// Reads id, root, height and entries of a snapshot.
pub(super) fn head_from(row: &Row) -> Result<SharedHead> {
    let other = |_| damaged("an id has a wrong length");
    let id = row.get::<_, &[u8]>(0).try_into().map_err(other)?;
    let root = row.get::<_, &[u8]>(1).try_into().map_err(other)?;
    let height =
        u8::try_from(row.get::<_, i16>(2)).map_err(|_| damaged("a height is too large"))?;
    let entries = row.get::<_, i64>(3) as u64;
    Ok(SharedHead { id: SnapshotId(id), root: TreeRoot { id: ChunkId(root), height, entries } })
}
