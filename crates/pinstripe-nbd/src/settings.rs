//! Settings of a server.

use std::time::Duration;

use crate::limits;

/// Settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The most connections at a time; further ones are closed at once.
    pub connections: usize,
    /// The most requests of one connection that are carried out at the same time.
    pub workers: usize,
    /// Memory for the requests of all connections, in bytes; at least 64 MiB.
    pub memory_bytes: u64,
    /// The time in which a client has to choose an export.
    pub handshake_timeout: Duration,
    /// The time for which a client may leave a message unfinished, or not read a reply.
    pub stall_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connections: limits::CONNECTIONS,
            workers: limits::WORKERS,
            memory_bytes: limits::MEMORY_BYTES,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            stall_timeout: limits::STALL_TIMEOUT,
        }
    }
}
