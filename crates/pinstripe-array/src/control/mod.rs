//! A control socket: a line to a process that serves something, lines back.
//!
//! ```text
//! client: a request on a line              server: a thread per client
//!         <- lines, as many as there are   answers with lines, then waits for the next one
//! ```
//! The meaning of lines is up to the callers. A client that asked the server to stop stays connected
//! until all is closed, so that it gets the outcome.
//!
//! Invariants: a line has at most [`CONTROL_LINE_BYTES`], there are at most
//! [`CONTROL_CONNECTIONS`] clients; only the user who serves can connect (the socket and
//! its directory are accessible to that user alone); a socket that a dead process left is removed.
//!
//! [`CONTROL_LINE_BYTES`]: crate::limits::CONTROL_LINE_BYTES
//! [`CONTROL_CONNECTIONS`]: crate::limits::CONTROL_CONNECTIONS

#![allow(clippy::disallowed_methods, reason = "a socket, and a thread for each of its clients")]

mod client;
mod line;
mod server;

pub use client::Client;
pub use server::{Answer, Control, Lines};

#[cfg(test)]
mod tests;
