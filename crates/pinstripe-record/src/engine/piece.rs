//! One file of a stream while it is written.

mod front;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;

use super::closing::{close_file, trimmed_run};
use super::lane::Lane;
use crate::flac::{FlacPool, FlacWriter};
use crate::header::{Cue, FileKind, HeadFacts, LocalTime};
use crate::limits::RESERVE_BYTES;
use crate::ring::Ring;
use crate::take::{Summed, TakeFile, TrimmedRun};

/// Seconds of a stream that are reserved ahead of its end.
const RESERVE_SECONDS: u64 = 30;

/// A file that is being written.
pub struct Piece {
    /// Its number in the journal.
    pub number: u32,
    /// The stream.
    pub stream: u32,
    /// 0, or 1 of a mirror.
    pub copy: u32,
    /// Its first frame in the stream: of the first file of an input that begins late known only then.
    start_frame: AtomicU64,
    /// Its name.
    pub name: String,
    /// What its head says.
    pub facts: HeadFacts,
    /// Where its payload begins.
    pub payload_at: u64,
    pub(super) file: TakeFile,
    pub(super) ring: Arc<Ring>,
    /// Local time at the first frame of the take: that of an armed one is known only then.
    started: Arc<AtomicI64>,
    pub(super) state: Mutex<PieceState>,
    /// The piece in front of it in the same file.
    front: Option<Arc<Piece>>,
    /// Where another piece stands behind it in the same file, which cares for head and length: the moment
    /// at which that one begins, and the bytes in front of it.
    front_until: OnceLock<(Duration, u64)>,
    written: AtomicU64,
    vouched: AtomicU64,
    /// Nanoseconds since the take began up to which all samples are durable.
    covered: AtomicU64,
    is_ended: AtomicBool,
    is_closed: AtomicBool,
    /// Its stream is not recorded, so that no sample waits for it.
    is_idle: AtomicBool,
    /// Its sync failed: it is never written or synced again.
    has_failed: AtomicBool,
    /// The payload that its head tells of.
    told: AtomicU64,
    cut: OnceLock<String>,
}

/// What the writer has written and the committer has not dealt with.
#[derive(Default)]
pub(super) struct PieceState {
    pub sums: Vec<Summed>,
    /// Where the first of them begins, in the payload.
    pub sums_at: u64,
    /// Durable, but not in the journal yet; and the moment that it covers.
    pub synced: Vec<Summed>,
    pub synced_covers: u64,
    /// Where the last run begins, in the payload.
    last_at: u64,
    trimmed: Option<TrimmedRun>,
    reserved: u64,
    is_reserving_refused: bool,
}

impl Piece {
    /// Makes the file, reserves its first space, and writes its head, all of it still to be made
    /// durable.
    ///
    /// # Errors
    /// Those of the folder.
    pub fn create(
        lane: &Lane,
        encoders: &Arc<FlacPool>,
        (number, stream, copy): (u32, u32, u32),
        (name, facts): (String, HeadFacts),
        (ring, started): (Arc<Ring>, Arc<AtomicI64>),
        began: Duration,
    ) -> Result<Self> {
        let mut file = lane.folder.create(&name)?;
        let head = facts.head(0);
        if facts.kind == FileKind::Flac {
            let at = head.len() as u64;
            let writer = FlacWriter::new(file.shared(), facts.shape, at, encoders)?;
            file = TakeFile::encoded(writer);
        }
        let ids = (number, stream, copy);
        let mut piece = Piece::of_file(ids, (name, facts, file), (ring, started), began);
        piece.payload_at = head.len() as u64;
        piece.reserve_ahead();
        piece.file.device().write_at(0, &head)?;
        Ok(piece)
    }

    fn of_file(
        (number, stream, copy): (u32, u32, u32),
        (name, facts, file): (String, HeadFacts, TakeFile),
        (ring, started): (Arc<Ring>, Arc<AtomicI64>),
        began: Duration,
    ) -> Self {
        Piece {
            number,
            stream,
            copy,
            start_frame: AtomicU64::new(facts.start_frame),
            name,
            payload_at: 0,
            facts,
            file,
            ring,
            started,
            state: Mutex::default(),
            front: None,
            front_until: OnceLock::new(),
            written: AtomicU64::new(0),
            vouched: AtomicU64::new(0),
            covered: AtomicU64::new(began.as_nanos() as u64),
            is_ended: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            told: AtomicU64::new(0),
            cut: OnceLock::new(),
        }
    }

    /// Makes its head and its reservation durable, before anything is recorded.
    ///
    /// # Errors
    /// As the system says.
    pub fn make_durable(&self) -> Result<()> {
        self.file.device().sync()
    }

    /// Payload bytes that were written.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Payload bytes that the journal vouches for.
    pub fn vouched_bytes(&self) -> u64 {
        self.vouched.load(Ordering::Acquire)
    }

    /// Says whether its stream is recorded: where it is not, no sample waits for this file.
    pub fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::Release);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Acquire)
    }

    /// Its first frame in the stream.
    pub fn start_frame(&self) -> u64 {
        self.start_frame.load(Ordering::Acquire)
    }

    /// Whether it begins at a frame and nothing was written to it yet.
    pub(super) fn is_fresh_at(&self, frame: u64) -> bool {
        self.start_frame() == frame && self.can_begin_at(frame)
    }

    /// Has it begin at a frame, where nothing was written to it yet; says whether.
    pub(super) fn begin_at(&self, frame: u64) -> bool {
        let is_possible = self.can_begin_at(frame);
        if is_possible {
            self.start_frame.store(frame, Ordering::Release);
        }
        is_possible
    }

    fn can_begin_at(&self, frame: u64) -> bool {
        // A head that became longer with the time at which the take began would reach into the payload.
        let head = HeadFacts { start_frame: frame, ..self.head_facts() };
        self.written_in_file() == 0 && !self.is_ended() && head.payload_at() == self.payload_at
    }

    /// Whole frames of so many payload bytes.
    pub fn frames(&self, bytes: u64) -> u64 {
        bytes / self.facts.shape.frame_bytes()
    }

    /// The place in its stream behind what was written, in bytes.
    pub fn position(&self) -> u64 {
        self.start_frame() * self.facts.shape.frame_bytes() + self.written_bytes()
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        let at = self.payload_at + self.written.load(Ordering::Relaxed);
        self.file.device().write_at(at, bytes)?;
        let sum = Summed::of(bytes);
        let mut state = lock(&self.state);
        state.sums.push(sum);
        state.last_at = at - self.payload_at;
        drop(state);
        self.written.fetch_add(bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Reserves more space when little is left ahead.
    pub(super) fn reserve_ahead(&self) {
        let ahead = (self.facts.shape.byte_rate() * RESERVE_SECONDS)
            .clamp(*RESERVE_BYTES.start(), *RESERVE_BYTES.end());
        let end = self.payload_at + self.written_bytes();
        let mut state = lock(&self.state);
        if state.is_reserving_refused || end + ahead / 2 <= state.reserved {
            return;
        }
        let from = state.reserved.max(end);
        let range = from..end + ahead;
        // Without a lock: it takes time, and the writer must not wait for it.
        drop(state);
        let refused = self.file.reserve(range.clone()).is_err();
        state = lock(&self.state);
        match refused {
            // The disk is nearly full: what is free is left to the writes.
            true => state.is_reserving_refused = true,
            false => state.reserved = range.end,
        }
    }

    /// Bytes that are reserved and not written yet.
    pub fn ahead_bytes(&self) -> u64 {
        lock(&self.state).reserved.saturating_sub(self.payload_at + self.written_bytes())
    }

    /// Has the kernel begin to write out what is not durable yet.
    pub(super) fn start_writeback(&self) {
        let (from, to) = (self.vouched_bytes(), self.written_bytes());
        if from < to {
            self.file.start_writeback(self.payload_at + from..self.payload_at + to);
        }
    }

    /// Has the kernel write out what is not durable yet, and waits for that.
    pub(super) fn finish_writeback(&self) {
        self.reserve_ahead();
        let (from, to) = (self.vouched_bytes(), self.written_bytes());
        if from < to {
            self.file.finish_writeback(self.payload_at + from..self.payload_at + to);
        }
    }

    /// Makes durable what was written up to now.
    pub(super) fn sync(&self, now: Duration) -> Result<()> {
        let produced = self.ring.produced_bytes();
        let is_ended = self.is_ended();
        let (mut sums, mut position) = {
            let mut state = lock(&self.state);
            (std::mem::take(&mut state.sums), self.position())
        };
        if is_ended {
            self.file.finish()?;
        }
        let is_idle = self.is_idle();
        // Before its first sample is written it is where the stream begins, and that may be late.
        position = position.max(self.ring.place_in_take(0));
        if is_idle && self.written_bytes() == 0 {
            // Nothing was ever written to it.
            lock(&self.state).synced_covers = now.as_nanos() as u64;
            return Ok(());
        }
        self.file.device().sync()?;
        if let Some(durable) = self.file.durable_bytes() {
            position -= self.written_within(&mut sums, durable);
        }
        // Where the stream has gone on in another file, nothing of it waits for this one.
        let is_awaited = !is_ended && !is_idle;
        let behind = if is_awaited { produced.saturating_sub(position) } else { 0 };
        let behind = Duration::from_secs_f64(self.facts.shape.seconds(behind));
        let mut state = lock(&self.state);
        state.sums_at += sums.iter().map(|it| u64::from(it.bytes)).sum::<u64>();
        state.synced.extend(sums);
        state.synced_covers = now.saturating_sub(behind).as_nanos() as u64;
        Ok(())
    }

    /// Leaves of these runs those that lie in so much of the payload, and gives the others back to those that
    /// wait; how many bytes these have.
    fn written_within(&self, sums: &mut Vec<Summed>, durable: u64) -> u64 {
        let mut state = lock(&self.state);
        let mut end = state.sums_at;
        let is_within = |run: &&Summed| {
            end += u64::from(run.bytes);
            end <= durable
        };
        let count = sums.iter().take_while(is_within).count();
        let rest = sums.split_off(count);
        let bytes = rest.iter().map(|it| u64::from(it.bytes)).sum();
        state.sums.splice(..0, rest);
        bytes
    }

    /// What became durable since the last call, for the journal, and the moment that it covers: both
    /// at once, for a sync may end meanwhile.
    pub(super) fn take_synced(&self) -> (Vec<Summed>, u64) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.synced), state.synced_covers)
    }

    /// The journal vouches for so many bytes more, which cover all samples up to a moment.
    pub(super) fn vouch(&self, bytes: u64, covers: u64) {
        self.vouched.fetch_add(bytes, Ordering::Release);
        // A file that was never synced covers what it did when it was made.
        self.covered.fetch_max(covers, Ordering::AcqRel);
    }

    /// Up to when all samples are durable, since the take began.
    pub fn covered(&self) -> Duration {
        if let Some(covered) = self.front_covered() {
            return covered;
        }
        Duration::from_nanos(self.covered.load(Ordering::Acquire))
    }

    /// What its head says, with the time at which the take began, and the frame at which it does.
    fn head_facts(&self) -> HeadFacts {
        let started = LocalTime { seconds: self.started.load(Ordering::Acquire) };
        HeadFacts { started, start_frame: self.file_start(), ..self.facts.clone() }
    }

    /// Writes the head for what the journal vouches for.
    pub(super) fn write_head(&self) -> Result<()> {
        let frame_bytes = self.facts.shape.frame_bytes();
        if self.is_front() {
            return Ok(());
        }
        let bytes = self.vouched_in_file();
        if self.told.load(Ordering::Relaxed) == bytes {
            return Ok(());
        }
        self.file.device().write_at(0, &self.head_facts().head(bytes - bytes % frame_bytes))?;
        self.told.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the file for good, when all of it is durable.
    pub(super) fn close(&self, cues: &[Cue]) -> Result<()> {
        if self.front.as_ref().is_some_and(|front| !front.is_done()) {
            // Its file is closed when its front is complete.
            return Ok(());
        }
        if self.is_front() {
            self.is_closed.store(true, Ordering::Release);
            return Ok(());
        }
        let bytes = self.vouched_bytes();
        let whole = bytes - bytes % self.facts.shape.frame_bytes();
        if whole < bytes {
            let at = lock(&self.state).last_at;
            lock(&self.state).trimmed = trimmed_run(&self.file, self.payload_at, at, whole)?;
        }
        close_file(&self.file, &self.head_facts(), self.front_bytes() + whole, cues)?;
        self.is_closed.store(true, Ordering::Release);
        Ok(())
    }

    /// What is left of its last run, where it ends within that.
    pub fn trimmed(&self) -> Option<TrimmedRun> {
        lock(&self.state).trimmed
    }

    pub(super) fn end(&self, cut: Option<String>) {
        if let Some(cut) = cut {
            self.cut.get_or_init(|| cut);
        }
        self.is_ended.store(true, Ordering::Release);
    }

    /// Whether nothing more is written to it.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Whether it is complete and durable.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether nothing more is done with it: it is complete, or cannot be made durable.
    pub fn is_done(&self) -> bool {
        self.is_closed() || self.has_failed.load(Ordering::Acquire)
    }

    /// Why it ended before its stream, if so.
    pub fn cut(&self) -> Option<&str> {
        self.cut.get().map(String::as_str)
    }
}
