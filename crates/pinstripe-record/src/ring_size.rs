//! Ring sizes without a measurement before the take: from what earlier takes and measurements of the
//! same disk met, else from memory.
//!
//! Pure: observations in, a size out. Storing the observations is up to the caller.

use serde::{Deserialize, Serialize};

use crate::calibrate::Calibration;
use crate::limits::RING_BYTES;
use crate::recorder::{TakeOutcome, TakePlan};
use crate::sample::StreamShape;

/// Observations of one stream shape that are kept: a storm may come once in several takes.
const KEPT: usize = 8;
/// A ring without an observation holds this much of the fastest stream: a stall that long is rare.
const DEFAULT_SECONDS: u64 = 4;
/// A ring from observations of takes holds at least this much of the fastest stream.
const LEAST_SECONDS: u64 = 1;
/// The part of the memory for buffers that the rings of a take may use without an observation.
const MEMORY_PART: u64 = 4;
/// How often the largest need of earlier takes is counted: the next take may meet a longer stall.
const TAKE_MARGIN: u64 = 2;
/// The shortest take, in seconds, that is an observation.
const TAKE_MIN_SECONDS: f64 = 10.0;

/// What a disk needed of each ring, in a take or a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingObservation {
    /// The number of streams on the disk.
    pub streams: usize,
    /// Bytes per second of the fastest stream.
    pub byte_rate: u64,
    /// The bytes that each ring had to hold.
    pub needed_bytes: u64,
    /// Whether it comes from a measurement, and not from a take.
    pub is_measured: bool,
}

/// Where the size of the rings comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSource {
    /// The user.
    Option,
    /// A part of the memory: the disk is new.
    Default,
    /// A measurement of the disk.
    Measurement,
    /// Earlier takes on the disk.
    Takes,
}

impl RingSource {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            RingSource::Option => "option",
            RingSource::Default => "default",
            RingSource::Measurement => "measurement",
            RingSource::Takes => "takes",
        }
    }
}

impl RingObservation {
    /// The observation of a measurement.
    pub fn of_measurement(found: &Calibration) -> Self {
        RingObservation {
            streams: found.streams,
            byte_rate: found.byte_rate,
            needed_bytes: found.needed_bytes().max(found.peak_bytes),
            is_measured: true,
        }
    }

    /// The observation of a take, of its busiest disk. `None` if the take was too short to show what
    /// the disk does.
    pub fn of_take(
        outcome: &TakeOutcome,
        plan: &TakePlan,
        shapes: &[StreamShape],
        directories: usize,
    ) -> Option<Self> {
        let figures = &outcome.figures;
        if figures.seconds < TAKE_MIN_SECONDS && figures.overruns == 0 {
            return None;
        }
        let met = Calibration {
            streams: share(shapes.len(), plan.is_mirrored, directories),
            byte_rate: fastest(shapes),
            chunk_bytes: plan.engine.chunk_bytes,
            write_rate: figures.written_bytes as f64 / outcome.last.writing_seconds.max(1e-9),
            longest_write: std::time::Duration::from_secs_f64(figures.longest_write_ms / 1e3),
            durable_lag: std::time::Duration::ZERO,
            peak_bytes: (figures.ring_worst_percent / 100.0 * plan.ring_bytes as f64) as u64,
        };
        let seen = RingObservation::of_measurement(&met);
        // The ring was too small, and nothing shows by how much.
        let overrun = if figures.overruns > 0 { 2 * plan.ring_bytes } else { 0 };
        let needed_bytes = seen.needed_bytes.max(overrun);
        Some(RingObservation { needed_bytes, is_measured: false, ..seen })
    }

    /// Whether what these streams need is no more than what was observed.
    fn covers(&self, streams: usize, byte_rate: u64) -> bool {
        self.streams >= streams && self.byte_rate >= byte_rate
    }

    fn is_of_same_shape(&self, other: &Self) -> bool {
        self.streams == other.streams && self.byte_rate == other.byte_rate
    }
}

/// The number of streams on the busiest of these directories.
pub fn share(streams: usize, is_mirrored: bool, directories: usize) -> usize {
    let copies = 1 + usize::from(is_mirrored);
    (streams * copies).div_ceil(directories.max(1)).min(streams)
}

fn fastest(shapes: &[StreamShape]) -> u64 {
    shapes.iter().map(StreamShape::byte_rate).max().unwrap_or(0)
}

/// Adds an observation. A measurement replaces all observations of this stream shape. The last [`KEPT`]
/// observations of takes are kept.
pub fn observe(known: &mut Vec<RingObservation>, new: RingObservation) {
    if new.is_measured {
        known.retain(|it| !it.is_of_same_shape(&new));
    }
    let same = known.iter().filter(|it| it.is_of_same_shape(&new)).count();
    if same >= KEPT
        && let Some(oldest) = known.iter().position(|it| it.is_of_same_shape(&new))
    {
        known.remove(oldest);
    }
    known.push(new);
}

/// The size of each ring: a power of two that holds two chunks. `known` are the observations of each
/// directory; the directory with the largest need decides. `memory_bytes` is the memory for buffers. A
/// directory without an observation gets the default.
pub fn choose_ring(
    shapes: &[StreamShape],
    is_mirrored: bool,
    known: &[Vec<RingObservation>],
    (chunk_bytes, memory_bytes): (u64, u64),
) -> (u64, RingSource) {
    let (streams, byte_rate) = (share(shapes.len(), is_mirrored, known.len()), fastest(shapes));
    let chosen = known.iter().map(|known| needed(known, streams, byte_rate));
    let chosen = chosen.map(|needed| match needed {
        Some(needed) => needed,
        None => (default_bytes(shapes.len(), byte_rate, memory_bytes), RingSource::Default),
    });
    let least = (0, RingSource::Default);
    let (bytes, source) = chosen.fold(least, |most, it| if it.0 > most.0 { it } else { most });
    let bytes = bytes.max(2 * chunk_bytes).next_power_of_two();
    (bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end()), source)
}

fn needed(known: &[RingObservation], streams: usize, byte_rate: u64) -> Option<(u64, RingSource)> {
    let needs =
        known.iter().filter(|it| it.covers(streams, byte_rate)).map(|it| match it.is_measured {
            true => (it.needed_bytes, RingSource::Measurement),
            false => {
                let needed = TAKE_MARGIN * it.needed_bytes;
                (needed.max(LEAST_SECONDS * byte_rate), RingSource::Takes)
            }
        });
    needs.max_by_key(|(bytes, _)| *bytes)
}

fn default_bytes(streams: usize, byte_rate: u64, memory_bytes: u64) -> u64 {
    let most = (memory_bytes / MEMORY_PART / streams.max(1) as u64).max(1);
    (DEFAULT_SECONDS * byte_rate).next_power_of_two().min(1 << most.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SampleFormat;
    use pinstripe_base::units::{GIB, KIB, MIB};

    const CHUNK: u64 = 32 * KIB;

    fn streams(count: usize) -> Vec<StreamShape> {
        let shape = StreamShape { format: SampleFormat::S24, channels: 1, rate: 96_000 };
        vec![shape; count]
    }

    fn seen(streams: usize, needed_bytes: u64, is_measured: bool) -> RingObservation {
        RingObservation { streams, byte_rate: 288_000, needed_bytes, is_measured }
    }

    #[test]
    fn a_new_disk_gets_seconds_of_each_stream_within_a_part_of_the_memory() {
        let of = |count, memory| choose_ring(&streams(count), false, &[vec![]], (CHUNK, memory));
        assert_eq!(of(1, GIB), (2 * MIB, RingSource::Default));
        assert_eq!(of(64, GIB), (2 * MIB, RingSource::Default));
        assert_eq!(of(256, GIB).0, MIB, "256 rings in a quarter of the memory");
        assert_eq!(of(4096, 64 * MIB).0, 2 * CHUNK, "never less than two chunks");
    }

    #[test]
    fn a_measurement_decides_for_as_many_streams_and_fewer() {
        let known = vec![vec![seen(64, 100 * KIB, true)]];
        let of = |count| choose_ring(&streams(count), false, &known, (CHUNK, GIB));
        assert_eq!(of(64), (128 * KIB, RingSource::Measurement));
        assert_eq!(of(8), (128 * KIB, RingSource::Measurement));
        assert_eq!(of(65).1, RingSource::Default, "more streams were never measured");
    }

    #[test]
    fn the_worst_of_the_last_takes_decides_with_a_margin() {
        let mut known = Vec::new();
        observe(&mut known, seen(4, 100 * KIB, true));
        observe(&mut known, seen(4, 700 * KIB, false));
        let of = |known: &[RingObservation]| {
            choose_ring(&streams(4), false, &[known.to_vec()], (CHUNK, GIB))
        };
        assert_eq!(of(&known), (2 * MIB, RingSource::Takes));
        (0..KEPT).for_each(|_| observe(&mut known, seen(4, 50 * KIB, false)));
        assert_eq!(known.len(), KEPT);
        assert_eq!(of(&known), (512 * KIB, RingSource::Takes), "a second of the stream at least");
        observe(&mut known, seen(4, 60 * KIB, true));
        assert_eq!(of(&known), (64 * KIB, RingSource::Measurement));
    }

    #[test]
    fn the_disk_with_the_largest_need_decides() {
        let known = vec![vec![seen(4, 100 * KIB, true)], vec![seen(4, 900 * KIB, true)]];
        assert_eq!(choose_ring(&streams(4), true, &known, (CHUNK, GIB)).0, MIB);
        let known = vec![vec![seen(4, 100 * KIB, true)], vec![]];
        let (bytes, source) = choose_ring(&streams(4), true, &known, (CHUNK, GIB));
        assert_eq!((bytes, source), (2 * MIB, RingSource::Default));
    }
}
