//! Settings of a server.

use std::time::Duration;

use crate::limits;

/// Settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Connections at a time; further ones are closed at once.
    pub connections: usize,
    /// Requests of one connection that are carried out at a time.
    pub workers: usize,
    /// Memory for the requests of all connections, in bytes; at least 64 MiB.
    pub memory_bytes: u64,
    /// How long a client may take to choose an export.
    pub handshake_timeout: Duration,
    /// How long a client may leave a message unfinished, or a reply untaken.
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
