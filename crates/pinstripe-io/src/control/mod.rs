//! A control socket of a process that serves something: a client sends a line, and the process
//! answers with lines.
//!
//! ```text
//! client: a request on a line              server: a thread per client
//!         <- lines, as many as there are   answers with lines, then waits for the next one
//! ```
//!
//! The meaning of lines is up to the callers. A client that asked the server to stop stays
//! connected until everything is closed, so that it gets the result.
//!
//! Invariants: a line has at most [`LINE_BYTES`], there are at most
//! [`CONNECTIONS`] clients; only the user of the server can connect (the socket and
//! its directory are accessible to that user alone); a socket that a dead process left is removed.

#![allow(
    clippy::disallowed_methods,
    reason = "this module opens a socket, and starts a thread for each client"
)]

mod client;
mod line;
mod server;

pub use client::{Client, Peer};
pub use server::{Answer, Control, Lines};

use std::time::Duration;

/// The most clients of a control socket at a time; further ones are closed at once.
pub const CONNECTIONS: usize = 16;
/// The most bytes of a request, or of a line of an answer.
pub(crate) const LINE_BYTES: usize = 1 << 20;
/// The time for which a client may leave a line unfinished, or not read an answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
