//! Controls a take from its beginning to its end: rings, files, threads, and reports while it is
//! being recorded.

#![allow(clippy::disallowed_methods, reason = "this module starts the threads of a take")]

mod begin;
mod end;
mod orders;
mod status;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::{Stop, wait_readable};
use std::os::fd::AsFd;

use crate::drift::look_after;
use crate::engine::{EngineSettings, SharedTake, StreamCopy, commit_directory, write_directory};
use crate::header::{FileKind, LocalTime};
use crate::input::{InputFeed, RecordInput};
use crate::limits::FLAC_THREADS;
use crate::realtime;
use crate::ring::RingProducer;
use crate::take::{BesideTake, Manifest, TakeFigures, TakeFolder, TakeState};

pub use begin::memory_of;
pub use orders::TakeOrder;
pub use status::{ALARM_PERCENT, RunningTake, StreamStatus, TakePhase, TakeStatus};

/// The interval at which the progress of a take is reported.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The plan of a take.
#[derive(Debug, Clone)]
pub struct TakePlan {
    /// The name.
    pub take: String,
    /// The kind of the take's files.
    pub kind: FileKind,
    /// The scene, as the user names it.
    pub scene: String,
    /// The tape, as the user names it.
    pub tape: String,
    /// The local time now.
    pub started: LocalTime,
    /// The time now, in seconds since 1970.
    pub started_seconds: i64,
    /// Bytes of each ring, a power of two.
    pub ring_bytes: u64,
    /// Settings of the engine.
    pub engine: EngineSettings,
    /// Whether every stream is recorded to two directories.
    pub is_mirrored: bool,
    /// The greatest length of the take.
    pub most: Option<Duration>,
    /// If this is set, inputs are opened at once, but the take begins only on an order. The value
    /// is the length of the pre-roll: the input that is kept on disk until the order.
    pub armed: Option<Duration>,
    /// The take that is played during this one.
    pub beside: Option<BesideTake>,
}

/// How a take ended.
#[derive(Debug)]
pub struct TakeOutcome {
    /// The manifest as it was written.
    pub manifest: Manifest,
    /// The figures.
    pub figures: TakeFigures,
    /// The last status.
    pub last: TakeStatus,
    /// The priorities that were refused.
    pub refusals: Vec<String>,
    /// Whether the rings were locked in memory.
    pub is_locked: bool,
    /// The time from the beginning until all files were created and durable.
    pub starting: Duration,
    /// The time from the stop until all of the take was durable.
    pub stopping: Duration,
    /// The processor time of the inputs.
    pub input_cpu: Duration,
    /// The number of writes to files.
    pub writes: u64,
}

/// Records until the inputs end, `most` has elapsed, or `stop` is set. `folders` is called after
/// all other checks that can refuse the take.
///
/// # Errors
/// [`Kind::Usage`] for contradictory settings, [`Kind::Refused`] for more memory than a take may
/// use; the errors of the folders before recording begins. A later failure is a loss in the ledger,
/// and recording continues without the failed part.
pub fn record(
    plan: &TakePlan,
    inputs: Vec<Box<dyn RecordInput>>,
    folders: &dyn Fn() -> Result<Vec<Arc<dyn TakeFolder>>>,
    (stop, monitor): (&Stop, &Arc<Monitor>),
    watch: &mut dyn FnMut(&Arc<RunningTake>, &TakeStatus),
) -> Result<TakeOutcome> {
    let mut begun = begin::begin(plan, &inputs, folders, monitor)?;
    let shared = Arc::clone(&begun.take.shared);
    let threads = TakeThreads {
        shared: &shared,
        halt: Stop::new()?,
        inputs_ended: Stop::new()?,
        inputs_left: AtomicUsize::new(inputs.len()),
        input_cpu: AtomicU64::new(0),
        held_back: &begun.take.held_back,
        most: plan.most.filter(|_| plan.armed.is_none()),
    };
    let (mut directories, mut producers) = (begun.copies, begun.producers.into_iter());
    let mut stopped_at = Duration::ZERO;
    let lanes_left = &AtomicUsize::new(shared.directories.len());
    std::thread::scope(|scope| {
        for _ in 0..encoding_threads(plan, &shared) {
            scope.spawn(|| shared.encoders.work(&|| {}));
        }
        for (directory, copies) in shared.directories.iter().zip(directories.drain(..)) {
            let shared = &shared;
            scope.spawn(move || {
                commit_directory(shared, directory);
                if lanes_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    shared.encoders.end();
                }
            });
            scope.spawn(move || write_directory(shared, directory, copies));
        }
        for input in inputs {
            let rings = producers.by_ref().take(input.streams().len()).collect();
            let threads = &threads;
            scope.spawn(move || threads.feed(input, rings));
        }
        stopped_at = threads.wait(stop, &begun.take, &mut begun.manifest, watch);
        begun.take.stop.set();
        threads.halt.set();
    });
    let stopping = shared.now().saturating_sub(stopped_at);
    let times = (begun.starting, stopping, Duration::from_nanos(threads.input_cpu.into_inner()));
    end::end(plan, &begun.take, begun.manifest, times)
}

/// The number of threads that encode: at most one for each processor and one for each stream.
fn encoding_threads(plan: &TakePlan, shared: &SharedTake) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let is_needed = plan.kind == FileKind::Flac;
    if is_needed { processors.min(shared.streams.len()).min(FLAC_THREADS) } else { 0 }
}

/// The state that the threads of a take share in addition to [`SharedTake`].
struct TakeThreads<'a> {
    shared: &'a SharedTake,
    halt: Stop,
    inputs_ended: Stop,
    inputs_left: AtomicUsize,
    input_cpu: AtomicU64,
    held_back: &'a AtomicU64,
    /// The greatest length that inputs may deliver; in an armed take, inputs do not know when it
    /// begins.
    most: Option<Duration>,
}

impl TakeThreads<'_> {
    /// Runs the thread of an input.
    fn feed(&self, mut input: Box<dyn RecordInput>, producers: Vec<RingProducer>) {
        let shared = self.shared;
        if shared.settings.is_realtime
            && !input.is_patient()
            && let Err(error) = realtime::run_first(realtime::CAPTURE)
        {
            shared.note_refusal("the threads of the inputs do not have real-time priority", &error);
        }
        let source = input.streams().first().map(|it| it.source.clone()).unwrap_or_default();
        let warn = |error: Error| shared.monitor.warning(&source, error);
        let mut feed = InputFeed {
            producers,
            halt: &self.halt,
            most: self.most,
            held_back: self.held_back,
            warn: &warn,
        };
        if let Err(error) = input.run(&mut feed) {
            shared.monitor.loss(&source, error);
        }
        drop(feed);
        let time = realtime::thread_time().as_nanos() as u64;
        self.input_cpu.fetch_add(time, Ordering::Relaxed);
        if self.inputs_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inputs_ended.set();
        }
    }

    /// Reports progress each second until the take is to end; returns the moment of its end.
    fn wait(
        &self,
        stop: &Stop,
        take: &Arc<RunningTake>,
        manifest: &mut Manifest,
        watch: &mut dyn FnMut(&Arc<RunningTake>, &TakeStatus),
    ) -> Duration {
        let (mut next, mut looks) = (Duration::ZERO, 0);
        loop {
            let now = self.shared.now();
            if manifest.state == TakeState::Armed && take.started.is_set() {
                take.report_beginning(manifest);
                next = now;
            }
            // Inputs end by themselves then, but those that began late: these give nothing more.
            let is_over = take.end_at().is_some_and(|it| now >= it) && take.is_complete();
            let end = take.end_at().map(|it| if is_over { it } else { it + TELL_EVERY });
            let over = end.is_some_and(|end| now >= end);
            if over || stop.is_set() || take.stop.is_set() || self.inputs_ended.is_set() {
                return now;
            }
            if self.shared.all_over.is_set() {
                return now;
            }
            take.watch_clocks();
            if now >= next {
                take.warn_of_little_left();
                watch(take, &take.status());
                next = (next + TELL_EVERY).max(now);
            }
            // Inputs stop by themselves at `most`; an input that has no notion of time is stopped
            // here.
            looks += 1;
            let look = next.min(now + look_after(looks));
            let until = end.map_or(look, |end| look.min(end));
            let mut fds = vec![
                stop.as_fd(),
                take.stop.as_fd(),
                self.inputs_ended.as_fd(),
                self.shared.all_over.as_fd(),
            ];
            if manifest.state == TakeState::Armed {
                fds.push(take.started.as_fd());
            }
            if wait_readable(&fds, Some(until.saturating_sub(now))).is_err() {
                self.halt.wait(Duration::from_millis(50));
            }
        }
    }
}

/// Refuses contradictory settings before anything is created.
fn check(plan: &TakePlan) -> Result<()> {
    let chunk = plan.engine.chunk_bytes;
    if !plan.ring_bytes.is_power_of_two() || !crate::limits::RING_BYTES.contains(&plan.ring_bytes) {
        return Err(Error::new(Kind::Usage, "a ring buffer cannot have this size")
            .expected("a power of two from 8K to 64M", plan.ring_bytes));
    }
    check_armed(plan.armed, plan.kind, plan.beside.is_some())?;
    if !crate::limits::CHUNK_BYTES.contains(&chunk) || 2 * chunk > plan.ring_bytes {
        return Err(Error::new(Kind::Usage, "a chunk cannot have this size")
            .expected("a size from 4K to 1M, and at most half of a ring buffer", chunk)
            .advice(
                "use a smaller chunk, which leaves more of the ring buffer free during stalls of \
                 the disk",
            ));
    }
    Ok(())
}

/// Refuses settings that are not possible for an armed take with this pre-roll.
///
/// # Errors
/// [`Kind::Usage`] for a pre-roll that is too long, for a pre-roll with encoded samples, and if
/// another take is played at the same time.
pub fn check_armed(armed: Option<Duration>, kind: FileKind, is_played: bool) -> Result<()> {
    let Some(pre_roll) = armed else { return Ok(()) };
    let longest = Duration::from_secs(crate::limits::PRE_ROLL_MAX_SECONDS);
    if pre_roll > longest {
        return Err(Error::new(Kind::Usage, "a pre-roll cannot have this length")
            .expected("at most 10 min", format!("{} s", pre_roll.as_secs())));
    }
    if is_played {
        // Playing begins with the inputs, and that is long before the order.
        return Err(Error::new(
            Kind::Usage,
            "--armed and --pre-roll cannot be combined with --play",
        )
        .advice(
            "leave out --armed and --pre-roll: with --play, recording starts when playback starts",
        ));
    }
    if kind == FileKind::Flac && !pre_roll.is_zero() {
        let what = "a FLAC file cannot have a pre-roll, because it must be encoded from its first \
                    sample on";
        return Err(Error::new(Kind::Usage, what)
            .advice("record with --format wav, or with --armed and without --pre-roll"));
    }
    Ok(())
}

type DirectoryCopies = Vec<Vec<StreamCopy>>;

#[cfg(test)]
mod armed_tests;
#[cfg(test)]
mod cut_tests;
#[cfg(test)]
mod flac_full_tests;
#[cfg(test)]
mod full_tests;
#[cfg(test)]
mod jack_tests;
#[cfg(test)]
mod late_tests;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod pause_tests;
#[cfg(test)]
pub(crate) mod tests;
