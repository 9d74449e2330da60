//! The table of limits: what caches and queues of an array may hold, and how long clients may take.

use pinstripe_base::units::{KIB, MIB};

/// Default for an array's dirty bytes, at which writers wait (`stripe_cache_size`).
pub(crate) const CACHE_BYTES: u64 = 64 * MIB;
/// Dirty bytes up to which a sync has its record hold the data too.
pub(crate) const DATA_LOG_BYTES: u64 = 256 * KIB;
/// Neighbouring bytes of a member that a batch writes as one, past the page cache where it can.
pub const LONG_WRITE_BYTES: usize = 128 << 10;
/// Default for how long a row of an array may gather.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_millis(20);
/// Default for the bytes of each member per second that pending work moves while the array is in
/// use.
pub(crate) const SPEED_MIN: u64 = 10 * MIB;
/// Threads that move bytes to and from members of an array at once, where these are slow.
pub const THREADS: usize = 16;
/// Reads of an array from this length on are carried out by several threads, where members are
/// slow.
pub(crate) const LONG_READ: usize = 256 << 10;
/// Bytes of each member that a slice of an array's pending work moves while the array is in use.
pub const STEP_BYTES: u64 = 2 * MIB;
/// The same where work is behind its minimum.
pub(crate) const LATE_STEP_BYTES: u64 = 8 * MIB;
/// The same while there are none.
pub(crate) const LONG_STEP_BYTES: u64 = 16 * MIB;
/// The number of reports of ended work that are kept.
pub(crate) const REPORTS: usize = 16;
/// Bytes of one write that an array takes in before it checks the limit again.
pub const PIECE_BYTES: usize = 1 << 20;
