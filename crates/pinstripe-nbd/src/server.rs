//! The server: accepts clients, and ends all of them when it ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use super::address::{Address, Listener};
use super::client::House;
use super::export::Export;
use super::memory::Memory;
use crate::limits;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;

/// The interval at which `stop` is checked.
const GLANCE: Duration = Duration::from_millis(50);

/// Settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Connections at a time; further ones are closed at once.
    pub connections: usize,
    /// Requests of one connection that are carried out at a time.
    pub workers: usize,
    /// Memory for the requests of all connections, in bytes; at least 64 MiB.
    pub memory_bytes: u64,
    /// How long a client may take to choose an export.
    pub handshake: Duration,
    /// How long a client may leave a message unfinished, or a reply untaken.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connections: limits::CONNECTIONS,
            workers: limits::WORKERS,
            memory_bytes: limits::MEMORY_BYTES,
            handshake: limits::HANDSHAKE,
            patience: limits::PATIENCE,
        }
    }
}

/// Sockets that clients can connect to. They go when this does.
pub struct Server {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
}

/// The connected clients.
#[derive(Default)]
struct Clients {
    sockets: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    gone: Condvar,
}

impl Server {
    /// Listens at each of these addresses.
    ///
    /// # Errors
    /// [`Kind::Usage`] without an address; [`Kind::Busy`] when another process listens there;
    /// [`Kind::Exists`] when a path is no socket; otherwise as the system says.
    pub fn bind(addresses: &[Address]) -> Result<Self> {
        if addresses.is_empty() {
            return Err(Error::new(Kind::Usage, "no address to listen at"));
        }
        let listeners = addresses.iter().map(Listener::bind).collect::<Result<Vec<_>>>()?;
        let found = listeners.iter().zip(addresses).map(|(it, asked)| it.address(asked)).collect();
        Ok(Server { listeners, addresses: found })
    }

    /// The addresses in use, with their actual ports, in the order asked for.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Serves until `stop` is set; then finishes the requests in progress and answers them. Errors
    /// of a device go to `monitor` as losses, those of clients as notes.
    ///
    /// # Errors
    /// [`Kind::Usage`] for two exports of one name; otherwise as the system says when no client can
    /// be accepted any more.
    pub fn serve(
        &self,
        exports: &[Export],
        settings: &Settings,
        monitor: &Monitor,
        stop: &AtomicBool,
    ) -> Result<()> {
        let house = house(exports, settings, monitor, stop)?;
        let clients = Clients::default();
        std::thread::scope(|scope| {
            let mut number = 0;
            let result = loop {
                if stop.load(Ordering::Relaxed) {
                    break Ok(());
                }
                let waiting = match self.wait() {
                    Ok(waiting) => waiting,
                    Err(error) => {
                        break Err(Error::io("cannot wait for clients", self.place(), error));
                    }
                };
                for listener in waiting {
                    let Some(socket) = admit(listener, &clients, settings, monitor) else {
                        continue;
                    };
                    let socket = Arc::new(socket);
                    number += 1;
                    clients.sockets().insert(number, Arc::clone(&socket));
                    let (house, clients) = (&house, &clients);
                    let started = std::thread::Builder::new()
                        .name("nbd client".to_owned())
                        .spawn_scoped(scope, move || {
                            let _leaving = Leaving { clients, number };
                            if let Err(error) = house.serve(&socket) {
                                monitor.note(&error.to_string());
                            }
                        });
                    if let Err(error) = started {
                        monitor.note(&format!("no thread for a client: {error}"));
                        drop(Leaving { clients, number });
                    }
                }
            };
            // After an error as well: all connections end by this flag.
            stop.store(true, Ordering::Relaxed);
            clients.see_off(settings.patience);
            result
        })
    }

    /// The listeners with a waiting client; returns after `GLANCE` at the latest.
    fn wait(&self) -> io::Result<Vec<&Listener>> {
        let mut polled: Vec<_> =
            self.listeners.iter().map(|it| PollFd::new(it, PollFlags::IN)).collect();
        let glance = Timespec { tv_sec: 0, tv_nsec: GLANCE.as_nanos() as _ };
        match poll(&mut polled, Some(&glance)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let listeners = self.listeners.iter().zip(&polled);
        Ok(listeners.filter(|(_, it)| !it.revents().is_empty()).map(|(it, _)| it).collect())
    }

    fn place(&self) -> String {
        self.addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// Serves the one client at the other end of a stream socket until it goes.
///
/// # Errors
/// [`Kind::Usage`] for two exports of one name; the client's violation of the protocol, or an error
/// of its socket.
pub fn serve_socket(
    socket: impl Into<OwnedFd>,
    exports: &[Export],
    settings: &Settings,
    monitor: &Monitor,
) -> Result<()> {
    house(exports, settings, monitor, &AtomicBool::new(false))?.serve(&socket.into())
}

fn house<'a>(
    exports: &'a [Export],
    settings: &'a Settings,
    monitor: &'a Monitor,
    stop: &'a AtomicBool,
) -> Result<House<'a>> {
    for (at, export) in exports.iter().enumerate() {
        if exports[..at].iter().any(|other| other.name() == export.name()) {
            let what = format!("two exports have the name '{}'", export.name());
            return Err(Error::new(Kind::Usage, what));
        }
    }
    Ok(House { exports, settings, monitor, memory: Memory::new(settings.memory_bytes), stop })
}

/// Accepts a client, if there is one and room for it.
fn admit(
    listener: &Listener,
    clients: &Clients,
    settings: &Settings,
    monitor: &Monitor,
) -> Option<OwnedFd> {
    match listener.accept() {
        Ok(socket) if clients.sockets().len() < settings.connections => Some(socket),
        Ok(_) => {
            monitor.note("a client was refused: too many are connected");
            None
        }
        // Gone again, or another listener's thread was quicker.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted
            ) =>
        {
            None
        }
        Err(error) => {
            monitor.note(&format!("cannot accept a client: {error}"));
            std::thread::sleep(GLANCE); // Too many descriptors are open, for instance.
            None
        }
    }
}

impl Clients {
    /// Stops reading, waits for requests in flight, then disconnects the remaining clients.
    fn see_off(&self, patience: Duration) {
        let mut sockets = self.sockets();
        sockets.values().for_each(|it| _ = shutdown(it, Shutdown::Read));
        let deadline = clock::monotonic() + patience;
        while !sockets.is_empty() {
            let left = deadline.saturating_duration_since(clock::monotonic());
            if left.is_zero() {
                sockets.values().for_each(|it| _ = shutdown(it, Shutdown::Both));
                return; // Their threads are waited for all the same.
            }
            let waited = self.gone.wait_timeout(sockets, left);
            sockets = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn sockets(&self) -> MutexGuard<'_, HashMap<u64, Arc<OwnedFd>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Strikes a client off the list, however its thread ends.
struct Leaving<'a> {
    clients: &'a Clients,
    number: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.clients.sockets().remove(&self.number);
        self.clients.gone.notify_all();
    }
}
