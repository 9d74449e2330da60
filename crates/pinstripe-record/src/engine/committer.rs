//! The committer of a directory (directory): each second it makes the written data durable, vouches for
//! it in the journal, and writes the headers.

#![allow(clippy::disallowed_methods, reason = "this module starts the threads of a commit")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::pool::WorkerPool;

use super::directory::TakeDirectory;
use super::headroom::keep;
use super::shared::SharedTake;
use super::stream_file::StreamFile;
use crate::limits::SYNCS_IN_FLIGHT;
use crate::locks::{RankedMutex, RecordLock};
use crate::realtime;
use crate::take::{CommitStages, JournalEvent, JournalRecord, ProgressRun};

/// The wait for a step during which there is nothing else to do.
const LONG: Duration = Duration::from_secs(3600);
/// The shortest time after which the journal vouches for the files whose sync was fast.
const SOON: Duration = Duration::from_millis(500);

/// Commits repeatedly, until the writer has ended and every file is closed, or the directory was
/// given up and nothing more can be done.
pub(crate) fn commit_directory(shared: &SharedTake, directory: &TakeDirectory) {
    let pool = WorkerPool::default();
    let begin = || {
        if shared.settings.is_realtime
            && let Err(error) = realtime::be_served_first()
        {
            shared.note_refusal("syncs do not have the real-time I/O class", &error);
        }
    };
    let spent = || note_time(directory);
    std::thread::scope(|scope| {
        for _ in 0..SYNCS_IN_FLIGHT.min(2 * shared.streams.len()) {
            scope.spawn(|| {
                begin();
                pool.work(&spent);
            });
        }
        Committer { shared, directory, pool: &pool, unvouched: Vec::new() }.run();
        pool.end();
    });
    note_time(directory);
}

/// Adds the processor time that this thread has used since the previous call.
fn note_time(directory: &TakeDirectory) {
    thread_local! {
        static TOLD: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    let time = realtime::thread_time().as_nanos() as u64;
    directory.figures.commit_cpu_nanos.fetch_add(time - TOLD.replace(time), Ordering::Relaxed);
}

struct Committer<'p, 'a> {
    shared: &'a SharedTake,
    directory: &'a TakeDirectory,
    pool: &'p WorkerPool<'a>,
    /// Durable bytes whose journal records are not durable yet.
    unvouched: Vec<(Arc<StreamFile>, u64)>,
}

impl<'a> Committer<'_, 'a> {
    fn run(&mut self) {
        let every = self.shared.settings.commit_every;
        let mut next = self.shared.now() + every;
        loop {
            // Half-way the kernel is asked to begin, so that little is left for the syncs.
            let is_ended = self.wait_until(next.saturating_sub(every / 2));
            if !is_ended {
                self.pool.each(self.open(), |it| it.start_writeback(), (every, &mut || {}));
            }
            let is_last = self.wait_until(next);
            next = self.shared.now().max(next + every);
            if is_ended || is_last {
                next = self.shared.now() + every;
            }
            self.look_for_directory();
            let committed = self.commit();
            let kept = if is_last { Ok(()) } else { keep(self.shared, self.directory) };
            if let Err(error) = committed.and(kept) {
                self.directory.fail(error);
            }
            note_time(self.directory);
            if is_last && self.finish() {
                return;
            }
        }
    }

    /// Waits until the writer ends, but at most until this moment; returns whether the writer has
    /// ended.
    fn wait_until(&self, moment: Duration) -> bool {
        let left = moment.saturating_sub(self.shared.now());
        self.directory.writer_ended.wait(left)
    }

    fn open(&self) -> Vec<Arc<StreamFile>> {
        self.directory.pieces().into_iter().filter(|it| !it.is_done()).collect()
    }

    /// Checks that the directory exists: one that was removed still accepts writes, to files
    /// without names.
    fn look_for_directory(&self) {
        if !self.directory.has_failed() && self.directory.journal.lock().file().is_unlinked() {
            let error = Error::new(
                Kind::NotFound,
                "the directory of the take was removed during the recording",
            );
            self.directory.fail(error.at(self.directory.folder.path()));
        }
    }

    /// Commits data, then the journal, then the headers.
    fn commit(&mut self) -> Result<()> {
        let pieces = self.open();
        let began = self.shared.now();
        // By itself, so that what the syncs wait for afterwards is not the data, and so that what
        // changes in the file system's journal is there at once and not file by file.
        self.pool.each(pieces.clone(), |it| it.finish_writeback(), (LONG, &mut || {}));
        let now = self.shared.now();
        let synced = self.sync(&pieces, now);
        let named_at = self.shared.now();
        self.directory.sync_names()?;
        self.vouch(&pieces, now)?;
        let vouched_at = self.shared.now();
        let shared = self.shared;
        let headed = self.each(&pieces, move |piece| match piece {
            done if done.is_done() => Ok(()),
            piece if piece.is_ended() && is_vouched(piece) => piece.close(&shared.cues(piece)),
            piece => piece.write_head(),
        });
        let millis = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e3;
        let over = self.shared.now();
        self.directory.figures.slowest.note_commit(CommitStages {
            at_seconds: began.as_secs_f64(),
            ms: millis(began, over),
            writeback_ms: millis(began, now),
            sync_ms: millis(now, named_at),
            journal_ms: millis(named_at, vouched_at),
            head_ms: millis(vouched_at, over),
        });
        synced.and(headed)
    }

    /// Makes the data of all files durable. If some files take long, the journal vouches each
    /// second for the files that are done.
    fn sync(&mut self, pieces: &[Arc<StreamFile>], now: Duration) -> Result<()> {
        let (first, pool) = (FirstError::default(), self.pool);
        let (shared, directory) = (self.shared, self.directory);
        let of_syncs = first.clone();
        let sync = move |piece: &Arc<StreamFile>| {
            if let Err(error) = piece.finish() {
                // For a piece that has not ended, the writer gives back the bytes that its file
                // lacks.
                if piece.is_ended() {
                    let missing = piece.give_back().map_or(0, |it| it.len() as u64);
                    shared.report_missing(directory, piece, missing);
                }
                of_syncs.note(error);
            }
            let at = shared.now();
            let synced = piece.sync();
            directory.figures.slowest.note_sync(&piece.name, at, shared.now().saturating_sub(at));
            if let Err(error) = synced {
                piece.fail();
                of_syncs.note(error);
            }
        };
        let every = shared.settings.commit_every.max(SOON);
        let mut meanwhile = || {
            let vouched = directory.sync_names().and_then(|()| self.vouch(pieces, now));
            vouched.unwrap_or_else(|error| first.note(error));
        };
        pool.each(pieces.to_vec(), sync, (every, &mut meanwhile));
        first.take()
    }

    /// Adds journal records for the data that became durable.
    fn vouch(&mut self, pieces: &[Arc<StreamFile>], now: Duration) -> Result<()> {
        let mut runs = Vec::new();
        for piece in pieces {
            let synced = piece.take_synced();
            let bytes = synced.iter().map(|it| u64::from(it.bytes)).sum();
            self.unvouched.push((Arc::clone(piece), bytes));
            if !synced.is_empty() {
                runs.push(ProgressRun { piece: piece.number, runs: synced });
            }
        }
        let mut journal = self.directory.journal_with_events();
        if !runs.is_empty() {
            let nanos = now.as_nanos() as u64;
            journal.add(JournalRecord::Progress { nanos, runs });
        }
        journal.commit()?;
        drop(journal);
        let lag = self.directory.lag(self.shared.now()).as_nanos() as u64;
        self.directory.figures.lag_nanos.fetch_max(lag, Ordering::Relaxed);
        self.unvouched.drain(..).for_each(|(piece, bytes)| piece.vouch(bytes));
        Ok(())
    }

    /// Carries out a step for all files; returns the first error.
    fn each(
        &self,
        pieces: &[Arc<StreamFile>],
        step: impl Fn(&StreamFile) -> Result<()> + Send + Sync + 'a,
    ) -> Result<()> {
        let first = FirstError::default();
        let of_steps = first.clone();
        let step = move |piece: &Arc<StreamFile>| {
            step(piece).unwrap_or_else(|error| of_steps.note(error));
        };
        self.pool.each(pieces.to_vec(), step, (LONG, &mut || {}));
        first.take()
    }

    /// Closes files at the end of the take; returns whether every file is closed, or can no longer
    /// be closed.
    fn finish(&self) -> bool {
        let is_closed = self.open().is_empty();
        if is_closed {
            self.directory.record_event(JournalEvent::Complete);
            if let Err(error) = self.directory.journal_with_events().finish() {
                self.directory.fail(error);
            }
        }
        // After a failure one round was tried for what a full disk still allows.
        is_closed || self.directory.has_failed()
    }
}

/// The first error of the files in one round.
#[derive(Clone)]
struct FirstError(Arc<RankedMutex<Option<Error>>>);

impl Default for FirstError {
    fn default() -> Self {
        FirstError(Arc::new(RankedMutex::new(RecordLock::FirstError, None)))
    }
}

impl FirstError {
    fn note(&self, error: Error) {
        self.0.lock().get_or_insert(error);
    }

    fn take(&self) -> Result<()> {
        self.0.lock().take().map_or(Ok(()), Err)
    }
}

fn is_vouched(piece: &StreamFile) -> bool {
    piece.vouched_bytes() == piece.written_bytes()
}
