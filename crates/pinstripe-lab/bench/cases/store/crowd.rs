//! Many backup processes at once on one store, against one process that does all their work.

use pinstripe_base::units::format_size;
use pinstripe_lab::Table;

use super::{Settings, say};
use crate::Result;
use crate::child::{self, Cost};
use crate::content::{Recipe, make_tree};
use crate::targets::{Target, figure_row, figures};
use crate::tools::Tool;
use crate::trees;
use std::path::PathBuf;
use std::time::Instant;

/// Processes, and trees.
const WRITERS: u64 = 8;
/// What the trees have in common: nothing, or of eight files one, at the same place in each, so
/// that all processes meet it at the same time.
const SHARED_EIGHTHS: [(u64, &str); 2] =
    [(0, "nothing in common"), (1, "one file of eight in all trees")];
/// The longest wall time, relative to one process.
const RATIO: f64 = 1.15;

/// One round.
struct Round {
    one: Cost,
    many: Cost,
    raced_chunks: f64,
    raced_bytes: f64,
}

pub fn measure(settings: &Settings) -> Result<Table> {
    let note = format!(
        "{WRITERS} trees of {} each; a new store in each run; page cache warm. Against: one process \
         with all {WRITERS} trees as its sources. Who begins changes from round to round ({} \
         rounds). A chunk has raced when another process had stored it too by the time that this one \
         wrote its index run.",
        format_size(settings.bytes / WRITERS),
        settings.bench.rounds,
    );
    let mut table = figures(&format!("{WRITERS} backups at once on one store"), note);
    for (shared_eighths, common) in SHARED_EIGHTHS {
        let rounds = rounds(settings, shared_eighths)?;
        let mut row = |what: &str, value: &dyn Fn(&Round) -> f64, decimals, target| {
            let samples: Vec<f64> = rounds.iter().map(value).collect();
            figure_row(&mut table, &format!("{common}: {what}"), &samples, decimals, target);
        };
        row("one process, wall s", &|it| it.one.wall_s, 2, Target::None);
        row("at once, wall s", &|it| it.many.wall_s, 2, Target::None);
        let ratio = |it: &Round| it.many.wall_s / it.one.wall_s;
        row("wall time, at once / one process", &ratio, 3, Target::AtMost(RATIO));
        row("one process, CPU s", &|it| it.one.cpu_s, 2, Target::None);
        row("at once, CPU s", &|it| it.many.cpu_s, 2, Target::None);
        row("at once, peak MiB of one of them", &|it| super::mib(&it.many), 0, Target::None);
        row("chunks that raced", &|it| it.raced_chunks, 0, Target::None);
        row("MB stored more than by one process", &|it| it.raced_bytes / 1e6, 1, Target::None);
    }
    trees::remove(&settings.bench.pinstripe()?.folder)?;
    Ok(table)
}

fn rounds(settings: &Settings, shared_eighths: u64) -> Result<Vec<Round>> {
    let tree = |seed| {
        let bytes = settings.bytes / WRITERS;
        make_tree(&settings.bench.work, Recipe { seed, bytes, shared_eighths })
    };
    let sources: Vec<PathBuf> = (0..WRITERS).map(tree).collect::<Result<_>>()?;
    (0..settings.bench.rounds).map(|number| round(settings, &sources, number % 2 == 0)).collect()
}

fn round(settings: &Settings, sources: &[PathBuf], one_first: bool) -> Result<Round> {
    let (mut one, mut many) = (None, None);
    for is_one in [one_first, !one_first] {
        match is_one {
            true => one = Some(alone(settings, sources)?),
            false => many = Some(at_once(settings, sources)?),
        }
    }
    let ((one, one_bytes), (many, many_bytes, raced_chunks)) =
        one.zip(many).ok_or("a round has both")?;
    Ok(Round { one, many, raced_chunks, raced_bytes: many_bytes - one_bytes })
}

/// One process does all; its cost, and the bytes on the members.
fn alone(settings: &Settings, sources: &[PathBuf]) -> Result<(Cost, f64)> {
    let tool = settings.bench.pinstripe()?.with_key_file();
    tool.make_empty()?;
    sources.iter().try_for_each(|source| trees::warm(source))?;
    let mut command = tool.command("backup");
    command.args(sources);
    let cost = super::timed(command, &tool.logs, "crowd-one")?;
    Ok((cost, tool.stored_bytes()? as f64))
}

/// A process for each tree; what all cost together, the bytes on the members, and the chunks that
/// more than one of them stored.
fn at_once(settings: &Settings, sources: &[PathBuf]) -> Result<(Cost, f64, f64)> {
    let tool = settings.bench.pinstripe()?.with_key_file();
    tool.make_empty()?;
    sources.iter().try_for_each(|source| trees::warm(source))?;
    rustix::fs::sync();
    let name = |number: usize| format!("crowd-{number}");
    let start = Instant::now();
    let start_one = |(number, source): (usize, &PathBuf)| {
        child::start(&mut tool.back_up(source), &tool.logs, &name(number))
    };
    let running: Vec<_> = sources.iter().enumerate().map(start_one).collect();
    // All that run are waited for, also when one could not be started or failed.
    let ended: Vec<Result<Cost>> =
        running.into_iter().map(|it| it.and_then(child::Running::finish)).collect();
    let wall_s = start.elapsed().as_secs_f64();
    let costs = ended.into_iter().collect::<Result<Vec<_>>>()?;
    let cpu_s = costs.iter().map(|cost| cost.cpu_s).sum();
    let memory_bytes = costs.iter().map(|cost| cost.memory_bytes).max().unwrap_or(0);
    let raced = (0..sources.len()).map(|it| tool.figure(&name(it), "duplicate_chunks"));
    let cost = Cost { wall_s, cpu_s, memory_bytes };
    say("crowd at once", &cost);
    Ok((cost, tool.stored_bytes()? as f64, raced.sum::<Result<f64>>()?))
}
