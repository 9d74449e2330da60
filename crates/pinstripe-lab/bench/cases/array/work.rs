//! A member filled, compared with the speed of the members.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_array::Level;
use pinstripe_io::device::SharedDevice;
use pinstripe_lab::Table;

use super::Settings;
use super::load::array_noise;
use super::places::{MEMBERS, devices, start, text};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// Share of the members' sequential rate.
const SHARE: f64 = 0.8;

pub fn measure(settings: &Settings) -> Result<Table> {
    let note = format!(
        "RAID 5 of {MEMBERS} members of {} MiB, all of it written; one is filled anew, then all is checked. The \
         sequential rate is that of writing one new file from beginning to end, 1 MiB at a time and a sync, while \
         nobody else does anything; a rebuild reads three members beside it, a check four. Files are in the page \
         cache: a disk that has to read them is slower, and its seeks are not measured here. 'slow' is memory \
         behind a brake of 250 MB/s for each member.",
        settings.member_bytes >> 20
    );
    let mut table = figures("A rebuild and a check, MB/s of each member", note);
    for place in ["memory", "slow", "shm", "disk"] {
        // No disk is as fast as a copy in memory.
        let target = if place == "memory" { Target::None } else { Target::AtLeast(SHARE) };
        let mut found: [Vec<f64>; 5] = Default::default();
        for _ in 0..settings.bench.rounds {
            let mut all = devices(settings, place, MEMBERS + 1)?;
            let new = all.pop().ok_or("there is one")?;
            let alone = sequential(&new, settings.member_bytes)?;
            let [rebuild, check] = rates(all, new, settings.member_bytes)?;
            let samples = [alone, rebuild, rebuild / alone, check, check / alone];
            found.iter_mut().zip(samples).for_each(|(all, sample)| all.push(sample));
        }
        let whats = ["sequential", "rebuild", "rebuild, share", "check", "check, share"];
        for (number, (what, samples)) in whats.into_iter().zip(&found).enumerate() {
            let is_share = number == 2 || number == 4;
            let (decimals, target) = if is_share { (2, target) } else { (0, Target::None) };
            figure_row(&mut table, &format!("{place}: {what}"), samples, decimals, target);
        }
    }
    Ok(table)
}

fn sequential(device: &SharedDevice, bytes: u64) -> Result<f64> {
    let noise = array_noise(1 << 20);
    let start = Instant::now();
    for at in (0..bytes).step_by(noise.len()) {
        device.write_at(at, &noise).map_err(text)?;
    }
    device.sync().map_err(text)?;
    Ok(bytes as f64 / start.elapsed().as_secs_f64() / 1e6)
}

/// MB/s of each member while one is filled, and while all are checked.
fn rates(members: Vec<SharedDevice>, new: SharedDevice, bytes: u64) -> Result<[f64; 2]> {
    let volume = start(members, Level::Raid5)?;
    // The writes just before count as other load, which slows work down.
    std::thread::sleep(Duration::from_millis(500));
    volume.with(|flusher| flusher.fail(1)).map_err(text)?;
    volume.with(|flusher| flusher.remove(1)).map_err(text)?;
    let timed = |begin: &dyn Fn() -> Result<()>| {
        let begun = Instant::now();
        begin()?;
        volume.wait_idle().map_err(text)?;
        Ok::<f64, String>(bytes as f64 / begun.elapsed().as_secs_f64() / 1e6)
    };
    let add = || volume.with(|flusher| flusher.add(Arc::clone(&new))).map(drop).map_err(text);
    let rebuild = timed(&add)?;
    let check = timed(&|| volume.with(|flusher| flusher.scrub(false)).map_err(text))?;
    volume.stop().map_err(text)?;
    Ok([rebuild, check])
}
