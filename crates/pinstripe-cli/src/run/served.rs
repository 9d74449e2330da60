//! The stores behind servers that this host can use: the connections that `connect` saved, and join
//! strings on the command line.
//!
//! Invariants: the file of connections is replaced completely and only its owner can read it; a
//! connection is saved only after its server answered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::lock;
use pinstripe_remote::{
    ClientCertificate, Connection, Hello, JoinString, KeyPin, ServedPlace, ServedVolumes,
    is_served, looks_like_join_string,
};
use serde::{Deserialize, Serialize};

use super::known_stores::replace_state;
use crate::config::StoreEntry;
use crate::xdg;

const VERSION: u32 = 1;

/// A connection as it is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedConnection {
    /// The join string, which contains the secret.
    join: String,
    /// The pins of the server's keys, as its last greeting named them, in hex.
    pins: Vec<String>,
    /// The host name that the token was made for.
    pub host: String,
    /// What the token may do.
    pub role: String,
    /// The members that the server has.
    members: Vec<u16>,
    /// The files of the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_certificate: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_key: Option<PathBuf>,
    /// Whether names of an encrypted store may be sent to the server's catalog.
    #[serde(default)]
    clear_names: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct ConnectionFile {
    version: u32,
    /// The last one is the default.
    connections: Vec<SavedConnection>,
}

/// The stores behind servers.
pub struct ServedStores {
    volumes: ServedVolumes,
    saved: Mutex<Vec<SavedConnection>>,
    /// The certificate that the environment names, for connections without one of their own.
    certificate: Option<ClientCertificate>,
}

impl SavedConnection {
    fn new(connection: &Connection, hello: &Hello, clear_names: bool) -> Self {
        let members = hello.volumes.first().map(|volume| volume.members.clone());
        SavedConnection {
            join: connection.join_string().reveal(),
            pins: hello.pins.clone(),
            host: hello.host.clone(),
            role: hello.role.clone(),
            members: members.unwrap_or_default(),
            client_certificate: connection.certificate.as_ref().map(|it| it.chain.clone()),
            client_key: connection.certificate.as_ref().map(|it| it.key.clone()),
            clear_names,
        }
    }

    /// The connection.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a damaged record.
    pub fn connection(&self) -> Result<Connection> {
        let connection = Connection::from(self.join.parse::<JoinString>()?);
        let pins: Option<Vec<KeyPin>> = self.pins.iter().map(|pin| KeyPin::from_hex(pin)).collect();
        let pins = pins.filter(|pins| !pins.is_empty()).unwrap_or(connection.pins.clone());
        let chain = self.client_certificate.clone();
        let certificate = chain.map(|chain| ClientCertificate {
            key: self.client_key.clone().unwrap_or_else(|| chain.clone()),
            chain,
        });
        Ok(Connection { pins, certificate, ..connection })
    }
}

/// A client certificate; without a file of its key, the file of the chain contains both.
pub fn certificate_at(chain: &Path, key: Option<&Path>) -> ClientCertificate {
    let key = super::known_stores::absolute(key.unwrap_or(chain));
    ClientCertificate { chain: super::known_stores::absolute(chain), key }
}

/// The client certificate that the environment names.
fn certificate_of_variables() -> Option<ClientCertificate> {
    let chain = PathBuf::from(xdg::set("PINSTRIPE_CLIENT_CERTIFICATE")?);
    let key = xdg::set("PINSTRIPE_CLIENT_KEY").map(PathBuf::from);
    Some(certificate_at(&chain, key.as_deref()))
}

fn file() -> Result<PathBuf> {
    Ok(xdg::lasting()?.join("connections.json"))
}

fn read() -> Result<ConnectionFile> {
    let path = file()?;
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(ConnectionFile { version: VERSION, connections: Vec::new() });
        }
        read => read.map_err(|error| Error::io("cannot read", &path, error))?,
    };
    let damaged = |what: String| {
        Error::new(Kind::Corrupt, what)
            .at(&path)
            .advice("remove this file, and run 'pinstripe connect' again")
    };
    let found: ConnectionFile = serde_json::from_slice(&bytes)
        .map_err(|error| damaged(format!("the saved connections cannot be read: {error}")))?;
    match found.version {
        VERSION => Ok(found),
        _ => Err(damaged("a newer version of pinstripe saved these connections".to_owned())),
    }
}

fn write(content: &ConnectionFile) -> Result<()> {
    let path = file()?;
    replace_state(&path, content).map_err(|error| Error::io("cannot write", &path, error))
}

impl ServedStores {
    /// Reads the saved connections; a damaged file is reported, and no connection is used.
    pub fn load(monitor: &Monitor, patience: Duration) -> Self {
        let saved = read().unwrap_or_else(|error| {
            if error.kind() != Kind::NotFound {
                let place = error.place().map(Path::to_path_buf).unwrap_or_default();
                monitor.warning(&place, error);
            }
            ConnectionFile::default()
        });
        let certificate = certificate_of_variables();
        let with_certificate = |it: Connection| Connection {
            certificate: it.certificate.or_else(|| certificate.clone()),
            ..it
        };
        let connections = saved.connections.iter().filter_map(|it| it.connection().ok());
        let volumes = ServedVolumes::new(connections.map(with_certificate).collect(), patience);
        ServedStores { volumes, saved: Mutex::new(saved.connections), certificate }
    }

    /// The members behind servers.
    pub fn volumes(&self) -> &ServedVolumes {
        &self.volumes
    }

    /// The saved connections; the last one is the default.
    pub fn saved(&self) -> Vec<SavedConnection> {
        lock(&self.saved).clone()
    }

    /// The place of a member of the store that a join string names, or a place behind a server
    /// unchanged; `None` for any other place.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an invalid place, or with the errors of the server.
    pub fn place(&self, place: &Path) -> Result<Option<PathBuf>> {
        if is_served(place) {
            return ServedPlace::parse(place).map(|it| Some(it.path()));
        }
        let Some(text) = place.to_str().filter(|text| looks_like_join_string(text)) else {
            return Ok(None);
        };
        let connection = self.connection(text.parse::<JoinString>()?, None);
        self.volumes.add(connection.clone());
        let hello = self.greet(&connection)?;
        let members = hello.volumes.into_iter().next().map(|it| it.members).unwrap_or_default();
        place_of(&connection, &members).map(Some)
    }

    /// Whether the user has allowed that names of an encrypted store are sent to this server.
    pub fn sends_clear_names(&self, connection: &Connection) -> bool {
        let is_it = |it: &SavedConnection| {
            it.connection().is_ok_and(|known| known.is_to_same_volume(connection))
        };
        lock(&self.saved).iter().any(|it| it.clear_names && is_it(it))
    }

    /// The store of the connection that was saved last, if any.
    pub fn default_entry(&self) -> Option<StoreEntry> {
        let last = lock(&self.saved).last().cloned()?;
        let place = place_of(&last.connection().ok()?, &last.members).ok()?;
        Some(StoreEntry { members: vec![place], ..StoreEntry::default() })
    }

    fn greet(&self, connection: &Connection) -> Result<Hello> {
        self.volumes.client(&connection.address, connection.volume)?.hello()
    }

    /// The connection of a join string, with this certificate, or that of the environment, or that
    /// of the saved connection to the same volume.
    fn connection(&self, join: JoinString, given: Option<ClientCertificate>) -> Connection {
        let connection = Connection::from(join);
        let saved = || {
            let saved = lock(&self.saved)
                .iter()
                .find_map(|it| it.connection().ok().filter(|it| it.is_to_same_volume(&connection)));
            saved?.certificate
        };
        let certificate = given.or_else(|| self.certificate.clone()).or_else(saved);
        Connection { certificate, ..connection }
    }

    /// Asks the server of a join string for its greeting, and saves the connection with its
    /// certificate. `clear_names` allows that names of an encrypted store are sent to the server's
    /// catalog.
    ///
    /// # Errors
    /// Fails with the errors of the server, or of the file system.
    pub fn connect(
        &self,
        join: JoinString,
        certificate: Option<ClientCertificate>,
        clear_names: bool,
    ) -> Result<(Connection, Hello)> {
        let connection = self.connection(join, certificate);
        self.volumes.add(connection.clone());
        let hello = self.greet(&connection)?;
        if hello.volumes.is_empty() {
            return Err(Error::new(Kind::NotFound, "the server no longer serves this store")
                .at(&connection.address));
        }
        let mut content = read()?;
        content
            .connections
            .retain(|it| it.connection().is_ok_and(|it| !it.is_to_same_volume(&connection)));
        content.connections.push(SavedConnection::new(&connection, &hello, clear_names));
        write(&content)?;
        *lock(&self.saved) = content.connections;
        Ok((connection, hello))
    }

    /// Removes the saved connections to a server's address or to a store. Returns how many.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if there is none, or with the errors of the file system.
    pub fn disconnect(&self, which: &str) -> Result<usize> {
        let mut content = read()?;
        let count = content.connections.len();
        let is_it = |it: &Connection| {
            it.address == which || it.volume.to_string().starts_with(which) && which.len() >= 8
        };
        content.connections.retain(|it| it.connection().is_ok_and(|it| !is_it(&it)));
        let removed = count - content.connections.len();
        if removed == 0 {
            return Err(Error::new(Kind::NotFound, format!("no connection to '{which}' is saved"))
                .advice("'pinstripe connect --list' lists the connections"));
        }
        write(&content)?;
        Ok(removed)
    }
}

fn place_of(connection: &Connection, members: &[u16]) -> Result<PathBuf> {
    let member = members.first().copied().ok_or_else(|| {
        Error::new(Kind::NotFound, "the server has no member of this store now")
            .at(&connection.address)
    })?;
    let (address, volume) = (connection.address.clone(), connection.volume);
    Ok(ServedPlace { address, volume, member }.path())
}
