//! The server of a control socket.

use std::fs;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{read_line, write_line};
use crate::limits;
use pinstripe_base::error::{Error, Kind, Result};

/// The interval at which `stop` is checked.
const GLANCE: Duration = Duration::from_millis(50);

/// A socket at which requests are answered. It is removed on drop.
pub struct Control {
    listener: UnixListener,
    place: PathBuf,
    /// Clients that are to hear how all of it ended.
    waiting: Mutex<Vec<UnixStream>>,
}

/// The state after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is answered; the next one may come.
    Given,
    /// It is answered by [`Control::conclude`].
    AtTheEnd,
}

/// The stream that lines of an answer go to.
pub struct Lines<'a> {
    stream: &'a UnixStream,
    stop: &'a AtomicBool,
}

impl Lines<'_> {
    /// Sends a line.
    ///
    /// # Errors
    /// When the client is gone.
    pub fn send(&self, line: &str) -> Result<()> {
        write_line(self.stream, line).map_err(|error| disconnected(&error))
    }

    /// Whether no more lines are wanted: the client is gone, or the server ends.
    pub fn is_over(&self) -> bool {
        // A client sends nothing while it waits for an answer, so readable means that it hung up.
        self.stop.load(Ordering::Relaxed) || is_readable(self.stream, Duration::ZERO)
    }
}

impl Control {
    /// Listens at a path; what a dead process left there is cleared away.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another process listens there; [`Kind::Exists`] for what is no socket;
    /// otherwise as the system says.
    pub fn bind(place: &Path) -> Result<Self> {
        clear_away(place)?;
        let failed = |error| Error::io("cannot listen", place, error);
        let listener = UnixListener::bind(place).map_err(failed)?;
        fs::set_permissions(place, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Control { listener, place: place.to_path_buf(), waiting: Mutex::default() })
    }

    /// Answers requests until `stop` is set. `answer` is called by a thread for each client.
    ///
    /// # Errors
    /// When no client can be accepted any more.
    pub fn serve(
        &self,
        stop: &AtomicBool,
        answer: &(dyn Fn(&str, &Lines<'_>) -> Answer + Sync),
    ) -> Result<()> {
        let clients = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                if !is_readable(&self.listener, GLANCE) {
                    continue;
                }
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if is_passing(&error) => continue,
                    Err(error) => return Err(Error::io("lets nobody in", &self.place, error)),
                };
                if clients.load(Ordering::Relaxed) >= limits::CONTROL_CONNECTIONS {
                    continue; // Closed at once, so that the client does not wait.
                }
                clients.fetch_add(1, Ordering::Relaxed);
                let clients = &clients;
                let attend = move || {
                    // A client that breaks off or sends garbage ends its own connection and nothing
                    // else.
                    let _ = self.attend(stream, stop, answer);
                    clients.fetch_sub(1, Ordering::Relaxed);
                };
                let started = std::thread::Builder::new().name("control".to_owned());
                if started.spawn_scoped(scope, attend).is_err() {
                    clients.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })
    }

    fn attend(
        &self,
        stream: UnixStream,
        stop: &AtomicBool,
        answer: &(dyn Fn(&str, &Lines<'_>) -> Answer + Sync),
    ) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(limits::CONTROL_PATIENCE))?;
        let mut reader = BufReader::new(stream);
        loop {
            while reader.buffer().is_empty() && !is_readable(reader.get_ref(), GLANCE) {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            reader.get_ref().set_read_timeout(Some(limits::CONTROL_PATIENCE))?;
            let Some(line) = read_line(&mut reader)? else { return Ok(()) };
            let lines = Lines { stream: reader.get_ref(), stop };
            if answer(&line, &lines) == Answer::AtTheEnd {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.push(reader.into_inner());
                return Ok(());
            }
        }
    }

    /// Sends the outcome to the clients that asked for the end.
    pub fn conclude(self, line: &str) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in waiting.iter() {
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

fn is_readable(socket: &impl AsFd, wait: Duration) -> bool {
    let mut sockets = [PollFd::new(socket, PollFlags::IN)];
    let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
    poll(&mut sockets, Some(&wait)).is_ok_and(|ready| ready > 0)
}

/// Whether only this one client could not be let in.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn disconnected(error: &io::Error) -> Error {
    Error::new(Kind::Io, format!("whoever asked is gone: {error}"))
}

fn clear_away(place: &Path) -> Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(Error::new(Kind::Exists, "is there already, and no socket").at(place))
        }
        Ok(_) => match UnixStream::connect(place) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(place).map_err(|error| Error::io("cannot remove", place, error))
            }
            _ => Err(Error::new(Kind::Busy, "another process serves it already").at(place)),
        },
        Err(_) => Ok(()), // `bind` reports any other problem.
    }
}
