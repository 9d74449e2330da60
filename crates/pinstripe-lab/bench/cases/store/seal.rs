//! The processor time of sealed new content: reading, cutting, naming, compression, encryption,
//! writing.

use pinstripe_base::units::format_size;
use pinstripe_lab::{Align, Cell, Table};
use pinstripe_stats::Summary;
use pinstripe_stripe::Codec;

use super::{Settings, timed};
use crate::Result;
use crate::child::Cost;
use crate::content::{Recipe, make_tree};
use crate::targets::Target;
use crate::tools::{MEMBERS, PARITY, Tool};
use crate::trees;

/// The least bytes per second of processor time, relative to restic's.
const TIMES: f64 = 1.5;

/// Both in one round: cost and stored bytes, restic's first.
type Round = [(Cost, f64); 2];

pub fn measure(settings: &Settings) -> Result<Table> {
    let recipe = Recipe { seed: 100, bytes: settings.bytes, shared_eighths: 0 };
    let source = make_tree(&settings.bench.work, recipe)?;
    let note = format!(
        "{} of files that have nothing in common, three bytes of words to one of noise, each backed \
         up into an empty store; CPU is user and system time of the whole process, opening by \
         password and (of pinstripe: {MEMBERS} members, parity {PARITY}) parity included; {}; page \
         cache warm; medians of {} rounds in turns. Ratio: pinstripe / restic.",
        format_size(settings.bytes),
        settings.bench.restic()?.version,
        settings.bench.rounds,
    );
    let columns = [
        ("restic's compression", Align::Left),
        ("codec", Align::Left),
        ("restic MB/CPU s", Align::Right),
        ("pinstripe MB/CPU s", Align::Right),
        ("ratio", Align::Right),
        ("lowest", Align::Right),
        ("highest", Align::Right),
        ("stored MB, restic", Align::Right),
        ("pinstripe, with parity", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    let mut table = Table::new("Sealing what is new", note, &columns);
    let default = Codec::default().to_string();
    // The comparable setting may be the default.
    let mut pairs = vec![("auto", "zstd:3"), ("off", "raw")];
    if pairs.iter().all(|(_, ours)| *ours != default) {
        pairs.insert(1, ("auto", &default));
    }
    for (theirs, ours) in pairs {
        let rounds = (0..settings.bench.rounds)
            .map(|number| round(settings, &source, [theirs, ours], number % 2))
            .collect::<Result<Vec<_>>>()?;
        let megabytes = settings.bytes as f64 / 1e6;
        let summary = |value: &dyn Fn(&Round) -> f64| {
            let samples: Vec<f64> = rounds.iter().map(value).collect();
            Summary::from_samples(&samples).ok_or("no round was measured")
        };
        let rate = |which: usize| summary(&|round: &Round| megabytes / round[which].0.cpu_s);
        let ratio = summary(&|round| round[0].0.cpu_s / round[1].0.cpu_s)?;
        let stored = |which: usize| summary(&|round: &Round| round[which].1 / 1e6);
        let target = Target::AtLeast(TIMES);
        table.row([
            theirs.into(),
            if ours == default { format!("{ours}, the default") } else { ours.to_owned() }.into(),
            Cell::Number(rate(0)?.median, 0),
            Cell::Number(rate(1)?.median, 0),
            Cell::Number(ratio.median, 2),
            Cell::Number(ratio.min, 2),
            Cell::Number(ratio.max, 2),
            Cell::Number(stored(0)?.median, 0),
            Cell::Number(stored(1)?.median, 0),
            target.show().into(),
            target.verdict(f64::NAN, ratio.median).into(),
        ]);
    }
    Ok(table)
}

fn round(
    settings: &Settings,
    source: &std::path::Path,
    [theirs, ours]: [&str; 2],
    first: usize,
) -> Result<Round> {
    let restic = settings.bench.restic()?.with_compression(theirs);
    let pinstripe = settings.bench.pinstripe()?.with_codec(ours);
    let tools: [(&dyn Tool, &str); 2] = [(&restic, theirs), (&pinstripe, ours)];
    let mut found = [None, None];
    for which in [first, 1 - first] {
        let (tool, how) = tools[which];
        tool.make_empty()?;
        trees::warm(source)?;
        let name = format!("seal-{}-{}", ["restic", "pinstripe"][which], how.replace(':', "-"));
        let cost = timed(tool.back_up(source), &pinstripe.logs, &name)?;
        found[which] = Some((cost, tool.stored_bytes()? as f64));
    }
    trees::remove(&restic.folder)?;
    trees::remove(&pinstripe.folder)?;
    let [theirs, ours] = found;
    let (theirs, ours) = theirs.zip(ours).ok_or("a round has both")?;
    Ok([theirs, ours])
}
