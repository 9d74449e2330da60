//! Determines how large rings must be: a short take of the same streams is recorded, measured and
//! removed, and a formula is applied to its figures.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::KIB;

use crate::input::{RecordInput, TestInput};
use crate::limits::{ARENA_MAX_BYTES, RING_BYTES};
use crate::recorder::{TakePlan, record};
use crate::sample::StreamShape;
use crate::take::{DiskFolder, TakeFolder};

/// The size of the rings during the measurement: large enough that a stall is not cut short.
const RING_MEASURED: u64 = 2048 * KIB;
/// The factor for the longest write, because a measurement of seconds does not see the longest
/// write of hours.
const SAFETY: f64 = 2.0;

/// The measured latencies, and the resulting settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The number of streams.
    pub streams: usize,
    /// Bytes per second of the fastest stream.
    pub byte_rate: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes per second at which the disk accepted writes.
    pub write_rate: f64,
    /// The longest write.
    pub longest_write: Duration,
    /// The greatest durable lag.
    pub durable_lag: Duration,
    /// The most bytes that were in a ring.
    pub peak_bytes: u64,
}

impl Calibration {
    /// The time of one round over all streams, `N x chunk / BW`, in seconds.
    pub(crate) fn round_seconds(&self) -> f64 {
        self.streams as f64 * self.chunk_bytes as f64 / self.write_rate.max(1.0)
    }

    /// The ring that a stream needs: `chunk + rate x (T_rr + 2 x L_max)`, in bytes.
    pub fn needed_bytes(&self) -> u64 {
        let waits = self.round_seconds() + SAFETY * self.longest_write.as_secs_f64();
        self.chunk_bytes + (self.byte_rate as f64 * waits).ceil() as u64
    }

    /// The recommended ring: at least the needed bytes and the observed peak, rounded up to a power
    /// of two within the permitted range.
    pub fn ring_bytes(&self) -> u64 {
        let needed = self.needed_bytes().max(self.peak_bytes).max(2 * self.chunk_bytes);
        needed.next_power_of_two().clamp(*RING_BYTES.start(), *RING_BYTES.end())
    }
}

/// Measures a directory for a time by recording streams of these forms.
///
/// # Errors
/// The errors of [`record`] and of the directory.
pub fn calibrate(
    parent: &Path,
    shapes: &[StreamShape],
    plan: &TakePlan,
    time: Duration,
    stop: &Stop,
) -> Result<Calibration> {
    let name = format!(".pinstripe-calibration-{}", std::process::id());
    let folder = Arc::new(DiskFolder::create(parent, &name, None)?.with_writes(plan.engine.writes));
    let count = shapes.len().max(1) as u64;
    let most = (ARENA_MAX_BYTES / 4 / count).max(1);
    let least = (2 * plan.engine.chunk_bytes).next_power_of_two();
    let ring_bytes = RING_MEASURED.min(1 << most.ilog2()).max(least);
    let plan = TakePlan { take: name, ring_bytes, most: Some(time), ..plan.clone() };
    let plan = TakePlan { is_mirrored: false, armed: None, ..plan };
    let inputs = inputs(shapes);
    let shared: Arc<dyn TakeFolder> = Arc::clone(&folder) as _;
    let folders = move || Ok(vec![Arc::clone(&shared)]);
    let monitor = Arc::new(Monitor::default());
    let recorded = record(&plan, inputs, &folders, (stop, &monitor), &mut |_, _| {});
    drop(folders);
    let removed = Arc::into_inner(folder).map_or(Ok(()), DiskFolder::remove);
    let outcome = recorded?;
    removed?;
    let figures = &outcome.figures;
    let peak = figures.ring_worst_percent / 100.0 * ring_bytes as f64;
    Ok(Calibration {
        streams: shapes.len(),
        byte_rate: shapes.iter().map(StreamShape::byte_rate).max().unwrap_or(0),
        chunk_bytes: plan.engine.chunk_bytes,
        write_rate: figures.written_bytes as f64 / outcome.last.writing_seconds.max(1e-9),
        longest_write: Duration::from_secs_f64(figures.longest_write_ms / 1e3),
        durable_lag: Duration::from_secs_f64(figures.durable_lag_worst_ms / 1e3),
        peak_bytes: peak as u64,
    })
}

/// Test streams of these forms.
fn inputs(shapes: &[StreamShape]) -> Vec<Box<dyn RecordInput>> {
    let mut counted: Vec<(StreamShape, usize)> = Vec::new();
    for shape in shapes {
        match counted.iter_mut().find(|(known, _)| known == shape) {
            Some((_, count)) => *count += 1,
            None => counted.push((*shape, 1)),
        }
    }
    counted
        .into_iter()
        .map(|(shape, count)| Box::new(TestInput::with_shape(shape, count)) as _)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_is_that_of_the_manual() {
        let measured = Calibration {
            streams: 256,
            byte_rate: 288_000,
            chunk_bytes: 64 << 10,
            write_rate: 1e9,
            longest_write: Duration::from_micros(12_500),
            durable_lag: Duration::ZERO,
            peak_bytes: 0,
        };
        // 64 KiB + 288 kB/s x (16.8 ms + 25 ms) = 76 KiB.
        assert_eq!(measured.needed_bytes() >> 10, 75);
        assert_eq!(measured.ring_bytes(), 128 << 10);
        let stalled = Calibration { longest_write: Duration::from_millis(181), ..measured.clone() };
        assert_eq!(stalled.ring_bytes(), 256 << 10);
        let seen = Calibration { peak_bytes: 300 << 10, ..measured };
        assert_eq!(seen.ring_bytes(), 512 << 10);
    }
}
