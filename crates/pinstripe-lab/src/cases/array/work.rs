//! A member filled, beside what the members can do.

use std::sync::Arc;
use std::time::Instant;

use pinstripe::array::geometry::Level;
use pinstripe::device::SharedDevice;

use super::Settings;
use super::load::noise;
use super::places::{MEMBERS, devices, start, text};
use crate::Result;
use crate::table::Table;
use crate::targets::{Target, figure_row, figures};

/// Share of the members' sequential rate.
const SHARE: f64 = 0.8;

pub fn measure(settings: &Settings) -> Result<Table> {
    let note = format!(
        "RAID 5 of {MEMBERS} members of {} MiB, all of it written; one is filled anew. The sequential rate is that of \
         writing one new file from beginning to end, 1 MiB at a time and a sync, while nobody else does anything; \
         a rebuild reads three members beside it.",
        settings.member_bytes >> 20
    );
    let mut table = figures("A rebuild, MB/s of each member", note);
    for place in ["memory", "shm", "disk"] {
        let (mut alone, mut rebuilt, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..settings.bench.rounds {
            let mut all = devices(settings, place, MEMBERS + 1)?;
            let new = all.pop().ok_or("there is one")?;
            let rate = sequential(&new, settings.member_bytes)?;
            let rebuild = rebuild(all, new, settings.member_bytes)?;
            shares.push(rebuild / rate);
            alone.push(rate);
            rebuilt.push(rebuild);
        }
        figure_row(&mut table, &format!("{place}: sequential"), &alone, 0, Target::None);
        figure_row(&mut table, &format!("{place}: rebuild"), &rebuilt, 0, Target::None);
        let what = format!("{place}: share");
        figure_row(&mut table, &what, &shares, 2, Target::AtLeast(SHARE));
    }
    Ok(table)
}

fn sequential(device: &SharedDevice, bytes: u64) -> Result<f64> {
    let noise = noise(1 << 20);
    let start = Instant::now();
    for at in (0..bytes).step_by(noise.len()) {
        device.write_at(at, &noise).map_err(text)?;
    }
    device.sync().map_err(text)?;
    Ok(bytes as f64 / start.elapsed().as_secs_f64() / 1e6)
}

fn rebuild(members: Vec<SharedDevice>, new: SharedDevice, bytes: u64) -> Result<f64> {
    let volume = start(members, Level::Raid5)?;
    volume.with(|flusher| flusher.fail(1)).map_err(text)?;
    volume.with(|flusher| flusher.remove(1)).map_err(text)?;
    let begun = Instant::now();
    volume.with(|flusher| flusher.add(Arc::clone(&new))).map_err(text)?;
    volume.wait_idle().map_err(text)?;
    let seconds = begun.elapsed().as_secs_f64();
    volume.stop().map_err(text)?;
    Ok(bytes as f64 / seconds / 1e6)
}
