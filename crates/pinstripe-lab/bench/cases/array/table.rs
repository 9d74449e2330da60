//! Every granule on one running array, and `auto` against the best of them.

use pinstripe_array::{Level, Volume};
use pinstripe_lab::{Align, Cell, Table};
use pinstripe_stats::Summary;

use super::load::{ARRAY_LOADS, ArrayLoad, LONG_WRITE, RANDOM_WRITE, Run, memory_bandwidth, run};
use super::places::{MEMBERS, devices, start};
use super::{Settings, places};
use crate::Result;
use crate::targets::Target;

/// `auto` first.
const GRANULES: [Option<u32>; 6] =
    [None, Some(4 << 10), Some(8 << 10), Some(16 << 10), Some(32 << 10), Some(64 << 10)];

/// Runs by granule, workload and round.
type Runs = Vec<[Vec<Run>; ARRAY_LOADS.len()]>;

pub fn measure(settings: &Settings, place: &str) -> Result<Table> {
    let bandwidth = memory_bandwidth();
    let note = format!(
        "{MEMBERS} members of {} MiB, chunks of 64 KiB, one thread that writes or reads, a sync at the end of each \
         run; medians of {} rounds, in each of which every granule has its turn on the one running array. Bytes are \
         those of all members per byte of the user, without tables. CPU is that of the whole process. One \
         thread copies {:.1} GB/s from memory to memory.",
        settings.member_bytes >> 20,
        settings.bench.rounds,
        bandwidth / 1e9,
    );
    let columns = [
        ("level, workload", Align::Left),
        ("granule", Align::Left),
        ("MB/s", Align::Right),
        ("CPU us", Align::Right),
        ("read", Align::Right),
        ("written", Align::Right),
        ("log", Align::Right),
        ("target", Align::Left),
        ("verdict", Align::Left),
    ];
    let mut table = Table::new(&format!("Arrays, members in {place}"), note, &columns);
    for level in [Level::Raid5, Level::Raid6] {
        let volume = start(devices(settings, place, MEMBERS)?, level)?;
        let runs = rounds(settings, &volume, place)?;
        volume.stop().map_err(places::text)?;
        for (number, load) in ARRAY_LOADS.iter().enumerate() {
            for (granule, runs) in GRANULES.iter().zip(&runs) {
                add_row(&mut table, level, load, *granule, &runs[number]);
            }
        }
        judge(&mut table, level, &runs, (place == "memory").then_some(bandwidth));
    }
    Ok(table)
}

fn rounds(settings: &Settings, volume: &Volume, place: &str) -> Result<Runs> {
    let mut runs: Runs = GRANULES.iter().map(|_| Default::default()).collect();
    let capacity = settings.member_bytes * 2;
    for round in 0..settings.bench.rounds {
        for (granule, runs) in GRANULES.iter().zip(&mut runs) {
            volume.with(|flusher| flusher.rules.granule = *granule);
            for (number, load) in ARRAY_LOADS.iter().enumerate() {
                let count = match load.is_random {
                    true if place == "disk" => 10_000,
                    true => 60_000,
                    // All of the array, once.
                    false => capacity / load.bytes as u64,
                };
                let seed = (round * 100 + number) as u64 + 1;
                runs[number].push(run(volume, *load, count, seed)?);
            }
        }
        eprintln!("{place}: round {} of {}", round + 1, settings.bench.rounds);
    }
    Ok(runs)
}

fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    let samples: Vec<f64> = runs.iter().map(of).collect();
    Summary::from_samples(&samples).map_or(f64::NAN, |summary| summary.median)
}

fn add_row(table: &mut Table, level: Level, load: &ArrayLoad, granule: Option<u32>, runs: &[Run]) {
    let granule = granule.map_or("auto".to_owned(), |bytes| format!("{}K", bytes >> 10));
    table.row([
        format!("{level}, {}", load.name).into(),
        granule.into(),
        Cell::Number(median(runs, Run::rate), 0),
        Cell::Number(median(runs, Run::cpu_us), 2),
        Cell::Number(median(runs, |run| run.read / run.bytes), 3),
        Cell::Number(median(runs, |run| run.written / run.bytes), 3),
        Cell::Number(median(runs, |run| run.log / run.bytes), 3),
        "".into(),
        "".into(),
    ]);
}

/// The goals.
fn judge(table: &mut Table, level: Level, runs: &Runs, bandwidth: Option<f64>) {
    let parity = if level == Level::Raid5 { 1.0 } else { 2.0 };
    let data = MEMBERS as f64 - parity;
    let auto = &runs[0];
    let mut row = |what: String, value: f64, decimals: usize, target: Target| {
        let empty = || Cell::from("");
        table.row([
            format!("{level}: {what}").into(),
            "auto".into(),
            Cell::Number(value, decimals),
            empty(),
            empty(),
            empty(),
            empty(),
            target.show().into(),
            target.verdict(f64::NAN, value).into(),
        ]);
    };
    for number in [RANDOM_WRITE, LONG_WRITE] {
        let rate = |runs: &[Vec<Run>; ARRAY_LOADS.len()]| median(&runs[number], Run::rate);
        let best = runs[1..].iter().map(rate).fold(0.0, f64::max);
        let what = format!("{}, share of the best granule", ARRAY_LOADS[number].name);
        row(what, rate(auto) / best, 2, Target::AtLeast(0.95));
    }
    let ideal = MEMBERS as f64 / data;
    for number in [1, LONG_WRITE] {
        let of = |run: &Run| (run.read + run.written) / run.bytes / ideal;
        let what = format!("{}, bytes moved against the ideal", ARRAY_LOADS[number].name);
        row(what, median(&auto[number], of), 3, Target::AtMost(1.02));
    }
    let random = &auto[RANDOM_WRITE];
    if level == Level::Raid5 {
        let of = |run: &Run| run.read / run.bytes;
        row("4 KiB random writes, read".to_owned(), median(random, of), 3, Target::AtMost(2.005));
        let of = |run: &Run| run.written / run.bytes;
        row(
            "4 KiB random writes, written".to_owned(),
            median(random, of),
            3,
            Target::AtMost(2.005),
        );
    }
    // One block for each parity, and the heads.
    let log = median(random, |run| run.log / run.bytes);
    row(
        "4 KiB random writes, log for each parity".to_owned(),
        log / parity,
        3,
        Target::AtMost(1.1),
    );
    if let Some(bandwidth) = bandwidth {
        let per_core = median(random, |run| run.count / run.cpu_s);
        let target = if level == Level::Raid5 { Target::AtLeast(200e3) } else { Target::None };
        row("4 KiB random writes per second of a core".to_owned(), per_core, 0, target);
        let share = |run: &Run| (run.read + run.written) / run.wall_s / bandwidth;
        let share = median(&auto[LONG_WRITE], share);
        let what = "1 MiB writes, members' bytes against copying".to_owned();
        row(
            what,
            share,
            2,
            if level == Level::Raid5 { Target::AtLeast(0.5) } else { Target::None },
        );
    }
}
