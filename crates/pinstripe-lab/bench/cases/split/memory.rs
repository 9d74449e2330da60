//! What a dump of memory looks like, and what no codec makes smaller: by codec, over two outputs.

use pinstripe_lab::Table;

use super::{Run, Settings, in_turns, rates, ratios};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// MB/s of the source with the fastest codec that helps.
const DUMP_RATE: f64 = 2000.0;
/// Share of raw's rate that every codec is to reach on random bytes.
const RANDOM_SHARE: f64 = 0.97;
/// MiB, and more for each worker.
const MEMORY_MIB: f64 = 64.0;
const WORKER_MIB: f64 = 16.0;

const OUTPUTS: usize = 2;
const CODECS: [&str; 7] = ["raw", "auto", "lzo", "snappy", "lz4", "zstd:-5", "zstd:1"];

pub fn measure(settings: &Settings) -> Result<Table> {
    let tool = settings.bench.pinstripe()?;
    let dump = format!("fake:{},zero=45%,entropy=0.5", settings.bytes);
    let by_codec = |source: &str| {
        in_turns(settings.bench.rounds, &CODECS, |codec| {
            settings.split(&tool, source, OUTPUTS, &["--policy", "direct", "--codec", codec])
        })
    };
    let (dumps, random) = (by_codec(&dump)?, by_codec(&settings.random())?);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let note = format!(
        "split --policy direct over {OUTPUTS} outputs. 'dump': 45 % zero pages, the others half random \
         bytes and half words. Peak memory is that of all runs: 64 MiB and 16 for each of {workers} \
         workers. {}",
        settings.circumstances(),
    );
    let mut table = figures("Dumps and random bytes", note);
    let mut row = |what: String, samples: &[f64], decimals, target| {
        figure_row(&mut table, &what, samples, decimals, target);
    };
    for (codec, runs) in CODECS.iter().zip(&dumps) {
        let is_judged = ["lz4", "zstd:-5"].contains(codec);
        let target = if is_judged { Target::AtLeast(DUMP_RATE) } else { Target::None };
        row(format!("dump, {codec}: MB/s"), &rates(runs), 0, target);
        row(format!("dump, {codec}: CPU s per GB"), &cpu(runs), 2, Target::None);
    }
    let raw = rates(&random[0]);
    row("random, raw: MB/s".to_owned(), &raw, 0, Target::None);
    for (codec, runs) in CODECS.iter().zip(&random).skip(1) {
        let what = format!("random, {codec}: share of raw");
        row(what, &ratios(runs, &raw), 2, Target::AtLeast(RANDOM_SHARE));
    }
    let most = dumps.iter().chain(&random).flatten().map(Run::mib).fold(0.0, f64::max);
    let limit = MEMORY_MIB + WORKER_MIB * workers as f64;
    row("peak MiB".to_owned(), &[most], 0, Target::AtMost(limit));
    Ok(table)
}

fn cpu(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(Run::cpu).collect()
}
