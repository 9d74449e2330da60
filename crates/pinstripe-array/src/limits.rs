//! The table of limits: what caches and queues of an array may hold, and how long clients may wait.

use pinstripe_base::units::{KIB, MIB};

/// Default for the number of an array's dirty bytes at which writers wait (`stripe_cache_size`).
pub(crate) const CACHE_BYTES: u64 = 64 * MIB;
/// The number of dirty bytes up to which a sync also puts the data into its log record.
pub(crate) const DATA_LOG_BYTES: u64 = 256 * KIB;
/// The least number of neighbouring bytes of a member that a batch writes in one long write, past
/// the page cache if possible.
pub const LONG_WRITE_BYTES: usize = 128 << 10;
/// Default for how long a row of an array may gather writes.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_millis(20);
/// Default for the least rate of pending work while the array is in use, in bytes of each member
/// per second.
pub(crate) const SPEED_MIN: u64 = 10 * MIB;
/// The number of threads that move bytes to and from members of an array, if the members are slow.
pub const THREADS: usize = 16;
/// Reads of an array of at least this length are carried out by several threads, if members are
/// slow.
pub(crate) const LONG_READ: usize = 256 << 10;
/// Bytes of each member that a slice of an array's pending work moves while the array is in use.
pub const STEP_BYTES: u64 = 2 * MIB;
/// Bytes of each member that a slice of pending work moves if the work is slower than its minimum
/// rate.
pub(crate) const LATE_STEP_BYTES: u64 = 8 * MIB;
/// Bytes of each member that a slice of pending work moves while the array gets no requests.
pub(crate) const LONG_STEP_BYTES: u64 = 16 * MIB;
/// The number of reports of ended work that are kept.
pub(crate) const REPORTS: usize = 16;
/// The most bytes of a write that an array takes in before it checks the limit of dirty bytes
/// again.
pub const PIECE_BYTES: usize = 1 << 20;
