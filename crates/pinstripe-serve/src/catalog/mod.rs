//! The catalog that all hosts of a store share: tables in a PostgreSQL database.
//!
//! The tables are those of the embedded catalog (`pinstripe::catalog`), with one set of tables for
//! each store, in a schema of its own. Hosts send the rows that a snapshot changed, because only
//! they can read its tree.
//!
//! Invariants:
//!
//! * A snapshot is loaded in one transaction: it is in the catalog completely or not at all.
//! * The database is derived data: it can be dropped, and hosts send everything again.
//! * No text of a request becomes SQL. Rows are checked before they reach the database.
//! * Every wait for the database has a deadline, and memory is bounded: a few connections, each with
//!   one batch of rows, and a cache of names with a limit.
//! * The password of the database is in no message.

mod connection;
mod copy;
mod load;
mod names_cache;
mod prune;
mod schema;
mod search;
mod target;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{SnapshotId, StoreId};
use pinstripe_base::sync::lock;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{CatalogSize, SharedHead};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use connection::Pool;
pub(crate) use load::Load;
use names_cache::NamesCache;
pub(crate) use search::AnswerSender;
pub use target::DatabaseTarget;

/// The connections that load rows: more do not load faster on few cores.
const LOADERS: usize = 3;
/// The connections that answer questions.
const SEARCHES: usize = 3;
/// The most snapshots that wait for a loader.
const QUEUE_MAX: usize = 64;
/// The longest wait for a loader or for a connection that searches.
const QUEUE_WAIT: Duration = Duration::from_secs(300);

/// The longest wait of a check.
const CHECK: Duration = Duration::from_secs(10);

/// The catalog of one store.
pub(crate) struct SharedTables {
    pub store: StoreId,
    pool: Pool,
    names: NamesCache,
    loaders: Semaphore,
    searches: Semaphore,
    waiting: AtomicUsize,
    state: Mutex<CatalogState>,
}

/// What the page and the metrics show of a catalog.
#[derive(Debug, Clone, Default)]
pub(crate) struct CatalogState {
    /// Where the database is, without its password.
    pub place: String,
    /// Why the database does not answer; `None` if it does.
    pub problem: Option<String>,
    /// The size at the last check.
    pub size: CatalogSize,
    /// The snapshots that wait for a loader or are being loaded.
    pub queue: usize,
    /// The bytes of names that are kept in memory.
    pub names_bytes: u64,
}

/// A place in the queue of loaders.
pub(crate) struct LoaderTurn<'t> {
    tables: &'t SharedTables,
    _permit: SemaphorePermit<'t>,
}

struct Waiting<'t>(&'t AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The owner of a series and the snapshots that the catalog has of it.
pub(crate) type Owners = HashMap<SnapshotId, String>;

impl SharedTables {
    /// The catalog of a store in a database. Nothing is connected yet.
    pub fn new(store: StoreId, target: DatabaseTarget) -> Self {
        let state = CatalogState { place: target.shown(), ..CatalogState::default() };
        SharedTables {
            store,
            pool: Pool::new(target, schema::name(store)),
            names: NamesCache::default(),
            loaders: Semaphore::new(LOADERS),
            searches: Semaphore::new(SEARCHES),
            waiting: AtomicUsize::new(0),
            state: Mutex::new(state),
        }
    }

    /// The state at the last check.
    pub fn state(&self) -> CatalogState {
        let queue = self.waiting.load(Ordering::Relaxed) + LOADERS;
        let queue = queue - self.loaders.available_permits().min(LOADERS);
        CatalogState { queue, names_bytes: self.names.bytes(), ..lock(&self.state).clone() }
    }

    /// Checks whether the database answers, and reads the size of the catalog.
    pub async fn check(&self) {
        let slow = || Error::new(Kind::Unanswered, "the database does not answer in time");
        let checked = timeout(CHECK, self.size()).await.unwrap_or_else(|_| Err(slow()));
        let mut state = lock(&self.state);
        match checked {
            Ok(size) => (state.size, state.problem) = (size, None),
            Err(error) => state.problem = Some(error.what().to_owned()),
        }
    }

    /// Waits for a loader.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when too many wait, or when the wait takes too long.
    pub(crate) async fn loader(&self) -> Result<LoaderTurn<'_>> {
        let busy = || {
            Error::new(Kind::Busy, "the shared catalog has too many snapshots to load now")
                .advice("the next backup or 'pinstripe catalog rebuild --all-hosts' sends it again")
        };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(busy());
        }
        let _waiting = Waiting(&self.waiting);
        let turn = timeout(QUEUE_WAIT, self.loaders.acquire()).await.map_err(|_| busy())?;
        let permit = turn.map_err(|_| busy())?;
        Ok(LoaderTurn { tables: self, _permit: permit })
    }

    async fn search_turn(&self) -> Result<SemaphorePermit<'_>> {
        let busy = || Error::new(Kind::Busy, "the shared catalog has too many searches now");
        let turn = timeout(QUEUE_WAIT, self.searches.acquire()).await.map_err(|_| busy())?;
        turn.map_err(|_| busy())
    }

    /// The snapshots of the catalog with their owners.
    pub async fn owners(&self) -> Result<Owners> {
        let _turn = self.search_turn().await?;
        let link = self.pool.take().await?;
        let sql = format!(
            "SELECT s.id, r.owner FROM {0}.snapshots s JOIN {0}.series r ON r.id = s.series",
            self.pool.schema()
        );
        let rows = link.query(&sql, &[]).await?;
        link.give_back();
        rows.iter()
            .map(|row| {
                let id: &[u8] = row.get(0);
                let id = id.try_into().map_err(|_| damaged("an id has a wrong length"))?;
                Ok((SnapshotId(id), row.get(1)))
            })
            .collect()
    }

    /// The head of the newest series of an owner with this host and these sources.
    pub async fn head(
        &self,
        owner: &str,
        host: &[u8],
        sources: &[Vec<u8>],
    ) -> Result<Option<SharedHead>> {
        let _turn = self.search_turn().await?;
        let link = self.pool.take().await?;
        let sql = format!(
            "SELECT s.id, s.root, s.height, s.entries FROM {0}.series r
             JOIN {0}.snapshots s ON s.series = r.id AND s.ordinal = r.head
             WHERE r.key = $1 ORDER BY r.id DESC LIMIT 1",
            self.pool.schema()
        );
        let key = series_key(owner, host, sources);
        let rows = link.query(&sql, &[&&key[..]]).await?;
        link.give_back();
        rows.first().map(schema::head_from).transpose()
    }

    /// The size of the catalog.
    pub async fn size(&self) -> Result<CatalogSize> {
        let link = self.pool.take().await?;
        let sql = format!(
            "SELECT (SELECT count(*) FROM {0}.snapshots), count(*),
                    coalesce(sum(versions), 0)::bigint, pg_database_size(current_database())
             FROM {0}.series",
            self.pool.schema()
        );
        let rows = link.query(&sql, &[]).await?;
        link.give_back();
        let row = rows.first().ok_or_else(|| damaged("the size has no row"))?;
        let number = |at: usize| row.get::<_, i64>(at).max(0) as u64;
        Ok(CatalogSize {
            snapshots: number(0),
            series: number(1),
            versions: number(2),
            bytes: number(3),
        })
    }
}

impl DatabaseTarget {
    /// Connects to the database, and reads its version.
    ///
    /// # Errors
    /// Fails with [`Kind::Unanswered`] if it does not answer.
    pub fn check(&self) -> Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::io("cannot start", "a runtime", error))?;
        runtime.block_on(connection::version_of(self))
    }
}

impl<'t> LoaderTurn<'t> {
    /// Begins to load a snapshot of an owner.
    ///
    /// # Errors
    /// Fails with [`Kind::Changed`] if `base` is not the head of its series, or with
    /// [`Kind::Exists`] if the catalog has the snapshot.
    pub async fn begin(
        &self,
        owner: &str,
        snapshot: Snapshot,
        base: Option<SnapshotId>,
    ) -> Result<Load<'t>> {
        Load::begin(&self.tables.pool, owner, snapshot, base).await
    }
}

/// What identifies the series of an owner with a host and sources.
fn series_key(owner: &str, host: &[u8], sources: &[Vec<u8>]) -> [u8; 16] {
    let mut all = Vec::new();
    let mut writer = pinstripe_base::wire::Writer::new(&mut all);
    writer.bytes(owner.as_bytes()).bytes(host);
    for source in sources {
        writer.bytes(source);
    }
    pinstripe_base::checksum::checksum(&all)
}

/// An error about a database that has something else than this program wrote.
fn damaged(what: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the shared catalog is damaged: {what}"))
        .advice("run 'pinstripe catalog rebuild --all-hosts' with a token of the role admin")
}
