//! One file being restored: its remaining pieces, and the number of open files.
//!
//! A file is first in the state `Planning`, then `Writing`, then `Done`; or it ends as `Failed`.
//! The lock of its state is held only for single steps, never during I/O, and no other lock is
//! taken while it is held.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use super::{RestorePlan, linked};
use crate::sink::{Existing, FileSink};
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::Metadata;

/// A file being restored.
pub(super) struct Target {
    pub path: Vec<u8>,
    size: u64,
    pub meta: Metadata,
    /// The data ranges of the file; the rest are holes.
    data: Vec<Range<u64>>,
    /// The file's inode in the snapshot, if it had several names.
    pub key: Option<(u64, u64)>,
    /// The existing file that this one replaces.
    pub existing: Option<Arc<Existing>>,
    /// The new file, made by the first thread that writes to it; other threads with a piece of the
    /// file wait for that.
    file: OnceLock<Result<FileSink>>,
    state: Mutex<FileState>,
    /// The number of bytes counted as written; changed only while the lock of the state is held.
    written: AtomicU64,
    /// Counts the file as open, if it may stay open for several records.
    _open: Option<OpenFile>,
}

/// What remains to be done for a file.
enum FileState {
    /// The planner may add more pieces.
    Planning(FileChunks),
    /// All pieces are known.
    Writing(FileChunks),
    /// Part of the file cannot be restored. The written file is removed when the last reference to
    /// the target is dropped.
    Failed,
    /// All pieces are written or kept, and one thread finishes the file.
    Done,
}

/// The pieces of a file.
#[derive(Default)]
struct FileChunks {
    /// The number of pieces that are neither written nor kept yet.
    unsettled: usize,
    /// Ranges of the existing file that are correct already; adjacent ranges are merged.
    kept: Vec<Range<u64>>,
}

impl FileChunks {
    fn keep(&mut self, range: Range<u64>) {
        match self.kept.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.kept.push(range),
        }
    }
}

impl FileState {
    fn pieces(&mut self) -> Option<&mut FileChunks> {
        match self {
            FileState::Planning(pieces) | FileState::Writing(pieces) => Some(pieces),
            FileState::Failed | FileState::Done => None,
        }
    }

    /// Returns the kept ranges to the one caller that must finish the file.
    fn take_complete(&mut self) -> Option<Vec<Range<u64>>> {
        match self {
            FileState::Writing(FileChunks { unsettled: 0, kept }) => {
                let kept = std::mem::take(kept);
                *self = FileState::Done;
                Some(kept)
            }
            _ => None,
        }
    }
}

impl Target {
    /// Creates a target without any known pieces.
    pub fn new(
        entry: &Entry,
        path: Vec<u8>,
        existing: Option<Arc<Existing>>,
        open: Option<OpenFile>,
    ) -> Self {
        Target {
            path,
            size: entry.size,
            meta: entry.meta.clone(),
            data: entry.data_extents(),
            key: linked::key(entry),
            existing,
            file: OnceLock::new(),
            state: Mutex::new(FileState::Planning(FileChunks::default())),
            written: AtomicU64::new(0),
            _open: open,
        }
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }

    /// The open file.
    ///
    /// # Errors
    /// Fails with the error that prevented the file from being made.
    pub fn file(&self, plan: &RestorePlan<'_>) -> Result<&FileSink> {
        let make = || plan.sink.create_file(&self.path, self.size, self.meta.clone());
        let made = self.file.get_or_init(|| plan.with_parents(&self.path, make));
        made.as_ref().map_err(Error::duplicate)
    }

    /// Counts one more piece.
    pub(crate) fn add_piece(&self) {
        if let Some(pieces) = self.state().pieces() {
            pieces.unsettled += 1;
        }
    }

    /// Records that a range, which is about to be settled as a piece, is correct already.
    pub fn keep(&self, range: Range<u64>) {
        if let Some(pieces) = self.state().pieces() {
            pieces.keep(range);
        }
    }

    /// Marks all pieces as known. Returns the kept ranges if the file must be finished now.
    #[must_use]
    pub(crate) fn end_planning(&self) -> Option<Vec<Range<u64>>> {
        let mut state = self.state();
        if let FileState::Planning(pieces) = &mut *state {
            let pieces = std::mem::take(pieces);
            *state = FileState::Writing(pieces);
        }
        state.take_complete()
    }

    /// Marks one piece as written or kept. Returns the kept ranges if the file must be finished
    /// now.
    #[must_use]
    pub(crate) fn settle_piece(&self) -> Option<Vec<Range<u64>>> {
        let mut state = self.state();
        if let Some(pieces) = state.pieces() {
            pieces.unsettled -= 1;
        }
        state.take_complete()
    }

    /// Counts bytes that were written; returns false if the file was abandoned in the meantime.
    #[must_use]
    pub(crate) fn count_written(&self, bytes: u64) -> bool {
        let state = self.state();
        let counts = !matches!(*state, FileState::Failed);
        if counts {
            self.written.fetch_add(bytes, Ordering::Relaxed);
        }
        counts
    }

    /// Abandons the file. Returns the bytes that were counted as written.
    pub fn fail(&self) -> u64 {
        let mut state = self.state();
        *state = FileState::Failed;
        self.written.swap(0, Ordering::Relaxed)
    }

    /// Whether the file was abandoned.
    pub fn has_failed(&self) -> bool {
        matches!(*self.state(), FileState::Failed)
    }

    /// Returns the existing file, if nothing was written and all of it is correct.
    pub fn is_there(&self, kept: &[Range<u64>]) -> Option<&Existing> {
        let existing = self.existing.as_deref()?;
        let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|it| it.end - it.start).sum::<u64>();
        let is_touched = self.file.get().is_some();
        let is_same = !is_touched
            && existing.size_bytes() == self.size
            && bytes(kept) == bytes(&self.data)
            && existing.is_zero_outside(&self.data);
        is_same.then_some(existing)
    }
}

/// The number of planned files that are open now, shared with the planner.
#[derive(Default)]
pub(super) struct OpenFiles {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// One open file, which counts until its target is dropped.
pub(super) struct OpenFile(Arc<OpenFiles>);

impl OpenFiles {
    fn lock(&self) -> MutexGuard<'_, usize> {
        lock(&self.count)
    }

    pub fn add(self: &Arc<Self>) -> OpenFile {
        *self.lock() += 1;
        OpenFile(Arc::clone(self))
    }

    /// Waits until at most `most` files are open.
    pub fn wait_for(&self, most: usize) {
        let waited = self.fewer.wait_while(self.lock(), |count| *count > most);
        drop(waited);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        debug_assert!(*count > 0, "a file that is closed was counted");
        *count -= 1;
        drop(count);
        self.0.fewer.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::new(&Entry::default(), b"file".to_vec(), None, None)
    }

    #[test]
    fn a_file_is_finished_once_when_it_is_planned_and_every_piece_is_settled() {
        let target = target();
        target.add_piece();
        assert_eq!(target.settle_piece(), None, "the planner may add more");
        target.add_piece();
        target.add_piece();
        assert_eq!(target.end_planning(), None);
        target.keep(0..3);
        target.keep(3..5);
        assert_eq!(target.settle_piece(), None);
        target.keep(6..8);
        assert_eq!(target.settle_piece(), Some(vec![0..5, 6..8]));
        assert_eq!(target.end_planning(), None);
    }

    #[test]
    fn an_empty_file_is_finished_when_it_is_planned() {
        assert_eq!(target().end_planning(), Some(Vec::new()));
    }

    #[test]
    fn a_file_that_failed_is_never_finished() {
        let target = target();
        target.add_piece();
        target.fail();
        target.add_piece();
        assert!(target.settle_piece().is_none() && target.end_planning().is_none());
        assert!(target.settle_piece().is_none() && target.has_failed());
    }
}
