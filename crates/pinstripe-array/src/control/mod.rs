//! A control socket: a line to a process that serves something, lines back.
//!
//! ```text
//! client: a request on a line              server: a thread per client
//!         <- lines, as many as there are   answers with lines, then waits for the next one
//! ```
//! The meaning of lines is up to the callers. A client that asked for the end stays connected until
//! all is over, so that it gets the outcome.
//!
//! Invariants: a line has at most [`limits::CONTROL_LINE_BYTES`], there are at most
//! [`limits::CONTROL_CONNECTIONS`] clients; only the user who serves can connect (the socket and
//! its directory are accessible to that user alone); a socket that a dead process left is removed.

mod client;
mod server;

pub use client::Client;
pub use server::{Answer, Control, Lines};

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use crate::limits;

/// Reads a line without its end; `None` where there are no more.
fn read_line(reader: &mut BufReader<UnixStream>) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let most = limits::CONTROL_LINE_BYTES as u64;
    reader.by_ref().take(most).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(line).map(Some).map_err(std::io::Error::other),
        Some(_) => Err(std::io::Error::other("a line that is too long, or cut off")),
    }
}

fn write_line(mut stream: &UnixStream, line: &str) -> std::io::Result<()> {
    debug_assert!(!line.contains('\n'), "one line is one line");
    stream.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests;
