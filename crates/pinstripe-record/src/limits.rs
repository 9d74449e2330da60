//! Upper limits (doc/limits.md).

use pinstripe_base::units::{GIB, KIB, MIB};

/// Streams of one take.
pub const STREAMS_MAX: usize = 4096;
/// Memory of all rings of one take.
pub(crate) const ARENA_MAX_BYTES: u64 = 2 * GIB;
/// The smallest and the largest ring.
pub const RING_BYTES: std::ops::RangeInclusive<u64> = 8 * KIB..=64 * MIB;
/// The smallest and the largest chunk.
pub const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 4 * KIB..=MIB;
/// The most of a backlog that is written before the next stream has its turn.
pub(crate) const DRAIN_BYTES: u64 = 64 * KIB;
/// Lost runs of one stream that wait for its writer.
pub(crate) const GAPS_WAITING: usize = 64;
/// The payload of one record of the journal.
pub(crate) const JOURNAL_RECORD_BYTES: usize = 4 << 20;
/// The largest manifest that is read.
pub const MANIFEST_BYTES: u64 = 64 * MIB;
/// Files that the threads of one directory make durable at once. A sync may wait for a commit of
/// the file system's journal and for all requests queued before it: during a storm of writes, 256
/// files in four waves of 64 took 2.9 s, and the slowest sync took 1.0 s. The threads only wait.
pub(crate) const SYNCS_IN_FLIGHT: usize = 256;
/// Threads that write to one directory past the page cache: each write waits for the disk.
pub(crate) const DIRECT_WRITERS: usize = 8;
/// Threads that read a take that is played: if the disk is written meanwhile, a read takes tens of
/// milliseconds, and delays only the streams of its thread.
pub(crate) const PLAY_READERS: usize = 16;
/// The read-ahead requested from the kernel for each file: rings cover the time that a thread needs
/// for its streams, the page cache covers a disk that stalls.
pub(crate) const PLAY_AHEAD_BYTES: u64 = 512 * KIB;
/// Space that is reserved ahead of a stream's end, at most and at least.
pub const RESERVE_BYTES: std::ops::RangeInclusive<u64> = MIB..=64 * MIB;
/// The length of a name of a stream.
pub const NAME_BYTES: usize = 120;
/// Channels of one file.
pub(crate) const CHANNELS_MAX: u16 = 1024;
/// Samples of one stream that wait to be encoded.
pub(crate) const FLAC_WAITING_BYTES: usize = 256 << 10;
/// Threads that encode, at most.
pub(crate) const FLAC_THREADS: usize = 16;
/// Marks of one take that are kept.
pub(crate) const MARKS_MAX: usize = 10_000;
/// Spans of one stream: splits, and times that it is armed or disarmed.
pub(crate) const SPANS_MAX: usize = 4096;
/// The longest pre-roll, in seconds.
pub(crate) const PRE_ROLL_MAX_SECONDS: u64 = 600;
/// Gaps of one stream that are remembered while it waits for a take to begin.
pub(crate) const GAPS_KEPT: usize = 1000;
