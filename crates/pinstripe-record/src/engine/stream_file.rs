//! One file of a stream while it is being written.

mod front;

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pinstripe_base::error::Result;
use pinstripe_io::pool::WorkerPool;

use super::closing::{close_file, trimmed_run};
use crate::flac::FlacWriter;
use crate::header::{Cue, FLAC_BLOCK, FileKind, HeadFacts, LocalTime};
use crate::limits::RESERVE_BYTES;
use crate::locks::{RankedMutex, RecordLock};
use crate::ring::Ring;
use crate::take::{Summed, TakeFile, TakeFolder, TrimmedRun};

/// The length of the space that is reserved ahead in a file, in seconds of its stream.
const RESERVE_SECONDS: u64 = 30;

/// A file that is being written.
pub(crate) struct StreamFile {
    /// The number of the file in the journal.
    pub number: u32,
    /// The stream.
    pub stream: u32,
    /// The number of the copy: 0, or 1 for the second copy of a mirror.
    pub copy: u32,
    /// The first frame of the file in the stream; for the first file of an input that begins late
    /// it is known only when the input begins.
    start_frame: AtomicU64,
    /// The name.
    pub name: String,
    /// The contents of the file's head.
    pub facts: HeadFacts,
    /// The offset at which the payload begins.
    pub payload_at: u64,
    pub(super) file: TakeFile,
    pub(super) ring: Arc<Ring>,
    /// Local time at the first frame of the take, in nanoseconds; for an armed take it is known only when it
    /// begins.
    started: Arc<AtomicI64>,
    pub(super) state: RankedMutex<StreamFileState>,
    /// The piece before this one in the same file.
    front: Option<Arc<StreamFile>>,
    /// If another piece follows in the same file and maintains its head and length: the moment at
    /// which that piece begins, and the number of payload bytes before it.
    front_until: OnceLock<(Duration, u64)>,
    written: AtomicU64,
    vouched: AtomicU64,
    is_ended: AtomicBool,
    is_closed: AtomicBool,
    /// Whether the stream is currently not recorded, so that no sample waits for this file.
    is_idle: AtomicBool,
    /// Whether a sync failed; the file is then never written or synced again.
    has_failed: AtomicBool,
    /// Where the payload ends, if not all of the written data could be encoded.
    ends_at: OnceLock<u64>,
    /// The number of payload bytes that the head records.
    told: AtomicU64,
    cut: OnceLock<String>,
}

/// The data that the writer has written and the committer has not processed yet.
#[derive(Default)]
pub(super) struct StreamFileState {
    pub sums: Vec<Summed>,
    /// The offset in the payload at which the first of these runs begins.
    pub sums_at: u64,
    /// Runs that are durable, but not in the journal yet.
    pub synced: Vec<Summed>,
    /// The offset in the payload at which the last run begins.
    last_at: u64,
    trimmed: Option<TrimmedRun>,
    reserved: u64,
    is_reserving_refused: bool,
}

impl StreamFile {
    /// Creates the file and writes its head; neither is durable yet. When the writer creates a file
    /// during a take, it reserves no space, because it has no time for that; other threads do it.
    ///
    /// # Errors
    /// The errors of the folder.
    pub fn create(
        folder: &dyn TakeFolder,
        encoders: &Arc<WorkerPool<'static>>,
        (number, stream, copy): (u32, u32, u32),
        (name, facts): (String, HeadFacts),
        (ring, started): (Arc<Ring>, Arc<AtomicI64>),
    ) -> Result<Self> {
        let mut file = folder.create(&name)?;
        let head = facts.head(0);
        if facts.kind == FileKind::Flac {
            let at = head.len() as u64;
            let writer = FlacWriter::new(file.shared(), facts.shape, at, encoders)?;
            file = TakeFile::encoded(writer);
        }
        let ids = (number, stream, copy);
        let mut piece = StreamFile::of_file(ids, (name, facts, file), (ring, started));
        piece.payload_at = head.len() as u64;
        piece.file.device().write_at(0, &head)?;
        Ok(piece)
    }

    fn of_file(
        (number, stream, copy): (u32, u32, u32),
        (name, facts, file): (String, HeadFacts, TakeFile),
        (ring, started): (Arc<Ring>, Arc<AtomicI64>),
    ) -> Self {
        StreamFile {
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
            state: RankedMutex::new(RecordLock::File, StreamFileState::default()),
            front: None,
            front_until: OnceLock::new(),
            written: AtomicU64::new(0),
            vouched: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            ends_at: OnceLock::new(),
            told: AtomicU64::new(0),
            cut: OnceLock::new(),
        }
    }

    /// Reserves the first space of the file, and makes this and the head durable, before anything
    /// is recorded.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn make_durable(&self) -> Result<()> {
        self.reserve_ahead();
        self.file.device().sync()
    }

    /// The number of payload bytes that were written.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The number of payload bytes that the journal vouches for.
    pub(crate) fn vouched_bytes(&self) -> u64 {
        self.vouched.load(Ordering::Acquire)
    }

    /// Sets whether the stream is currently not recorded; if so, no sample waits for this file.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::Release);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Acquire)
    }

    /// The first frame of the file in its stream.
    pub fn start_frame(&self) -> u64 {
        self.start_frame.load(Ordering::Acquire)
    }

    /// Whether the file begins at this frame and nothing was written to it yet.
    pub(super) fn is_fresh_at(&self, frame: u64) -> bool {
        self.start_frame() == frame && self.can_begin_at(frame)
    }

    /// Makes the file begin at a frame, if nothing was written to it yet. Returns whether the file
    /// now begins there.
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

    /// The number of complete frames in `bytes` of payload.
    pub fn frames(&self, bytes: u64) -> u64 {
        bytes / self.facts.shape.frame_bytes()
    }

    /// The place in the stream at which the next byte will be written.
    pub fn position(&self) -> u64 {
        self.start_frame() * self.facts.shape.frame_bytes() + self.written_bytes()
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut at = self.written.load(Ordering::Relaxed);
        self.file.device().write_at(self.payload_at + at, bytes)?;
        // FLAC becomes durable in complete blocks: a run that crosses a block's end would wait for
        // the next block.
        let block = FLAC_BLOCK * self.facts.shape.frame_bytes();
        let first = match self.facts.kind {
            FileKind::Flac => bytes.len().min((block - at % block) as usize),
            _ => bytes.len(),
        };
        let (first, rest) = bytes.split_at(first);
        for run in iter::once(first).chain(rest.chunks(block as usize)) {
            let sum = Summed::from_bytes(run);
            let mut state = self.state.lock();
            debug_assert!(!self.is_ended(), "nothing is written behind the end");
            state.sums.push(sum);
            state.last_at = at;
            at += run.len() as u64;
        }
        self.written.store(at, Ordering::Release);
        Ok(())
    }

    /// Reserves more space if little reserved space is left.
    pub(super) fn reserve_ahead(&self) {
        let ahead = (self.facts.shape.byte_rate() * RESERVE_SECONDS)
            .clamp(*RESERVE_BYTES.start(), *RESERVE_BYTES.end());
        let end = self.payload_at + self.written_bytes();
        let mut state = self.state.lock();
        if state.is_reserving_refused || end + ahead / 2 <= state.reserved {
            return;
        }
        let from = state.reserved.max(end);
        let range = from..end + ahead;
        // Without a lock: it takes time, and the writer must not wait for it.
        drop(state);
        let is_kept =
            !self.file.is_in_memory() && matches!(self.file.reserve(range.clone()), Ok(true));
        state = self.state.lock();
        match is_kept {
            true => state.reserved = range.end,
            // It costs too much, or the disk is nearly full: the free space is left to the writes.
            false => state.is_reserving_refused = true,
        }
    }

    /// Bytes that are reserved and not written yet.
    pub fn ahead_bytes(&self) -> u64 {
        self.state.lock().reserved.saturating_sub(self.payload_at + self.written_bytes())
    }

    /// Starts writeback of the data that is not durable yet.
    pub(super) fn start_writeback(&self) {
        let (from, to) = (self.vouched_bytes(), self.written_bytes());
        if from < to {
            self.file.start_writeback(self.payload_at + from..self.payload_at + to);
        }
    }

    /// Writes back the data that is not durable yet, and waits until this is done.
    pub(super) fn finish_writeback(&self) {
        self.reserve_ahead();
        let (from, to) = (self.vouched_bytes(), self.written_bytes());
        if from < to {
            self.file.finish_writeback(self.payload_at + from..self.payload_at + to);
        }
    }

    /// Ends the piece with the data that is already in its file. If samples are encoded (FLAC),
    /// returns the written bytes that have not reached the file.
    pub(super) fn give_back(&self) -> Option<Vec<u8>> {
        let back = self.file.end_here()?;
        let end = self.written_bytes() - back.len() as u64;
        debug_assert!(end >= self.vouched_bytes(), "what the journal vouches for stays");
        self.ends_at.get_or_init(|| end);
        self.written.store(end, Ordering::Release);
        Some(back)
    }

    /// Encodes all remaining samples if the piece has ended; otherwise returns any earlier encoder
    /// error.
    pub(super) fn finish(&self) -> Result<()> {
        match self.is_ended() {
            true => self.file.finish(),
            false => self.file.failure().map_or(Ok(()), Err),
        }
    }

    /// Makes everything durable that was written up to now.
    pub(super) fn sync(&self) -> Result<()> {
        let mut sums = std::mem::take(&mut self.state.lock().sums);
        if self.is_idle() && self.written_bytes() == 0 {
            // Nothing was ever written to it.
            return Ok(());
        }
        self.file.device().sync()?;
        if let Some(durable) = self.file.durable_bytes() {
            self.keep_within(&mut sums, durable);
        }
        debug_assert!(
            !self.has_failed.load(Ordering::Acquire),
            "a file whose sync failed is not synced again"
        );
        let mut state = self.state.lock();
        state.sums_at += sums.iter().map(|it| u64::from(it.bytes)).sum::<u64>();
        state.synced.extend(sums);
        Ok(())
    }

    /// Keeps the runs that are within the first `durable` payload bytes. The other runs wait for
    /// the next sync, unless the file gets no more data.
    fn keep_within(&self, sums: &mut Vec<Summed>, durable: u64) {
        let mut state = self.state.lock();
        let mut end = state.sums_at;
        let is_within = |run: &&Summed| {
            end += u64::from(run.bytes);
            end <= durable
        };
        let count = sums.iter().take_while(is_within).count();
        let rest = sums.split_off(count);
        if self.ends_at.get() != Some(&durable) {
            state.sums.splice(..0, rest);
        }
    }

    /// Returns the runs that became durable since the last call, for the journal.
    pub(super) fn take_synced(&self) -> Vec<Summed> {
        std::mem::take(&mut self.state.lock().synced)
    }

    /// Increases the number of bytes that the journal vouches for.
    pub(super) fn vouch(&self, bytes: u64) {
        let before = self.vouched.fetch_add(bytes, Ordering::Release);
        debug_assert!(
            before + bytes <= self.written_bytes(),
            "only what was written is vouched for"
        );
    }

    /// The moment, since the take began, up to which all samples of the stream that belong to this
    /// file are durable.
    pub fn covered(&self, now: Duration) -> Duration {
        if let Some(covered) = self.front_covered() {
            return covered;
        }
        let (is_ended, vouched) = (self.is_ended(), self.vouched_bytes());
        let is_whole = is_ended && vouched == self.written_bytes();
        if is_whole || (self.is_idle() && self.written_bytes() == 0) {
            // If the stream continues in another file, or is not recorded, nothing waits for this
            // piece.
            return now;
        }
        // Its writer may be held up.
        self.ring.note_time(now);
        let position = self.start_frame() * self.facts.shape.frame_bytes() + vouched;
        self.ring.all_before(self.ring.place_of(position), now)
    }

    /// The contents of the head, with the time at which the take began and the first frame of the
    /// file.
    fn head_facts(&self) -> HeadFacts {
        let started = LocalTime::from_nanos(self.started.load(Ordering::Acquire));
        HeadFacts { started, start_frame: self.file_start(), ..self.facts.clone() }
    }

    /// Writes the head for the bytes that the journal vouches for.
    pub(super) fn write_head(&self) -> Result<()> {
        let frame_bytes = self.facts.shape.frame_bytes();
        if self.is_front() {
            return Ok(());
        }
        let bytes = self.vouched_in_file();
        if self.told.load(Ordering::Relaxed) == bytes {
            return Ok(());
        }
        debug_assert!(bytes <= self.written_in_file(), "a head promises no more than there is");
        self.file.device().write_at(0, &self.head_facts().head(bytes - bytes % frame_bytes))?;
        self.told.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Completes the file when all of it is durable.
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
            let at = self.state.lock().last_at;
            self.state.lock().trimmed = trimmed_run(&self.file, self.payload_at, at, whole)?;
        }
        close_file(&self.file, &self.head_facts(), self.front_bytes() + whole, cues)?;
        self.is_closed.store(true, Ordering::Release);
        Ok(())
    }

    /// The rest of its last run, if the piece ends within that run.
    pub fn trimmed(&self) -> Option<TrimmedRun> {
        self.state.lock().trimmed
    }

    pub(super) fn end(&self, cut: Option<String>) {
        if let Some(cut) = cut {
            self.cut.get_or_init(|| cut);
        }
        self.is_ended.store(true, Ordering::Release);
    }

    /// Whether nothing more will be written to the file.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Whether the file is complete and durable.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether the file needs no more work: it is complete, or cannot be made durable.
    pub fn is_done(&self) -> bool {
        self.is_closed() || self.has_failed.load(Ordering::Acquire)
    }

    /// Why the file ended before its stream; `None` if it did not.
    pub fn cut(&self) -> Option<&str> {
        self.cut.get().map(String::as_str)
    }
}
