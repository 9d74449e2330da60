//! Streams and rates by ring, compared with the requirements of other recorders; and plain writers
//! compared with the recorder.

use std::time::Duration;

use pinstripe_lab::{Align, Cell, Table};

use super::Settings;
use super::goals::asked;
use super::others::OTHERS;
use super::plain::{Plain, RING_BYTES, Syncs};
use super::storm::Storm;
use super::take::{Asked, Told, sound, take};
use crate::Result;

const COLUMNS: [(&str, Align); 14] = [
    ("writer", Align::Left),
    ("storm", Align::Left),
    ("ring KiB", Align::Right),
    ("overruns", Align::Right),
    ("lost frames", Align::Right),
    ("ring worst %", Align::Right),
    ("longest write ms", Align::Right),
    ("lag worst s", Align::Right),
    ("slowest commit ms", Align::Right),
    ("CPU inputs", Align::Right),
    ("CPU writer", Align::Right),
    ("CPU syncs", Align::Right),
    ("storm MB/s", Align::Right),
    ("content", Align::Left),
];

/// The recorder and plain writers, each without other load and during both storms.
pub fn bare(settings: &Settings) -> Result<Table> {
    let own = asked(settings, (256, 128 << 10, 32 << 10), 20);
    let note = format!(
        "{} streams of 24 bit at {} Hz for {} s each. A storm writes as fast as the disk takes it; the syncing one \
         makes 512 MiB durable at a time. Lag: age of the oldest sample that is not durable. CPU: seconds per GB of \
         payload; plain writers make no samples, checksums, journals or headers. {}",
        own.streams,
        settings.rate,
        own.seconds,
        settings.circumstances(),
    );
    let mut table = Table::new("Recorder and plain writers", note, &COLUMNS);
    for _ in 0..settings.rounds(1) {
        for storm in [Storm::None, Storm::Flat, Storm::Syncing] {
            let own = Asked { storm, ..own };
            recorder(settings, &own, &mut table)?;
            for syncs in [Syncs::Threads, Syncs::Never, Syncs::Writer] {
                plain(settings, &own, syncs, &mut table)?;
            }
        }
    }
    Ok(table)
}

fn recorder(settings: &Settings, asked: &Asked, table: &mut Table) -> Result<()> {
    let told = take(&settings.bench.work, asked)?;
    let figures = &told.outcome.figures;
    let [inputs, writer, commits] = told.cpu_per_gb();
    table.row([
        format!("pinstripe record, {}", asked.writes).into(),
        asked.storm.name().into(),
        (asked.ring >> 10).into(),
        figures.overruns.into(),
        figures.lost_frames.into(),
        Cell::Number(figures.ring_worst_percent, 0),
        Cell::Number(figures.longest_write_ms, 1),
        Cell::Number(figures.durable_lag_worst_ms / 1e3, 2),
        Cell::Number(figures.slowest_commit.ms, 0),
        Cell::Number(inputs, 2),
        Cell::Number(writer, 2),
        Cell::Number(commits, 2),
        Cell::Number(told.storm_rate, 0),
        content(&told).into(),
    ]);
    Ok(())
}

fn content(told: &Told) -> &'static str {
    if told.is_right() { "right" } else { "WRONG" }
}

fn plain(settings: &Settings, asked: &Asked, syncs: Syncs, table: &mut Table) -> Result<()> {
    let rate = asked.shape.byte_rate();
    let writer = Plain { streams: asked.streams, rate, seconds: asked.seconds, syncs };
    let (found, storm_rate) = writer.write(&settings.bench.work, asked.storm)?;
    let lag = match syncs {
        Syncs::Never => "never durable".into(),
        _ => Cell::Number(found.lag.as_secs_f64(), 2),
    };
    let [writing, syncing] = found.cpu_per_gb();
    table.row([
        writer.name().into(),
        asked.storm.name().into(),
        (RING_BYTES >> 10).into(),
        found.overruns.into(),
        (found.lost_bytes / asked.shape.frame_bytes()).into(),
        Cell::Number(found.percent(), 0),
        Cell::Number(found.longest.as_secs_f64() * 1e3, 1),
        lag,
        "-".into(),
        "-".into(),
        Cell::Number(writing, 2),
        Cell::Number(syncing, 2),
        Cell::Number(storm_rate, 0),
        "not looked at".into(),
    ]);
    Ok(())
}

/// Rings for which the greatest number of streams is searched.
const RINGS: [u64; 4] = [64 << 10, 128 << 10, 256 << 10, 1 << 20];
const RATES: [u32; 2] = [48_000, 96_000];
/// The first try, and the most streams.
const FIRST: usize = 64;
const MOST: usize = 1024;

/// Streams without an overrun by rate and ring, idle and during a storm that syncs; and other
/// recorders.
pub fn rings(settings: &Settings) -> Result<Table> {
    let own = asked(settings, (FIRST, 0, 32 << 10), 10);
    let note = format!(
        "Streams of 24 bit, {} s for each try: from {} streams on twice as many each time, up to {MOST}, until a ring \
         overruns. 'overran at' is the first number that did. What others need is from their manuals and sources. {}",
        own.seconds,
        own.streams,
        settings.circumstances(),
    );
    let columns = [
        ("recorder", Align::Left),
        ("storm", Align::Left),
        ("ring KiB", Align::Right),
        ("Hz or what", Align::Right),
        ("ring, ms", Align::Right),
        ("streams", Align::Right),
        ("MB/s", Align::Right),
        ("overran at", Align::Right),
        ("fullest ring %", Align::Right),
        ("source", Align::Left),
    ];
    let mut table = Table::new("Streams and rates by ring", note, &columns);
    let storm = Storm::Both(Duration::from_secs(own.seconds) / 2);
    let (rings, rates) = match settings.is_quick {
        true => (&RINGS[..1], &RATES[..1]),
        false => (&RINGS[..], &RATES[..]),
    };
    for storm in [Storm::None, storm] {
        for &rate in rates {
            for &ring in rings {
                let chunk = settings.chunk.unwrap_or((ring / 4).clamp(4 << 10, 32 << 10));
                let asked = Asked { ring, chunk, storm, shape: sound(rate), ..own };
                most(settings, &asked, &mut table)?;
            }
        }
    }
    for other in &OTHERS {
        table.row([
            other.who.into(),
            "-".into(),
            Cell::Number(f64::from(other.ring) / 1024.0, 0),
            other.what.into(),
            Cell::Number(f64::from(other.ring) / f64::from(other.rate) * 1e3, 0),
            u64::from(other.streams).into(),
            Cell::Number(f64::from(other.streams) * f64::from(other.rate) / 1e6, 1),
            "-".into(),
            "-".into(),
            other.source.into(),
        ]);
    }
    Ok(table)
}

/// The most streams that went.
fn most(settings: &Settings, asked: &Asked, table: &mut Table) -> Result<()> {
    let limit = if settings.is_quick { 2 * asked.streams } else { MOST };
    let (mut best, mut over, mut streams) = (None, None, asked.streams);
    while streams <= limit && over.is_none() {
        let told = take(&settings.bench.work, &Asked { streams, ..*asked })?;
        let figures = &told.outcome.figures;
        eprintln!("{streams} streams, {} KiB: {} overruns", asked.ring >> 10, figures.overruns);
        match figures.overruns {
            0 => best = Some((streams, figures.ring_worst_percent, content(&told))),
            _ => over = Some(streams),
        }
        streams *= 2;
    }
    let (streams, fill, content) = best.unwrap_or((0, f64::NAN, ""));
    let fill = if fill.is_nan() { "-".into() } else { Cell::Number(fill, 0) };
    let rate = asked.shape.byte_rate() as f64;
    table.row([
        "pinstripe record".into(),
        asked.storm.name().into(),
        (asked.ring >> 10).into(),
        u64::from(asked.shape.rate).into(),
        Cell::Number(asked.ring as f64 / rate * 1e3, 0),
        (streams as u64).into(),
        Cell::Number(streams as f64 * rate / 1e6, 1),
        over.map_or("-".into(), |it| (it as u64).into()),
        fill,
        format!("this run; content {content}").into(),
    ]);
    Ok(())
}
