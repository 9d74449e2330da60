//! Connections to the database: kept when idle, made again after an error, with a back-off while
//! the database is gone.

use std::error::Error as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::SinkExt;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

use super::schema;
use super::target::DatabaseTarget;

/// The longest wait for the end of a statement; the database's own limits are shorter.
const STATEMENT: Duration = Duration::from_secs(330);
/// The longest wait for a new connection, which creates the tables if they are missing.
const CONNECT: Duration = Duration::from_secs(15);
/// The first pause after a failed connection; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The bytes of one message of a COPY.
const COPY_PIECE_BYTES: usize = 64 << 10;

/// The connections to a database.
pub(super) struct Pool {
    target: DatabaseTarget,
    schema: String,
    idle: Mutex<Vec<Client>>,
    outage: Mutex<Option<Outage>>,
    has_tables: AtomicBool,
}

/// The time in which no connection is tried, because the last one failed.
struct Outage {
    what: String,
    until: Instant,
    pause: Duration,
}

/// A connection in use. Unless it is given back, it is closed, and its transaction undone.
pub(super) struct Link<'p> {
    pool: &'p Pool,
    client: Client,
}

impl Pool {
    pub fn new(target: DatabaseTarget, schema: String) -> Self {
        let has_tables = AtomicBool::new(false);
        Pool { target, schema, idle: <_>::default(), outage: <_>::default(), has_tables }
    }

    /// The schema of the tables, which needs no quotes.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Takes an idle connection, or makes one.
    ///
    /// # Errors
    /// Fails with [`Kind::Unanswered`] while the database is gone.
    pub async fn take(&self) -> Result<Link<'_>> {
        loop {
            let Some(client) = lock(&self.idle).pop() else { break };
            if !client.is_closed() {
                return Ok(Link { pool: self, client });
            }
        }
        if let Some(outage) = &*lock(&self.outage)
            && clock::monotonic() < outage.until
        {
            return Err(gone(&outage.what));
        }
        let connected = timeout(CONNECT, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err(gone("it does not answer in time")));
        let mut outage = lock(&self.outage);
        match connected {
            Ok(client) => {
                *outage = None;
                Ok(Link { pool: self, client })
            }
            Err(error) => {
                let pause = outage.as_ref().map_or(PAUSE, |it| (it.pause * 2).min(PAUSE_MAX));
                let until = clock::monotonic() + pause;
                let found = error.expected_found().map_or("it does not answer", |(_, found)| found);
                let what = found.to_owned();
                *outage = Some(Outage { what, until, pause });
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Client> {
        let connected = self.target.config.connect(NoTls).await;
        let (client, driver) = connected.map_err(|error| gone(&cause(&error)))?;
        tokio::spawn(async move {
            // Its error is that of the statement that waits for it.
            let _ = driver.await;
        });
        if !self.has_tables.load(Ordering::Relaxed) {
            schema::create(&client, &self.schema).await?;
            self.has_tables.store(true, Ordering::Relaxed);
        }
        Ok(client)
    }

    /// Creates the tables again with the next connection: another program may have dropped them.
    fn doubt_tables(&self) {
        self.has_tables.store(false, Ordering::Relaxed);
        lock(&self.idle).clear();
    }

    pub(super) fn failed(&self, error: &tokio_postgres::Error) -> Error {
        if error.is_closed() || error.as_db_error().is_none() && error.source().is_some() {
            return gone(&cause(error));
        }
        let Some(state) = error.code() else { return refused(Kind::Io, &cause(error)) };
        let what = error.as_db_error().map_or_else(|| cause(error), |it| it.message().to_owned());
        match state {
            it if *it == SqlState::DISK_FULL => refused(Kind::NoSpace, &what),
            it if *it == SqlState::UNDEFINED_TABLE || *it == SqlState::INVALID_SCHEMA_NAME => {
                self.doubt_tables();
                gone("its tables were dropped, and are created again")
            }
            it if *it == SqlState::ADMIN_SHUTDOWN
                || *it == SqlState::CRASH_SHUTDOWN
                || *it == SqlState::CANNOT_CONNECT_NOW
                || *it == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT =>
            {
                gone(&what)
            }
            it if *it == SqlState::LOCK_NOT_AVAILABLE
                || *it == SqlState::QUERY_CANCELED
                || *it == SqlState::T_R_SERIALIZATION_FAILURE
                || *it == SqlState::T_R_DEADLOCK_DETECTED =>
            {
                refused(Kind::Busy, &what)
            }
            it if *it == SqlState::UNIQUE_VIOLATION => refused(Kind::Exists, &what),
            _ => refused(Kind::Io, &what),
        }
    }
}

/// The version of a database that answers.
///
/// # Errors
/// Fails with [`Kind::Unanswered`] for another one.
pub(super) async fn version_of(target: &DatabaseTarget) -> Result<String> {
    let ask = async {
        let (client, driver) = target.config.connect(NoTls).await?;
        tokio::spawn(driver);
        client.query_one("SELECT current_setting('server_version')", &[]).await
    };
    let answered = timeout(CONNECT, ask).await.map_err(|_| gone("it does not answer in time"))?;
    Ok(answered.map_err(|error| gone(&cause(&error)))?.get(0))
}

/// The error of a database that does not answer.
fn gone(why: &str) -> Error {
    let what = format!("the database of the shared catalog does not answer: {why}");
    Error::new(Kind::Unanswered, what).expected("an answer", why).advice(
        "start PostgreSQL on the server's side; no data is lost, and the next backup or 'pinstripe \
         catalog rebuild --all-hosts' sends what the catalog lacks",
    )
}

fn refused(kind: Kind, why: &str) -> Error {
    Error::new(kind, format!("the database of the shared catalog refused a statement: {why}"))
}

/// The innermost cause, which has no address and no password.
fn cause(error: &tokio_postgres::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

impl Link<'_> {
    /// Keeps the connection for others. It must not be in a transaction.
    pub fn give_back(self) {
        lock(&self.pool.idle).push(self.client);
    }

    pub async fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.within(self.client.query(sql, values)).await
    }

    pub async fn execute(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        self.within(self.client.execute(sql, values)).await
    }

    /// Runs statements without values.
    pub async fn batch(&self, sql: &str) -> Result<()> {
        self.within(self.client.batch_execute(sql)).await
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let done = timeout(STATEMENT, work).await.map_err(|_| gone("a statement has no end"))?;
        done.map_err(|error| self.pool.failed(&error))
    }

    /// Sends rows in the binary format of COPY; returns how many the database took.
    pub async fn copy(&self, sql: &str, rows: Vec<u8>) -> Result<u64> {
        let work = async {
            let sink = self.client.copy_in::<_, Bytes>(sql).await?;
            let mut sink = std::pin::pin!(sink);
            let mut rows = Bytes::from(rows);
            while !rows.is_empty() {
                let piece = rows.split_to(rows.len().min(COPY_PIECE_BYTES));
                sink.feed(piece).await?;
            }
            sink.as_mut().finish().await
        };
        self.within(work).await
    }
}
