//! The goals for rings, lag and processor time, one function for each part.

use std::time::Duration;

use pinstripe_lab::{Cell, Table};
use pinstripe_stats::Summary;

use super::Settings;
use super::plain::{Plain, Syncs};
use super::storm::Storm;
use super::take::{Asked, Told, sound, take};
use crate::Result;
use crate::targets::{Target, figure_row, figures, judged_row};

/// Nine of ten valid runs must have no overrun.
const RUNS_PERCENT: f64 = 90.0;
const RING_PERCENT: f64 = 80.0;
/// Seconds of durable lag, and processor seconds per GB: idle, and in a storm.
const LAG: [f64; 2] = [1.5, 4.0];
const CPU: [f64; 2] = [1.5, 3.0];
const START_SECONDS: f64 = 1.0;
/// Beyond the durable lag that was shown.
const STOP_SECONDS: f64 = 1.0;
const BEYOND_RINGS_MIB: f64 = 64.0;

/// The targets of a series of runs; a figure without a target is only reported.
#[derive(Clone, Copy, Default)]
struct Goal {
    /// The share of runs without an overrun, in percent.
    runs_percent: Option<f64>,
    ring_percent: Option<f64>,
    lag: Option<f64>,
    cpu: Option<f64>,
}

impl Goal {
    fn of(is_storm: bool) -> Goal {
        let number = usize::from(is_storm);
        Goal {
            runs_percent: Some(if is_storm { RUNS_PERCENT } else { 100.0 }),
            ring_percent: Some(RING_PERCENT),
            lag: Some(LAG[number]),
            cpu: Some(CPU[number]),
        }
    }
}

/// 256 streams with rings of 128 KiB for 120 s: for 60 s another writer runs at full speed, for 60
/// s it also syncs.
pub fn storm(settings: &Settings) -> Result<Table> {
    let asked = of_storm(settings, (256, 128 << 10, 32 << 10));
    series(settings, "Recording beside a storm", &asked, 10, Goal::of(true))
}

/// The same with half the ring and small chunks.
pub fn ring64(settings: &Settings) -> Result<Table> {
    let asked = of_storm(settings, (256, 64 << 10, 16 << 10));
    series(settings, "Rings of 64 KiB beside a storm", &asked, 10, Goal::of(true))
}

/// Twice the streams: reported as it is.
pub fn streams512(settings: &Settings) -> Result<Table> {
    let asked = of_storm(settings, (512, 128 << 10, 32 << 10));
    series(settings, "512 streams beside a storm", &asked, 3, Goal::default())
}

fn of_storm(settings: &Settings, own: (usize, u64, u64)) -> Asked {
    let asked = asked(settings, own, 120);
    Asked { storm: Storm::Both(Duration::from_secs(asked.seconds) / 2), ..asked }
}

/// A take of these streams, ring and chunk, unless others were asked for.
pub fn asked(
    settings: &Settings,
    (streams, ring, chunk): (usize, u64, u64),
    seconds: u64,
) -> Asked {
    Asked {
        streams: settings.streams(streams),
        shape: sound(settings.rate),
        ring: settings.ring.unwrap_or(ring),
        chunk: settings.chunk.unwrap_or(chunk),
        writes: settings.writes,
        seconds: settings.seconds(seconds),
        storm: Storm::None,
        is_mirrored: false,
        segment_seconds: None,
    }
}

/// 256 streams without other load: overruns, lag, processor time, start and stop, memory.
pub fn idle(settings: &Settings) -> Result<Table> {
    let asked = asked(settings, (256, 128 << 10, 32 << 10), 60);
    let told = runs(settings, &asked, settings.rounds(3))?;
    let mut table = figures("Recording without other load", note(settings, &asked));
    rows(&mut table, &told, Goal::of(false));
    let of = |pick: &dyn Fn(&Told) -> f64| told.iter().map(pick).collect::<Vec<_>>();
    let starts = of(&|it| it.outcome.starting.as_secs_f64());
    worst_row(&mut table, "start: all files durable, s", &starts, 3, Target::AtMost(START_SECONDS));
    let stops = of(&|it| it.outcome.stopping.as_secs_f64() - it.shown_lag);
    let stop = "stop: all durable, beyond the lag shown, s";
    worst_row(&mut table, stop, &stops, 2, Target::AtMost(STOP_SECONDS));
    let memory = of(&Told::beyond_rings_mib);
    worst_row(
        &mut table,
        "memory beyond the rings, MiB",
        &memory,
        1,
        Target::AtMost(BEYOND_RINGS_MIB),
    );
    let plain = Plain {
        streams: asked.streams,
        rate: asked.shape.byte_rate(),
        seconds: asked.seconds,
        syncs: Syncs::Threads,
    };
    let (bare, _) = plain.write(&settings.bench.work, Storm::None)?;
    let name = format!("{}: CPU s per GB", plain.name());
    figure_row(&mut table, &name, &[bare.cpu_per_gb().iter().sum()], 2, Target::None);
    Ok(table)
}

/// Every stream in two directories, compared with a take without a mirror.
pub fn mirror(settings: &Settings) -> Result<Table> {
    let one = asked(settings, (256, 128 << 10, 32 << 10), 30);
    let two = Asked { is_mirrored: true, ..one };
    let rounds = settings.rounds(3);
    let mut table = figures("A mirror", note(settings, &two));
    let (mut plain, mut mirrored) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.extend(runs(settings, &one, 1)?);
        mirrored.extend(runs(settings, &two, 1)?);
    }
    let goal = Goal { runs_percent: Some(100.0), ..Goal::default() };
    rows(&mut table, &mirrored, goal);
    // Relative to the payload counted once: both copies count as one.
    let cpu = |it: &Told, copies: f64| copies * it.cpu_per_gb().iter().sum::<f64>();
    let cost: Vec<_> =
        plain.iter().zip(&mirrored).map(|(a, b)| cpu(b, 2.0) / cpu(a, 1.0)).collect();
    figure_row(
        &mut table,
        "CPU for each stream, times that without a mirror",
        &cost,
        2,
        Target::None,
    );
    let lag = |it: &Told| it.outcome.figures.durable_lag_worst_ms;
    let lags: Vec<_> = plain.iter().zip(&mirrored).map(|(a, b)| lag(b) / lag(a)).collect();
    figure_row(&mut table, "durable lag, times that without a mirror", &lags, 2, Target::None);
    Ok(table)
}

/// A new file of every stream each few seconds: put together they are the take.
pub fn segments(settings: &Settings) -> Result<Table> {
    let asked = asked(settings, (256, 128 << 10, 32 << 10), 30);
    let segment = asked.seconds as f64 / 4.0;
    let asked = Asked { segment_seconds: Some(segment), ..asked };
    let told = runs(settings, &asked, settings.rounds(1))?;
    let mut table = figures("Segments", note(settings, &asked));
    rows(&mut table, &told, Goal { runs_percent: Some(100.0), ..Goal::default() });
    let files = |it: &Told| it.outcome.manifest.pieces.len() as f64;
    figure_row(&mut table, "files", &told.iter().map(files).collect::<Vec<_>>(), 0, Target::None);
    let missing = |it: &Told| {
        let made = asked.streams as u64 * asked.seconds * u64::from(asked.shape.rate);
        made.abs_diff(it.verified.right_frames) as f64
    };
    let missing: Vec<_> = told.iter().map(missing).collect();
    let what = "frames by which the segments together differ from the take";
    worst_row(&mut table, what, &missing, 0, Target::AtMost(0.0));
    Ok(table)
}

/// 50 streams of 10 MB/s with 4 MiB each: without other load, and what is kept in a storm.
pub fn video(settings: &Settings) -> Result<Table> {
    let own = asked(settings, (50, 4 << 20, 256 << 10), 30);
    let rate = 10_000_000 / 2;
    let shape = pinstripe_record::StreamShape {
        format: pinstripe_record::SampleFormat::S16,
        channels: 1,
        rate,
    };
    let idle = Asked { shape, ..own };
    let stormy = Asked { storm: Storm::Both(Duration::from_secs(own.seconds) / 2), ..idle };
    let mut table = figures("50 streams of 10 MB/s", note(settings, &idle));
    let told = runs(settings, &idle, settings.rounds(1))?;
    rows(&mut table, &told, Goal { runs_percent: Some(100.0), ..Goal::default() });
    let kept = |it: &Told| {
        let made = it.outcome.figures.written_bytes as f64;
        let lost = it.outcome.figures.lost_frames * 2;
        100.0 * (1.0 - lost as f64 / made)
    };
    let told = runs(settings, &stormy, settings.rounds(1))?;
    let samples: Vec<_> = told.iter().map(kept).collect();
    figure_row(&mut table, "in a storm: kept, %", &samples, 2, Target::None);
    let overruns: Vec<_> = told.iter().map(|it| it.outcome.figures.overruns as f64).collect();
    figure_row(&mut table, "in a storm: overruns", &overruns, 0, Target::None);
    let lag: Vec<_> = told.iter().map(|it| it.outcome.figures.durable_lag_worst_ms / 1e3).collect();
    figure_row(&mut table, "in a storm: durable lag, s", &lag, 2, Target::None);
    let rate: Vec<_> = told.iter().map(|it| it.storm_rate).collect();
    figure_row(&mut table, "in a storm: MB/s of the storm", &rate, 0, Target::None);
    Ok(table)
}

fn series(
    settings: &Settings,
    title: &str,
    asked: &Asked,
    rounds: usize,
    goal: Goal,
) -> Result<Table> {
    let told = runs(settings, asked, settings.rounds(rounds))?;
    let mut table = figures(title, note(settings, asked));
    rows(&mut table, &told, goal);
    Ok(table)
}

/// The same take several times.
pub fn runs(settings: &Settings, asked: &Asked, count: usize) -> Result<Vec<Told>> {
    let run = |number: usize| {
        let told = take(&settings.bench.work, asked)?;
        let figures = &told.outcome.figures;
        eprintln!(
            "run {} of {count}: {} overruns, ring {:.0} %, durable lag {:.2} s, longest write {:.0} ms{}",
            number + 1,
            figures.overruns,
            figures.ring_worst_percent,
            figures.durable_lag_worst_ms / 1e3,
            figures.longest_write_ms,
            if told.beside.is_void() { "; void: others worked meanwhile" } else { "" },
        );
        Ok(told)
    };
    (0..count).map(run).collect()
}

/// The recorded streams and the settings, in a sentence.
pub fn note(settings: &Settings, asked: &Asked) -> String {
    let megabytes = asked.streams as f64 * asked.shape.byte_rate() as f64 / 1e6;
    format!(
        "{} streams of {} at {} Hz ({megabytes:.1} MB/s) for {} s each, rings of {} KiB, chunks of {} KiB, \
         storm: {}. A run is void, and counts for nothing, where others' programs took 20 % of the processors' \
         time or a hypervisor 2 %. Of lag, ring and overruns the worst run is judged. {}",
        asked.streams,
        asked.shape.format,
        asked.shape.rate,
        asked.seconds,
        asked.ring >> 10,
        asked.chunk >> 10,
        asked.storm.name(),
        settings.circumstances(),
    )
}

/// The figures of all runs that count; of all, without a verdict, where none does.
fn rows(table: &mut Table, told: &[Told], goal: Goal) {
    let counted: Vec<&Told> = told.iter().filter(|it| !it.beside.is_void()).collect();
    let is_any = !counted.is_empty();
    let runs = if is_any { counted.clone() } else { told.iter().collect() };
    let goal = if is_any { goal } else { Goal::default() };
    let of = |pick: &dyn Fn(&Told) -> f64| runs.iter().map(|it| pick(it)).collect::<Vec<_>>();
    let at_most = |limit: Option<f64>| limit.map_or(Target::None, Target::AtMost);
    figure_row(table, "runs", &[told.len() as f64], 0, Target::None);
    figure_row(table, "runs that count", &[counted.len() as f64], 0, Target::None);
    let without = runs.iter().filter(|it| it.outcome.figures.overruns == 0).count();
    let percent = 100.0 * without as f64 / runs.len().max(1) as f64;
    let least = goal.runs_percent.map_or(Target::None, Target::AtLeast);
    figure_row(table, "of these without an overrun, %", &[percent], 0, least);
    let frames = of(&|it| it.outcome.figures.lost_frames as f64);
    worst_row(table, "frames lost in a run", &frames, 0, Target::None);
    let fill = of(&|it| it.outcome.figures.ring_worst_percent);
    worst_row(table, "fullest ring, %", &fill, 0, at_most(goal.ring_percent));
    worst_row(table, "fullest ring, KiB", &of(&Told::ring_kib), 0, Target::None);
    let longest = of(&|it| it.outcome.figures.longest_write_ms);
    worst_row(table, "longest write, ms", &longest, 1, Target::None);
    let lag = of(&|it| it.outcome.figures.durable_lag_worst_ms / 1e3);
    worst_row(table, "durable lag, s", &lag, 2, at_most(goal.lag));
    let commit = of(&|it| it.outcome.figures.slowest_commit.ms);
    worst_row(table, "slowest commit, ms", &commit, 0, Target::None);
    let cpu = of(&|it| it.cpu_per_gb().iter().sum());
    figure_row(table, "CPU s per GB", &cpu, 2, at_most(goal.cpu));
    for (number, who) in ["inputs", "writer", "commits"].into_iter().enumerate() {
        let cpu = of(&|it| it.cpu_per_gb()[number]);
        figure_row(table, &format!("of these: {who}"), &cpu, 2, Target::None);
    }
    if told.iter().any(|it| it.storm_rate > 0.0) {
        figure_row(table, "storm, MB/s", &of(&|it| it.storm_rate), 0, Target::None);
    }
    let steal = told.iter().map(|it| it.beside.steal).collect::<Vec<_>>();
    figure_row(table, "time a hypervisor took, %", &steal, 1, Target::None);
    let others = told.iter().map(|it| it.beside.others).collect::<Vec<_>>();
    figure_row(table, "time of others' programs, %", &others, 1, Target::None);
    let wrong = told.iter().filter(|it| !it.is_right()).count();
    let content =
        if wrong == 0 { "takes with a wrong sample" } else { "takes with a WRONG sample" };
    figure_row(table, content, &[wrong as f64], 0, Target::AtMost(0.0));
}

/// A row of figures; the highest is judged.
pub fn worst_row(table: &mut Table, what: &str, samples: &[f64], decimals: usize, target: Target) {
    let known: Vec<f64> = samples.iter().copied().filter(|it| !it.is_nan()).collect();
    let Some(summary) = Summary::from_samples(&known) else {
        let [none, target] = [Cell::from("not known"), Cell::from(target.show())];
        return table.row([what.into(), none, "".into(), "".into(), target, "".into()]);
    };
    judged_row(table, what, &summary, summary.max, decimals, target);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_run_is_judged_and_not_the_median() {
        let mut table = figures("x", String::new());
        worst_row(&mut table, "lag", &[1.0, 1.1, 4.5], 1, Target::AtMost(4.0));
        figure_row(&mut table, "lag", &[1.0, 1.1, 4.5], 1, Target::AtMost(4.0));
        worst_row(&mut table, "memory", &[f64::NAN], 1, Target::AtMost(4.0));
        let json = table.to_json();
        let verdicts: Vec<_> = (0..3).map(|row| json["rows"][row]["verdict"].clone()).collect();
        assert_eq!(verdicts, ["not reached", "reached", ""]);
    }
}
