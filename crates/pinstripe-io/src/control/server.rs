//! The server of a control socket.

use std::fs;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::line::{read_line, write_line};
use super::{CLIENT_TIMEOUT, CONNECTIONS};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, lock, wait_readable};

/// The time until the server tries again to accept a client, if no file descriptor was free for it.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// A socket at which requests are answered. The socket is removed when this object is dropped.
pub struct Control {
    listener: UnixListener,
    place: PathBuf,
    /// Clients that get the result when the server ends.
    deferred: Mutex<Vec<UnixStream>>,
}

/// The state of a request after its handler returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The answer was sent, so the next request may be received.
    Sent,
    /// The answer is sent later, by [`Control::conclude`].
    Deferred,
}

/// The stream to which the lines of an answer are written.
pub struct Lines<'a> {
    stream: &'a UnixStream,
    stop: &'a Stop,
}

impl Lines<'_> {
    /// Sends a line.
    ///
    /// # Errors
    /// Fails when the client has disconnected.
    pub fn send(&self, line: &str) -> Result<()> {
        write_line(self.stream, line).map_err(|error| disconnected(&error))
    }

    /// Whether no more lines are wanted, because the client has disconnected or the server ends.
    pub fn is_over(&self) -> bool {
        self.is_over_within(Duration::ZERO)
    }

    /// Waits up to `timeout` until no more lines are wanted; returns whether that is the case.
    pub fn is_over_within(&self, timeout: Duration) -> bool {
        // A client sends nothing while it waits for an answer, so readable means that it hung up.
        let ready = wait_readable(&[self.stop.as_fd(), self.stream.as_fd()], Some(timeout));
        ready.map_or(true, |ready| ready.contains(&true))
    }
}

impl Control {
    /// Listens at a path; removes a socket that a dead process left there.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another process listens there; with [`Kind::Exists`] if the
    /// path exists and is not a socket; otherwise with the errors of the system.
    pub fn bind(place: &Path) -> Result<Self> {
        remove_stale_socket(place)?;
        let told = |error| Error::io("cannot listen", place, error);
        let listener = UnixListener::bind(place).map_err(told)?;
        fs::set_permissions(place, fs::Permissions::from_mode(0o600)).map_err(told)?;
        listener.set_nonblocking(true).map_err(told)?;
        Ok(Control { listener, place: place.to_path_buf(), deferred: Mutex::default() })
    }

    /// Answers requests until `stop` is set. A thread for each client calls `answer`.
    ///
    /// # Errors
    /// Fails when no client can be accepted any more.
    pub fn serve(
        &self,
        stop: &Stop,
        answer: &(dyn Fn(&str, &Lines<'_>) -> Answer + Sync),
    ) -> Result<()> {
        let clients = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while let Some(stream) = self.accept(stop)? {
                if clients.load(Ordering::Relaxed) >= CONNECTIONS {
                    continue; // Closed at once, so that the client does not wait.
                }
                clients.fetch_add(1, Ordering::Relaxed);
                let clients = &clients;
                let serve = move || {
                    // A client that breaks off or sends garbage ends its own connection and nothing
                    // else.
                    let _ = self.serve_client(stream, stop, answer);
                    clients.fetch_sub(1, Ordering::Relaxed);
                };
                let started = std::thread::Builder::new().name("control".to_owned());
                if started.spawn_scoped(scope, serve).is_err() {
                    clients.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })
    }

    /// Accepts the next client; returns `None` once `stop` is set.
    fn accept(&self, stop: &Stop) -> Result<Option<UnixStream>> {
        let failed = |error| Error::io("cannot accept connections of clients", &self.place, error);
        loop {
            wait_readable(&[stop.as_fd(), self.listener.as_fd()], None).map_err(failed)?;
            if stop.is_set() {
                return Ok(None);
            }
            match self.listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) if is_gone_again(&error) => {}
                Err(error) if lacks_descriptors(&error) => _ = stop.wait(ACCEPT_RETRY),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn serve_client(
        &self,
        stream: UnixStream,
        stop: &Stop,
        answer: &(dyn Fn(&str, &Lines<'_>) -> Answer + Sync),
    ) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        let mut reader = BufReader::new(stream);
        loop {
            if reader.buffer().is_empty() {
                let ready = wait_readable(&[stop.as_fd(), reader.get_ref().as_fd()], None)?;
                // A request that came before the stop is still answered.
                if !ready[1] {
                    return Ok(());
                }
            }
            let Some(line) = read_line(&mut reader)? else { return Ok(()) };
            let lines = Lines { stream: reader.get_ref(), stop };
            if answer(&line, &lines) == Answer::Deferred {
                lock(&self.deferred).push(reader.into_inner());
                return Ok(());
            }
        }
    }

    /// Sends the result to the clients that asked the server to stop.
    pub fn conclude(self, line: &str) {
        for stream in lock(&self.deferred).iter() {
            // A client that is gone does not need it.
            let _ = write_line(stream, line);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.place);
    }
}

/// Whether only this one client could not be accepted, because it has disconnected.
fn is_gone_again(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
}

fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn disconnected(error: &io::Error) -> Error {
    Error::new(Kind::Io, format!("the client has disconnected: {error}"))
}

/// Removes a socket if no process listens at it.
fn remove_stale_socket(place: &Path) -> Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(Error::new(Kind::Exists, "this file already exists and is not a socket").at(place))
        }
        Ok(_) => match UnixStream::connect(place) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(place).map_err(|error| Error::io("cannot remove", place, error))
            }
            _ => {
                Err(Error::new(Kind::Busy, "another process already serves this socket").at(place))
            }
        },
        Err(_) => Ok(()), // `bind` reports any other problem.
    }
}
