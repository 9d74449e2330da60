//! A connection between a coordinator and an agent: a handshake, then messages in both directions.
//!
//! Invariants: whatever the other end sends or does not send, every call of this module ends by its
//! deadline; before the other end has proved that it knows the token, at most a greeting and a
//! proof are read from it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id;
use pinstripe_base::sync::lock;
use rustix::io::Errno;

use super::frame::{
    ConnectionEnd, FrameOpener, FrameSealer, GREETING_BYTES, Greeting, LENGTH_BYTES, MAC_BYTES,
    SessionKeys,
};
use super::token::Token;

/// The time limit for connecting and the handshake together.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time limit for sending a message, and for receiving the rest of a message whose first bytes
/// have arrived; even a slow line transmits the longest message in this time.
const MESSAGE: Duration = Duration::from_secs(60);

/// One end of a connection.
pub struct Link {
    stream: TcpStream,
    sealer: Mutex<FrameSealer>,
    opener: Mutex<FrameOpener>,
}

impl Link {
    /// Connects to an agent, `HOST:PORT`.
    ///
    /// # Errors
    /// [`Kind::WrongKey`] for an agent that does not know the token, [`Kind::Unsupported`] for an
    /// agent of another version, [`Kind::Unanswered`] after [`HANDSHAKE`]; other errors as the
    /// system reports them.
    pub fn connect(address: &str, token: &Token) -> Result<Link> {
        let failed = |error: io::Error| Error::io("cannot connect", address, error);
        let deadline = Instant::now() + HANDSHAKE;
        let mut found =
            Err(Error::new(Kind::NotFound, "this is not a valid address of a machine").at(address));
        for socket in address.to_socket_addrs().map_err(failed)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(&socket, left) {
                Ok(stream) => {
                    return Link::greet(stream, token, ConnectionEnd::Coordinator, deadline);
                }
                Err(error) => found = Err(failed(error)),
            }
        }
        found
    }

    /// Accepts a coordinator that has connected. The coordinator must prove within `handshake` that
    /// it knows the token.
    ///
    /// # Errors
    /// The errors of [`connect`](Link::connect).
    pub fn accept(stream: TcpStream, token: &Token, handshake: Duration) -> Result<Link> {
        Link::greet(stream, token, ConnectionEnd::Agent, Instant::now() + handshake)
    }

    fn greet(
        stream: TcpStream,
        token: &Token,
        end: ConnectionEnd,
        deadline: Instant,
    ) -> Result<Link> {
        stream.set_nodelay(true).map_err(|error| {
            Error::io("the connection between coordinator and agent cannot be set up", "/", error)
        })?;
        let ours = Greeting::new(id::random()?);
        let mut bytes = [0; GREETING_BYTES];
        let theirs = match end {
            ConnectionEnd::Coordinator => {
                send(&stream, &ours.encode(), deadline)?;
                receive(&stream, &mut bytes, deadline)?;
                Greeting::decode(&bytes)?
            }
            ConnectionEnd::Agent => {
                receive(&stream, &mut bytes, deadline)?;
                let theirs = Greeting::decode(&bytes)?;
                send(&stream, &ours.encode(), deadline)?;
                theirs
            }
        };
        theirs.check()?;
        let handshake = match end {
            ConnectionEnd::Coordinator => SessionKeys::new(token, &ours, &theirs),
            ConnectionEnd::Agent => SessionKeys::new(token, &theirs, &ours),
        };
        let mut proof = [0; MAC_BYTES];
        match end {
            ConnectionEnd::Coordinator => {
                send(&stream, &handshake.proof(ConnectionEnd::Coordinator), deadline)?;
                // An agent that finds the proof wrong says no more.
                receive(&stream, &mut proof, deadline).map_err(|error| match error.kind() {
                    Kind::Unanswered => error,
                    _ => Error::new(Kind::WrongKey, "the agent refused the token")
                        .advice("the token file must have the same content on all machines"),
                })?;
                handshake.check(ConnectionEnd::Agent, &proof)?;
            }
            ConnectionEnd::Agent => {
                receive(&stream, &mut proof, deadline)?;
                handshake.check(ConnectionEnd::Coordinator, &proof)?;
                send(&stream, &handshake.proof(ConnectionEnd::Agent), deadline)?;
            }
        }
        let (sealer, opener) = handshake.keys(end);
        Ok(Link { stream, sealer: Mutex::new(sealer), opener: Mutex::new(opener) })
    }

    /// Sends a message. Several threads may.
    ///
    /// # Errors
    /// [`Kind::Unanswered`] if the other end receives nothing for a minute; other errors as the
    /// system reports them.
    pub fn send(&self, payload: &[u8]) -> Result<()> {
        // Under the lock: frames are sent in the order of their numbers.
        let mut sealer = lock(&self.sealer);
        let frame = sealer.seal(payload)?;
        send(&self.stream, &frame, Instant::now() + MESSAGE)
    }

    /// Waits at most `silence` for a message. Returns the message and the time of its arrival,
    /// taken before the message was checked, so that clocks can be compared.
    ///
    /// # Errors
    /// [`Kind::Unanswered`] after that time; [`Kind::Corrupt`] for bytes that the other end cannot
    /// have sent; [`Kind::Io`] after the other end has closed the connection.
    pub fn receive(&self, silence: Duration) -> Result<(Vec<u8>, Instant)> {
        let mut opener = lock(&self.opener);
        let mut length = [0; LENGTH_BYTES];
        receive(&self.stream, &mut length, Instant::now() + silence)?;
        let deadline = Instant::now() + MESSAGE;
        let bytes = FrameOpener::length(length)?;
        let mut payload = Vec::new();
        // Memory grows with what comes, not with what was promised.
        while payload.len() < bytes {
            let at = payload.len();
            payload.resize((at + (64 << 10)).min(bytes), 0);
            receive(&self.stream, &mut payload[at..], deadline)?;
        }
        let mut mac = [0; MAC_BYTES];
        receive(&self.stream, &mut mac, deadline)?;
        let came = Instant::now();
        opener.open(&payload, &mac)?;
        Ok((payload, came))
    }

    /// Closes the connection; calls that wait at either end return at once.
    pub fn close(&self) {
        // One that is closed already is closed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn send(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> Result<()> {
    while !bytes.is_empty() {
        let left = left(deadline)?;
        stream.set_write_timeout(Some(left)).map_err(lost)?;
        match stream.write(bytes) {
            Ok(0) => return Err(closed()),
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) => retry(error)?,
        }
    }
    Ok(())
}

fn receive(mut stream: &TcpStream, mut bytes: &mut [u8], deadline: Instant) -> Result<()> {
    while !bytes.is_empty() {
        let left = left(deadline)?;
        stream.set_read_timeout(Some(left)).map_err(lost)?;
        match stream.read(bytes) {
            Ok(0) => return Err(closed()),
            Ok(came) => bytes = &mut bytes[came..],
            Err(error) => retry(error)?,
        }
    }
    Ok(())
}

/// The time left before the deadline; an error if no time is left.
fn left(deadline: Instant) -> Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(Error::new(Kind::Unanswered, "the peer did not answer in time")),
        false => Ok(left),
    }
}

/// Ignores a timeout or a signal: the deadline decides.
fn retry(error: io::Error) -> Result<()> {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut, io::ErrorKind::Interrupted];
    match kinds.contains(&error.kind())
        && error.raw_os_error() != Some(Errno::TIMEDOUT.raw_os_error())
    {
        true => Ok(()),
        false => Err(lost(error)),
    }
}

fn closed() -> Error {
    Error::new(Kind::Io, "the peer has closed the connection")
}

fn lost(error: io::Error) -> Error {
    Error::new(Kind::Io, format!("the connection is lost: {error}"))
}
