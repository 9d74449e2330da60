//! The catalog at full size: durable streams, the SQL view, searches.
//!
//! Rates are those of the lab's case, at two sizes. Searches: the program as a whole, from its start
//! to its end, on a hundred snapshots of 100,000 files and on the large catalog.

mod searches;

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe::index::Index;
use pinstripe::{Store, rebuild_catalog};
use pinstripe_base::error::Error;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::units::format_count;
use pinstripe_lab::{
    CATALOG_MEMBERS, CATALOG_NODES, CATALOG_ROWS, CATALOG_STREAMS, CatalogWorkload, LabRun, Live,
    Table, commit_catalog_stream, new_catalog_store, write_catalog_streams,
};

use super::{from_lab, pairs};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

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
            rows: number("--rows", CATALOG_ROWS)?.max(CATALOG_STREAMS * 100),
            rounds: number("--rounds", 3)?.max(1),
            program: value("--pinstripe").map_or_else(beside, PathBuf::from),
        })
    }
}

/// Measures all.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let settings = Settings::read(args)?;
    let note = format!(
        "{CATALOG_STREAMS} streams of {CATALOG_NODES} machines, {CATALOG_MEMBERS} members with parity 1. Writers: from rows in \
         memory to snapshots that are synced. View: made anew from these snapshots, by one writer."
    );
    let mut rates = figures("The catalog's rates", note);
    let small = settings.rows.min(SMALL_ROWS);
    if small < settings.rows {
        measure(&settings, small, SMALL_VIEW_AIM, &mut rates)?;
    }
    let aim = if settings.rows > SMALL_ROWS { VIEW_AIM } else { SMALL_VIEW_AIM };
    measure(&settings, settings.rows, aim, &mut rates)?;
    let large = fill(&settings, &mut rates)?;
    let searches = searches::measure(&settings.work, &settings.program, settings.rounds, &large)?;
    remove(&settings.work)?;
    Ok(vec![rates, searches])
}

/// Measures the lab's case with this number of rows. Each variant has its target.
fn measure(settings: &Settings, rows: usize, view_aim: f64, table: &mut Table) -> Result<()> {
    let given = [("rows", &*rows.to_string()), ("writers", &format!("1,{CATALOG_STREAMS}"))];
    let results = from_lab::measured("catalog", &settings.work, &given, settings.rounds)?;
    let many = format!("{CATALOG_STREAMS} writers");
    for variant in &results.variants {
        let target = match &variant.name {
            name if *name == many => Target::AtLeast(STREAMS_AIM),
            name if name == "view" => Target::AtLeast(view_aim),
            _ => Target::None,
        };
        let what = format!("{} rows, {}", format_count(rows as u64), variant.name);
        figure_row(table, &format!("{what}: rows/s"), &variant.values(), 0, target);
        let bytes = |run: &LabRun| run.measured.figures.get("bytes_of_each_row").copied();
        let bytes: Vec<f64> = variant.runs.iter().filter_map(bytes).collect();
        figure_row(table, &format!("{what}: bytes/row"), &bytes, 1, Target::None);
    }
    Ok(())
}

/// A large catalog with its store, for searches.
struct Filled {
    store: PathBuf,
    catalog: PathBuf,
    rows: usize,
}

fn fill(settings: &Settings, table: &mut Table) -> Result<Filled> {
    let (at, rows) = (settings.work.join("store"), settings.rows);
    let workload = CatalogWorkload::make(rows, 1);
    let what = format!("{} rows: distinct objects", format_count(rows as u64));
    figure_row(table, &what, &[workload.distinct_objects() as f64], 0, Target::None);
    let store = new_store(&at)?;
    let live = Live::new(Default::default());
    write_catalog_streams(&workload, &store, CATALOG_STREAMS, &live).map_err(said)?;
    let catalog = settings.work.join("cache").join("catalog.sqlite");
    drop(rebuild_catalog(&store, &catalog, &Monitor::default()).map_err(said)?);
    Ok(Filled { store: at.join("m0"), catalog, rows })
}

/// Writes one snapshot of a source of its own.
fn commit_stream(
    store: &Store,
    index: &Index<'_>,
    monitor: &Monitor,
    fill: &mut dyn FnMut(&mut pinstripe_member::entry::Entry) -> bool,
    host: &str,
    source: usize,
    day: i64,
) -> Result<()> {
    commit_catalog_stream(store, index, monitor, fill, host, source, day).map_err(said)
}

/// Makes an empty store, replacing anything at this path.
fn new_store(at: &Path) -> Result<Store> {
    new_catalog_store(at).map_err(said)
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
