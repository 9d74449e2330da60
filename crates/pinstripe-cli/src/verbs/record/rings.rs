//! Determines the size of the ring buffers by measuring the directories, and shows the formula with
//! its values.

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::error::Result;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::format_size;
use pinstripe_record::{Calibration, StreamShape, TakePlan, calibrate, memory_of};

use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::Run;
use crate::time;

/// Measures each directory with its share of the streams; the largest result is used.
pub fn measured(
    run: &Run,
    directories: &[PathBuf],
    shapes: &[StreamShape],
    plan: &TakePlan,
    length: Duration,
    stop: &Stop,
) -> Result<u64> {
    let copies = 1 + usize::from(plan.is_mirrored);
    let share = (shapes.len() * copies).div_ceil(directories.len()).min(shapes.len());
    let mut ring = 0;
    for directory in directories {
        run.screen.say(&format!(
            "measuring {} for {} with {}; --ring SIZE skips this measurement",
            escape::path(directory),
            time::span(length),
            counted(share as u64, "stream"),
        ));
        run.screen.flush();
        let found = calibrate(directory, &shapes[..share], plan, length, stop)?;
        tell(run, directory, &found)?;
        ring = ring.max(found.ring_bytes());
    }
    let all = memory_of(shapes.len(), ring)?;
    run.screen.say(&format!("rings of {}, {} in all", format_size(ring), format_size(all)));
    Ok(ring)
}

fn tell(run: &Run, directory: &std::path::Path, found: &Calibration) -> Result<()> {
    let ms = |it: f64| format!("{:.1} ms", it * 1e3);
    let longest = found.longest_write.as_secs_f64();
    run.screen.say(&format!(
        "  ring >= chunk + rate x (N x chunk / BW + 2 x L_max)\n       = {} + {:.1} kB/s x ({} x {} / {} + 2 x {}) = {}",
        format_size(found.chunk_bytes),
        found.byte_rate as f64 / 1e3,
        found.streams,
        format_size(found.chunk_bytes),
        time::rate(found.write_rate as u64, Duration::from_secs(1)),
        ms(longest),
        format_size(found.needed_bytes()),
    ));
    run.screen.say(&format!(
        "  fullest ring: {}, longest write: {}, durable lag: {}",
        format_size(found.peak_bytes),
        ms(longest),
        ms(found.durable_lag.as_secs_f64()),
    ));
    let event = Event::new("calibration")
        .with_path("path", directory)
        .with("streams", found.streams)
        .with("stream_bytes_per_second", found.byte_rate)
        .with("chunk_bytes", found.chunk_bytes)
        .with("write_bytes_per_second", found.write_rate)
        .with("longest_write_ms", longest * 1e3)
        .with("durable_lag_worst_ms", found.durable_lag.as_secs_f64() * 1e3)
        .with("ring_peak_bytes", found.peak_bytes)
        .with("ring_needed_bytes", found.needed_bytes())
        .with("ring_bytes", found.ring_bytes());
    run.screen.event(&event)
}
