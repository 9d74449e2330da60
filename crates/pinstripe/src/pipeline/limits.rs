//! The table of limits: the capacity of each queue and buffer, from one memory budget.

use crate::store::Store;
use crate::walk::recommended_threads;
use pinstripe_base::units::MIB;
use pinstripe_stripe::WINDOW_BYTES;

/// Default for `--memory`.
pub const MEMORY_DEFAULT_BYTES: u64 = 256 * MIB;
/// A pack is sealed when its logical run has reached this length.
pub const PACK_BYTES: u64 = 64 * MIB;
/// Part of an extent of a remote member that a pack leaves for the record that fills it, its index
/// and its checksums, so that the extent does not exceed the member's limit.
pub(crate) const EXTENT_ROOM_BYTES: u64 = 1 << 20;
/// Strips that wait for the writer of a remote member, which only collects them, at most.
pub(crate) const FAR_STRIPS_QUEUED: usize = 4;
/// Times the queue of a near member, in bytes, that the extents of a far one may take in flight, of
/// several members: of one alone as much as its queue, which is a quarter of all memory then.
pub(crate) const LANE_SHARE: u64 = 2;
/// Chunks in packs that no index run lists yet; at this number one is written, and their claims
/// end.
pub(crate) const PUBLISH_CHUNKS: usize = 256 << 10;
const PUBLISH_PACKS: usize = 256;
/// The interval at which a backup lists other writers' objects: the file systems of the members
/// wake no writer when another process, perhaps on another host, changes something.
pub(crate) const WATCH_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
/// The same where a listing costs requests to a remote member: a `gc` waits for three of them.
pub(crate) const WATCH_INTERVAL_FAR: std::time::Duration = std::time::Duration::from_secs(30);
/// The time that a computing thread asks to run for before another takes the processor.
pub(crate) const TURN: std::time::Duration = std::time::Duration::from_millis(50);
/// Merges of index runs with at most this many rows are finished even after the backup.
pub(crate) const MERGE_ROWS: u64 = 1 << 20;
/// Data records are closed at this many raw bytes (decision 0005).
pub(crate) const RECORD_RAW_BYTES: usize = 512 << 10;
/// Tree records are closed at this many raw bytes: pages are read singly more often.
pub(crate) const TREE_RECORD_RAW_BYTES: usize = 256 << 10;
/// Entries in one job at most.
pub(crate) const JOB_ENTRIES: usize = 128;
/// Content bytes in one job, after which it is handed over.
pub(crate) const JOB_BYTES: u64 = 1 << 20;
/// Jobs between the join and the assembler at most: they may wait behind a slow file.
pub(crate) const WINDOW_JOBS: usize = 512;
/// Files from this length on are cut by all workers together.
pub const LARGE_BYTES: u64 = 32 * MIB;
/// Bytes of a large file that one worker reads and scans at a time.
pub(crate) const SEGMENT_BYTES: usize = 4 << 20;
/// Chunk references planned at a time by restore.
pub(crate) const PLAN_CHUNKS: usize = 32 << 10;
/// Files with several chunks planned at a time by restore: bounds the number of open files.
pub(crate) const PLAN_OPEN_FILES: usize = 256;
/// For remote members: bytes between two wanted records that are fetched with them.
pub(crate) const SPAN_GAP_BYTES: u64 = 256 << 10;
/// Spans that the room for prefetched data must hold at least.
pub(crate) const SPANS_AHEAD: u64 = 8;
/// Records in spans, fetched or not, that may wait for a decoder.
pub(crate) const SPAN_TASKS: usize = 4096;
/// Changes handed to the catalog's writer at a time: sorted by key, so more touch fewer pages.
pub(crate) const CATALOG_BATCH_CHANGES: usize = 32 << 10;
/// Batches that wait for the catalog's writer.
pub(crate) const CATALOG_BATCHES: usize = 2;

/// Thread counts and queue depths of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads that hash, compress, decompress.
    pub workers: usize,
    /// Threads that list directories.
    pub walkers: usize,
    /// Threads that read records during restore.
    pub fetchers: usize,
    /// Jobs waiting for a worker.
    pub jobs_queued: usize,
    /// Records waiting for a packer or a decoder.
    pub records_queued: usize,
    /// Segments of a large file in memory.
    pub segments: usize,
    /// Bytes of strips waiting for one member's writer: while a member syncs a pack, the next one
    /// must find room, or all workers wait for that disk.
    pub strip_queue_bytes: usize,
    /// Packs that no index run lists yet; at this number one is written. Other hosts open each such
    /// pack to learn what is in it.
    pub publish_packs: usize,
    memory_bytes: u64,
}

/// Memory of one worker: a record being filled, a stream buffer, the compressed result.
const WORKER_BYTES: u64 = 12 * MIB;

impl Limits {
    /// The budget.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Strips of this length that may wait for one member's writer.
    pub(crate) fn strips_queued(&self, strip_bytes: u32) -> usize {
        (self.strip_queue_bytes / strip_bytes as usize).clamp(2, 1024)
    }

    /// Returns the number of threads that read complete stripe sets: the number of workers, or the
    /// number of parallel reads of a remote member if that is larger and memory suffices for the
    /// windows of all members and `more_bytes` for each.
    pub(crate) fn set_readers(&self, store: &Store, more_bytes: u64) -> usize {
        let far = store.present().filter_map(|(_, member)| member.caps().far);
        let Some(reads) = far.map(|far| far.reads).max() else { return self.workers };
        let window_bytes = WINDOW_BYTES.max(store.config.strip_bytes.into());
        let bytes = store.members().len() as u64 * window_bytes + more_bytes;
        let affordable = self.memory_bytes / 2 / bytes.max(1);
        self.workers.max(reads.min(affordable as usize))
    }

    /// The same with as many workers as long chunks leave memory for, but at least one: a worker
    /// holds a record of one chunk, a stream of two, and what they compress to.
    #[must_use]
    pub(crate) fn for_chunks(self, max_chunk_bytes: usize) -> Self {
        let worker_bytes = 4 * max_chunk_bytes as u64 + 2 * MIB;
        let affordable = (self.memory_bytes / 2 / worker_bytes).max(1) as usize;
        Limits { workers: self.workers.min(affordable), ..self }
    }

    /// Decoded records that may wait for the consumer of ordered content: a quarter of the budget.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.memory_bytes / 4
    }

    /// Divides a memory budget on a machine with `cores` processors over `members` members.
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
