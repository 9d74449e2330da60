//! Deletion during a backup, compared with the same backup alone.

use std::path::PathBuf;

use pinstripe_base::units::format_size;
use pinstripe_lab::Table;

use super::{Settings, mib, say, timed};
use crate::Result;
use crate::child::{self, Cost};
use crate::content::{Recipe, make_tree};
use crate::targets::{Target, figure_row, figures};
use crate::tools::Tool;
use crate::trees;

const TITLE: &str = "Deletion beside a backup";
/// The longest time of the backup, relative to the backup alone.
const RATIO: f64 = 1.1;
/// The garbage is the concurrent backup's size divided by this.
const GARBAGE_SHARE: u64 = 2;

/// One round.
struct Round {
    alone: Cost,
    beside: Cost,
    gc: Cost,
    deleted_bytes: f64,
    repacked_packs: f64,
}

/// What there is to back up: what becomes garbage, what shares an eighth of its files with that
/// and stays, and what is backed up while deletion runs.
struct Sources {
    garbage: PathBuf,
    kept: PathBuf,
    new: PathBuf,
}

pub fn measure(settings: &Settings) -> Result<Table> {
    if !settings.bench.pinstripe()?.knows("gc") {
        return Ok(figures(TITLE, "This pinstripe has no verb gc.".to_owned()));
    }
    let tree = |seed, bytes, shared_eighths| {
        make_tree(&settings.bench.work, Recipe { seed, bytes, shared_eighths })
    };
    let garbage_bytes = settings.bytes / GARBAGE_SHARE;
    let sources = Sources {
        garbage: tree(200, garbage_bytes, 1)?,
        kept: tree(201, garbage_bytes, 1)?,
        new: tree(100, settings.bytes, 0)?,
    };
    let rounds = (0..settings.bench.rounds)
        .map(|number| round(settings, &sources, number % 2 == 0))
        .collect::<Result<Vec<_>>>()?;
    trees::remove(&settings.bench.pinstripe()?.folder)?;
    let note = format!(
        "A store with two snapshots of {} each, an eighth of the files the same; one is forgotten. \
         Then {} that is new is backed up, alone or with 'pinstripe gc' beside it from its beginning, \
         in turns, {} rounds, a new store in each run.",
        format_size(garbage_bytes),
        format_size(settings.bytes),
        settings.bench.rounds,
    );
    let mut table = figures(TITLE, note);
    let mut row = |what: &str, value: &dyn Fn(&Round) -> f64, decimals, target| {
        let samples: Vec<f64> = rounds.iter().map(value).collect();
        figure_row(&mut table, what, &samples, decimals, target);
    };
    row("backup alone: wall s", &|it| it.alone.wall_s, 2, Target::None);
    row("backup beside gc: wall s", &|it| it.beside.wall_s, 2, Target::None);
    let ratio = |it: &Round| it.beside.wall_s / it.alone.wall_s;
    row("wall time, beside gc / alone", &ratio, 3, Target::AtMost(RATIO));
    row("backup alone: CPU s", &|it| it.alone.cpu_s, 2, Target::None);
    row("backup beside gc: CPU s", &|it| it.beside.cpu_s, 2, Target::None);
    row("gc: wall s", &|it| it.gc.wall_s, 2, Target::None);
    row("gc: CPU s", &|it| it.gc.cpu_s, 2, Target::None);
    row("gc: peak MiB", &|it| mib(&it.gc), 0, Target::None);
    row("gc: MB deleted", &|it| it.deleted_bytes / 1e6, 0, Target::None);
    row("gc: packs written anew", &|it| it.repacked_packs, 0, Target::None);
    Ok(table)
}

fn round(settings: &Settings, sources: &Sources, alone_first: bool) -> Result<Round> {
    let tool = settings.bench.pinstripe()?.with_key_file();
    let (mut alone, mut beside) = (None, None);
    for is_alone in [alone_first, !alone_first] {
        tool.make_empty()?;
        timed(tool.back_up(&sources.garbage), &tool.logs, "gc-garbage")?;
        timed(tool.back_up(&sources.kept), &tool.logs, "gc-kept")?;
        let mut forget = tool.command("forget");
        forget.arg(tool.text("gc-garbage", "snapshot")?).arg("--allow-empty");
        timed(forget, &tool.logs, "gc-forget")?;
        trees::warm(&sources.new)?;
        if is_alone {
            alone = Some(timed(tool.back_up(&sources.new), &tool.logs, "gc-alone")?);
            continue;
        }
        rustix::fs::sync();
        let backup = child::start(&mut tool.back_up(&sources.new), &tool.logs, "gc-beside")?;
        let gc = child::start(&mut tool.command("gc"), &tool.logs, "gc");
        // Each is waited for by itself, or the one that ends first would seem to take longer.
        let (backup, gc) = std::thread::scope(|scope| {
            let gc = scope.spawn(|| gc.and_then(child::Running::finish));
            (backup.finish(), gc.join())
        });
        let gc = gc.map_err(|_| "the thread that waits for gc panicked")??;
        let backup = backup?;
        say("gc-beside", &backup);
        say("gc", &gc);
        let told = |key| tool.figure("gc", key);
        beside = Some((backup, gc, told("deleted_bytes")?, told("repacked_packs")?));
    }
    let (alone, (beside, gc, deleted_bytes, repacked_packs)) =
        alone.zip(beside).ok_or("a round has both")?;
    Ok(Round { alone, beside, gc, deleted_bytes, repacked_packs })
}
