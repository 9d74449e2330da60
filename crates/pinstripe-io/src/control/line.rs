//! Lines of bounded length on a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use super::LINE_BYTES;

/// Reads a line without its line end; returns `None` at the end of the stream.
pub(super) fn read_line(reader: &mut BufReader<UnixStream>) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let most = LINE_BYTES as u64;
    reader.by_ref().take(most).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(line).map(Some).map_err(std::io::Error::other),
        Some(_) => Err(std::io::Error::other("the line is too long or incomplete")),
    }
}

/// Sends a line.
pub(super) fn write_line(mut stream: &UnixStream, line: &str) -> std::io::Result<()> {
    debug_assert!(!line.contains('\n'), "one line is one line");
    stream.write_all(format!("{line}\n").as_bytes())
}
