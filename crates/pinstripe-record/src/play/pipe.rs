//! Plays to a file, a FIFO or a pipe; waits while it is full, but stops waiting when playback is to
//! end.

#![allow(clippy::disallowed_methods, reason = "this module opens the target of the playback")]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::Stop;
use rustix::event::{PollFd, PollFlags, poll};

/// The number of bytes that a writable pipe accepts in one write (PIPE_BUF, pipe(7)).
const WRITE_BYTES: usize = 4096;
/// The interval at which the opening of a FIFO without a reader is retried, because nothing reports
/// a new reader.
const TRY_EVERY: Duration = Duration::from_millis(10);

/// The destination of interleaved samples.
pub(super) enum PipeSink {
    /// It is open.
    Open(File),
    /// A FIFO that has no reader yet.
    Waiting(PathBuf),
}

impl PipeSink {
    /// Opens a path.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn open(path: &Path) -> Result<Self> {
        match open(path) {
            Ok(file) => Ok(PipeSink::Open(file)),
            Err(error) if is_unread(&error) => Ok(PipeSink::Waiting(path.to_path_buf())),
            Err(error) => Err(Error::of_named("cannot open", path, error)),
        }
    }

    /// Writes all bytes, without a time limit; if `stop` is set, the remaining bytes are dropped.
    ///
    /// # Errors
    /// Errors as the system reports them; an error if the reader has disconnected.
    pub fn write(&mut self, bytes: &[u8], stop: &Stop) -> Result<()> {
        if let PipeSink::Waiting(path) = self {
            match await_reader(path, stop)? {
                Some(file) => *self = PipeSink::Open(file),
                None => return Ok(()),
            }
        }
        let PipeSink::Open(file) = self else { return Ok(()) };
        let failed = |error| Error::io("cannot play to", "the sink", error);
        let mut rest = bytes;
        while !rest.is_empty() {
            if !wait_writable(file, stop).map_err(failed)? {
                return Ok(());
            }
            match file.write(&rest[..rest.len().min(WRITE_BYTES)]) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_again(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Nonblocking: otherwise a FIFO is not open before it has a reader.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn is_unread(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENXIO)
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Opens a FIFO as soon as it has a reader; `None` if `stop` is set first.
fn await_reader(path: &Path, stop: &Stop) -> Result<Option<File>> {
    loop {
        match open(path) {
            Ok(file) => return Ok(Some(file)),
            Err(error) if is_unread(&error) => {}
            Err(error) => return Err(Error::io("cannot open", path, error)),
        }
        if stop.wait(TRY_EVERY) {
            return Ok(None);
        }
    }
}

/// Waits until the file can be written; returns false if `stop` is set.
fn wait_writable(file: &File, stop: &Stop) -> io::Result<bool> {
    loop {
        let (file, stop_fd) = (file.as_fd(), stop.as_fd());
        let mut fds = [PollFd::new(&file, PollFlags::OUT), PollFd::new(&stop_fd, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) if stop.is_set() => return Ok(false),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Command;

    #[test]
    fn a_fifo_is_waited_for_and_one_that_nobody_reads_holds_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let stop = Stop::new().unwrap();
        let mut sink = PipeSink::open(&path).unwrap();
        assert!(matches!(sink, PipeSink::Waiting(_)));
        let bytes: Vec<u8> = (0..300_000_u32).map(|it| it as u8).collect();
        std::thread::scope(|scope| {
            let read = scope.spawn(|| {
                let mut read = vec![0; bytes.len()];
                let mut file = File::open(&path).unwrap();
                file.read_exact(&mut read).unwrap();
                (read, file)
            });
            sink.write(&bytes, &stop).unwrap();
            let (read, _file) = read.join().unwrap();
            assert!(read == bytes);
            // It is full soon, and no program reads.
            scope.spawn(|| stop.set());
            sink.write(&vec![0; 1 << 20], &stop).unwrap();
        });
        assert!(stop.is_set());
        let mut late = PipeSink::open(&path).unwrap();
        late.write(&[1], &stop).unwrap();
    }
}
