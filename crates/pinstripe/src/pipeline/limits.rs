//! The table of limits: derives the capacity of each queue and buffer from one memory budget.

use crate::store::Store;
use crate::walk::recommended_threads;
use pinstripe_base::units::MIB;
use pinstripe_stripe::WINDOW_BYTES;

/// Default for `--memory`.
pub const MEMORY_DEFAULT_BYTES: u64 = 256 * MIB;
/// A pack is sealed when its logical run has reached this length.
pub const PACK_BYTES: u64 = 64 * MIB;
/// The part of a remote extent that a pack leaves free for its last record, its index and its
/// checksums, so that the extent does not exceed the member's limit.
pub(crate) const EXTENT_ROOM_BYTES: u64 = 1 << 20;
/// The largest number of strips that wait for the writer of a remote member, which only collects
/// them.
pub(crate) const FAR_STRIPS_QUEUED: usize = 4;
/// The bytes of extents that a remote member may have in flight, as a multiple of the queue of a
/// near member; if there is only one remote member, they are limited to the length of its queue,
/// which is a quarter of all memory then.
pub(crate) const LANE_SHARE: u64 = 2;
/// The number of chunks in packs without an index run at which a run is written, and their claims
/// end.
pub(crate) const PUBLISH_CHUNKS: usize = 256 << 10;
const PUBLISH_PACKS: usize = 256;
/// The interval at which a backup lists other writers' objects, because the file systems of the
/// members do not wake a waiter when another process, perhaps on another host, changes something.
pub(crate) const WATCH_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
/// The interval of such listings when they cost requests to a remote member; a `gc` waits for three
/// of them.
pub(crate) const WATCH_INTERVAL_FAR: std::time::Duration = std::time::Duration::from_secs(30);
/// The time slice that a computing thread requests before another thread gets the processor.
pub(crate) const TURN: std::time::Duration = std::time::Duration::from_millis(50);
/// Merges of index runs with at most this many rows are finished even after the end of the backup.
pub(crate) const MERGE_ROWS: u64 = 1 << 20;
/// Data records are closed at this many raw bytes (decision 0005).
pub(crate) const RECORD_RAW_BYTES: usize = 512 << 10;
/// Tree records are closed at this many raw bytes, because single pages are read more often.
pub(crate) const TREE_RECORD_RAW_BYTES: usize = 256 << 10;
/// The largest number of entries in one job.
pub(crate) const JOB_ENTRIES: usize = 128;
/// The number of content bytes at which a job is sent out.
pub(crate) const JOB_BYTES: u64 = 1 << 20;
/// The largest number of jobs between the join and the assembler: they may have to wait for a slow
/// file.
pub(crate) const WINDOW_JOBS: usize = 512;
/// Files of at least this length are cut by all workers together.
pub const LARGE_BYTES: u64 = 32 * MIB;
/// Bytes of a large file that one worker reads and scans at a time.
pub(crate) const SEGMENT_BYTES: usize = 4 << 20;
/// The number of chunk references that a restore plans at a time.
pub(crate) const PLAN_CHUNKS: usize = 32 << 10;
/// The number of files with several chunks that a restore plans at a time: this bounds the number
/// of open files.
pub(crate) const PLAN_OPEN_FILES: usize = 256;
/// For remote members: the largest gap between two wanted records that is read together with them.
pub(crate) const SPAN_GAP_BYTES: u64 = 256 << 10;
/// The least number of spans for which the memory for prefetched data must suffice.
pub(crate) const SPANS_AHEAD: u64 = 8;
/// The largest number of records in spans, fetched or not, that wait for a decoder.
pub(crate) const SPAN_TASKS: usize = 4096;
/// The number of changes passed to the catalog's writer at a time: they are sorted by key, so
/// larger batches touch fewer database pages.
pub(crate) const CATALOG_BATCH_CHANGES: usize = 32 << 10;
/// The number of batches that wait for the catalog's writer.
pub(crate) const CATALOG_BATCHES: usize = 2;

/// Thread counts and queue depths of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of threads that hash, compress and decompress.
    pub workers: usize,
    /// The number of threads that list directories.
    pub walkers: usize,
    /// The number of threads that read records during a restore.
    pub fetchers: usize,
    /// The number of jobs that wait for a worker.
    pub jobs_queued: usize,
    /// The number of records that wait for a packer or a decoder.
    pub records_queued: usize,
    /// The number of segments of a large file in memory.
    pub segments: usize,
    /// Bytes of strips that wait for one member's writer: while a member syncs a pack, the next
    /// pack must fit in its queue, or all workers wait for that disk.
    pub strip_queue_bytes: usize,
    /// The number of packs without an index run at which a run is written. Other hosts must open
    /// each pack without an index run to learn its content.
    pub publish_packs: usize,
    memory_bytes: u64,
}

/// The memory of one worker: a record being filled, a stream buffer, the compressed result.
const WORKER_BYTES: u64 = 12 * MIB;

impl Limits {
    /// The budget.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Returns the number of strips of this length that may wait for one member's writer.
    pub(crate) fn strips_queued(&self, strip_bytes: u32) -> usize {
        (self.strip_queue_bytes / strip_bytes as usize).clamp(2, 1024)
    }

    /// Returns the number of threads that read complete stripe sets: the number of workers, or the
    /// number of parallel reads of a remote member if that is larger and memory suffices for the
    /// windows of all members plus `more_bytes` per thread.
    pub(crate) fn set_readers(&self, store: &Store, more_bytes: u64) -> usize {
        let far = store.present().filter_map(|(_, member)| member.caps().far);
        let Some(reads) = far.map(|far| far.reads).max() else { return self.workers };
        let window_bytes = WINDOW_BYTES.max(store.config.strip_bytes.into());
        let bytes = store.members().len() as u64 * window_bytes + more_bytes;
        let affordable = self.memory_bytes / 2 / bytes.max(1);
        self.workers.max(reads.min(affordable as usize))
    }

    /// Returns the same limits with as many workers as memory allows with long chunks, but at least
    /// one: a worker holds a record of one chunk, a stream of two, and their compressed form.
    #[must_use]
    pub(crate) fn for_chunks(self, max_chunk_bytes: usize) -> Self {
        let worker_bytes = 4 * max_chunk_bytes as u64 + 2 * MIB;
        let affordable = (self.memory_bytes / 2 / worker_bytes).max(1) as usize;
        Limits { workers: self.workers.min(affordable), ..self }
    }

    /// The bytes of decoded records that may wait for the consumer of ordered content: a quarter of
    /// the budget.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.memory_bytes / 4
    }

    /// Divides a memory budget for a machine with `cores` processors and a store with `members`
    /// members.
    pub fn new(cores: usize, members: usize, memory_bytes: u64) -> Self {
        let affordable = (memory_bytes / 2 / WORKER_BYTES).max(1) as usize;
        let workers = cores.clamp(1, affordable);
        Limits {
            workers,
            walkers: recommended_threads(false, cores),
            fetchers: (2 * members).clamp(4, 16).min(affordable.max(4)),
            jobs_queued: 2 * workers,
            records_queued: (2 * workers).min(16),
            segments: (2 * workers + 2).min(affordable.max(4)),
            strip_queue_bytes: (memory_bytes / 4) as usize / members.max(1),
            publish_packs: PUBLISH_PACKS,
            memory_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_follow_cores_and_memory() {
        assert_eq!(Limits::new(2, 4, MEMORY_DEFAULT_BYTES).workers, 2);
        assert_eq!(Limits::new(64, 4, MEMORY_DEFAULT_BYTES).workers, 10);
        assert_eq!(Limits::new(64, 4, 4096 * MIB).workers, 64);
        assert_eq!(Limits::new(1, 1, 1).workers, 1);
        let limits = Limits::new(2, 4, MEMORY_DEFAULT_BYTES);
        assert_eq!([1 << 20, 64 << 20].map(|bytes| limits.for_chunks(bytes).workers), [2, 1]);
        assert_eq!([1 << 18, 1 << 24].map(|bytes| limits.strips_queued(bytes)), [64, 2]);
    }
}
