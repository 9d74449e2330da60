//! Records streams that arrive at a fixed rate, whatever the disk does; they are written chunk by
//! chunk, during a storm of other writes.
//!
//! The producers are a clock: at any moment each stream has produced `rate` times the time since
//! the beginning, so no stall can stop the producers. A ring holds the bytes that were produced but
//! not yet written; bytes that do not fit into it are lost, and counted. The time of a write counts
//! from the moment at which its chunk was complete. The bytes of a chunk depend on its stream and
//! its offset only, so that [`check()`] can verify them.

mod check;
mod class;
mod engine;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::error::Result;
use pinstripe_io::device::AlignedBuf;

use super::{Content, Target, at_once};
use crate::histogram::Histogram;
use crate::run::Live;

pub use check::check;
pub(crate) use class::{SchedulingClass, can_take};
pub(crate) use engine::{EngineTake, refuse_unfit};

/// The recording to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recording {
    /// Bytes per second of each stream.
    pub rate: u64,
    /// Bytes of a write; a write is made when the ring holds at least this many bytes.
    pub chunk_bytes: usize,
    /// The size of a stream's ring: the most bytes that may wait to be written.
    pub ring_bytes: u64,
    /// The length.
    pub time: Duration,
    /// The number of threads that write; each serves its own streams in turn.
    pub writers: usize,
    /// The interval at which an additional thread makes all streams durable, one after the other;
    /// `None` for no syncs.
    pub sync_every: Option<Duration>,
    /// The length of the storm's file in bytes; at its end, the storm starts again at the
    /// beginning.
    pub storm_bytes: u64,
    /// The number of bytes between the storm's syncs; the syncs make the storm load the disk and
    /// not only memory.
    pub storm_sync_bytes: u64,
    /// The I/O priority of the threads that write streams and make them durable.
    pub class: SchedulingClass,
    /// The seed of the content.
    pub seed: u64,
}

/// A write that took more than [`STALL`], and its stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stall {
    /// The stream.
    pub stream: usize,
    /// When the write began, counted from the beginning of the recording.
    pub at: Duration,
    /// The duration.
    pub time: Duration,
}

/// A write that takes longer than this is a stall.
pub(crate) const STALL: Duration = Duration::from_millis(100);

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The number of chunks that were written, by stream.
    pub chunks: Vec<u64>,
    /// The most bytes that waited in the ring of any stream.
    pub peak_bytes: u64,
    /// The number of times that a ring was full.
    pub overruns: u64,
    /// Bytes lost because a ring was full.
    pub lost_bytes: u64,
    /// Times of writes.
    pub writes: Histogram,
    /// The times from the completion of a chunk until it was written.
    pub responses: Histogram,
    /// Times of syncs.
    pub syncs: Histogram,
    /// Every stall.
    pub stalls: Vec<Stall>,
    /// The greatest age of a byte that was not yet durable.
    pub durable_lag: Duration,
    /// Bytes that the storm wrote.
    pub storm_bytes: u64,
    /// The recorder engine's figures for its writes, if that engine made them.
    pub engine: Option<EngineWrites>,
}

/// The recorder engine's writes and its processor time; the engine keeps no histogram of its
/// writes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct EngineWrites {
    /// The number.
    pub count: u64,
    /// The mean time of a write of one chunk, computed from the rate at which bytes were written.
    pub mean: Duration,
    /// The longest.
    pub longest: Duration,
    /// Processor seconds of inputs, writers and commits.
    pub cpu_seconds: [f64; 3],
}

impl Recorded {
    /// The number of writes.
    pub(crate) fn write_count(&self) -> u64 {
        self.engine.map_or(self.writes.count(), |it| it.count)
    }

    /// The mean time of a write of a chunk.
    pub(crate) fn mean_write(&self) -> Duration {
        self.engine.map_or_else(|| self.writes.mean().unwrap_or_default(), |it| it.mean)
    }

    /// The longest write.
    pub fn longest_write(&self) -> Duration {
        self.engine.map_or_else(|| self.writes.max().unwrap_or_default(), |it| it.longest)
    }

    fn merge(&mut self, other: Recorded) {
        self.written_bytes += other.written_bytes;
        self.chunks.resize(self.chunks.len().max(other.chunks.len()), 0);
        self.chunks.iter_mut().zip(other.chunks).for_each(|(own, others)| *own += others);
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.overruns += other.overruns;
        self.lost_bytes += other.lost_bytes;
        self.writes.merge(&other.writes);
        self.responses.merge(&other.responses);
        self.syncs.merge(&other.syncs);
        self.stalls.extend(other.stalls);
        self.durable_lag = self.durable_lag.max(other.durable_lag);
        self.storm_bytes += other.storm_bytes;
        self.engine = self.engine.or(other.engine);
    }
}

/// Records to these targets, one for each stream; a storm writes to another target at the same
/// time, if one is given.
///
/// # Errors
/// The first error of any target; an interrupt.
pub fn record(
    recording: &Recording,
    streams: &[Target],
    storm: Option<&Target>,
    live: &Live,
) -> Result<Recorded> {
    let writers = recording.writers.clamp(1, streams.len().max(1));
    let state = RunState {
        recording,
        streams,
        live,
        began: Instant::now(),
        taken: streams.iter().map(|_| AtomicU64::new(0)).collect(),
        is_over: AtomicBool::new(false),
    };
    let parts = at_once(writers + 2, |number| {
        let worked = match number.checked_sub(writers) {
            None => recording.class.take().and_then(|()| state.write(number, writers)),
            Some(0) => recording.class.take().and_then(|()| state.sync()),
            Some(_) => state.storm(storm),
        };
        if worked.is_err() {
            state.is_over.store(true, Ordering::Relaxed);
        }
        worked
    });
    live.check()?;
    let mut recorded = Recorded::default();
    for part in parts {
        recorded.merge(part?);
    }
    recorded.stalls.sort_by_key(|it| it.at);
    Ok(recorded)
}

/// A buffer for one chunk, filled but not yet [marked](mark).
fn filled(recording: &Recording) -> AlignedBuf {
    let mut buffer = AlignedBuf::new(recording.chunk_bytes);
    buffer.set_len(recording.chunk_bytes);
    Content::Noise.fill(&mut buffer, recording.seed);
    buffer
}

/// Marks a filled buffer as the chunk with this number of a stream.
fn mark(buffer: &mut [u8], recording: &Recording, stream: usize, chunk: u64) {
    Content::Noise.mark(buffer, (stream as u64) << 40 | chunk, recording.seed);
}

/// The shared state of all threads of a recording.
struct RunState<'a> {
    recording: &'a Recording,
    streams: &'a [Target],
    live: &'a Live,
    began: Instant,
    /// Bytes taken out of the ring of each stream, whether they were written or lost.
    taken: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl RunState<'_> {
    fn goes_on(&self) -> bool {
        let is_over = self.is_over.load(Ordering::Relaxed) || self.live.is_stopped();
        !is_over && self.began.elapsed() < self.recording.time
    }

    /// Bytes that a stream has produced by a moment.
    fn made(&self, at: Duration) -> u64 {
        (at.as_secs_f64() * self.recording.rate as f64) as u64
    }

    /// The moment at which a stream has produced this many bytes.
    fn moment(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.recording.rate.max(1) as f64)
    }

    /// Writes the streams of one writer: from `first` on, every `writers`-th stream.
    fn write(&self, first: usize, writers: usize) -> Result<Recorded> {
        let mut buffer = filled(self.recording);
        let mut part = Recorded { chunks: vec![0; self.streams.len()], ..Recorded::default() };
        while self.goes_on() {
            let mut is_idle = true;
            for stream in (first..self.streams.len()).step_by(writers) {
                if !self.has_chunk(stream, &mut part) {
                    continue;
                }
                is_idle = false;
                mark(&mut buffer, self.recording, stream, part.chunks[stream]);
                self.write_chunk(stream, &buffer, &mut part)?;
                part.chunks[stream] += 1;
            }
            if is_idle {
                self.wait_for_chunk(first, writers);
            }
        }
        Ok(part)
    }

    /// Whether the ring of a stream contains a complete chunk; also counts the bytes lost if the
    /// ring is too full.
    fn has_chunk(&self, stream: usize, part: &mut Recorded) -> bool {
        let taken = &self.taken[stream];
        let mut waiting = self.made(self.began.elapsed()) - taken.load(Ordering::Relaxed);
        part.peak_bytes = part.peak_bytes.max(waiting);
        if let Some(lost) = waiting.checked_sub(self.recording.ring_bytes).filter(|it| *it > 0) {
            taken.fetch_add(lost, Ordering::Relaxed);
            part.overruns += 1;
            part.lost_bytes += lost;
            waiting -= lost;
        }
        waiting >= self.recording.chunk_bytes as u64
    }

    fn write_chunk(&self, stream: usize, buffer: &[u8], part: &mut Recorded) -> Result<()> {
        let offset = part.chunks[stream] * buffer.len() as u64;
        let end = self.taken[stream].load(Ordering::Relaxed) + buffer.len() as u64;
        let at = self.began.elapsed();
        self.streams[stream].device().write_at(offset, buffer)?;
        let now = self.began.elapsed();
        // Until now the chunk took its room in the ring.
        part.peak_bytes = part.peak_bytes.max(self.made(now) + buffer.len() as u64 - end);
        self.taken[stream].store(end, Ordering::Relaxed);
        part.written_bytes += buffer.len() as u64;
        part.writes.record(now - at);
        part.responses.record(now.saturating_sub(self.moment(end)));
        if now - at > STALL {
            part.stalls.push(Stall { stream, at, time: now - at });
        }
        self.live.moved(buffer.len() as u64);
        Ok(())
    }

    /// Sleeps until a stream of this writer has a complete chunk.
    fn wait_for_chunk(&self, first: usize, writers: usize) {
        const MOST: Duration = Duration::from_millis(50);
        let streams = (first..self.streams.len()).step_by(writers);
        let next = streams.map(|it| self.taken[it].load(Ordering::Relaxed)).min();
        let due = self.moment(next.unwrap_or(0) + self.recording.chunk_bytes as u64);
        let left = due.saturating_sub(self.began.elapsed());
        std::thread::sleep(left.clamp(Duration::from_micros(20), MOST));
    }

    /// Makes all streams durable, repeatedly.
    fn sync(&self) -> Result<Recorded> {
        let mut part = Recorded::default();
        let Some(every) = self.recording.sync_every else { return Ok(part) };
        let mut durable = vec![0; self.streams.len()];
        let mut next = every;
        while self.goes_on() {
            if self.began.elapsed() < next {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            for (stream, durable) in durable.iter_mut().enumerate() {
                let taken = self.taken[stream].load(Ordering::Relaxed);
                part.syncs.record(self.streams[stream].sync(false)?);
                let age = self.began.elapsed().saturating_sub(self.moment(*durable));
                part.durable_lag = part.durable_lag.max(age);
                *durable = taken;
            }
            next = self.began.elapsed().max(next + every);
        }
        // Data that was never durable has the age of the recording.
        let end = self.began.elapsed();
        let ages = durable.iter().map(|it| end.saturating_sub(self.moment(*it)));
        part.durable_lag = ages.fold(part.durable_lag, Duration::max);
        Ok(part)
    }

    /// Writes to the same place repeatedly, as fast as possible.
    fn storm(&self, storm: Option<&Target>) -> Result<Recorded> {
        let Some(storm) = storm else { return Ok(Recorded::default()) };
        let storm_bytes = blow(self.recording, storm, &|| self.goes_on())?;
        Ok(Recorded { storm_bytes, ..Recorded::default() })
    }
}

/// A storm: writes to the same place repeatedly, as fast as possible, until `goes_on` returns
/// false. Returns the number of bytes written.
fn blow(recording: &Recording, storm: &Target, goes_on: &dyn Fn() -> bool) -> Result<u64> {
    const GUST: usize = 1 << 20;
    let mut written = 0;
    let mut buffer = AlignedBuf::new(GUST);
    buffer.set_len(GUST);
    Content::Noise.fill(&mut buffer, 77);
    let gusts = (recording.storm_bytes / GUST as u64).max(1);
    for number in 0.. {
        if !goes_on() {
            break;
        }
        Content::Noise.mark(&mut buffer, number, 77);
        storm.device().write_at(number % gusts * GUST as u64, &buffer)?;
        written += GUST as u64;
        if written % recording.storm_sync_bytes.max(1) < GUST as u64 {
            storm.sync(false)?;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests;
