//! Records the same streams through the engine of `pinstripe record`, with its rings, its writer,
//! its commits and its journal. The figures are those that a take with these settings would report.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::{Stop, into_inner, lock};
use pinstripe_io::remove::remove_tree;
use pinstripe_record::{
    CHUNK_BYTES, DiskFolder, EngineSettings, FileKind, LocalTime, RING_BYTES, SampleFormat,
    StreamShape, TakeFolder, TakeOutcome, TakePlan, TestInput, WritePolicy, memory_of, record,
    verify,
};

use super::{EngineWrites, Recorded, Recording, SchedulingClass, blow};
use crate::io::{Target, at_once};
use crate::run::Live;

/// The sync interval that stands for no syncs: longer than any run.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// A take that was recorded for the measurement.
pub(crate) struct EngineTake {
    path: PathBuf,
    /// The reasons why the requested write policy was not used, or why a priority was refused.
    refusals: Vec<String>,
}

/// Fails for settings that the recorder would refuse.
///
/// # Errors
/// [`Kind::Usage`] and [`Kind::Refused`], as in the recorder.
pub(crate) fn refuse_unfit(recording: &Recording, streams: u64) -> Result<()> {
    memory_of(streams as usize, recording.ring_bytes)?;
    let (ring, chunk) = (recording.ring_bytes, recording.chunk_bytes as u64);
    let is_ring = ring.is_power_of_two() && RING_BYTES.contains(&ring);
    if !is_ring || !CHUNK_BYTES.contains(&chunk) || 2 * chunk > ring {
        return Err(Error::new(
            Kind::Usage,
            "the recorder does not support these sizes of rings and chunks",
        )
        .expected(
            "a ring size that is a power of two from 8K to 64M, and a chunk size from 4K to half a \
             ring",
            format!("a ring size of {ring} and a chunk size of {chunk} bytes"),
        )
        .advice("choose other --policies, without 'recorder'"));
    }
    shape(recording.rate).map(drop)
}

/// The stream shape with the widest samples that gives exactly this rate.
fn shape(rate: u64) -> Result<StreamShape> {
    let formats = [(SampleFormat::S24, 3), (SampleFormat::S16, 2), (SampleFormat::U8, 1)];
    let found = formats.into_iter().find(|(_, bytes)| rate.is_multiple_of(*bytes));
    let frames =
        found.and_then(|(format, bytes)| Some((format, u32::try_from(rate / bytes).ok()?)));
    let (format, rate) = frames.filter(|it| it.1 > 0).ok_or_else(|| {
        Error::new(Kind::Usage, "the recorder does not support this rate")
            .expected("1 to 4294967295 frames per second", rate)
    })?;
    Ok(StreamShape { format, channels: 1, rate })
}

impl EngineTake {
    /// Records this many streams in a new directory below `parent`, during a storm if one is
    /// configured.
    ///
    /// # Errors
    /// The errors of the recorder; an interrupt. Lost samples are not an error, but any other loss
    /// is.
    pub fn record(
        parent: &Path,
        recording: &Recording,
        (streams, writes): (usize, WritePolicy),
        storm: Option<&Target>,
        live: &Live,
    ) -> Result<(EngineTake, Recorded)> {
        let (path, is_over) = (parent.join("take"), AtomicBool::new(false));
        let refusals = Mutex::new(Vec::new());
        let parts = at_once(2, |number| {
            let done = match (number, storm) {
                (0, _) => {
                    measure(parent, recording, (streams, writes), live).map(|(done, told)| {
                        *lock(&refusals) = told;
                        done
                    })
                }
                (_, None) => return Ok(Recorded::default()),
                (_, Some(storm)) => {
                    let goes_on = || !is_over.load(Ordering::Relaxed) && !live.is_stopped();
                    blow(recording, storm, &goes_on)
                        .map(|storm_bytes| Recorded { storm_bytes, ..Recorded::default() })
                }
            };
            is_over.fetch_or(number == 0, Ordering::Relaxed);
            done
        });
        live.check()?;
        let mut recorded = Recorded::default();
        for part in parts {
            recorded.merge(part?);
        }
        Ok((EngineTake { path, refusals: into_inner(refusals) }, recorded))
    }

    /// Whether all writes that were to bypass the page cache did so.
    pub fn is_direct(&self) -> bool {
        !self.refusals.iter().any(|it| it.starts_with("'direct'"))
    }

    /// Reads the take back, and compares it with its journal and with the generated streams.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it differs from the recorded data; the errors of the directory.
    pub fn check(&self) -> Result<()> {
        let monitor = Monitor::default();
        let found = verify(&self.path, &monitor)?;
        if found.damaged_bytes > 0 || found.wrong_frames > 0 || monitor.get(Counter::Losses) > 0 {
            let what = format!(
                "{} bytes and {} frames differ from the recorded data",
                found.damaged_bytes, found.wrong_frames
            );
            return Err(Error::new(Kind::Corrupt, what).at(&self.path));
        }
        Ok(())
    }

    /// Removes it.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn remove(self) -> Result<()> {
        remove_tree(&self.path).map_err(|error| Error::io("cannot remove", &self.path, error))
    }
}

fn measure(
    parent: &Path,
    recording: &Recording,
    (streams, writes): (usize, WritePolicy),
    live: &Live,
) -> Result<(Recorded, Vec<String>)> {
    let shape = shape(recording.rate)?;
    let plan = TakePlan {
        take: "take".to_owned(),
        kind: FileKind::Wav,
        scene: String::new(),
        tape: String::new(),
        started: LocalTime { seconds: 0, nanos: 0 },
        started_seconds: 0,
        ring_bytes: recording.ring_bytes,
        engine: EngineSettings {
            chunk_bytes: recording.chunk_bytes as u64,
            commit_every: recording.sync_every.unwrap_or(NEVER),
            is_realtime: recording.class == SchedulingClass::RealTime,
            writes,
            segment_seconds: None,
            segment_bytes: None,
        },
        is_mirrored: false,
        most: Some(recording.time),
        armed: None,
        beside: None,
    };
    let folders = || {
        let folder = DiskFolder::create(parent, &plan.take, None)?.with_writes(writes);
        Ok(vec![Arc::new(folder) as Arc<dyn TakeFolder>])
    };
    let (stop, monitor) = (Stop::new()?, Arc::new(Monitor::default()));
    let mut moved = 0;
    let outcome = record(
        &plan,
        vec![Box::new(TestInput::with_shape(shape, streams))],
        &folders,
        (&stop, &monitor),
        &mut |_, status| {
            live.moved(status.written_bytes - std::mem::replace(&mut moved, status.written_bytes));
            if live.is_stopped() {
                stop.set();
            }
        },
    )?;
    live.moved(outcome.last.written_bytes - moved);
    Ok((recorded(&plan, &outcome, shape)?, outcome.refusals))
}

fn recorded(plan: &TakePlan, outcome: &TakeOutcome, shape: StreamShape) -> Result<Recorded> {
    let (figures, last) = (&outcome.figures, &outcome.last);
    if last.failed_directories > 0 {
        return Err(Error::new(Kind::Io, "writing to the directory of the take failed"));
    }
    let per_byte = last.writing_seconds / figures.written_bytes.max(1) as f64;
    let longest = Duration::from_secs_f64(figures.longest_write_ms / 1e3);
    Ok(Recorded {
        written_bytes: figures.written_bytes,
        peak_bytes: (figures.ring_worst_percent / 100.0 * plan.ring_bytes as f64).round() as u64,
        overruns: figures.overruns,
        lost_bytes: figures.lost_frames * shape.frame_bytes(),
        durable_lag: Duration::from_secs_f64(figures.durable_lag_worst_ms / 1e3),
        engine: Some(EngineWrites {
            count: outcome.writes,
            mean: Duration::from_secs_f64(per_byte * plan.engine.chunk_bytes as f64),
            longest,
            cpu_seconds: [
                outcome.input_cpu.as_secs_f64(),
                last.writer_cpu_seconds,
                last.commit_cpu_seconds,
            ],
        }),
        ..Recorded::default()
    })
}
