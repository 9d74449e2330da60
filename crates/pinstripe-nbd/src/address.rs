//! The addresses at which a server listens.

#![allow(clippy::disallowed_methods, reason = "this module opens the sockets")]

use std::fmt;
use std::fs;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

use rustix::net::sockopt::set_socket_keepalive;

use pinstripe_base::error::{Error, Kind, Result};

/// The port that IANA assigned to NBD.
const PORT: u16 = 10809;

/// An address to listen at: `unix:PATH`, or `tcp:HOST:PORT` with port 10809 by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A port at a name or address of this machine; port 0 stands for any free port.
    Tcp(String, u16),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused =
            || {
                Error::new(Kind::Usage, format!("'{text}' is not a valid address for an NBD \
                                                 server")).advice(
                "write unix:PATH, tcp:HOST or tcp:HOST:PORT; write an IPv6 address in brackets, \
                 for example tcp:[::1]:10809",
            )
            };
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(refused)?;
        let (host, port) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').ok_or_else(refused)?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| refused())?,
            None if port.is_empty() => PORT,
            None => return Err(refused()),
        };
        if host.is_empty() {
            return Err(refused());
        }
        Ok(Address::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// A socket to which clients connect. A socket in the file system is removed when this object is
/// dropped.
pub(super) enum Listener {
    Unix { socket: UnixListener, path: PathBuf, inode: (u64, u64) },
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at an address; removes a socket that a dead server left at the path.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another process listens there; with [`Kind::Exists`] if the
    /// path is not a socket; otherwise with the errors of the system.
    pub fn bind(address: &Address) -> Result<Self> {
        let place = address.to_string();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                Error::new(Kind::Busy, "another process already listens at this address").at(&place)
            }
            _ => Error::io("cannot listen", &place, error),
        };
        match address {
            Address::Tcp(host, port) => {
                let found = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
                let socket = TcpListener::bind(&found.collect::<Vec<_>>()[..]).map_err(failed)?;
                socket.set_nonblocking(true).map_err(failed)?;
                Ok(Listener::Tcp(socket))
            }
            Address::Unix(path) => {
                remove_stale_socket(path)?;
                let socket = UnixListener::bind(path).map_err(failed)?;
                socket.set_nonblocking(true).map_err(failed)?;
                let found = fs::symlink_metadata(path).map_err(failed)?;
                let inode = (found.dev(), found.ino());
                Ok(Listener::Unix { socket, path: path.clone(), inode })
            }
        }
    }

    /// The address in use, with the actual port.
    pub fn address(&self, asked: &Address) -> Address {
        match (self, asked) {
            (Listener::Tcp(socket), Address::Tcp(host, port)) => {
                let port = socket.local_addr().map_or(*port, |address| address.port());
                Address::Tcp(host.clone(), port)
            }
            _ => asked.clone(),
        }
    }

    /// Accepts the next client, if one is waiting.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Listener::Unix { socket, .. } => socket.accept().map(|(client, _)| client.into()),
            Listener::Tcp(socket) => {
                let (client, _) = socket.accept()?;
                // Replies are gathered in the send queue, so none need wait for more in the kernel.
                client.set_nodelay(true)?;
                // So that a client that is gone without closing the connection is noticed.
                set_socket_keepalive(&client, true)?;
                Ok(client.into())
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix { socket, .. } => socket.as_fd(),
            Listener::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Listener::Unix { path, inode, .. } = self else { return };
        // Only if it is ours still.
        if fs::symlink_metadata(&path).is_ok_and(|it| (it.dev(), it.ino()) == *inode) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket if no process listens at it.
fn remove_stale_socket(path: &PathBuf) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(Error::new(Kind::Exists, "this file already exists and is not a socket").at(path))
        }
        Ok(_) => {
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(|error| Error::io("cannot remove", path, error))
                }
                _ => Err(Error::new(Kind::Busy, "another process already listens at this address")
                    .at(path)),
            }
        }
        Err(_) => Ok(()), // `bind` reports any other problem.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, wanted) in [
            ("unix:/run/a b", Some(Address::Unix("/run/a b".into()))),
            ("tcp:host:1", Some(Address::Tcp("host".to_owned(), 1))),
            ("tcp:[::1]:65535", Some(Address::Tcp("::1".to_owned(), 65535))),
            ("unix:", None),
            ("tcp:", None),
            ("tcp::1", None),
            ("tcp:host:", None),
            ("tcp:host:65536", None),
            ("tcp:host:1:2", None),
            ("tcp:[::1", None),
            ("tcp:[::1]1", None),
            ("/run/socket", None),
            ("", None),
        ] {
            let read = text.parse::<Address>();
            assert_eq!(read.as_ref().ok(), wanted.as_ref(), "{text}");
            match read {
                Ok(address) => assert_eq!(address.to_string(), text),
                Err(error) => assert_eq!(error.kind(), Kind::Usage),
            }
        }
        let short: Address = "tcp:localhost".parse().unwrap();
        assert_eq!(short, Address::Tcp("localhost".to_owned(), PORT));
        assert_eq!("tcp:[::1]".parse::<Address>().unwrap().to_string(), "tcp:[::1]:10809");
    }
}
