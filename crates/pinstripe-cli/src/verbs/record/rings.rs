//! The size of rings: from the option, a measurement, or what this host saw of the disk before.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::error::Result;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::format_size;
use pinstripe_record::{
    Calibration, RingObservation, RingSource, StreamShape, TakeOutcome, TakePlan, calibrate,
    choose_ring, memory_of, observe, share,
};
use serde::{Deserialize, Serialize};

use crate::args::Size;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::Run;
use crate::run::known_stores::replace_state;
use crate::time;
use crate::xdg;

/// Changes when an older version could misread the file of a disk.
const VERSION: u32 = 1;

/// The observations of one disk, as they are stored.
#[derive(Serialize, Deserialize)]
struct DiskFile {
    version: u32,
    observations: Vec<RingObservation>,
}

/// Measures each directory with its share of the streams, and stores what was found.
pub fn measure(
    run: &Run,
    directories: &[PathBuf],
    shapes: &[StreamShape],
    plan: &TakePlan,
    length: Duration,
    stop: &Stop,
) -> Result<()> {
    let share = share(shapes.len(), plan.is_mirrored, directories.len());
    for directory in directories {
        run.screen.say(&format!(
            "measuring {} for {} with {}",
            escape::path(directory),
            time::span(length),
            counted(share as u64, "stream"),
        ));
        run.screen.flush();
        let found = calibrate(directory, &shapes[..share], plan, length, stop)?;
        report(run, directory, &found)?;
        keep(run, directory, RingObservation::of_measurement(&found));
    }
    Ok(())
}

/// The size of each ring of a take, which is reported with its source.
pub fn choose(
    run: &Run,
    given: Option<Size>,
    directories: &[PathBuf],
    shapes: &[StreamShape],
    plan: &TakePlan,
) -> Result<u64> {
    let (ring, source) = match given {
        Some(ring) => (ring.0, RingSource::Option),
        None => {
            let known: Vec<_> = directories.iter().map(|it| known(it)).collect();
            let sizes = (plan.engine.chunk_bytes, run.common.memory.0);
            choose_ring(shapes, plan.is_mirrored, &known, sizes)
        }
    };
    let all = memory_of(shapes.len(), ring)?;
    let why = match source {
        RingSource::Option => "as given",
        RingSource::Default => {
            "this is the default; with --measure, the size is chosen by a measurement of the disk"
        }
        RingSource::Measurement => "this size was chosen by the last measurement of this disk",
        RingSource::Takes => "this size was chosen by earlier takes on this disk",
    };
    run.screen.say(&format!(
        "ring buffers of {} for each stream, {} in total: {why}",
        format_size(ring),
        format_size(all)
    ));
    let event = Event::new("rings").with("ring_bytes", ring).with("memory_bytes", all);
    run.screen.event(&event.with("source", source.name()))?;
    Ok(ring)
}

/// Stores what a take saw of its disks, for the next take.
pub fn learn(
    run: &Run,
    directories: &[PathBuf],
    shapes: &[StreamShape],
    plan: &TakePlan,
    outcome: &TakeOutcome,
) {
    if let Some(seen) = RingObservation::of_take(outcome, plan, shapes, directories.len()) {
        directories.iter().for_each(|directory| keep(run, directory, seen.clone()));
    }
}

/// The file with the observations of the disk of a directory. File systems keep their id when they
/// are mounted elsewhere.
fn file_of(directory: &Path) -> Option<PathBuf> {
    let disk = rustix::fs::statvfs(directory).ok()?.f_fsid;
    Some(xdg::state().ok()?.join("record").join(format!("{disk:016x}.json")))
}

/// The observations of the disk of a directory; an empty list if they cannot be read.
fn known(directory: &Path) -> Vec<RingObservation> {
    let bytes = file_of(directory).and_then(|file| fs::read(file).ok()).unwrap_or_default();
    let stored = serde_json::from_slice::<DiskFile>(&bytes);
    stored.ok().filter(|it| it.version == VERSION).map_or_else(Vec::new, |it| it.observations)
}

/// Adds an observation. A failure only costs the next take its better ring size.
fn keep(run: &Run, directory: &Path, new: RingObservation) {
    let Some(file) = file_of(directory) else { return };
    let mut observations = known(directory);
    observe(&mut observations, new);
    if let Err(error) = replace_state(&file, &DiskFile { version: VERSION, observations }) {
        run.monitor
            .note(&format!("cannot save the measured speed of the disk for later takes: {error}"));
    }
}

fn report(run: &Run, directory: &Path, found: &Calibration) -> Result<()> {
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
