//! Measures the chunk index at the size of a real store: how long a run takes to be written, how
//! much memory it takes when it is open, how fast chunks are found. Decision 0009 has the figures.
//!
//! ```text
//! cargo run --release -p pinstripe --example index_scale -- build DIR CHUNKS
//! cargo run --release -p pinstripe --example index_scale -- ask DIR CHUNKS
//! ```
//! `build` makes a store of four members in DIR, which must not exist, with one run of so many
//! chunks; `ask` opens it in a process of its own, so that its memory is that of asking.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a program of its own")]

use std::path::Path;
use std::time::Instant;

use pinstripe::index::{Index, RunWriter, write_run};
use pinstripe::{Store, init};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::random::mix64;
use pinstripe_io::fault::Plan;
use pinstripe_member::index_run::{Row, RunPack};

/// Chunks of 64 KiB in a pack of 64 MiB.
const CHUNKS_PER_PACK: u64 = 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["build", dir, chunks] => count(chunks).and_then(|chunks| build(Path::new(dir), chunks)),
        ["ask", dir, chunks] => count(chunks).and_then(|chunks| ask(Path::new(dir), chunks)),
        _ => Err(Error::new(Kind::Usage, "arguments: build|ask DIR CHUNKS")),
    };
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn count(text: &str) -> Result<u64> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| Error::new(Kind::Usage, format!("'{text}' is not a number of chunks")))
}

/// The n-th id in order; all are spread as hashes are.
fn id(number: u64, chunks: u64) -> ChunkId {
    let step = u64::MAX / chunks;
    let mut id = [0; 32];
    id[..8].copy_from_slice(&(number * step + mix64(number) % step).to_be_bytes());
    for part in 1..4_u64 {
        let at = 8 * part as usize;
        id[at..at + 8].copy_from_slice(&mix64(number ^ part << 56).to_le_bytes());
    }
    ChunkId(id)
}

fn build(dir: &Path, chunks: u64) -> Result<()> {
    let members: Vec<_> = (0..4).map(|number| dir.join(format!("m{number}"))).collect();
    init::run(&init::InitOptions {
        members,
        parity: 1,
        strip_bytes: 256 << 10,
        chunking: "64K".parse()?,
        codec: "raw".parse()?,
        seal: init::Seal::none(),
        same_disk: true,
        now_seconds: 0,
    })?;
    let store = Store::open(&dir.join("m0"), &Plan::default())?;
    let sealer = store.sealer()?;
    let packs: Vec<RunPack> = (0..chunks.div_ceil(CHUNKS_PER_PACK))
        .map(|number| {
            let mut set = [0; 16];
            set[..8].copy_from_slice(&mix64(number + 1).to_le_bytes());
            RunPack { set: SetId(set), data: 3, parity: 1, is_lost: false, bytes: 64 << 20 }
        })
        .collect();
    let began = Instant::now();
    write_run(&store, |set, geometry, sink| {
        let mut writer = RunWriter::new(&store, set, geometry, &sealer, sink);
        for number in 0..chunks {
            let pack = (mix64(number ^ 77) % packs.len() as u64) as u32;
            let (offset, bytes) = (number as u32 % 1000, 60_000);
            let id = id(number, chunks);
            writer.push(Row { id, pack, offset, bytes, raw_offset: 0, raw_bytes: 65_536 })?;
        }
        writer.finish(&packs)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!("written: {chunks} chunks in {seconds:.1} s, {:.0} a second", chunks as f64 / seconds);
    println!("memory at its highest: {:.1} MB", status("VmHWM:"));
    Ok(())
}

fn ask(dir: &Path, chunks: u64) -> Result<()> {
    let store = Store::open(&dir.join("m0"), &Plan::default())?;
    let monitor = Monitor::default();
    let before = status("VmRSS:");
    let began = Instant::now();
    let index = Index::load(&store, &monitor)?;
    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
    println!("loaded: {} rows in {milliseconds:.0} ms", index.rows());
    println!(
        "memory: {:.2} MB by count, {:.2} bytes a chunk; resident {:.1} MB more than before",
        index.memory_bytes() as f64 / 1e6,
        index.memory_bytes() as f64 / chunks as f64,
        status("VmRSS:") - before
    );
    timed("filters, chunks that are there", 1_000_000, |n| {
        index.may_have(&id(mix64(n) % chunks, chunks))
    });
    let wrong = timed("filters, chunks that are not", 1_000_000, |n| {
        let mut other = id(mix64(n) % chunks, chunks);
        other.0[8] ^= 0x55;
        index.may_have(&other)
    });
    println!("wrong answers: 1 in {:.0}", 1e6 / wrong.max(1) as f64);
    timed("rows by their pages", 100_000, |n| index.places(&id(mix64(n) % chunks, chunks)).is_ok());
    let mut wanted: Vec<_> = (0..32_768).map(|n| id(mix64(n) % chunks, chunks)).collect();
    wanted.sort();
    let began = Instant::now();
    let mut found = 0;
    index.over_rows(|rows| rows.find_many(&wanted, &mut |_, _, _| found += 1))?;
    let each = began.elapsed().as_secs_f64() / wanted.len() as f64;
    println!(
        "a restore's plan, sorted: {found} of {} rows, {:.2} us each",
        wanted.len(),
        each * 1e6
    );
    println!("resident at the end: {:.1} MB more than before", status("VmRSS:") - before);
    Ok(())
}

/// Asks so many times; returns how often the answer was yes.
fn timed(what: &str, times: u64, question: impl Fn(u64) -> bool) -> u64 {
    let began = Instant::now();
    let yes = (0..times).filter(|n| question(*n)).count() as u64;
    let each = began.elapsed().as_secs_f64() / times as f64;
    println!("{what}: {:.0} ns each, {yes} of {times} yes", each * 1e9);
    yes
}

/// A figure of this process in MB, as the kernel counts it.
fn status(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|n| n.parse().ok());
    kib.unwrap_or(0.0_f64) * 1024.0 / 1e6
}
