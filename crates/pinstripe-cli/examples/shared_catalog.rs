//! Measures the catalog that hosts share: rows per second from the hosts' rows to the commit in a
//! real PostgreSQL, through a server on the loopback, with 37 streams one after the other and at
//! once, and searches over 40 hosts with 100 snapshots each.
//!
//! `cargo run --release -p pinstripe-cli --example shared_catalog -- [--rows N] [--rounds N]`
//!
//! `cargo xtask bench serve` runs it too. It is not a case of `pinstripe-bench`, because that program
//! has no asynchronous runtime.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SnapshotId, StoreId};
use pinstripe_base::random::Noise;
use pinstripe_lab::{CATALOG_STREAMS, CatalogWorkload};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::{FileKind, Time};
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_member::{CatalogQuestion, Change, Facts, Glob, Places, Query, SharedCatalog};
use pinstripe_remote::{Connection, JoinString, RemoteCatalog, ServedVolumes, TokenId};
use pinstripe_serve::{
    AlarmTargets, DatabaseTarget, JobPlans, NewToken, ServedVolume, ServerKey, ServerOptions,
    StoreServer, TokenRole, TokenStore,
};
use pinstripe_testing::PostgresServer;

const STORE: StoreId = StoreId([7; 16]);
/// Settings of a database of this size.
const SETTINGS: &[&str] = &[
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    "maintenance_work_mem=256MB",
];
/// The changes of one batch, as a host sends them.
const BATCH: usize = 32 << 10;
const HOSTS: u8 = 40;
const SNAPSHOTS: u8 = 100;
const FILES: u64 = 20_000;
/// One file in this many changes from one snapshot to the next.
const CHANGES_ONE_IN: u64 = 200;
const SEARCHES: usize = 100;
/// What the server is to reach.
const GOAL_ROWS_PER_S: u32 = 150_000;
const GOAL_FIND_MS: u32 = 150;

fn main() -> Result<()> {
    let number = |name: &str, default: usize| {
        let mut args = std::env::args().skip_while(|arg| arg != name).skip(1);
        args.next().map_or(default, |text| text.parse().expect("a number"))
    };
    let (rows, rounds) = (number("--rows", 1_000_000), number("--rounds", 3));
    let Some(database) = PostgresServer::start_with("shared_catalog", SETTINGS) else {
        return Ok(());
    };
    let state = tempfile::tempdir().expect("a directory");
    let server = serve(state.path(), &database.url("postgres"))?;
    let catalog = connect(state.path(), &server)?;
    let ends = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&ends, &|| ()));
        let measured = measure(&catalog, &database, rows, rounds);
        ends.store(true, Ordering::Relaxed);
        measured
    })
}

fn measure(
    catalog: &RemoteCatalog,
    database: &PostgresServer,
    rows: usize,
    rounds: usize,
) -> Result<()> {
    let workload = CatalogWorkload::make(rows, 1);
    println!("{} rows in {CATALOG_STREAMS} streams", workload.rows());
    for round in 0..rounds {
        let mut ways = [("one after the other", 1), ("at once", CATALOG_STREAMS)];
        ways[..].rotate_left(round % 2);
        for (way, writers) in ways {
            catalog.clear()?;
            database.sql("postgres", "CHECKPOINT");
            let took = write(catalog, &workload, writers)?;
            let rate = workload.rows() as f64 / took.as_secs_f64();
            let bytes = database.bytes() as f64 / workload.rows() as f64;
            println!(
                "round {round}, {way}: {rate:.0} rows/s (goal at once: {GOAL_ROWS_PER_S}, and no less \
                 than one after the other), {bytes:.0} bytes/row"
            );
            assert_eq!(catalog.size()?.versions, workload.rows() as u64);
        }
    }
    let patterns = ["no such name", "*-00ff*", "/srv03/**/*-00f*.gz"];
    searches(catalog, &format!("{} rows", workload.rows()), &patterns)?;
    drop(workload);
    catalog.clear()?;
    let ids = days(catalog)?;
    let title = format!("{HOSTS} hosts, {SNAPSHOTS} snapshots, {FILES} files");
    let patterns = ["no such name", "file 4711.txt", "*4711*", "/data/dir 12/*7.txt"];
    searches(catalog, &title, &patterns)?;
    let mut times = Vec::new();
    for _ in 0..SEARCHES {
        let began = Instant::now();
        let sync = catalog.compare(&ids, true)?;
        times.push(began.elapsed());
        assert!(sync.missing.is_empty() && sync.gone.is_empty());
    }
    println!("{title}: comparison with the store: {}", quantiles(times));
    Ok(())
}

/// A server with a shared catalog, on the loopback.
fn serve(state: &std::path::Path, url: &str) -> Result<StoreServer> {
    let member = Places::default().create(&state.join("member"))?.member;
    let members = BTreeMap::from([(0, member)]);
    let volume = ServedVolume { id: STORE, is_store: true, members, absent: BTreeMap::new() };
    let options = ServerOptions {
        volumes: vec![volume],
        state: state.to_path_buf(),
        identity: ServerKey::open(state)?,
        access_log: None,
        drain: Duration::from_secs(5),
        address: "127.0.0.1".to_owned(),
        jobs: JobPlans::default(),
        alarms: AlarmTargets::default(),
        catalog: Some(DatabaseTarget::parse(url, None)?),
        client_authority: None,
    };
    let socket = StoreServer::listen_at("127.0.0.1:0".parse().expect("an address"))?;
    StoreServer::from_socket(socket, options)
}

fn connect(state: &std::path::Path, server: &StoreServer) -> Result<RemoteCatalog> {
    let (token, secret) = TokenStore::new(state).add(
        &NewToken {
            host: "desk".to_owned(),
            role: TokenRole::Admin,
            volume: STORE,
            quota_bytes: None,
            expect_seconds: None,
            rate: None,
            all_hosts: true,
            expires_seconds: None,
        },
        1_700_000_000,
    )?;
    let id = u64::from_str_radix(&token.id, 16).expect("an id of 16 digits");
    let join = JoinString {
        pin: ServerKey::open(state)?.pin,
        token: TokenId(id.to_be_bytes()),
        secret,
        volume: STORE,
        address: server.address()?.to_string(),
    };
    let connection = Connection::from(join);
    let volumes = ServedVolumes::new(vec![connection.clone()], Duration::from_secs(30));
    let client = volumes.client(&connection.address, STORE)?;
    // The threads that move its bytes end with the volumes.
    std::mem::forget(volumes);
    Ok(RemoteCatalog::new(client))
}

fn snapshot(host: u8, day: u8) -> Snapshot {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&[host, day]);
    Snapshot {
        store: STORE,
        id: SnapshotId(id),
        created_seconds: 1_700_000_000 + i64::from(day) * 86_400,
        created_nanos: 0,
        host: format!("host{host}").into_bytes(),
        program: "bench".to_owned(),
        sources: vec![format!("srv{host}").into_bytes()],
        parent: None,
        root: TreeRoot { id: ChunkId([0; 32]), height: 0, entries: 0 },
        counts: Vec::new(),
        tags: Vec::new(),
        comment: String::new(),
    }
}

/// Sends all streams by some writers.
fn write(catalog: &RemoteCatalog, workload: &CatalogWorkload, writers: usize) -> Result<Duration> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let writer = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(stream) = workload.streams.get(at) else { return Ok(()) };
            let mut sink = catalog.take_in(&snapshot(at as u8, 0), None)?;
            let (mut entry, mut changes) = (Entry::default(), Vec::with_capacity(BATCH));
            for row in 0.. {
                let is_row = workload.fill(stream, row, &mut entry);
                if is_row {
                    changes.push(Change::Added(entry.path.clone(), Facts::of(&entry)));
                }
                if changes.len() == BATCH || !is_row {
                    sink.write(&changes)?;
                    changes.clear();
                }
                if !is_row {
                    break;
                }
            }
            sink.finish()?;
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..writers).map(|_| scope.spawn(writer)).collect();
        writers.into_iter().try_for_each(|it| it.join().expect("a writer ends"))
    })?;
    Ok(began.elapsed())
}

/// Fills the catalog with snapshots of a site, day by day.
fn days(catalog: &RemoteCatalog) -> Result<Vec<SnapshotId>> {
    let mut ids = Vec::new();
    let mut noise = Noise(1);
    let file = |number: u64, day: u8| {
        let path = format!("data/dir {:02}/file {number}.txt", number % 50).into_bytes();
        let mtime = Time { seconds: 1_700_000_000 + i64::from(day), nanos: 0 };
        let size = number + u64::from(day);
        (path, Facts { size, mtime, ..Facts::of_kind(FileKind::File) })
    };
    let began = Instant::now();
    for host in 0..HOSTS {
        for day in 0..SNAPSHOTS {
            let base = day.checked_sub(1).map(|before| snapshot(host, before).id);
            let mut changes: Vec<Change> = match base {
                None => {
                    (0..FILES).map(|it| file(it, 0)).map(|it| Change::Added(it.0, it.1)).collect()
                }
                Some(_) => (0..FILES)
                    .filter(|_| noise.below(CHANGES_ONE_IN) == 0)
                    .map(|it| file(it, day))
                    .map(|it| Change::Changed(it.0, it.1))
                    .collect(),
            };
            changes.sort_by(|a, b| pinstripe_member::tree::compare_paths(a.path(), b.path()));
            let snapshot = snapshot(host, day);
            let mut sink = catalog.take_in(&snapshot, base)?;
            changes.chunks(BATCH).try_for_each(|changes| sink.write(changes))?;
            sink.finish()?;
            ids.push(snapshot.id);
        }
    }
    let each = began.elapsed().as_secs_f64() * 1000.0 / ids.len() as f64;
    println!("{} snapshots of a day: {each:.1} ms each", ids.len());
    Ok(ids)
}

fn searches(catalog: &RemoteCatalog, title: &str, patterns: &[&str]) -> Result<()> {
    for pattern in patterns {
        let question = CatalogQuestion::Find(Query::new(Glob::new(pattern.as_bytes())?));
        let (mut times, mut first, mut rows) = (Vec::new(), None, 0);
        for _ in 0..=SEARCHES {
            rows = 0;
            let began = Instant::now();
            catalog.ask(&question, true, &mut |part| {
                rows += usize::from(matches!(part, pinstripe_member::CatalogAnswer::Row(_)));
                Ok(())
            })?;
            match first {
                None => first = Some(began.elapsed()),
                Some(_) => times.push(began.elapsed()),
            }
        }
        let first = first.unwrap_or_default().as_secs_f64() * 1000.0;
        println!(
            "{title}: find '{pattern}': {rows} rows, first {first:.1} ms, {} (goal: {GOAL_FIND_MS} ms)",
            quantiles(times)
        );
    }
    Ok(())
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    format!("p50 {:.1} ms, p99 {:.1} ms", ms(at(50)), ms(at(99)))
}
