//! Very many very small files: a first backup, and one that finds nothing changed.

use pinstripe_base::units::format_count;
use pinstripe_lab::{Table, file_system};
use pinstripe_stats::Summary;

use super::{Settings, mib, timed};
use crate::Result;
use crate::child::Cost;
use crate::content::make_small_files;
use crate::targets::{Target, comparison, plain_row};
use crate::tools::{MEMBERS, PARITY, Tool};
use crate::trees;

const FILE_BYTES: usize = 100;
/// Files per second of a first backup, of an unchanged second one, and most MiB in both.
const FIRST: f64 = 40_000.0;
const SECOND: f64 = 300_000.0;
const MEMORY_MIB: f64 = 300.0;

/// First and second backup, of each round.
type Costs = Vec<[Cost; 2]>;

pub fn measure(settings: &Settings) -> Result<Table> {
    let source = make_small_files(&settings.bench.work, settings.files, FILE_BYTES)?;
    let (restic, pinstripe) = (settings.bench.restic()?, settings.bench.pinstripe()?);
    let tools: [&dyn Tool; 2] = [&restic, &pinstripe];
    let mut costs: [Costs; 2] = Default::default();
    for round in 0..settings.bench.rounds {
        for turn in 0..tools.len() {
            let which = (round + turn) % tools.len();
            tools[which].make_empty()?;
            let pair = ["first", "second"].map(|what| {
                trees::warm(&source)?;
                let name = format!("small-{}-{what}", ["restic", "pinstripe"][which]);
                timed(tools[which].back_up(&source), &pinstripe.logs, &name)
            });
            let [first, second] = pair;
            costs[which].push([first?, second?]);
        }
    }
    trees::remove(&restic.folder)?;
    trees::remove(&pinstripe.folder)?;
    let note = format!(
        "{} files of {FILE_BYTES} bytes, a thousand in a directory; {} and pinstripe with {MEMBERS} \
         members, parity {PARITY}, all on one {}; page cache warm; medians of {} rounds in turns. \
         Ratio: pinstripe / restic.",
        format_count(settings.files),
        restic.version,
        file_system(&settings.bench.work),
        settings.bench.rounds,
    );
    Ok(table(note, settings.files as f64, &costs))
}

fn table(note: String, files: f64, costs: &[Costs; 2]) -> Table {
    let mut table = comparison("Many small files", note);
    for (at, what, target) in [(0, "first backup", FIRST), (1, "unchanged second backup", SECOND)] {
        let medians = |value: &dyn Fn(&Cost) -> f64| {
            costs.each_ref().map(|rounds| {
                let samples: Vec<f64> = rounds.iter().map(|round| value(&round[at])).collect();
                Summary::from_samples(&samples).map_or(f64::NAN, |summary| summary.median)
            })
        };
        let mut row = |unit: &str, value: &dyn Fn(&Cost) -> f64, decimals, target| {
            plain_row(&mut table, format!("{what}: {unit}"), medians(value), decimals, target);
        };
        row("files/s", &|cost| files / cost.wall_s, 0, Target::AtLeast(target));
        row("wall s", &|cost| cost.wall_s, 2, Target::None);
        row("CPU s", &|cost| cost.cpu_s, 2, Target::None);
        row("peak MiB", &mib, 0, Target::AtMost(MEMORY_MIB));
    }
    table
}
