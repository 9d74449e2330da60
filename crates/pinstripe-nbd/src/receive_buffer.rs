//! Received bytes of a client, read from its socket in large pieces.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, recv};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

/// Bytes that are read from a socket at a time: many requests, or many small writes.
const RECEIVE_BYTES: usize = 128 << 10;

/// Bytes that were received and not used yet.
pub(super) struct ReceiveBuffer<'a> {
    socket: &'a OwnedFd,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// The deadline for the rest of the current message.
    deadline: Option<Instant>,
    is_ending: &'a AtomicBool,
}

impl<'a> ReceiveBuffer<'a> {
    /// A receive buffer of a socket, usable until `is_ending` is set. The server then shuts the
    /// socket down for reading, which wakes a thread that waits for bytes.
    pub fn new(socket: &'a OwnedFd, is_ending: &'a AtomicBool) -> Self {
        let bytes = vec![0; RECEIVE_BYTES].into_boxed_slice();
        ReceiveBuffer { socket, bytes, start: 0, end: 0, deadline: None, is_ending }
    }

    /// From now on, all bytes must arrive within `time`.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub(crate) fn set_deadline(&mut self, time: Duration) -> Result<()> {
        self.deadline = Some(clock::monotonic() + time);
        self.set_timeout(time)
    }

    /// From now on, the client may be silent between messages, but not for longer than `time` in
    /// the middle of one.
    ///
    /// # Errors
    /// Fails with the errors of the system.
    pub(crate) fn set_stall_timeout(&mut self, time: Duration) -> Result<()> {
        self.deadline = None;
        self.set_timeout(time)
    }

    fn set_timeout(&self, time: Duration) -> Result<()> {
        set_socket_timeout(self.socket, Timeout::Recv, Some(time))
            .map_err(|errno| Error::io("cannot set a socket timeout", "a socket", errno))
    }

    /// Whether this many bytes are in the buffer.
    pub fn holds(&self, bytes: usize) -> bool {
        self.end - self.start >= bytes
    }

    /// Takes `N` bytes; returns `None` if the client disconnected, or the server ends, before the
    /// first of them.
    ///
    /// # Errors
    /// Fails with [`Kind::Interrupted`] when the server ends after the first byte; with
    /// [`Kind::Io`] when the client disconnects in the middle; with the errors of the system.
    pub fn take<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        while !self.holds(N) {
            let is_begun = self.end > self.start;
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let end = self.end;
            let came = self.receive(is_begun, |it| &mut it.bytes[end..])?;
            match came {
                0 if is_begun => return Err(cut_off()),
                0 => return Ok(None),
                came => self.end += came,
            }
        }
        let taken = self.bytes[self.start..self.start + N].try_into().expect("of this length");
        self.start += N;
        Ok(Some(taken))
    }

    /// Fills `into`, from this buffer first and then directly from the socket.
    ///
    /// # Errors
    /// Fails with the errors of [`take`](Self::take).
    pub fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        let ready = into.len().min(self.end - self.start);
        into[..ready].copy_from_slice(&self.bytes[self.start..self.start + ready]);
        self.start += ready;
        let mut into = &mut into[ready..];
        while !into.is_empty() {
            match self.receive(true, |_| &mut *into)? {
                0 => return Err(cut_off()),
                came => into = &mut into[came..],
            }
        }
        Ok(())
    }

    /// Discards this many bytes from the client.
    ///
    /// # Errors
    /// Fails with the errors of [`take`](Self::take).
    pub fn skip(&mut self, mut bytes: u64) -> Result<()> {
        loop {
            let ready = bytes.min((self.end - self.start) as u64);
            self.start += ready as usize;
            bytes -= ready;
            if bytes == 0 {
                return Ok(());
            }
            (self.start, self.end) = (0, 0);
            match self.receive(true, |it| &mut it.bytes[..])? {
                0 => return Err(cut_off()),
                came => self.end = came,
            }
        }
    }

    /// Waits for bytes; returns 0 when the client has closed its side.
    fn receive<'b>(
        &'b mut self,
        is_begun: bool,
        into: impl FnOnce(&'b mut Self) -> &'b mut [u8],
    ) -> Result<usize> {
        let (socket, is_ending, deadline) = (self.socket, self.is_ending, self.deadline);
        let into = into(self);
        loop {
            if is_ending.load(Ordering::Relaxed) {
                return Ok(0);
            }
            match recv(socket, &mut *into, RecvFlags::empty()) {
                Ok((came, _)) if deadline.is_none_or(|it| clock::monotonic() < it) => {
                    return Ok(came);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if deadline.is_none() && !is_begun => {}
                Ok(_) | Err(Errno::AGAIN) => {
                    return Err(Error::new(
                        Kind::Io,
                        "an NBD client disconnected in the middle of a message",
                    ));
                }
                // Between messages, a reset is as good as an orderly end.
                Err(Errno::CONNRESET) if !is_begun => return Ok(0),
                Err(errno) => return Err(Error::io("cannot receive", "a client", errno)),
            }
        }
    }
}

fn cut_off() -> Error {
    Error::new(
        Kind::Interrupted,
        "the connection to an NBD client was lost in the middle of a message",
    )
}
