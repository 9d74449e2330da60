//! The table of limits: what clients may hold, and how long they may take.

use pinstripe_base::units::MIB;

/// Connections of a network block device at a time.
pub(crate) const CONNECTIONS: usize = 64;
/// Requests of each of them that are carried out at once.
pub(crate) const WORKERS: usize = 16;
/// Memory for requests of all clients of a network block device.
pub const MEMORY_BYTES: u64 = 256 * MIB;
/// The time a client has to choose an export.
pub(crate) const HANDSHAKE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// The time a client may leave a message unfinished, or a reply untaken.
pub(crate) const STALL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
