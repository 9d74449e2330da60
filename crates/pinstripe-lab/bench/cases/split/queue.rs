//! Outputs of unequal speed: `queue` is to use all of each.
//!
//! The speeds are made by faults, far below that of the disk, so that nothing else decides.

use pinstripe_base::units::format_size;
use pinstripe_lab::Table;

use super::{Run, Settings, rates};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// At least this share of the sum of the outputs' own rates.
const SHARE: f64 = 0.9;

/// Bytes per second of each output; the last one is four times slower.
const RATES: [u64; 3] = [64 << 20, 64 << 20, 16 << 20];
/// No more than this is worth waiting for at such rates.
const BYTES_MAX: u64 = 2 << 30;

pub fn measure(settings: &Settings) -> Result<Table> {
    let tool = settings.bench.pinstripe()?;
    let bytes = settings.bytes.min(BYTES_MAX);
    let split = |bytes: u64, speeds: &[u64]| -> Result<Run> {
        let fault = |(number, rate): (usize, &u64)| format!("op=write,member={number},rate={rate}");
        let faults: Vec<String> = speeds.iter().enumerate().map(fault).collect();
        let faults = faults.join(";");
        let args = ["--codec", "raw", "--layout", "queue", "--fault", &faults];
        let run = settings.split(&tool, &format!("fake:{bytes}"), speeds.len(), &args)?;
        Ok(Run { bytes: bytes as f64, ..run })
    };
    let (mut sums, mut together) = (Vec::new(), Vec::new());
    for _ in 0..settings.bench.rounds {
        // The two speeds alone; a part of the source says as much.
        let [fast, slow] = [RATES[0], RATES[2]].map(|rate| split(bytes / 8, &[rate]));
        let (fast, slow) = (fast?.rate(), slow?.rate());
        sums.push(RATES.iter().map(|it| if *it == RATES[0] { fast } else { slow }).sum());
        together.push(split(bytes, &RATES)?);
    }
    let note = format!(
        "{} of random bytes through split --codec raw --layout queue over three outputs slowed down to 64, 64 and 16 MiB/s by \
         --fault; the sum is of the same outputs alone. What the slow \
         one has in its queue at the end the others wait for: a short source shows more of that. {}",
        format_size(bytes),
        settings.circumstances(),
    );
    let shares = super::ratios(&together, &sums);
    let mut table = figures("Outputs of unequal speed", note);
    figure_row(&mut table, "sum of each alone, MB/s", &sums, 0, Target::None);
    figure_row(&mut table, "all together, MB/s", &rates(&together), 0, Target::None);
    figure_row(&mut table, "share of the sum", &shares, 2, Target::AtLeast(SHARE));
    Ok(table)
}
