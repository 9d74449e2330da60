//! One take by the recorder's own library, during a storm, with its content verified afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_record::{
    DiskFolder, EngineSettings, FileKind, LocalTime, RecordInput, SampleFormat, StreamShape,
    TakeFolder, TakeOutcome, TakePlan, TestInput, VerifyOutcome, WritePolicy, record, verify,
};

use super::machine::{OtherLoad, Ticks, forget_peak, peak_bytes, resident_bytes};
use super::storm::Storm;
use crate::Result;

const TAKE: &str = "bench-take";

/// A take that is asked for.
#[derive(Clone, Copy)]
pub struct Asked {
    pub streams: usize,
    pub shape: StreamShape,
    pub ring: u64,
    pub chunk: u64,
    pub writes: WritePolicy,
    pub seconds: u64,
    pub storm: Storm,
    pub is_mirrored: bool,
    pub segment_seconds: Option<f64>,
}

/// The results of a take.
pub struct Told {
    pub outcome: TakeOutcome,
    pub verified: VerifyOutcome,
    pub storm_rate: f64,
    pub beside: OtherLoad,
    /// Memory beyond what this process had before.
    pub resident_bytes: Option<u64>,
    /// The last durable lag that was shown before it ended.
    pub shown_lag: f64,
}

/// 24 bits.
pub fn sound(rate: u32) -> StreamShape {
    StreamShape { format: SampleFormat::S24, channels: 1, rate }
}

/// A plan of the recorder's usual settings.
pub fn plan(asked: &Asked) -> TakePlan {
    TakePlan {
        take: TAKE.to_owned(),
        kind: FileKind::Wav,
        scene: String::new(),
        tape: String::new(),
        started: LocalTime { seconds: 0, nanos: 0 },
        started_seconds: 0,
        ring_bytes: asked.ring,
        engine: EngineSettings {
            chunk_bytes: asked.chunk,
            commit_every: Duration::from_secs(1),
            is_realtime: true,
            writes: asked.writes,
            segment_seconds: asked.segment_seconds,
            segment_bytes: None,
        },
        is_mirrored: asked.is_mirrored,
        most: Some(Duration::from_secs(asked.seconds)),
        armed: None,
        beside: None,
    }
}

/// Records test streams and verifies them; the files are removed afterwards.
pub fn take(work: &Path, asked: &Asked) -> Result<Told> {
    let input: Box<dyn RecordInput> = Box::new(TestInput::with_shape(asked.shape, asked.streams));
    let told = keep(work, asked, vec![input]);
    let removed = remove(work);
    told.and_then(|it| removed.map(|()| it))
}

/// Records these inputs and verifies them; the take stays in [`place`].
pub fn keep(work: &Path, asked: &Asked, inputs: Vec<Box<dyn RecordInput>>) -> Result<Told> {
    let error = |error: pinstripe_base::error::Error| error.to_string();
    let plan = plan(asked);
    let dirs = places(work, asked);
    for dir in &dirs {
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    let folders = || {
        let make = |dir: &PathBuf| {
            let folder = DiskFolder::create(dir, TAKE, None)?.with_writes(asked.writes);
            Ok(Arc::new(folder) as Arc<dyn TakeFolder>)
        };
        dirs.iter().map(make).collect()
    };
    let (stop, monitor) = (Stop::new().map_err(error)?, Arc::new(Monitor::default()));
    let mut shown_lag = 0.0;
    rustix::fs::sync();
    let before = forget_peak().then(resident_bytes).flatten();
    let ticks = Ticks::now();
    let (outcome, storm_rate) = asked.storm.beside(work, || {
        let mut watch = |_: &_, status: &pinstripe_record::TakeStatus| {
            shown_lag = status.durable_lag_ms / 1e3;
        };
        record(&plan, inputs, &folders, (&stop, &monitor), &mut watch).map_err(error)
    })?;
    let beside = ticks.beside(Ticks::now());
    let resident_bytes = before.zip(peak_bytes()).map(|(before, peak)| peak.saturating_sub(before));
    let verified = verify(&dirs[0].join(TAKE), &Monitor::default()).map_err(error)?;
    Ok(Told { outcome, verified, storm_rate, beside, resident_bytes, shown_lag })
}

fn places(work: &Path, asked: &Asked) -> Vec<PathBuf> {
    let count = if asked.is_mirrored { 2 } else { 1 };
    (0..count).map(|number| work.join(format!("to{number}"))).collect()
}

/// Where a take is kept.
pub fn place(work: &Path) -> PathBuf {
    work.join("to0").join(TAKE)
}

/// Removes what was kept.
pub fn remove(work: &Path) -> Result<()> {
    for dir in [work.join("to0"), work.join("to1")] {
        crate::trees::remove(&dir)?;
    }
    Ok(())
}

impl Told {
    /// Whether every sample is there and right, or silence that was counted.
    pub fn is_right(&self) -> bool {
        self.verified.damaged_bytes == 0
            && self.verified.wrong_frames == 0
            && self.outcome.last.failed_directories == 0
    }

    /// Processor seconds per GB of payload: inputs, writer, commits.
    pub fn cpu_per_gb(&self) -> [f64; 3] {
        let last = &self.outcome.last;
        let gigabytes = self.outcome.figures.written_bytes.max(1) as f64 / 1e9;
        let inputs = self.outcome.input_cpu.as_secs_f64();
        [inputs, last.writer_cpu_seconds, last.commit_cpu_seconds].map(|it| it / gigabytes)
    }

    /// The fullest ring, in KiB.
    pub fn ring_kib(&self) -> f64 {
        self.outcome.figures.ring_worst_percent / 100.0 * self.outcome.manifest.ring_bytes as f64
            / 1024.0
    }

    /// Memory beyond its rings, in MiB.
    pub fn beyond_rings_mib(&self) -> f64 {
        let rings = self.outcome.manifest.ring_bytes * self.outcome.manifest.streams.len() as u64;
        let beyond = self.resident_bytes.map(|it| it as f64 - rings as f64);
        beyond.map_or(f64::NAN, |it| it / f64::from(1 << 20))
    }
}
