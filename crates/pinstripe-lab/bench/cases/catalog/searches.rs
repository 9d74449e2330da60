//! Searches, measured as a user meets them: the program from its start to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinstripe::index::Index;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::units::format_count;
use pinstripe_lab::{Align, Cell, Table};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::{FileKind, Time};
use pinstripe_stats::Summary;

use super::{Filled, commit_stream, new_store, said};
use crate::Result;
use crate::child;

const SNAPSHOTS: u64 = 100;
const FILES: u64 = 100_000;
/// One file in this many changes from one snapshot to the next.
const CHANGES_ONE_IN: u64 = 200;
const AIM_MS: f64 = 100.0;

/// Searches of the small and the large catalog.
pub fn measure(work: &Path, program: &Path, rounds: usize, large: &Filled) -> Result<Table> {
    let note = "Wall time of the whole program, output to a file, catalog up to date; medians.";
    let columns = [
        ("catalog", Align::Left),
        ("search", Align::Left),
        ("lines", Align::Right),
        ("ms", Align::Right),
        ("highest", Align::Right),
        ("aim", Align::Right),
    ];
    let mut table = Table::new("Searches", note, &columns);
    let logs = work.join("logs");
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let small = make_small(work)?;
    let title = format!("{SNAPSHOTS} snapshots of {} files", format_count(FILES));
    let searches: [&[&str]; 6] = [
        &["find", "file 4711.txt"],
        &["find", "*4711*"],
        &["find", "/data/dir 12/*.log"],
        &["find", "*.txt", "--snapshot", "latest", "--older", "2009-01-01"],
        &["history", "/data/dir 11/file 4711.txt"],
        &["find", "no such name"],
    ];
    for search in searches {
        one(&title, search, &small, program, &logs, rounds, AIM_MS, &mut table)?;
    }
    let title = format!("{} rows", format_count(large.rows as u64));
    let searches: [&[&str]; 4] = [
        &["find", "baba-*"],
        &["find", "*-00ff*"],
        &["find", "/srv03/**/*-00f*.gz"],
        &["find", "no such name"],
    ];
    for search in searches {
        one(&title, search, large, program, &logs, rounds, f64::NAN, &mut table)?;
    }
    Ok(table)
}

#[allow(clippy::too_many_arguments)]
fn one(
    title: &str,
    search: &[&str],
    on: &Filled,
    program: &Path,
    logs: &Path,
    rounds: usize,
    aim: f64,
    table: &mut Table,
) -> Result<()> {
    let command = || {
        let mut command = Command::new(program);
        command.args(search).arg("--store").arg(&on.store).arg("--catalog").arg(&on.catalog);
        command
    };
    // The first run brings the catalog up to date and the files into the cache.
    child::run(&mut command(), logs, "warm")?;
    let mut samples = Vec::new();
    for _ in 0..rounds.max(5) {
        samples.push(child::run(&mut command(), logs, "search")?.wall_s * 1000.0);
    }
    let told = fs::read(logs.join("search.out")).map_err(|error| error.to_string())?;
    let lines = told.iter().filter(|byte| **byte == b'\n').count() as u64;
    if let Some(Summary { median, max, .. }) = Summary::from_samples(&samples) {
        table.row([
            title.into(),
            search.join(" ").into(),
            lines.into(),
            Cell::Number(median, 1),
            Cell::Number(max, 1),
            if aim.is_nan() { "-".into() } else { Cell::Number(aim, 0) },
        ]);
    }
    Ok(())
}

/// A hundred snapshots of one tree in which one file of two hundred changes each day.
fn make_small(work: &Path) -> Result<Filled> {
    let at = work.join("days");
    let store = new_store(&at)?;
    let monitor = Monitor::default();
    let index = Index::load(&store, &monitor).map_err(said)?;
    let mut order: Vec<u64> = (0..FILES).collect();
    order.sort_by_key(|number| path(*number).replace('/', "\0"));
    let mut version = vec![0_u64; FILES as usize];
    for day in 0..SNAPSHOTS {
        for number in (0..FILES).filter(|number| day > 0 && changes(*number, day)) {
            version[number as usize] = day;
        }
        let mut files = order.iter();
        let mut fill = |entry: &mut Entry| {
            let Some(&number) = files.next() else { return false };
            let mtime = 1_200_000_000 + version[number as usize] * 86_400;
            entry.path = path(number).into_bytes();
            entry.meta.kind = FileKind::File;
            entry.meta.mode = 0o644;
            entry.meta.mtime = Time { seconds: mtime as i64, nanos: 0 };
            entry.ctime = entry.meta.mtime;
            (entry.inode, entry.device, entry.links) = (number + 2, 2049, 1);
            true
        };
        commit_stream(&store, &index, &monitor, &mut fill, "days", 0, day as i64)?;
    }
    let catalog: PathBuf = work.join("days-cache").join("catalog.sqlite");
    Ok(Filled { store: at.join("m0"), catalog, rows: 0 })
}

fn changes(number: u64, day: u64) -> bool {
    let mixed = (number * SNAPSHOTS + day).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32).is_multiple_of(CHANGES_ONE_IN)
}

fn path(number: u64) -> String {
    let ending = if number.is_multiple_of(20) { "log" } else { "txt" };
    format!("data/dir {}/file {number}.{ending}", number % 100)
}
