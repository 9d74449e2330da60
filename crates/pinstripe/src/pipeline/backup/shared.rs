//! The values that the stages of one run share by reference, to store chunks and to read sources.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::pipeline::scratch_pool::ScratchPool;
use crate::store::Store;
use crate::store::index::Index;
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::keys::Keys;
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
    })
}
