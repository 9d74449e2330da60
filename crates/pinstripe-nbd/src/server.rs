//! The server: accepts clients, and disconnects all of them when it ends.
//!
//! Invariant: the caller's stop is only waited for, and never set. When a server ends, because of
//! the stop or an error, it sets a flag of its own in the [`ServerContext`], after which no request
//! is received.

#![allow(clippy::disallowed_methods, reason = "this module starts a thread for each connection")]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Scope;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

use crate::address::{Address, Listener};
use crate::client;
use crate::context::ServerContext;
use crate::export::Export;
use crate::settings::Settings;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::{Stop, lock, wait_readable, wait_timeout};

/// The time until the server tries again to accept a client, after that failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Sockets to which clients can connect. The sockets are removed when the server is dropped.
pub struct Server {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
}

/// The connected clients. The list of connections; its lock is never held during a call that may
/// block, and no other lock is taken under it.
#[derive(Default)]
struct Connections {
    sockets: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    gone: Condvar,
}

impl Server {
    /// Listens at each of these addresses.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] without an address; with [`Kind::Busy`] when another process
    /// listens there; with [`Kind::Exists`] if a path is not a socket; otherwise with the errors of
    /// the system.
    pub fn bind(addresses: &[Address]) -> Result<Self> {
        if addresses.is_empty() {
            return Err(Error::new(
                Kind::Usage,
                "no address was given at which the NBD server can listen",
            ));
        }
        let listeners = addresses.iter().map(Listener::bind).collect::<Result<Vec<_>>>()?;
        let found = listeners.iter().zip(addresses).map(|(it, asked)| it.address(asked)).collect();
        Ok(Server { listeners, addresses: found })
    }

    /// The addresses in use, with their actual ports, in the order in which they were requested.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Serves clients until `stop` is set; then finishes and answers the requests in progress.
    /// Errors of a device are reported to `monitor` as losses, those of clients as notes.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for two exports with the same name; otherwise with the errors of
    /// the system when no client can be accepted any more.
    pub fn serve(
        &self,
        exports: &[Export],
        settings: &Settings,
        monitor: &Monitor,
        stop: &Stop,
    ) -> Result<()> {
        let context = ServerContext::new(exports, settings, monitor)?;
        let connections = Connections::default();
        std::thread::scope(|scope| {
            let result = self.accept_clients(scope, &context, &connections, stop);
            // After an error as well: all connections end by this flag.
            context.end();
            connections.drain_connections(settings.stall_timeout);
            result
        })
    }

    /// Starts a thread for each client that connects, until `stop` is set.
    fn accept_clients<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        context: &'scope ServerContext<'_>,
        connections: &'scope Connections,
        stop: &Stop,
    ) -> Result<()> {
        let mut number = 0;
        while let Some(listeners) = self.wait(stop)? {
            for listener in listeners {
                let Some(socket) = admit(listener, context, connections, stop) else { continue };
                number += 1;
                let guard = connections.add(number, &socket);
                let serve = move || {
                    let _guard = guard;
                    if let Err(error) = client::serve(context, &socket) {
                        context.monitor.note(&error.to_string());
                    }
                };
                let started = std::thread::Builder::new().name("nbd client".to_owned());
                if let Err(error) = started.spawn_scoped(scope, serve) {
                    context.monitor.note(&format!("cannot start a thread for a client: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Waits for clients; returns the listeners that have one, or `None` once `stop` is set.
    fn wait(&self, stop: &Stop) -> Result<Option<Vec<&Listener>>> {
        let fds = std::iter::once(stop.as_fd()).chain(self.listeners.iter().map(AsFd::as_fd));
        let ready = wait_readable(&fds.collect::<Vec<_>>(), None)
            .map_err(|error| Error::io("cannot wait for clients", self.place(), error))?;
        if stop.is_set() {
            return Ok(None);
        }
        let ready = self.listeners.iter().zip(&ready[1..]).filter(|(_, is_ready)| **is_ready);
        Ok(Some(ready.map(|(listener, _)| listener).collect()))
    }

    fn place(&self) -> String {
        self.addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// Serves the client at the other end of a stream socket until it disconnects.
///
/// # Errors
/// Fails with [`Kind::Usage`] for two exports with the same name; with the client's violation of
/// the protocol, or an error of its socket.
pub fn serve_socket(
    socket: impl Into<OwnedFd>,
    exports: &[Export],
    settings: &Settings,
    monitor: &Monitor,
) -> Result<()> {
    client::serve(&ServerContext::new(exports, settings, monitor)?, &socket.into())
}

/// Accepts a client, if one is waiting and there is room for it.
fn admit(
    listener: &Listener,
    context: &ServerContext<'_>,
    connections: &Connections,
    stop: &Stop,
) -> Option<Arc<OwnedFd>> {
    use io::ErrorKind::{ConnectionAborted, WouldBlock};
    match listener.accept() {
        Ok(socket) if connections.sockets().len() < context.settings.connections => {
            Some(Arc::new(socket))
        }
        Ok(_) => {
            context
                .monitor
                .note("an NBD client was refused, because too many clients are connected");
            None
        }
        // Gone again, or another process that has the listener was quicker.
        Err(error) if matches!(error.kind(), WouldBlock | ConnectionAborted) => None,
        Err(error) => {
            context.monitor.note(&format!("cannot accept a client: {error}"));
            // Too many descriptors are open, for instance: the listener stays ready meanwhile.
            stop.wait(ACCEPT_RETRY);
            None
        }
    }
}

impl Connections {
    /// Lists a client until the returned guard is dropped.
    fn add(&self, number: u64, socket: &Arc<OwnedFd>) -> ConnectionGuard<'_> {
        self.sockets().insert(number, Arc::clone(socket));
        ConnectionGuard { connections: self, number }
    }

    /// Stops reading, waits for requests in flight, then disconnects the remaining clients.
    fn drain_connections(&self, timeout: Duration) {
        let mut sockets = self.sockets();
        sockets.values().for_each(|it| _ = shutdown(it, Shutdown::Read));
        let deadline = clock::monotonic() + timeout;
        while !sockets.is_empty() {
            let left = deadline.saturating_duration_since(clock::monotonic());
            if left.is_zero() {
                sockets.values().for_each(|it| _ = shutdown(it, Shutdown::Both));
                return; // Their threads are still waited for.
            }
            sockets = wait_timeout(&self.gone, sockets, left);
        }
    }

    fn sockets(&self) -> MutexGuard<'_, HashMap<u64, Arc<OwnedFd>>> {
        lock(&self.sockets)
    }
}

/// Removes a client from the list, even if its thread panics.
struct ConnectionGuard<'a> {
    connections: &'a Connections,
    number: u64,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.connections.sockets().remove(&self.number);
        self.connections.gone.notify_all();
    }
}
