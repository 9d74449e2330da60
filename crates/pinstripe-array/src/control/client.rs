//! The client of a control socket.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::line::{read_line, write_line};
use pinstripe_base::error::{Error, Kind, Result};

/// A connection to a process that serves.
pub struct Client {
    place: PathBuf,
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the process that listens; `None` if none does, because there is no socket or a
    /// dead process left it.
    ///
    /// # Errors
    /// As the system says, for example for the socket of another user.
    pub fn connect(place: &Path) -> Result<Option<Self>> {
        match UnixStream::connect(place) {
            Ok(stream) => {
                Ok(Some(Client { place: place.to_path_buf(), reader: BufReader::new(stream) }))
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(None)
            }
            Err(error) => {
                Err(Error::io("cannot reach the process that serves the array", place, error))
            }
        }
    }

    /// Sets how long the process may take for each line of an answer; without it, any time.
    ///
    /// # Errors
    /// As the system says.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        let stream = self.reader.get_ref();
        let set = stream.set_read_timeout(Some(patience));
        set.and_then(|()| stream.set_write_timeout(Some(patience)))
            .map_err(|error| Error::io("cannot limit the wait", &self.place, error))
    }

    /// Asks.
    ///
    /// # Errors
    /// As the system says.
    pub fn ask(&mut self, line: &str) -> Result<()> {
        write_line(self.reader.get_ref(), line).map_err(|error| self.lost(error))
    }

    /// The next line of the answer.
    ///
    /// # Errors
    /// [`Kind::Io`] when the process ended or closed the connection.
    pub fn line(&mut self) -> Result<String> {
        match read_line(&mut self.reader) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, error: io::Error) -> Error {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let what = match error.kind() {
            BrokenPipe | ConnectionReset | UnexpectedEof => {
                "the process that served the array has ended, or closed the connection".to_owned()
            }
            _ => format!("the process that serves the array does not answer any more: {error}"),
        };
        Error::new(Kind::Io, what)
            .at(&self.place)
            .advice("check with 'pinstripe array status' whether it still runs, then try again")
    }
}
