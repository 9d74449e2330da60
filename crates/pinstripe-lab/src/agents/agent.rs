//! An agent: listens for coordinators, and measures for one at a time.
//!
//! ```text
//! accept --thread each--> handshake --one at a time--> session (session.rs)
//! ```
//!
//! Invariants: a peer that does not know the token gets no thread for longer than the handshake may
//! take; there are at most [`MOST_CONNECTIONS`] connections; when the agent is stopped, its session
//! ends and removes what it created before [`Agent::serve`] returns.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, lock, wait_readable};

use super::link::{HANDSHAKE, Link};
use super::message::{self, AgentError, AgentReply};
use super::permits::Permits;
use super::session::AgentSession;
use super::token::Token;

/// The most connections at a time: one of them is the session; the others are in the handshake or
/// are being refused.
const MOST_CONNECTIONS: usize = 16;
/// The time for which no connection is accepted after the system had no free descriptor for one.
const NO_DESCRIPTOR: Duration = Duration::from_millis(200);

/// Reports of an agent to its operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentReport {
    /// A coordinator has begun a case.
    Began {
        /// The address of the coordinator.
        peer: String,
        /// The name of the case.
        case: String,
    },
    /// A coordinator has disconnected.
    Ended {
        /// The address.
        peer: String,
        /// The reason, unless the coordinator disconnected as it should.
        why: Option<String>,
    },
    /// A connection was refused.
    Refused {
        /// The address from which the connection came.
        peer: String,
        /// Why.
        why: String,
    },
}

/// A listening agent.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    token: Token,
    permits: Permits,
    /// The program and its version.
    program: String,
    /// The time for a handshake.
    pub(super) handshake: Duration,
    sockets: Sockets,
    /// The address of the coordinator whose session is active.
    session: Mutex<Option<String>>,
}

/// The sockets of all connections, so that another thread can close them.
#[derive(Debug, Default)]
struct Sockets {
    open: Mutex<Vec<(u64, TcpStream)>>,
    next: AtomicU64,
}

impl Sockets {
    /// Adds a connection; returns `None` if there are too many connections.
    fn add(&self, stream: &TcpStream) -> Option<u64> {
        let mut open = lock(&self.open);
        let copy = stream.try_clone().ok().filter(|_| open.len() < MOST_CONNECTIONS)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.push((number, copy));
        Some(number)
    }

    fn remove(&self, number: u64) {
        lock(&self.open).retain(|(it, _)| *it != number);
    }

    fn close_all(&self) {
        for (_, stream) in &*lock(&self.open) {
            // One that is closed already is closed.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Agent {
    /// Creates an agent that listens at `HOST:PORT`; port 0 selects any free port.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn bind(address: &str, token: Token, permits: Permits, program: &str) -> Result<Agent> {
        let failed = |error| Error::io("cannot listen", address, error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Agent {
            listener,
            token,
            permits,
            program: program.to_owned(),
            handshake: HANDSHAKE,
            sockets: Sockets::default(),
            session: Mutex::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|error| {
            Error::io("cannot find the address at which the agent listens", "/", error)
        })
    }

    /// Serves coordinators until the agent is stopped.
    ///
    /// # Errors
    /// Errors of the listening socket, as the system reports them.
    pub fn serve(&self, stop: &Stop, tell: &(dyn Fn(AgentReport) + Sync)) -> Result<()> {
        thread::scope(|scope| {
            let accepted = loop {
                let waited = wait_readable(&[self.listener.as_fd(), stop.as_fd()], None);
                if stop.is_set() {
                    break Ok(());
                }
                match waited.and_then(|_| self.listener.accept()) {
                    Ok((stream, peer)) => {
                        let peer = peer.to_string();
                        match self.sockets.add(&stream) {
                            Some(number) => {
                                scope.spawn(move || {
                                    self.welcome(stream, peer, tell);
                                    self.sockets.remove(number);
                                });
                            }
                            None => tell(AgentReport::Refused {
                                peer,
                                why: "too many coordinators are connected".to_owned(),
                            }),
                        }
                    }
                    Err(error) if is_passing(&error) => {
                        // A connection that cannot be taken stays readable.
                        if error.kind() != std::io::ErrorKind::WouldBlock {
                            stop.wait(NO_DESCRIPTOR);
                        }
                    }
                    Err(error) => break Err(Error::io("cannot accept connections", "/", error)),
                }
            };
            self.sockets.close_all();
            accepted
        })
    }

    fn welcome(&self, stream: TcpStream, peer: String, tell: &(dyn Fn(AgentReport) + Sync)) {
        let refused = |why: String| tell(AgentReport::Refused { peer: peer.clone(), why });
        if let Err(error) = stream.set_nonblocking(false) {
            return refused(error.to_string());
        }
        let link = match Link::accept(stream, &self.token, self.handshake) {
            Ok(link) => link,
            Err(error) => return refused(error.to_string()),
        };
        let other = {
            let mut session = lock(&self.session);
            let other = session.clone();
            session.get_or_insert_with(|| peer.clone());
            other
        };
        if let Some(other) = other {
            let why = format!("another coordinator ({other}) already uses the agent");
            let failure = AgentError::from_error(&Error::new(Kind::Busy, why.clone()));
            let told = message::encode(&AgentReply::Failed(failure)).and_then(|it| link.send(&it));
            drop(told);
            return refused(why);
        }
        let began =
            |case: &str| tell(AgentReport::Began { peer: peer.clone(), case: case.to_owned() });
        let ended = AgentSession::serve(&link, &self.permits, &self.program, &began);
        link.close();
        *lock(&self.session) = None;
        tell(AgentReport::Ended { peer: peer.clone(), why: ended.err().map(|it| it.to_string()) });
    }
}

/// Whether an error of accept(2) is temporary: the connection was aborted, or no descriptor was
/// free.
fn is_passing(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [
        Errno::AGAIN,
        Errno::INTR,
        Errno::CONNABORTED,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::PROTO,
    ];
    passing.iter().any(|it| error.raw_os_error() == Some(it.raw_os_error()))
}
