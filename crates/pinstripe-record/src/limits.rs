//! Upper limits (doc/limits.md).

use pinstripe_base::units::{GIB, KIB, MIB};

/// The most streams of one take.
pub const STREAMS_MAX: usize = 4096;
/// The most memory for all rings of one take.
pub(crate) const ARENA_MAX_BYTES: u64 = 2 * GIB;
/// The smallest and the largest ring.
pub const RING_BYTES: std::ops::RangeInclusive<u64> = 8 * KIB..=64 * MIB;
/// The smallest and the largest chunk.
pub const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 4 * KIB..=MIB;
/// The most bytes of a backlog that are written before the next stream has its turn.
pub(crate) const DRAIN_BYTES: u64 = 64 * KIB;
/// The most lost runs of one stream that wait for its writer.
pub(crate) const GAPS_WAITING: usize = 64;
/// The largest payload of one journal record.
pub(crate) const JOURNAL_RECORD_BYTES: usize = 4 << 20;
/// The largest manifest that is read.
pub const MANIFEST_BYTES: u64 = 64 * MIB;
/// The most syncs of files in one directory at the same time, each by a thread. A sync may wait for
/// a commit of the file system's journal and for all requests queued before it. During a storm of
/// writes, 256 files in four groups of 64 took 2.9 s; the slowest single sync took 1.0 s. The
/// threads that sync only wait.
pub(crate) const SYNCS_IN_FLIGHT: usize = 256;
/// Threads that write to one directory with direct I/O; each write waits for the disk.
pub(crate) const DIRECT_WRITERS: usize = 8;
/// Threads that read a take that is played. If the disk is written at the same time, a read takes
/// tens of milliseconds, and delays only the streams of its thread.
pub(crate) const PLAY_READERS: usize = 16;
/// The read-ahead requested from the kernel for each file. Rings bridge the time that a thread
/// needs for all its streams, and the page cache bridges stalls of the disk.
pub(crate) const PLAY_AHEAD_BYTES: u64 = 512 * KIB;
/// The smallest and the largest space that is reserved ahead of a stream's end.
pub const RESERVE_BYTES: std::ops::RangeInclusive<u64> = MIB..=64 * MIB;
/// The greatest length of a stream's name.
pub const NAME_BYTES: usize = 120;
/// The most channels of one file.
pub(crate) const CHANNELS_MAX: u16 = 1024;
/// The most bytes of one stream that wait to be encoded.
pub(crate) const FLAC_WAITING_BYTES: usize = 256 << 10;
/// The most threads that encode.
pub(crate) const FLAC_THREADS: usize = 16;
/// The most marks of one take that are kept.
pub(crate) const MARKS_MAX: usize = 10_000;
/// The most spans of one stream: a split, arming or disarming adds a span.
pub(crate) const SPANS_MAX: usize = 4096;
/// The longest pre-roll, in seconds.
pub(crate) const PRE_ROLL_MAX_SECONDS: u64 = 600;
/// The most gaps of one stream that are kept while it waits for a take to begin.
pub(crate) const GAPS_KEPT: usize = 1000;
