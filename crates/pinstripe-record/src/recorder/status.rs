//! The status of a take while it is being recorded.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind};
use pinstripe_base::sync::Stop;
use serde::Serialize;

use crate::drift::{ClockDrift, InputDrift};
use crate::engine::{DirectoryFigures, SharedStream, SharedTake, StreamFile, TakeDirectory};
use crate::locks::RankedMutex;
use crate::meter::{LevelReader, StreamLevel};
use crate::start::CommonStart;
use crate::take::{CommitStages, SlowSync};

/// The remaining minutes at which a warning is given.
const TOLD_MINUTES: [u64; 3] = [1, 5, 15];
/// The fill level of a ring from which an alarm is shown, in percent.
pub const ALARM_PERCENT: f64 = 80.0;

/// The smallest difference between two clocks that is reported, in parts per million: 36 ms in an
/// hour.
const APART_PPM: f64 = 10.0;

/// A take that is being recorded.
pub struct RunningTake {
    pub(super) shared: Arc<SharedTake>,
    pub(super) name: String,
    /// The length of the pre-roll of an armed take; `None` if the take is not armed.
    pub(super) armed: Option<Duration>,
    pub(super) most: Option<Duration>,
    /// The common start of this take and the take that is played during it.
    pub(super) common_start: OnceLock<Arc<CommonStart>>,
    /// The offset of local time from UTC, in seconds; positive if it is ahead.
    pub(super) zone_seconds: i64,
    /// Set when the take is to end.
    pub stop: Stop,
    /// Set when an armed take was ordered to begin.
    pub(super) started: Stop,
    pub(super) held_back: Arc<AtomicU64>,
    pub(super) is_locked: bool,
    pub(super) warned_minutes: AtomicU64,
    pub(super) has_alarmed: AtomicBool,
    pub(super) clocks: RankedMutex<Vec<InputClock>>,
    pub(super) has_drifted: AtomicBool,
}

/// The clock of an input, and the stream whose frames are counted to measure it.
pub(super) struct InputClock {
    pub source: String,
    pub stream: usize,
    pub drift: ClockDrift,
}

/// The status of a stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamStatus {
    /// The name.
    pub name: String,
    /// Whether the stream is recorded, or will be recorded when the take begins.
    pub is_armed: bool,
    /// The number of frames of the take so far, including lost ones.
    pub frames: u64,
    /// The fill level of the stream's ring, in percent.
    pub ring_percent: f64,
    /// The highest fill level so far, in percent.
    pub ring_worst_percent: f64,
    /// The number of times that the ring was full.
    pub overruns: u64,
    /// The number of frames that were lost.
    pub lost_frames: u64,
    /// The number of frames that did not arrive from the source; they are silence, too.
    pub missing_frames: u64,
}

/// The status of a take.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TakeStatus {
    /// The name.
    pub take: String,
    /// The phase of the take.
    pub phase: TakePhase,
    /// Seconds of the take, including its pre-roll; before an armed take begins, seconds since its
    /// inputs were opened.
    pub elapsed_seconds: f64,
    /// The number of streams.
    pub streams: usize,
    /// Streams that are armed.
    pub armed_streams: usize,
    /// The length of the pre-roll that is kept, or with which the take began.
    pub pre_roll_seconds: f64,
    /// Payload bytes written, including mirrors.
    pub written_bytes: u64,
    /// The age of the oldest sample that is not durable.
    pub durable_lag_ms: f64,
    /// The greatest lag so far.
    pub durable_lag_worst_ms: f64,
    /// The fill level of the fullest ring now; inputs that can wait are not counted.
    pub ring_percent: f64,
    /// The fill level of the fullest ring so far; inputs that can wait are not counted.
    pub ring_worst_percent: f64,
    /// Whether a ring is, or was at any time, fuller than 80 percent.
    pub has_alarm: bool,
    /// The number of overruns of all streams.
    pub overruns: u64,
    /// The number of frames lost in overruns.
    pub lost_frames: u64,
    /// The number of frames that did not arrive from sources, in all streams.
    pub missing_frames: u64,
    /// The longest write.
    pub longest_write_ms: f64,
    /// The longest time that the recorder did not run although it could have, because it was stopped
    /// or got no processor.
    pub longest_absence_ms: f64,
    /// All writes together.
    pub writing_seconds: f64,
    /// The slowest sync of a file so far.
    pub slowest_sync: SlowSync,
    /// The slowest commit so far, stage by stage.
    pub slowest_commit: CommitStages,
    /// The longest time that an input that can wait had to wait.
    pub held_back_worst_ms: f64,
    /// The time until the disks are full, at the total rate of the streams; `None` if unknown.
    pub left_seconds: Option<f64>,
    /// The number of directories that were given up.
    pub failed_directories: usize,
    /// The processor time of writers.
    pub writer_cpu_seconds: f64,
    /// The processor time of commits.
    pub commit_cpu_seconds: f64,
    /// The measured clocks of inputs, as far as they are certain; inputs that can wait have none.
    pub drifts: Vec<InputDrift>,
    /// By stream.
    #[serde(skip)]
    pub by_stream: Vec<StreamStatus>,
}

impl RunningTake {
    /// Returns the levels of all streams since the last call with this reader; levels are measured
    /// from the first call on.
    pub fn levels(&self, reader: LevelReader) -> Vec<StreamLevel> {
        self.shared.is_metered.store(true, Ordering::Relaxed);
        self.shared.streams.iter().map(|it| it.meter.take(reader)).collect()
    }

    /// Whether no input delivers any more samples.
    pub(super) fn is_complete(&self) -> bool {
        self.shared.streams.iter().all(|it| it.ring.is_complete())
    }

    /// Takes a sample of the clocks of all inputs.
    pub(super) fn watch_clocks(&self) {
        for clock in self.clocks.lock().iter_mut() {
            let stream = &self.shared.streams[clock.stream];
            if stream.ring.is_complete() {
                continue;
            }
            let frames = stream.ring.made_bytes() / stream.facts.shape.frame_bytes();
            clock.drift.add(self.shared.now(), frames);
            if let Some(measured) = clock.drift.wrong_rate() {
                let (said, measured) = (stream.facts.shape.rate, format!("{measured:.0}"));
                let what = format!("the source sends {measured} frames per second");
                let error = Error::new(Kind::Io, what).expected(said, measured).advice(
                    "the headers of the files have the configured rate: configure the rate that \
                     the source really has, and start another take",
                );
                self.shared.monitor.warning(&clock.source, error);
            }
        }
    }

    fn drifts(&self) -> Vec<InputDrift> {
        let told =
            |it: &InputClock| Some(InputDrift { source: it.source.clone(), ppm: it.drift.ppm()? });
        self.clocks.lock().iter().filter_map(told).collect()
    }

    /// Warns once if the clocks of inputs drift apart.
    fn warn_of_drift(&self, drifts: &[InputDrift]) {
        let order = |a: &&InputDrift, b: &&InputDrift| a.ppm.total_cmp(&b.ppm);
        let ends = drifts.iter().min_by(order).zip(drifts.iter().max_by(order));
        let Some((slow, fast)) = ends.filter(|(slow, fast)| fast.ppm - slow.ppm >= APART_PPM)
        else {
            return;
        };
        if !self.has_drifted.swap(true, Ordering::Relaxed) {
            let apart = fast.ppm - slow.ppm;
            let what = format!(
                "the clocks of '{}' and '{}' differ by {apart:.0} ppm, which is {:.0} ms in an \
                 hour",
                slow.source,
                fast.source,
                apart * 3.6,
            );
            let error = Error::new(Kind::Io, what).advice(
                "pinstripe does not resample: let one clock drive both inputs, or resample the \
                 recording later",
            );
            self.shared.monitor.warning(&self.name, error);
        }
    }

    /// Returns the current status.
    pub fn status(&self) -> TakeStatus {
        let shared = &self.shared;
        let now = shared.now();
        let by_stream: Vec<_> = shared.streams.iter().map(stream_status).collect();
        let of_impatient = |pick: fn(&StreamStatus) -> f64| {
            let impatient = by_stream.iter().zip(&shared.streams).filter(|(_, it)| !it.is_patient);
            impatient.map(|(it, _)| pick(it)).fold(0.0, f64::max)
        };
        let sum = |pick: fn(&DirectoryFigures) -> &AtomicU64| -> u64 { self.figures(pick).sum() };
        let most = |pick: fn(&DirectoryFigures) -> &AtomicU64| -> f64 {
            millis(self.figures(pick).max().unwrap_or(0))
        };
        let lag = shared.directories.iter().map(|it| it.lag(now)).max().unwrap_or_default();
        let lag_ms = lag.as_secs_f64() * 1e3;
        let worst = of_impatient(|it| it.ring_worst_percent);
        let (slowest_sync, slowest_commit) = slowest(&shared.directories);
        TakeStatus {
            take: self.name.clone(),
            phase: self.phase(),
            elapsed_seconds: self.elapsed(now).as_secs_f64(),
            streams: by_stream.len(),
            armed_streams: by_stream.iter().filter(|it| it.is_armed).count(),
            pre_roll_seconds: self.pre_roll().as_secs_f64(),
            written_bytes: sum(|it| &it.written_bytes),
            durable_lag_ms: lag_ms,
            durable_lag_worst_ms: most(|it| &it.lag_nanos).max(lag_ms),
            ring_percent: of_impatient(|it| it.ring_percent),
            ring_worst_percent: worst,
            has_alarm: worst >= ALARM_PERCENT,
            overruns: by_stream.iter().map(|it| it.overruns).sum(),
            lost_frames: by_stream.iter().map(|it| it.lost_frames).sum(),
            missing_frames: by_stream.iter().map(|it| it.missing_frames).sum(),
            longest_write_ms: most(|it| &it.longest_write_nanos),
            longest_absence_ms: most(|it| &it.longest_absence_nanos),
            writing_seconds: sum(|it| &it.writing_nanos) as f64 / 1e9,
            slowest_sync,
            slowest_commit,
            held_back_worst_ms: millis(self.held_back.load(Ordering::Relaxed)),
            left_seconds: self.left_seconds(),
            failed_directories: shared.directories.iter().filter(|it| it.has_failed()).count(),
            writer_cpu_seconds: sum(|it| &it.writer_cpu_nanos) as f64 / 1e9,
            commit_cpu_seconds: sum(|it| &it.commit_cpu_nanos) as f64 / 1e9,
            drifts: self.drifts(),
            by_stream,
        }
    }

    /// The number of writes so far.
    pub(super) fn writes(&self) -> u64 {
        self.figures(|it| &it.writes).sum()
    }

    fn figures(
        &self,
        pick: fn(&DirectoryFigures) -> &AtomicU64,
    ) -> impl Iterator<Item = u64> + use<'_> {
        self.shared.directories.iter().map(move |it| pick(&it.figures).load(Ordering::Relaxed))
    }

    /// Seconds until the first directory is full, at its current write rate.
    fn left_seconds(&self) -> Option<f64> {
        let directories = self.shared.directories.iter().filter(|it| !it.has_failed());
        directories.filter_map(|it| left_of(it, &self.shared)).reduce(f64::min)
    }

    /// Warns when little space is left, and when a ring was full; each warning is given once.
    pub(super) fn warn_of_little_left(&self) {
        let status = self.status();
        let minutes = status.left_seconds.map_or(u64::MAX, |it| (it / 60.0) as u64);
        if let Some(told) = TOLD_MINUTES.iter().find(|it| minutes < **it)
            && self.warned_minutes.swap(*told, Ordering::Relaxed) > *told
        {
            let what = format!("the disk has space for less than {told} more min of this take");
            let error = Error::new(Kind::NoSpace, what).advice("free space on the disk");
            self.shared.monitor.warning(self.shared.directories[0].folder.path(), error);
        }
        self.warn_of_drift(&status.drifts);
        if status.has_alarm && !self.has_alarmed.swap(true, Ordering::Relaxed) {
            let what =
                format!("the ring buffer of a stream was {:.0} % full", status.ring_worst_percent);
            let error = Error::new(Kind::Io, what).advice(
                "the disk stalls almost long enough to fill the ring buffers: use larger ring \
                 buffers (--ring)",
            );
            self.shared.monitor.warning(&self.name, error);
        }
    }
}

/// Returns the slowest sync and the slowest commit of all directories.
fn slowest(directories: &[Arc<TakeDirectory>]) -> (SlowSync, CommitStages) {
    let all = directories.iter().map(|it| it.figures.slowest.get());
    all.reduce(|a, b| {
        let sync = if a.0.ms >= b.0.ms { a.0 } else { b.0 };
        (sync, if a.1.ms >= b.1.ms { a.1 } else { b.1 })
    })
    .unwrap_or_default()
}

fn left_of(directory: &TakeDirectory, shared: &SharedTake) -> Option<f64> {
    let free = directory.folder.free_bytes()?;
    let mut open = directory.pieces();
    // A front gets what came before, at no rate.
    let is_armed = |it: &StreamFile| shared.streams[it.stream as usize].gate.is_armed();
    open.retain(|it| !it.is_ended() && !it.is_front() && is_armed(it));
    let rate: u64 = open.iter().map(|it| it.facts.shape.byte_rate()).sum();
    let ahead: u64 = open.iter().map(|it| it.ahead_bytes()).sum();
    (rate > 0).then(|| (free + ahead) as f64 / rate as f64)
}

fn stream_status(stream: &SharedStream) -> StreamStatus {
    let ring = &stream.ring;
    let frame_bytes = stream.facts.shape.frame_bytes();
    let percent = |bytes: u64| 100.0 * bytes as f64 / ring.size() as f64;
    let losses = stream.losses();
    let made = ring.made_bytes().min(stream.gate.end().unwrap_or(u64::MAX));
    StreamStatus {
        name: stream.facts.name.clone(),
        is_armed: stream.gate.is_armed(),
        frames: ring.place_in_take(made) / frame_bytes,
        ring_percent: percent(ring.fill_bytes()),
        ring_worst_percent: percent(ring.peak_bytes()),
        overruns: losses.overruns,
        lost_frames: losses.lost_bytes / frame_bytes,
        missing_frames: losses.missing_bytes / frame_bytes,
    }
}

fn millis(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64() * 1e3
}

/// The phase of a take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TakePhase {
    /// Inputs are open, but nothing is recorded yet.
    #[default]
    Armed,
    /// The take is being recorded.
    Recording,
    /// The take was ordered to end, and its data is being made durable.
    Stopping,
}

impl fmt::Display for TakePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TakePhase::Armed => "armed",
            TakePhase::Recording => "recording",
            TakePhase::Stopping => "stopping",
        })
    }
}
