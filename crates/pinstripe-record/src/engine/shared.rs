//! State that all directories of a take share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::format_count;
use pinstripe_io::pool::WorkerPool;

use super::directory::TakeDirectory;
use super::gate::Gate;
use super::stream_file::StreamFile;
use crate::header::{Cue, HeadFacts, LocalTime};
use crate::limits::MARKS_MAX;
use crate::locks::{RankedMutex, RecordLock};
use crate::meter::Meter;
use crate::ring::{Ring, TakeZero};
use crate::take::{JournalEvent, RecordedGap, RecordedMark, stream_file_name};
use crate::writes::WritePolicy;

/// The most gaps that are listed one by one; further gaps are only counted.
const GAPS_LISTED: usize = 100_000;

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The smallest number of bytes of a write.
    pub chunk_bytes: u64,
    /// The interval of commits.
    pub commit_every: Duration,
    /// Whether real-time priorities are requested.
    pub is_realtime: bool,
    /// The write policy: through the page cache, or direct I/O.
    pub writes: WritePolicy,
    /// The greatest length of a file, in seconds of its stream.
    pub segment_seconds: Option<f64>,
    /// The greatest length of a file, in bytes of payload.
    pub segment_bytes: Option<u64>,
}

/// One stream.
pub(crate) struct SharedStream {
    /// The ring.
    pub ring: Arc<Ring>,
    /// The contents of the heads of the stream's files.
    pub facts: HeadFacts,
    /// The number of the stream's input; the streams of one input are in step.
    pub input: usize,
    /// Decides which parts of the stream are recorded.
    pub gate: Gate,
    /// Losses before the take began.
    pub(crate) before: RankedMutex<Losses>,
    /// The greatest length of a file in frames.
    pub segment_frames: u64,
    /// Whether the input waits when the ring is full.
    pub is_patient: bool,
    /// Whether the stream is recorded twice.
    pub is_mirrored: bool,
    /// The number of copies of the stream that are still written.
    pub copies: AtomicUsize,
    /// The level meter, which is updated while a client displays it.
    pub meter: Meter,
}

impl SharedStream {
    /// Counts bytes of gaps that occurred before the order to start and are in the pre-roll.
    pub(super) fn keep_losses(&self, bytes: u64) {
        let mut before = self.before.lock();
        let lost = bytes.min(before.lost_bytes);
        before.lost_bytes -= lost;
        before.missing_bytes = before.missing_bytes.saturating_sub(bytes - lost);
    }

    /// Losses in the take; before the take begins, losses since the input was opened.
    pub fn losses(&self) -> Losses {
        let before = self.before.lock();
        Losses {
            overruns: self.ring.overruns().saturating_sub(before.overruns),
            lost_bytes: self.ring.lost_bytes().saturating_sub(before.lost_bytes),
            missing_bytes: self.ring.missing_bytes().saturating_sub(before.missing_bytes),
        }
    }
}

/// Losses of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// The number of times that the ring was full.
    pub overruns: u64,
    /// The number of bytes that were lost because the ring was full.
    pub lost_bytes: u64,
    /// The number of bytes that did not arrive from the source.
    pub missing_bytes: u64,
}

/// The state that all directories of a take share.
pub(crate) struct SharedTake {
    /// When the take began.
    pub began: Instant,
    /// The settings.
    pub settings: EngineSettings,
    /// Every directory.
    pub directories: Vec<Arc<TakeDirectory>>,
    /// Every stream.
    pub streams: Vec<SharedStream>,
    /// Receives the reports of problems.
    pub monitor: Arc<Monitor>,
    /// Set when no copy of any stream is being written any more.
    pub all_over: Stop,
    /// The number of copies that are still being written.
    pub copies_left: AtomicUsize,
    /// The number of streams that ended because their directories failed.
    pub cut_streams: AtomicUsize,
    /// Whether a client displays levels.
    pub is_metered: AtomicBool,
    /// The length of the manifest at the beginning of the take, in bytes.
    pub manifest_bytes: AtomicU64,
    /// Local time at the first frame of the take, in nanoseconds, for the heads of files.
    pub started: Arc<AtomicI64>,
    /// The moment from which the frames of an input are counted that begins later than the take.
    pub zero: Arc<OnceLock<TakeZero>>,
    /// When the take began, if it has begun; a take that is not armed begins at once.
    pub(super) begun: OnceLock<TakeBeginning>,
    /// Locked by the thread that carries out an order to start, arm or split.
    pub(super) orders: RankedMutex<()>,
    /// The threads that encode FLAC streams.
    pub encoders: Arc<WorkerPool<'static>>,
    next_piece: AtomicU32,
    gaps: RankedMutex<Vec<RecordedGap>>,
    marks: RankedMutex<Vec<RecordedMark>>,
    refusals: RankedMutex<Vec<String>>,
}

impl SharedTake {
    /// Assembles a take.
    ///
    /// # Errors
    /// Fails if no file descriptor is available.
    pub fn new(
        settings: EngineSettings,
        directories: Vec<Arc<TakeDirectory>>,
        streams: Vec<SharedStream>,
        monitor: Arc<Monitor>,
        (started, zero): (LocalTime, Arc<OnceLock<TakeZero>>),
    ) -> Result<Self> {
        Ok(SharedTake {
            began: clock::monotonic(),
            settings,
            directories,
            copies_left: AtomicUsize::new(0),
            cut_streams: AtomicUsize::new(0),
            streams,
            monitor,
            all_over: Stop::new()?,
            is_metered: AtomicBool::new(false),
            manifest_bytes: AtomicU64::new(0),
            started: Arc::new(AtomicI64::new(started.to_nanos())),
            zero,
            begun: OnceLock::new(),
            orders: RankedMutex::new(RecordLock::Orders, ()),
            encoders: Arc::default(),
            next_piece: AtomicU32::new(0),
            gaps: RankedMutex::new(RecordLock::Gaps, Vec::new()),
            marks: RankedMutex::new(RecordLock::Marks, Vec::new()),
            refusals: RankedMutex::new(RecordLock::Refusals, Vec::new()),
        })
    }

    /// The time since the take began.
    pub fn now(&self) -> Duration {
        clock::since(self.began)
    }

    /// Creates a file for a copy of a stream, which begins at frame `start_frame`.
    ///
    /// # Errors
    /// The errors of the folder.
    pub(crate) fn new_piece(
        &self,
        directory: &TakeDirectory,
        (stream, copy): (u32, u32),
        start_frame: u64,
    ) -> Result<Arc<StreamFile>> {
        let shared = &self.streams[stream as usize];
        let number = self.next_piece.fetch_add(1, Ordering::Relaxed);
        let started = LocalTime::from_nanos(self.started.load(Ordering::Acquire));
        let facts = HeadFacts { start_frame, started, ..shared.facts.clone() };
        // Those that are made at the beginning have no frame in their names, unless the take is cut into
        // segments.
        let is_first = start_frame == 0 && number < 2 * self.streams.len() as u32;
        let is_cut = shared.segment_frames < u64::MAX;
        let later = (!is_first || is_cut).then_some((start_frame, number));
        let name = stream_file_name(&facts, copy, later);
        let shared = (Arc::clone(&shared.ring), Arc::clone(&self.started));
        let ids = (number, stream, copy);
        let piece =
            StreamFile::create(&*directory.folder, &self.encoders, ids, (name, facts), shared)?;
        let piece = Arc::new(piece);
        directory.add(&piece);
        Ok(piece)
    }

    /// Creates the piece after the first `front_bytes` of another piece in the same file.
    ///
    /// # Errors
    /// The errors of the folder.
    pub(super) fn piece_behind(
        &self,
        directory: &TakeDirectory,
        front: &Arc<StreamFile>,
        front_bytes: u64,
    ) -> Result<Arc<StreamFile>> {
        let number = self.next_piece.fetch_add(1, Ordering::Relaxed);
        let file = directory.folder.open(&front.name, true)?;
        // Samples since the order still wait to be durable.
        let began = self.beginning().map_or_else(|| self.now(), |it| it.at);
        let piece = Arc::new(StreamFile::behind_of(front, file, (number, front_bytes), began));
        directory.add(&piece);
        Ok(piece)
    }

    /// Records a gap; a gap in both copies of a mirror is recorded once.
    pub(crate) fn note_gap(&self, directory: &TakeDirectory, stream: u32, frame: u64, frames: u64) {
        directory.record_event(JournalEvent::Gap { stream, frame, frames });
        let rate = f64::from(self.streams[stream as usize].facts.shape.rate.max(1));
        let gap = RecordedGap { stream, frame, frames, at_seconds: frame as f64 / rate };
        let mut gaps = self.gaps.lock();
        let mut recent = gaps.iter_mut().rev().take(8 * self.streams.len());
        if !recent.any(|it| it.join(&gap)) && gaps.len() < GAPS_LISTED {
            gaps.push(gap);
        }
    }

    /// Sets a mark at the current place of every stream; returns false if there are too many marks.
    pub fn mark(&self, text: &str) -> bool {
        let frame = |it: &SharedStream| it.ring.produced_bytes() / it.facts.shape.frame_bytes();
        self.mark_at(text, self.streams.iter().map(frame).collect())
    }

    /// Sets a mark at a frame of each stream; returns false if there are too many marks.
    pub(super) fn mark_at(&self, text: &str, frames: Vec<u64>) -> bool {
        let mark = RecordedMark { text: text.to_owned(), frames };
        let mut marks = self.marks.lock();
        if marks.len() >= MARKS_MAX {
            return false;
        }
        for directory in &self.directories {
            let (text, frames) = (mark.text.clone(), mark.frames.clone());
            directory.record_event(JournalEvent::Mark { text, frames });
        }
        marks.push(mark);
        true
    }

    /// The number of gaps, the number of marks, and the total bytes of the marks' texts.
    pub(super) fn events(&self) -> (u64, u64, u64) {
        let gaps = self.gaps.lock().len() as u64;
        let marks = self.marks.lock();
        (gaps, marks.len() as u64, marks.iter().map(|it| it.text.len() as u64).sum())
    }

    /// Gaps so far.
    pub fn gaps(&self) -> Vec<RecordedGap> {
        self.gaps.lock().clone()
    }

    /// Marks so far.
    pub fn marks(&self) -> Vec<RecordedMark> {
        self.marks.lock().clone()
    }

    /// The gaps and marks within a file, as its cues.
    pub(crate) fn cues(&self, piece: &StreamFile) -> Vec<Cue> {
        cues_within(&self.gaps(), &self.marks(), piece.stream, piece.file_frames())
    }

    /// Reports data that could not be added to a file that had ended; for a mirrored stream, the
    /// other copy has the data.
    pub(super) fn report_missing(&self, directory: &TakeDirectory, piece: &StreamFile, bytes: u64) {
        let frames = piece.frames(bytes);
        if frames == 0 || self.streams[piece.stream as usize].is_mirrored {
            return;
        }
        let name = &piece.facts.name;
        let what = format!("the last {} frames of '{name}' are missing", format_count(frames));
        let error = Error::new(Kind::NoSpace, what).advice("these frames could not be written");
        self.monitor.loss(directory.folder.path().join(&piece.name), error);
    }

    /// Records a refused priority; each is recorded only once.
    pub(crate) fn note_refusal(&self, what: &str, error: &std::io::Error) {
        let text = format!("{what}: {error}");
        let mut refusals = self.refusals.lock();
        if !refusals.contains(&text) {
            refusals.push(text);
        }
    }

    /// The priorities that were refused.
    pub fn refusals(&self) -> Vec<String> {
        self.refusals.lock().clone()
    }
}

/// Returns gaps and marks within a range of frames of a stream, as cues of the file that contains
/// these frames.
pub(crate) fn cues_within(
    gaps: &[RecordedGap],
    marks: &[RecordedMark],
    stream: u32,
    frames: std::ops::Range<u64>,
) -> Vec<Cue> {
    let lost = gaps
        .iter()
        .filter(|it| it.stream == stream && frames.contains(&it.frame))
        .map(|gap| (gap.frame, format!("lost: {} frames, replaced by silence", gap.frames)));
    // The end is a place that can be marked, too.
    let marked = marks
        .iter()
        .filter_map(|mark| Some((*mark.frames.get(stream as usize)?, mark.text.clone())))
        .filter(|(frame, _)| (frames.start..=frames.end).contains(frame));
    let mut cues: Vec<Cue> =
        lost.chain(marked).map(|(frame, text)| Cue { frame: frame - frames.start, text }).collect();
    cues.sort_by_key(|it| it.frame);
    cues
}

/// When a take began, and with how much pre-roll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakeBeginning {
    /// The moment of the order to start, counted from the opening of the devices.
    pub at: Duration,
    /// The length of the pre-roll.
    pub pre_roll: Duration,
}
