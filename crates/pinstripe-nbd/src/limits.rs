//! The table of limits: how much clients may hold, and how long they may take.

use pinstripe_base::units::MIB;

/// The most connections of an NBD server at a time.
pub(crate) const CONNECTIONS: usize = 64;
/// The most requests of one connection that are carried out at the same time.
pub(crate) const WORKERS: usize = 16;
/// The memory for requests of all clients of an NBD server.
pub const MEMORY_BYTES: u64 = 256 * MIB;
/// The time a client has to choose an export.
pub(crate) const HANDSHAKE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// The time for which a client may leave a message unfinished, or not read a reply.
pub(crate) const STALL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
