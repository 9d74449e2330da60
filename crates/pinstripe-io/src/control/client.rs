//! The client of a control socket.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::line::{read_line, write_line};
use pinstripe_base::error::{Error, Kind, Result};

/// The process at the other end of the connection, as messages describe it.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The name of the process, such as `the process that serves the array`.
    pub name: &'static str,
    /// The advice when the process does not answer.
    pub advice: &'static str,
    /// The kind of the error when the process does not answer in time.
    pub silence: Kind,
}

/// A connection to a process that serves something.
pub struct Client {
    peer: Peer,
    place: PathBuf,
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the process that listens; returns `None` if no process listens, because there is
    /// no socket or a dead process left it.
    ///
    /// # Errors
    /// Fails with the errors of the system, for example for the socket of another user.
    pub fn connect(place: &Path, peer: Peer) -> Result<Option<Self>> {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        match UnixStream::connect(place) {
            Ok(stream) => {
                let reader = BufReader::new(stream);
                Ok(Some(Client { peer, place: place.to_path_buf(), reader }))
            }
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
            Err(error) => Err(Error::io(format!("cannot connect to {}", peer.name), place, error)),
        }
    }

    /// Sets how long the process may take for each line of an answer; by default, and with `None`,
    /// there is no limit.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        let stream = self.reader.get_ref();
        let set = stream.set_read_timeout(timeout);
        set.and_then(|()| stream.set_write_timeout(timeout))
            .map_err(|error| Error::io("cannot set a timeout", &self.place, error))
    }

    /// Asks.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub fn ask(&mut self, line: &str) -> Result<()> {
        write_line(self.reader.get_ref(), line).map_err(|error| self.lost(error))
    }

    /// Reads the next line of the answer.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when the process ended or closed the connection; with an error of
    /// kind [`Peer::silence`] after the timeout.
    pub fn line(&mut self) -> Result<String> {
        match read_line(&mut self.reader) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, error: io::Error) -> Error {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
        let name = self.peer.name;
        let (kind, what) = match error.kind() {
            BrokenPipe | ConnectionReset | UnexpectedEof => {
                (Kind::Io, format!("{name} has ended, or closed the connection"))
            }
            WouldBlock | TimedOut => (self.peer.silence, format!("{name} did not answer in time")),
            _ => (Kind::Io, format!("{name} no longer answers: {error}")),
        };
        Error::new(kind, what).at(&self.place).advice(self.peer.advice)
    }
}
