//! The catalog at full size: durable streams, the SQL view, searches.
//!
//! Streams: 37 writers at once, each with a tree, packs and a snapshot of its own in one store, all
//! synced, against one writer that does them in turn; rows are in memory before the clock starts.
//! View: the catalog made anew from those snapshots. Searches: the program as a whole, from its
//! start to its end, on a hundred snapshots of 100,000 files and on the large catalog.

mod searches;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pinstripe::ops;
use pinstripe::store::Store;
use pinstripe::store::index::Index;
use pinstripe_base::error::Error;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::units::format_count;
use pinstripe_io::fault::Plan;

use super::pairs;
use crate::Result;
use crate::table::{Align, Cell, Table};
use pinstripe_lab::catalog::{MEMBERS, NODES, ROWS, STREAMS, Workload};
use pinstripe_lab::run::Live;
use pinstripe_stats::Summary;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "rows per second into streams and catalog, and searches: --work DIR (6 GB free), \
                         --rows N, --rounds N, --pinstripe FILE";

/// The small size at which the view is measured as well.
const SMALL_ROWS: usize = 1_000_000;

/// The goal, in rows per second.
const STREAMS_AIM: f64 = 1_500_000.0;
const SMALL_VIEW_AIM: f64 = 250_000.0;
const VIEW_AIM: f64 = 120_000.0;

struct Settings {
    work: PathBuf,
    rows: usize,
    rounds: usize,
    program: PathBuf,
}

impl Settings {
    fn read(args: &[String]) -> Result<Settings> {
        let found = pairs(args, &["--work", "--rows", "--rounds", "--pinstripe"])?;
        let value = |name: &'static str| {
            found.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
        };
        let number = |name: &'static str, default: usize| match value(name) {
            Some(text) => text.parse().map_err(|_| format!("{name} needs a number")),
            None => Ok(default),
        };
        let beside = || {
            let lab = std::env::current_exe().ok();
            lab.and_then(|lab| Some(lab.parent()?.join("pinstripe"))).unwrap_or_default()
        };
        Ok(Settings {
            work: value("--work").map_or_else(std::env::temp_dir, PathBuf::from).join("catalog"),
            rows: number("--rows", ROWS)?.max(STREAMS * 100),
            rounds: number("--rounds", 3)?.max(1),
            program: value("--pinstripe").map_or_else(beside, PathBuf::from),
        })
    }
}

/// Measures all.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    let mut rates = rate_table();
    let small = settings.rows.min(SMALL_ROWS);
    if small < settings.rows {
        measure(&settings, small, SMALL_VIEW_AIM, &mut rates)?;
    }
    let aim = if settings.rows > SMALL_ROWS { VIEW_AIM } else { SMALL_VIEW_AIM };
    let large = measure(&settings, settings.rows, aim, &mut rates)?;
    let searches = searches::measure(&settings.work, &settings.program, settings.rounds, &large)?;
    remove(&settings.work)?;
    Ok(vec![rates, searches])
}

fn rate_table() -> Table {
    let note = format!(
        "{STREAMS} streams of {NODES} machines, {MEMBERS} members with parity 1; medians. Streams: \
         from rows in memory to snapshots that are synced. Catalog: made anew from these snapshots, \
         by one writer."
    );
    let columns = [
        ("rows", Align::Right),
        ("distinct objects", Align::Right),
        ("what", Align::Left),
        ("rows/s", Align::Right),
        ("lowest", Align::Right),
        ("highest", Align::Right),
        ("aim", Align::Right),
        ("bytes/row", Align::Right),
    ];
    Table::new("The catalog's rates", note, &columns)
}

/// A large catalog with its store, for searches.
struct Filled {
    store: PathBuf,
    catalog: PathBuf,
    rows: usize,
}

fn measure(settings: &Settings, rows: usize, aim: f64, table: &mut Table) -> Result<Filled> {
    let workload = Workload::make(rows, 1);
    let objects = workload.distinct_objects();
    let store = settings.work.join("store");
    let (mut many, mut one, mut view) = (Vec::new(), Vec::new(), Vec::new());
    let (mut stored, mut catalog_bytes) = (0, 0);
    let catalog = settings.work.join("cache").join("catalog.sqlite");
    for _ in 0..settings.rounds {
        let (rate, _) = write_streams(&workload, &store, false)?;
        one.push(rate);
        let (rate, bytes) = write_streams(&workload, &store, true)?;
        many.push(rate);
        stored = bytes;
        let open = Store::open(&store.join("m0"), &Plan::default()).map_err(said)?;
        let began = Instant::now();
        let monitor = Monitor::default();
        drop(ops::catalog::rebuild(&open, &catalog, &monitor).map_err(said)?);
        view.push(rows as f64 / began.elapsed().as_secs_f64());
        require(monitor.get(Counter::CataloguedVersions) as usize, rows)?;
        catalog_bytes = fs::metadata(&catalog).map_err(|e| e.to_string())?.len();
    }
    let at_once = format!("streams, {STREAMS} writers at once");
    for (what, samples, aim, bytes) in [
        ("streams, one writer in turn", &one, f64::NAN, stored),
        (&at_once[..], &many, STREAMS_AIM, stored),
        ("catalog", &view, aim, catalog_bytes),
    ] {
        let Some(Summary { median, min, max }) = Summary::of(samples) else { continue };
        table.row([
            (rows as u64).into(),
            (objects as u64).into(),
            what.into(),
            Cell::Number(median, 0),
            Cell::Number(min, 0),
            Cell::Number(max, 0),
            if aim.is_nan() { "-".into() } else { Cell::Number(aim, 0) },
            Cell::Number(bytes as f64 / rows as f64, 1),
        ]);
    }
    Ok(Filled { store: store.join("m0"), catalog, rows })
}

fn require(found: usize, wanted: usize) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let [found, wanted] = [found, wanted].map(|count| format_count(count as u64));
    Err(format!("{found} rows came out, {wanted} went in"))
}

/// Writes all streams into a new store; rows per second, and the bytes that stand on the members.
fn write_streams(workload: &Workload, at: &Path, at_once: bool) -> Result<(f64, u64)> {
    let store = new_store(at)?;
    // What was written before must not be synced on our account.
    rustix::fs::sync();
    let (writers, live) = (if at_once { STREAMS } else { 1 }, Live::new(Default::default()));
    let written = pinstripe_lab::catalog::write_streams(workload, &store, writers, &live);
    let written = written.map_err(said)?;
    Ok((workload.rows() as f64 / written.seconds, written.bytes))
}

/// Writes one snapshot of a source of its own.
fn commit_stream(
    store: &Store,
    index: &Index<'_>,
    monitor: &Monitor,
    fill: &mut dyn FnMut(&mut pinstripe_member::format::entry::Entry) -> bool,
    host: &str,
    source: usize,
    day: i64,
) -> Result<()> {
    pinstripe_lab::catalog::commit_stream(store, index, monitor, fill, host, source, day)
        .map_err(said)
}

/// An empty store in the place of whatever is there.
fn new_store(at: &Path) -> Result<Store> {
    pinstripe_lab::catalog::new_store(at).map_err(said)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn said(error: Error) -> String {
    error.to_string()
}
