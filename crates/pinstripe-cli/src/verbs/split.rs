//! `pinstripe split`: one huge source over many outputs.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;

use pinstripe::codec::Codec;
use pinstripe::format::split::Use;
use pinstripe::ops::split::{self, Outcome, Spread};
use pinstripe::pipeline::split::Choice;
use pinstripe::source::bulk;
use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::id::hex;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_io::device::{Engine, Policy};

use crate::args::refuse_option;
use crate::args::{Size, one_line, parsed, size};
use crate::event::Event;
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::system;
use crate::table::{self, Side};
use crate::time;

/// Split one huge file, device or pipe over many outputs, as fast as they go
///
/// The source is read, hashed and compressed by many threads. Without parity each block goes to
/// whichever output is free, so that disks of unequal speed all run full. With --parity P any P
/// outputs may be lost. 'pinstripe join' gives the source back, 'pinstripe cat OUT... --range A..B'
/// any part of it without joining, 'pinstripe verify' reads everything again.
#[derive(clap::Args)]
#[command(after_long_help = "\
SOURCE is a file, a block device, '-' for standard input, or
  fake:SIZE[,block=4K][,seed=N][,zero=40%][,entropy=F]   made-up bytes, to measure with

Examples:
  pinstripe split /proc/vmcore /mnt/a /mnt/b /mnt/c /mnt/d
  pinstripe split disk.img /mnt/a /mnt/b /mnt/c /mnt/d /mnt/e --parity 1
  zfs send pool@now | pinstripe split - /mnt/a/pool /mnt/b/pool --codec zstd:3
  pinstripe split disk.img /mnt/a /mnt/b --resume      # after an interruption
  pinstripe split disk.img a b --codec raw --layout ranges && cat a b | cmp - disk.img
  pinstripe split fake:16G,zero=40% /mnt/a /mnt/b --codec lz4")]
pub struct SplitArgs {
    /// What to split
    #[arg(value_name = "SOURCE")]
    source: OsString,

    /// Files, block devices, or directories to put a file in
    #[arg(value_name = "OUT", required = true, value_hint = clap::ValueHint::AnyPath)]
    outputs: Vec<PathBuf>,

    /// How to compress: auto, raw, lzo, snappy, lz4, zstd or zstd:LEVEL
    ///
    /// auto takes raw, lz4, zstd:-5, zstd:-1 or zstd:1 for each block, by how far the outputs lag
    /// behind. Blocks that no codec makes smaller stay as they are, blocks of zeros take no room.
    #[arg(long, value_name = "NAME[:LEVEL]", default_value = "auto", value_parser = choice)]
    codec: Choice,

    /// Bytes of a block, which is what is compressed and can be read: a power of two, 4K to 16M
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = Size(64 << 10))]
    block_size: Size,

    /// How many outputs may be lost: 0, 1 or 2
    #[arg(long, value_name = "P", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    parity: u8,

    /// How outputs are written [default: direct]
    ///
    /// direct and direct+dsync go past the page cache, uncached through it without staying there,
    /// dsync and sync wait for the disk at each write. What a file system refuses is replaced by
    /// what promises the same, and said. Everything is durable at the end whichever it is.
    #[arg(long, value_name = "NAME", value_parser = parsed::<Policy>)]
    policy: Option<Policy>,

    /// Who carries out writes: auto, threads or uring
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parsed::<Engine>)]
    engine: Engine,

    /// Writes in flight per output
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    depth: u64,

    /// How the source lies over the outputs [default: stripes with parity, queue without]
    ///
    /// stripes: over all outputs in turn; queue: each block to whichever output is free; ranges:
    /// one contiguous range per output, and with --codec raw its bytes and nothing else, so that
    /// 'cat OUT...' is the source, with checksums in OUT.pinstripe beside each.
    #[arg(long, value_name = "NAME", value_enum)]
    layout: Option<Layout>,

    /// Bytes of a strip, with stripes: a power of two, 4K to 16M
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = Size(256 << 10))]
    strip_size: Size,

    /// Write over outputs that are there
    #[arg(long)]
    force: bool,

    /// Go on with a split that was interrupted, with the same source, outputs and options
    #[arg(long, conflicts_with = "force")]
    resume: bool,
}

/// How the source lies over the outputs.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Layout {
    /// Over all outputs in turn.
    Stripes,
    /// To whichever is free.
    Queue,
    /// One range each.
    Ranges,
}

fn choice(text: &str) -> std::result::Result<Choice, String> {
    match text {
        "auto" => Ok(Choice::Auto),
        _ => text.parse::<Codec>().map(Choice::Fixed).map_err(|e| one_line(e) + ", auto"),
    }
}

impl SplitArgs {
    /// Splits.
    ///
    /// # Errors
    /// Those of [`split::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(!run.common.store.is_empty(), "--store", "split writes files of its own")?;
        let faults = run.common.fault_plan();
        let options = split::Options {
            outputs: self.outputs.clone(),
            spread: self.layout.map(|layout| match layout {
                Layout::Stripes => Spread::Stripes,
                Layout::Queue => Spread::Queue,
                Layout::Ranges => Spread::Ranges,
            }),
            parity: self.parity,
            block_bytes: u32::try_from(self.block_size.0).unwrap_or(u32::MAX),
            strip_bytes: u32::try_from(self.strip_size.0).unwrap_or(u32::MAX),
            codec: self.codec,
            policy: self.policy.unwrap_or(Policy::Direct),
            engine: self.engine,
            depth: self.depth as usize,
            workers: run.common.threads.map_or_else(system::cores, |threads| threads as usize),
            memory_bytes: run.common.memory.0,
            force: self.force,
            resume: self.resume,
            now_seconds: clock::now().0,
            faults: (!faults.faults.is_empty()).then_some(faults),
        };
        let stdin = std::io::stdin();
        let open = || bulk::open(&self.source, stdin.as_fd());
        let ticker = run.ticker(GAUGE);
        let outcome = split::run(&open, &options, &run.monitor)?;
        drop(ticker);
        for output in &outcome.outputs {
            if let (Some(fallback), Some(_)) = (&output.fallback, self.policy) {
                run.monitor.note(&format!("{}: {fallback}", output.path.display()));
            }
            run.screen.event(&written(output))?;
        }
        say(run, &outcome)?;
        Ok(Ending::done(facts(&outcome)))
    }
}

/// The progress of reading the source.
const GAUGE: Gauge =
    Gauge { label: "splitting", done_bytes: |monitor| monitor.get(Counter::ReadBytes), passes: 1 };

fn written(output: &split::Written) -> Event {
    Event::new("output").with_fields(output).with("busy_seconds", output.busy.as_secs_f64())
}

/// The stage that the others waited for.
fn limit(outcome: &Outcome) -> &'static str {
    let spent = &outcome.spent;
    let stages = [
        (spent.wait, "the outputs"),
        (spent.read, "the source"),
        (spent.code, "compressing"),
        (spent.hash, "hashing"),
    ];
    stages.into_iter().max_by_key(|(spent, _)| *spent).map_or("nothing", |(_, name)| name)
}

fn facts(outcome: &Outcome) -> Event {
    let manifest = &outcome.manifest;
    let spent = &outcome.spent;
    Event::default()
        .with("split", outcome.head.split.to_string())
        .with("layout", outcome.head.layout.name())
        .with("source_bytes", manifest.source_bytes)
        .with("resumed_bytes", outcome.resumed_bytes)
        .with("zero_bytes", manifest.zero_bytes)
        .with("hole_bytes", manifest.hole_bytes)
        .with("blake3", hex(&manifest.blake3))
        .with("engine", outcome.engine.to_string())
        .with("limit", limit(outcome))
        .with("read_seconds", spent.read.as_secs_f64())
        .with("hash_seconds", spent.hash.as_secs_f64())
        .with("code_seconds", spent.code.as_secs_f64())
        .with("wait_seconds", spent.wait.as_secs_f64())
}

const OUTPUTS: [(&str, Side); 3] =
    [("output", Side::Left), ("written", Side::Right), ("while writing", Side::Right)];
const CODECS: [(&str, Side); 4] = [
    ("codec", Side::Left),
    ("blocks", Side::Right),
    ("of the source", Side::Right),
    ("stored", Side::Right),
];

fn say(run: &Run, outcome: &Outcome) -> Result<()> {
    let manifest = &outcome.manifest;
    let say = |line: &str| run.screen.say(line);
    say(&format!(
        "split {} over {} ({}{}) in {}, {}",
        format_size(manifest.source_bytes),
        counted(outcome.outputs.len() as u64, "output"),
        outcome.head.layout.name(),
        match outcome.head.parity {
            0 => String::new(),
            parity => format!(", any {parity} may be lost"),
        },
        time::span(outcome.elapsed),
        time::rate(manifest.source_bytes - outcome.resumed_bytes, outcome.elapsed),
    ));
    let rows: Vec<Vec<String>> = outcome
        .outputs
        .iter()
        .map(|it| {
            let path = it.path.display().to_string();
            vec![path, format_size(it.written_bytes), time::rate(it.written_bytes, it.busy)]
        })
        .collect();
    table::lines(&OUTPUTS, &rows).iter().for_each(|line| say(line));
    table::lines(&CODECS, &codec_rows(manifest)).iter().for_each(|line| say(line));
    say(&format!("what the others waited for: {}", limit(outcome)));
    say(&format!("BLAKE3 of the source: {}", hex(&manifest.blake3)));
    Ok(())
}

/// A row for each codec, and for what is not stored.
pub fn codec_rows(manifest: &pinstripe::format::split::Manifest) -> Vec<Vec<String>> {
    let row = |it: &Use| {
        vec![
            codec_name(it),
            format_count(it.blocks),
            format_size(it.raw_bytes),
            format_size(it.stored_bytes),
        ]
    };
    let mut rows: Vec<Vec<String>> = manifest.uses.iter().map(row).collect();
    for (name, bytes) in [("zeros", manifest.zero_bytes), ("holes", manifest.hole_bytes)] {
        if bytes > 0 {
            rows.push(vec![name.to_owned(), "-".to_owned(), format_size(bytes), "-".to_owned()]);
        }
    }
    rows
}

/// `zstd:-5`, `lz4`.
pub fn codec_name(it: &Use) -> String {
    let codec = match it.codec {
        0 => Codec::Raw,
        2 => Codec::Lz4,
        3 => Codec::Snappy,
        4 => Codec::Lzo,
        _ => Codec::Zstd { level: it.level.into() },
    };
    codec.to_string()
}
