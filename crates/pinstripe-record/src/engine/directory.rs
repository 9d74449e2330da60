//! One directory of a take while it is recorded.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use pinstripe_base::error::{Error, Result};
use pinstripe_base::ranked::Ranked;
use pinstripe_base::sync::Stop;

use super::roll::Fronts;
use super::stages::SlowestCommit;
use super::stream_copy::StreamCopy;
use super::stream_file::StreamFile;
use crate::locks::{RankedMutex, RecordLock};
use crate::take::{Journal, JournalEvent, JournalRecord, TakeFolder};

/// Figures of a directory; each is the maximum or the sum so far.
#[derive(Default)]
pub(crate) struct DirectoryFigures {
    /// Payload bytes written.
    pub written_bytes: AtomicU64,
    /// The longest write, in nanoseconds.
    pub longest_write_nanos: AtomicU64,
    /// The longest delay of a thread that only waited, in nanoseconds.
    pub longest_absence_nanos: AtomicU64,
    /// The total time of all writes, in nanoseconds.
    pub writing_nanos: AtomicU64,
    /// The number.
    pub writes: AtomicU64,
    /// The greatest durable lag, in nanoseconds.
    pub lag_nanos: AtomicU64,
    /// Processor time of the writer, in nanoseconds.
    pub writer_cpu_nanos: AtomicU64,
    /// Processor time of the committer and of syncs, in nanoseconds.
    pub commit_cpu_nanos: AtomicU64,
    /// The slowest sync and commit.
    pub slowest: SlowestCommit,
}

/// One directory of a take, with its journal and its files.
pub(crate) struct TakeDirectory {
    /// The number of the directory in the manifest.
    pub number: u32,
    /// The directory.
    pub folder: Arc<dyn TakeFolder>,
    /// The figures so far.
    pub figures: DirectoryFigures,
    /// Set when the writer has nothing more to do.
    pub(super) writer_ended: Stop,
    pub(super) journal: RankedMutex<Journal>,
    /// The length of a manifest for which space is reserved, in bytes.
    pub(super) manifest_room: AtomicU64,
    /// Events that the next commit adds to the journal; no thread has to wait for the journal while
    /// it is committed.
    events: RankedMutex<Vec<JournalEvent>>,
    /// The beginnings of files (fronts) into which the pre-roll must still be copied.
    pub(super) fronts: Fronts,
    /// Number of files whose names are durable.
    pub(super) named: AtomicUsize,
    pieces: RankedMutex<Vec<Arc<StreamFile>>>,
    /// Copies of streams that another directory has handed over.
    inbox: RankedMutex<Vec<StreamCopy>>,
    failure: RankedMutex<Option<Error>>,
    has_failed: AtomicBool,
}

impl TakeDirectory {
    /// Creates the journal of a directory, and takes its lock.
    ///
    /// # Errors
    /// The errors of the folder.
    pub fn new(number: u32, folder: Arc<dyn TakeFolder>, id: &str) -> Result<Self> {
        let file = folder.create(crate::take::JOURNAL)?;
        file.lock(false)?;
        let mut journal = Journal::new(file);
        let begin = JournalEvent::Begin { id: id.to_owned(), directory: number };
        journal.add(JournalRecord::Event(begin));
        Ok(TakeDirectory {
            number,
            folder,
            figures: DirectoryFigures::default(),
            writer_ended: Stop::new()?,
            journal: RankedMutex::new(RecordLock::Journal, journal),
            manifest_room: AtomicU64::new(0),
            events: RankedMutex::new(RecordLock::Events, Vec::new()),
            fronts: Fronts::default(),
            named: AtomicUsize::new(0),
            pieces: RankedMutex::new(RecordLock::Files, Vec::new()),
            inbox: RankedMutex::new(RecordLock::Inbox, Vec::new()),
            failure: RankedMutex::new(RecordLock::Failure, None),
            has_failed: AtomicBool::new(false),
        })
    }

    /// Adds a file. Adds a file to the directory; the next commit records it in the journal.
    pub fn add(&self, piece: &Arc<StreamFile>) {
        self.note_file(piece);
        self.pieces.lock().push(Arc::clone(piece));
    }

    /// Queues the journal event of a file; it is queued a second time if the first frame of the
    /// file has changed before anything was written to it.
    pub(super) fn note_file(&self, piece: &StreamFile) {
        self.record_event(JournalEvent::File {
            piece: piece.number,
            stream: piece.stream,
            copy: piece.copy,
            file: piece.name.clone(),
            start_frame: piece.start_frame(),
            behind: piece.behind(),
        });
    }

    /// Adds an event to the journal; it becomes durable with the next commit.
    pub(crate) fn record_event(&self, event: JournalEvent) {
        self.events.lock().push(event);
    }

    /// Returns the journal after adding all queued events to it.
    pub(super) fn journal_with_events(&self) -> Ranked<MutexGuard<'_, Journal>> {
        let mut journal = self.journal.lock();
        let events = std::mem::take(&mut *self.events.lock());
        events.into_iter().for_each(|it| journal.add(JournalRecord::Event(it)));
        journal
    }

    /// Makes the names of all files durable, if there are new ones.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub(crate) fn sync_names(&self) -> Result<()> {
        let count = self.pieces.lock().len();
        if count > self.named.load(Ordering::Acquire) {
            self.folder.sync_names()?;
            self.named.store(count, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the journal durable in its current state.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn commit(&self) -> Result<()> {
        self.journal_with_events().commit()
    }

    /// All files so far.
    pub fn pieces(&self) -> Vec<Arc<StreamFile>> {
        self.pieces.lock().clone()
    }

    /// The age of the oldest sample that is not durable; the sample may still be in a ring.
    pub fn lag(&self, now: Duration) -> Duration {
        let pieces = self.pieces.lock();
        let waiting = pieces.iter().filter(|it| !it.is_done());
        waiting.map(|it| now.saturating_sub(it.covered(now))).max().unwrap_or_default()
    }

    /// Gives up the directory; the first reason is kept.
    pub fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether the directory was given up.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Why the directory was given up; `None` if it was not.
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().as_ref().map(Error::duplicate)
    }

    pub(super) fn hand_over(&self, copy: StreamCopy) {
        self.inbox.lock().push(copy);
    }

    pub(super) fn take_handed(&self) -> Vec<StreamCopy> {
        std::mem::take(&mut self.inbox.lock())
    }
}
