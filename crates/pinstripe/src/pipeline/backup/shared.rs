//! The values that the stages of one run share by reference, to store chunks and to read sources.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::pipeline::scratch_pool::ScratchPool;
use crate::source;
use crate::store::Store;
use crate::store::index::Index;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::keys::Keys;
use pinstripe_member::meta::{FileKind, Stat};
use pinstripe_stripe::{Abort, Chunking, Claims, Codec, Cutter, Sealer};

/// Returns the cutter and the codec for which the store was made.
///
/// # Errors
/// Fails with [`Kind::Locked`](pinstripe_base::error::Kind::Locked) without keys, or for settings
/// that this version does not know.
pub fn cutting(store: &Store) -> Result<(Cutter, Codec)> {
    let chunking: Chunking = store.config.chunking.parse()?;
    let cutter = Cutter::for_store(chunking, store.config.chunker, &store.keys()?.gear)?;
    Ok((cutter, store.config.codec.parse()?))
}

/// The values that are shared by all threads of one run that store chunks.
pub struct Writing<'a> {
    /// Names chunks.
    pub keys: &'a Keys,
    /// Compresses records.
    pub codec: Codec,
    /// The index, which has the chunks of the store.
    pub index: &'a Index<'a>,
    /// The chunks that this run stores.
    pub claims: &'a Claims,
    /// The ledger.
    pub monitor: &'a Monitor,
    /// The fatal error of the run, if there is one.
    pub abort: &'a Abort,
    /// Seals records.
    pub sealer: &'a Sealer,
    /// Buffers for finished records.
    pub records: &'a ScratchPool,
}

/// The values that are shared by all threads of one backup that read its sources.
pub struct Reading<'a> {
    /// The directory to which all paths are relative: the file system's root.
    pub root: BorrowedFd<'a>,
    /// Cuts content.
    pub cutter: &'a Cutter,
    /// The ledger.
    pub monitor: &'a Monitor,
    /// The fatal error of the run, if there is one.
    pub abort: &'a Abort,
    /// Set by another thread to end the run early, with the work done so far.
    pub stop: &'a AtomicBool,
    /// Buffers for segments of large files.
    pub segments: &'a Arc<ScratchPool>,
    /// It was reported that /proc is not mounted.
    pub proc_is_reported: AtomicBool,
}

impl Reading<'_> {
    /// Gives up an entry that could not be read, and takes back what was counted for it. One that
    /// is gone is a change, anything else a loss.
    pub(crate) fn give_up(&self, path: &[u8], stat: &Stat, was_there: bool, error: Error) {
        if stat.kind == FileKind::File {
            let (files, bytes) = counters(was_there);
            self.monitor.take_back(files, 1);
            self.monitor.take_back(bytes, stat.size_bytes);
        }
        let place = shown_from_root(path);
        if error.kind() == Kind::Changed && source::is_gone(self.root, path) {
            self.monitor.changed(place, error);
        } else {
            self.monitor.loss(place, error);
        }
    }

    /// Counts the bytes of a file that had another length when it was opened than in the walk.
    pub(crate) fn count_length(&self, walked_bytes: u64, was_there: bool, saved_bytes: u64) {
        let (_, bytes) = counters(was_there);
        self.monitor.add(bytes, saved_bytes.saturating_sub(walked_bytes));
        self.monitor.take_back(bytes, walked_bytes.saturating_sub(saved_bytes));
    }
}

/// The counters of a file that is read, and of its bytes.
pub(crate) fn counters(was_there: bool) -> (Counter, Counter) {
    match was_there {
        true => (Counter::ChangedFiles, Counter::ChangedBytes),
        false => (Counter::NewFiles, Counter::NewBytes),
    }
}

impl Writing<'_> {
    /// Returns whether a chunk is new; if so, the caller must store it.
    ///
    /// The claim is made first and released if the store turns out to have the chunk: so one thread
    /// looks it up for all, and no two threads store the same chunk.
    ///
    /// # Errors
    /// Fails when the index cannot be read: this ends the run, since other threads count the chunk
    /// as known.
    pub fn claim(&self, id: &ChunkId) -> Result<bool> {
        if !self.claims.take(id) {
            return Ok(false);
        }
        match self.index.rely_on(id) {
            Ok(false) => Ok(true),
            Ok(true) => {
                self.claims.release(id);
                Ok(false)
            }
            Err(error) => {
                self.abort.raise(error.duplicate());
                Err(error)
            }
        }
    }
}

/// Runs a test with the values needed to read sources, without a store.
#[cfg(test)]
pub(super) fn with_reading<T>(abort: &Abort, test: impl FnOnce(&Reading<'_>) -> T) -> T {
    use std::os::fd::AsFd;

    let root = crate::source::open_root().unwrap();
    let cutter = Cutter::new(Chunking::fixed(4096).unwrap(), 0).unwrap();
    let (monitor, stop) = (Monitor::default(), AtomicBool::new(false));
    let segments = Arc::new(ScratchPool::new(4));
    test(&Reading {
        root: root.as_fd(),
        cutter: &cutter,
        monitor: &monitor,
        abort,
        stop: &stop,
        segments: &segments,
        proc_is_reported: AtomicBool::new(false),
    })
}
