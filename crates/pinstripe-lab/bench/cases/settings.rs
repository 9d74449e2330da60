//! The cost and gain of strip size, chunk size and checksum: the tables behind a store's defaults.
//!
//! Everything goes through the library as the program does it. Times are of single runs: the
//! differences that decide are in bytes and counts, which do not vary.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use pinstripe::{Limits, MEMORY_DEFAULT_BYTES, Store, backup, init, restore};
use pinstripe_base::checksum::checksum;
use pinstripe_base::error::Error;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::units::{KIB, MIB, format_size, parse_size};
use pinstripe_io::fault;
use pinstripe_lab::{Align, Cell, Table};
use pinstripe_stripe::Codec;

use super::pairs;
use crate::Result;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str = "strip and chunk sizes of a store: --source TREE (default /usr/share), --work DIR, \
                         --edits N";

const STRIPS: [u64; 5] = [16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];
const CHUNKS: [&str; 7] = ["16K", "64K", "256K", "1M", "4M", "fixed:64K", "fixed:1M"];

/// Measures both.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let found = pairs(args, &["--source", "--work", "--edits"])?;
    let value = |name| found.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let source = PathBuf::from(value("--source").unwrap_or("/usr/share"));
    let work = value("--work").map_or_else(std::env::temp_dir, PathBuf::from).join("settings");
    let edits = value("--edits").unwrap_or("300").parse().map_err(|_| "--edits needs a number")?;
    crate::trees::warm(&source)?;
    let tables = vec![checksums(), strips(&source, &work)?, chunks(&source, &work, edits)?];
    crate::trees::remove(&work)?;
    Ok(tables)
}

/// The two candidates for guarding stored bytes, on strips of the default size in the cache.
fn checksums() -> Table {
    const STRIP_BYTES: usize = 256 << 10;
    const ROUNDS: usize = 4000;
    let strip: Vec<u8> = (0..STRIP_BYTES).map(|at| ((at * at) >> 9) as u8).collect();
    let columns = [("checksum", Align::Left), ("GB/s", Align::Right)];
    let note = format!("Strips of {}, one core, best of 5.", format_size(STRIP_BYTES as u64));
    let mut table = Table::new("Checksums", note, &columns);
    let mut row = |name: &str, sum: &dyn Fn(&[u8]) -> u8| {
        let pass = || {
            let began = Instant::now();
            for _ in 0..ROUNDS {
                black_box(sum(black_box(&strip)));
            }
            (ROUNDS * STRIP_BYTES) as f64 / began.elapsed().as_secs_f64() / 1e9
        };
        let best = (0..5).map(|_| pass()).fold(0.0, f64::max);
        table.row([name.into(), Cell::Number(best, 1)]);
    };
    row("XXH3-128", &|bytes| checksum(bytes)[0]);
    row("BLAKE3", &|bytes| blake3::hash(bytes).as_bytes()[0]);
    table
}

fn strips(source: &Path, work: &Path) -> Result<Table> {
    let note = "4 members, parity 1; the restored tree and its originals on one file system.";
    let columns = ["strip", "backup s", "stored MiB", "restore s", "one member away s"];
    let columns = columns.map(|name| (name, Align::Right));
    let mut table = Table::new("Strip sizes", note, &columns);
    for strip_bytes in STRIPS {
        let trial = Trial::begin(
            &work.join(format!("strip-{strip_bytes}")),
            strip_bytes,
            init::CHUNKING_DEFAULT,
        )?;
        let backup = trial.backup(source)?;
        let whole = trial.restore("whole")?;
        let away = trial.members[2].with_extension("away");
        fs::rename(&trial.members[2], &away).map_err(|error| error.to_string())?;
        let degraded = trial.restore("degraded")?;
        table.row([
            format_size(strip_bytes).into(),
            Cell::Number(backup.seconds, 2),
            Cell::Number(backup.written_bytes as f64 / MIB as f64, 1),
            Cell::Number(whole, 2),
            Cell::Number(degraded, 2),
        ]);
        crate::trees::remove(&trial.root)?;
    }
    Ok(table)
}

fn chunks(source: &Path, work: &Path, edits: u64) -> Result<Table> {
    let note = format!(
        "One file holding all files of the tree, backed up, then again after {edits} edits of up \
         to 4 KiB at random places, a third of them insertions, a third deletions."
    );
    let columns =
        ["chunk", "backup s", "chunks", "stored MiB", "second s", "added MiB", "added chunks"];
    let columns = columns.map(|name| (name, Align::Right));
    let mut table = Table::new("Chunk sizes", note, &columns);
    fs::create_dir_all(work).map_err(|error| error.to_string())?;
    let image = work.join("image");
    let edited = work.join("edited");
    join_files(source, &image)?;
    edit(&image, &edited, edits)?;
    for chunking in CHUNKS {
        let root = work.join(chunking.replace(':', "-"));
        let trial = Trial::begin(&root, 256 * KIB, chunking)?;
        let first = trial.backup(&image)?;
        let second = trial.backup(&edited)?;
        table.row([
            chunking.into(),
            Cell::Number(first.seconds, 2),
            first.new_chunks.into(),
            Cell::Number(first.written_bytes as f64 / MIB as f64, 1),
            Cell::Number(second.seconds, 2),
            Cell::Number(second.written_bytes as f64 / MIB as f64, 1),
            second.new_chunks.into(),
        ]);
        crate::trees::remove(&trial.root)?;
    }
    Ok(table)
}

/// A store for one setting.
struct Trial {
    root: PathBuf,
    members: Vec<PathBuf>,
}

struct Run {
    seconds: f64,
    written_bytes: u64,
    new_chunks: u64,
}

fn describe(error: Error) -> String {
    error.to_string()
}

impl Trial {
    fn begin(root: &Path, strip_bytes: u64, chunking: &str) -> Result<Trial> {
        crate::trees::remove(root)?;
        fs::create_dir_all(root).map_err(|error| format!("{}: {error}", root.display()))?;
        let members: Vec<_> = (0..4).map(|number| root.join(format!("member-{number}"))).collect();
        init::run(&init::InitOptions {
            members: members.clone(),
            parity: 1,
            strip_bytes,
            chunking: chunking.parse().map_err(describe)?,
            codec: Codec::default(),
            seal: pinstripe::init::Seal::none(),
            same_disk: true,
            now_seconds: 0,
        })
        .map_err(describe)?;
        Ok(Trial { root: root.to_path_buf(), members })
    }

    fn open(&self) -> Result<Store> {
        Store::open(&self.members[0], &fault::Plan::default()).map_err(describe)
    }

    fn limits(&self) -> Limits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Limits::new(cores, self.members.len(), MEMORY_DEFAULT_BYTES)
    }

    fn backup(&self, path: &Path) -> Result<Run> {
        let monitor = Monitor::default();
        let began = Instant::now();
        let options = backup::BackupOptions::new(vec![path.to_path_buf()], b"lab", self.limits());
        backup::run(&self.open()?, options, &monitor).map_err(describe)?;
        Ok(Run {
            seconds: began.elapsed().as_secs_f64(),
            written_bytes: monitor.get(Counter::WrittenBytes),
            new_chunks: monitor.get(Counter::NewChunks),
        })
    }

    fn restore(&self, name: &str) -> Result<f64> {
        let to = self.root.join(name);
        let began = Instant::now();
        let options = restore::RestoreOptions::new("latest", b"", &to, self.limits());
        let monitor = Monitor::default();
        restore::run(&self.open()?, &options, &monitor).map_err(describe)?;
        match monitor.get(Counter::Losses) {
            0 => Ok(began.elapsed().as_secs_f64()),
            losses => Err(format!("{losses} entries were not restored")),
        }
    }
}

/// All regular files of a tree in path order, one after the other.
fn join_files(source: &Path, image: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(image).map_err(|error| error.to_string())?);
    crate::trees::visit(source, &mut |path, metadata| {
        if metadata.is_file() {
            std::io::copy(&mut File::open(path)?, &mut out)?;
        }
        Ok(())
    })?;
    out.flush().map_err(|error| error.to_string())
}

/// Copies a file with edits at pseudo-random places.
fn edit(image: &Path, edited: &Path, edits: u64) -> Result<()> {
    let io = |error: std::io::Error| error.to_string();
    let mut input = File::open(image).map_err(io)?;
    let bytes = input.metadata().map_err(io)?.len();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most.max(1)
    };
    let mut out = BufWriter::new(File::create(edited).map_err(io)?);
    let mut places: Vec<_> = (0..edits).map(|_| draw(bytes)).collect();
    places.sort_unstable();
    let mut at = 0;
    for (number, place) in places.into_iter().enumerate() {
        if place > at {
            at += std::io::copy(&mut Read::by_ref(&mut input).take(place - at), &mut out)
                .map_err(io)?;
        }
        let length = 1 + draw(parse_size("4K").map_err(describe)?);
        let noise: Vec<u8> = (0..length).map(|_| draw(256) as u8).collect();
        if number % 3 != 1 {
            out.write_all(&noise).map_err(io)?;
        }
        if number % 3 != 0 {
            let skipped =
                std::io::copy(&mut Read::by_ref(&mut input).take(length), &mut std::io::sink());
            at += skipped.map_err(io)?;
        }
    }
    std::io::copy(&mut input, &mut out).map_err(io)?;
    out.flush().map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_copy_differs_a_little() {
        let around = tempfile::tempdir().unwrap();
        let (image, edited) = (around.path().join("image"), around.path().join("edited"));
        fs::write(&image, vec![7; 1 << 20]).unwrap();
        edit(&image, &edited, 9).unwrap();
        let length = fs::metadata(&edited).unwrap().len() as i64;
        assert!((length - (1 << 20)).abs() < 9 * 4096);
        assert!(fs::read(&edited).unwrap().iter().any(|&byte| byte != 7));
    }
}
