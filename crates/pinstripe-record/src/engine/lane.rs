//! One directory of a take while it is recorded.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use pinstripe_base::error::{Error, Result};
use pinstripe_base::ranked::Ranked;
use pinstripe_base::sync::Stop;

use super::piece::Piece;
use super::roll::Fronts;
use super::stages::SlowestCommit;
use super::stream_copy::StreamCopy;
use crate::locks::{RankedMutex, RecordLock};
use crate::take::{Journal, JournalEvent, JournalRecord, TakeFolder};

/// Figures of a lane, each the greatest or the sum so far.
#[derive(Default)]
pub(crate) struct LaneFigures {
    /// Payload bytes written.
    pub written_bytes: AtomicU64,
    /// The longest write, in nanoseconds.
    pub longest_write_nanos: AtomicU64,
    /// The total time of all writes, in nanoseconds.
    pub writing_nanos: AtomicU64,
    /// The number.
    pub writes: AtomicU64,
    /// The greatest durable lag, in nanoseconds.
    pub lag_nanos: AtomicU64,
    /// Processor time of the writer, and of committer and syncs, in nanoseconds.
    pub writer_cpu_nanos: AtomicU64,
    /// See `writer_cpu_nanos`.
    pub commit_cpu_nanos: AtomicU64,
    /// The slowest sync and commit.
    pub slowest: SlowestCommit,
}

/// A directory, its journal, and its files.
pub struct Lane {
    /// The number in the manifest.
    pub number: u32,
    /// The directory.
    pub folder: Arc<dyn TakeFolder>,
    /// The figures so far.
    pub figures: LaneFigures,
    /// Set when its writer has nothing more to do.
    pub(super) writer_ended: Stop,
    pub(super) journal: RankedMutex<Journal>,
    /// Bytes of the manifest for which there is room.
    pub(super) manifest_room: AtomicU64,
    /// Events that the journal gets with its next commit: while it is committed no thread waits for it.
    events: RankedMutex<Vec<JournalEvent>>,
    /// Fronts of files that still need their pre-roll.
    pub(super) fronts: Fronts,
    /// Number of files whose names are durable.
    pub(super) named: AtomicUsize,
    pieces: RankedMutex<Vec<Arc<Piece>>>,
    /// Copies that another lane hands over.
    inbox: RankedMutex<Vec<StreamCopy>>,
    failure: RankedMutex<Option<Error>>,
    has_failed: AtomicBool,
}

impl Lane {
    /// Begins the journal of a directory, takes its lock.
    ///
    /// # Errors
    /// The errors of the folder.
    pub fn new(number: u32, folder: Arc<dyn TakeFolder>, id: &str) -> Result<Self> {
        let file = folder.create(crate::take::JOURNAL)?;
        file.lock(false)?;
        let mut journal = Journal::new(file);
        let begin = JournalEvent::Begin { id: id.to_owned(), directory: number };
        journal.add(JournalRecord::Event(begin));
        Ok(Lane {
            number,
            folder,
            figures: LaneFigures::default(),
            writer_ended: Stop::new()?,
            journal: RankedMutex::new(RecordLock::Journal, journal),
            manifest_room: AtomicU64::new(0),
            events: RankedMutex::new(RecordLock::Events, Vec::new()),
            fronts: Fronts::default(),
            named: AtomicUsize::new(0),
            pieces: RankedMutex::new(RecordLock::Pieces, Vec::new()),
            inbox: RankedMutex::new(RecordLock::Inbox, Vec::new()),
            failure: RankedMutex::new(RecordLock::Failure, None),
            has_failed: AtomicBool::new(false),
        })
    }

    /// Adds a file. The next commit records it in the journal.
    pub fn add(&self, piece: &Arc<Piece>) {
        self.tell_of(piece);
        self.pieces.lock().push(Arc::clone(piece));
    }

    /// Queues the journal event of a file: a second time if its first frame has changed before
    /// anything was written to it.
    pub(super) fn tell_of(&self, piece: &Piece) {
        self.tell(JournalEvent::Piece {
            piece: piece.number,
            stream: piece.stream,
            copy: piece.copy,
            file: piece.name.clone(),
            start_frame: piece.start_frame(),
            behind: piece.behind(),
        });
    }

    /// Adds an event to the journal, durable with its next commit.
    pub fn tell(&self, event: JournalEvent) {
        self.events.lock().push(event);
    }

    /// The journal, after all queued events were added to it.
    pub(super) fn told_journal(&self) -> Ranked<MutexGuard<'_, Journal>> {
        let mut journal = self.journal.lock();
        let events = std::mem::take(&mut *self.events.lock());
        events.into_iter().for_each(|it| journal.add(JournalRecord::Event(it)));
        journal
    }

    /// Makes the names of all files durable, if there are new ones.
    ///
    /// # Errors
    /// As reported by the system.
    pub(crate) fn sync_names(&self) -> Result<()> {
        let count = self.pieces.lock().len();
        if count > self.named.load(Ordering::Acquire) {
            self.folder.sync_names()?;
            self.named.store(count, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the journal durable as it is.
    ///
    /// # Errors
    /// As reported by the system.
    pub fn commit(&self) -> Result<()> {
        self.told_journal().commit()
    }

    /// All files so far.
    pub fn pieces(&self) -> Vec<Arc<Piece>> {
        self.pieces.lock().clone()
    }

    /// The age of the oldest sample that is not durable: it may be in a ring.
    pub fn lag(&self, now: Duration) -> Duration {
        let pieces = self.pieces.lock();
        let waiting = pieces.iter().filter(|it| !it.is_done());
        waiting.map(|it| now.saturating_sub(it.covered(now))).max().unwrap_or_default()
    }

    /// Gives the directory up; the first reason counts.
    pub fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether it was given up.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Why it was given up, if so.
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
