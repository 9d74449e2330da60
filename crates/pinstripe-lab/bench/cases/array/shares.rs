//! What a rebuild takes from writers who never pause, and they from it, by `sync_speed_min`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pinstripe_array::{Level, Volume};
use pinstripe_io::device::{Device, SharedDevice};
use pinstripe_lab::Table;

use super::Settings;
use super::load::array_noise;
use super::places::{MEMBERS, devices, start, text};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// Least rates of a rebuild, MB/s of each member; without a number, there is no rebuild.
const SHARES: [Option<u64>; 4] = [None, Some(10), Some(30), Some(100)];
/// Threads that write, each 4 KiB at a time.
const WRITERS: usize = 2;
/// The longest observation of one share.
const WINDOW: Duration = Duration::from_secs(8);
const REQUEST_BYTES: u64 = 4096;

/// Measurements of one share.
struct Seen {
    writes_mbs: f64,
    p99_ms: f64,
    rebuild_mbs: f64,
}

pub fn measure(settings: &Settings) -> Result<Table> {
    let note = format!(
        "RAID 5 of {MEMBERS} members of {} MiB, all of it written; {WRITERS} threads write 4 KiB at random places and \
         never pause, into the cache, while a member is filled anew. For at most {} s each; the time of a rebuild is \
         that of a member of 1 TB at this rate. A share that is not reached is the members' own limit beside these \
         writers.",
        settings.member_bytes >> 20,
        WINDOW.as_secs()
    );
    let mut table = figures("Writers beside a rebuild", note);
    for place in ["shm", "disk"] {
        for share in SHARES {
            let mut seen = Vec::new();
            for _ in 0..settings.bench.rounds {
                seen.push(look(settings, place, share)?);
            }
            rows(&mut table, place, share, &seen);
        }
    }
    Ok(table)
}

fn rows(table: &mut Table, place: &str, share: Option<u64>, seen: &[Seen]) {
    let named = |what: &str| match share {
        None => format!("{place}, no rebuild: {what}"),
        Some(share) => format!("{place}, at least {share} MB/s: {what}"),
    };
    let all = |of: fn(&Seen) -> f64| seen.iter().map(of).collect::<Vec<f64>>();
    let none = Target::None;
    figure_row(table, &named("writes, MB/s"), &all(|it| it.writes_mbs), 1, none);
    figure_row(table, &named("writes, p99 ms"), &all(|it| it.p99_ms), 2, none);
    let Some(share) = share else { return };
    let rate = all(|it| it.rebuild_mbs);
    // The window may end just before a slice.
    let target = Target::AtLeast(0.95 * share as f64);
    figure_row(table, &named("rebuild, MB/s of each member"), &rate, 1, target);
    let hours: Vec<f64> = rate.iter().map(|rate| 1e6 / rate / 3600.0).collect();
    figure_row(table, &named("rebuild of 1 TB, hours"), &hours, 1, none);
}

fn look(settings: &Settings, place: &str, share: Option<u64>) -> Result<Seen> {
    let mut all = devices(settings, place, MEMBERS + 1)?;
    let new: SharedDevice = all.pop().ok_or("there is one")?;
    let volume = start(all, Level::Raid5)?;
    if let Some(share) = share {
        volume.set(|it| it.speed_limit_min = share * 1_000_000).map_err(text)?;
        volume.with(|flusher| flusher.fail(1)).map_err(text)?;
        volume.with(|flusher| flusher.remove(1)).map_err(text)?;
    }
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let write = |seed: usize| write_on(&volume, seed as u64, &stop);
        let writers: Vec<_> = (0..WRITERS).map(|seed| scope.spawn(move || write(seed))).collect();
        // The cache fills before anything is counted.
        std::thread::sleep(Duration::from_secs(1));
        let rebuild_mbs = match share {
            Some(_) => volume.with(|it| it.add(new)).map_err(text).map(|_| rate(&volume)),
            None => {
                std::thread::sleep(WINDOW / 2);
                Ok(0.0)
            }
        };
        stop.store(true, Ordering::Relaxed);
        let written = writers.into_iter().map(|it| it.join().expect("a writer panicked"));
        let written = written.collect::<Result<Vec<_>>>()?;
        let rebuild_mbs = rebuild_mbs?;
        Ok::<Seen, String>(Seen { rebuild_mbs, ..summed(written) })
    })?;
    volume.stop().map_err(text)?;
    Ok(seen)
}

/// Seconds of each write of one thread.
fn write_on(volume: &Volume, seed: u64, stop: &AtomicBool) -> Result<Vec<f64>> {
    let blocks = volume.len().map_err(text)? / REQUEST_BYTES;
    let bytes = array_noise(REQUEST_BYTES as usize);
    let (mut state, mut times) = (seed * 2 + 1, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let begun = Instant::now();
        volume.write_at((state >> 20) % blocks * REQUEST_BYTES, &bytes).map_err(text)?;
        times.push(begun.elapsed().as_secs_f64());
    }
    Ok(times)
}

fn summed(written: Vec<Vec<f64>>) -> Seen {
    // Threads write all the time, so their times add up to the time that passed.
    let seconds = written.iter().map(|times| times.iter().sum::<f64>()).fold(0.0, f64::max);
    let mut times = written.concat();
    times.sort_by(f64::total_cmp);
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(0.0);
    let bytes = (times.len() as u64 * REQUEST_BYTES) as f64;
    Seen { writes_mbs: bytes / seconds / 1e6, p99_ms: p99 * 1e3, rebuild_mbs: 0.0 }
}

/// MB/s at which a member is filled, until it is or the window ends.
fn rate(volume: &Volume) -> f64 {
    let begun = Instant::now();
    let mut done = 0;
    while begun.elapsed() < WINDOW {
        match volume.array().status().work {
            Some(work) => done = work.done_bytes,
            // The last sample before the end of the work may be a hundredth of a second old.
            None => break,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    done as f64 / begun.elapsed().as_secs_f64() / 1e6
}
