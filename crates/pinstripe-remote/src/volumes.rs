//! Opens members behind servers, with one client for each server, volume and token.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::sync::lock;
use pinstripe_member::label::MemberFacts;
use pinstripe_member::{ExtentKind, Member, NewMember, RemoteMembers, SharedMember};
use tokio::runtime::Runtime;

use crate::client::{Connection, RemoteClient};
use crate::member::ServedMember;
use crate::place::{ServedPlace, is_served};

/// How much longer a request may take than its caller waits. The caller decides when a member does
/// not respond, and its abandoned requests end soon after.
const LONGER: Duration = Duration::from_secs(5);
/// The threads that move the bytes of all connections.
const THREADS: usize = 2;

/// Opens the members of volumes for which this host has a connection.
pub struct ServedVolumes {
    connections: Mutex<Vec<Connection>>,
    patience: Duration,
    runtime: Mutex<Option<Arc<Runtime>>>,
    clients: Mutex<HashMap<(String, StoreId), Arc<RemoteClient>>>,
}

impl ServedVolumes {
    /// Members of the volumes of these connections; `patience` is the time that callers wait for an
    /// answer. Nothing is connected before the first member is opened.
    pub fn new(connections: Vec<Connection>, patience: Duration) -> Self {
        let patience = patience.saturating_add(LONGER);
        let connections = Mutex::new(connections);
        ServedVolumes { connections, patience, runtime: <_>::default(), clients: <_>::default() }
    }

    /// Also uses the volume of this connection; a connection to the same volume is replaced.
    pub fn add(&self, connection: Connection) {
        let mut connections = lock(&self.connections);
        connections.retain(|it| !it.is_to_same_volume(&connection));
        connections.push(connection);
    }

    /// The client for a volume at an address.
    ///
    /// # Errors
    /// Fails with [`Kind::NotAllowed`] if this host has no connection to the volume.
    pub fn client(&self, address: &str, volume: StoreId) -> Result<Arc<RemoteClient>> {
        let mut clients = lock(&self.clients);
        let key = (address.to_owned(), volume);
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let is_it = |it: &&Connection| it.address == address && it.volume == volume;
        let connections = lock(&self.connections);
        let connection = connections.iter().find(is_it).ok_or_else(|| {
            Error::new(Kind::NotAllowed, "this host has no token for this server and store")
                .at(address)
                .advice(
                    "on the server, run 'pinstripe token add HOST'; here, run 'pinstripe connect' \
                     with the join string that it prints",
                )
        })?;
        let client = RemoteClient::new(connection.clone(), self.runtime()?, self.patience)?;
        let client = Arc::new(client);
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    fn runtime(&self) -> Result<Arc<Runtime>> {
        let mut runtime = lock(&self.runtime);
        if let Some(runtime) = &*runtime {
            return Ok(Arc::clone(runtime));
        }
        let made = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("served")
            .enable_all()
            .build()
            .map_err(|error| Error::io("cannot start threads for", "HTTP", error))?;
        Ok(Arc::clone(runtime.insert(Arc::new(made))))
    }

    fn member(&self, place: &Path) -> Result<ServedMember> {
        let parsed = ServedPlace::parse(place)?;
        let client = self.client(&parsed.address, parsed.volume)?;
        Ok(ServedMember::new(client, parsed))
    }
}

impl RemoteMembers for ServedVolumes {
    fn open(&self, place: &Path) -> Result<SharedMember> {
        Ok(Arc::new(self.member(place)?))
    }

    fn create(&self, place: &Path) -> Result<NewMember> {
        let member = self.member(place)?;
        let has_any = |kind: &ExtentKind| Ok(!member.list(*kind)?.is_empty());
        let is_labelled = match member.len(pinstripe_member::ExtentName::Label) {
            Err(error) if error.kind() == Kind::NotFound => false,
            found => found.map(|_| true)?,
        };
        let is_used = ExtentKind::ALL.iter().map(has_any).collect::<Result<Vec<_>>>()?;
        if is_labelled || is_used.contains(&true) {
            return Err(Error::new(Kind::Refused, "the directory behind the server is not empty")
                .at(place)
                .advice("export an empty directory with 'pinstripe serve --export DIR'"));
        }
        Ok(NewMember { member: Arc::new(member), facts: MemberFacts::default() })
    }

    fn served_place(
        &self,
        named: &Path,
        store: StoreId,
        recorded: &Path,
        number: u16,
    ) -> Option<PathBuf> {
        if is_served(recorded) {
            return None;
        }
        // Behind an exported directory there is one member; the other places are those of hosts.
        let named = ServedPlace::parse(named).ok().filter(|named| named.volume == store)?;
        Some(ServedPlace { member: number, ..named }.path())
    }

    fn fate(&self, place: &Path) -> Result<String> {
        // Members of one server fail together: with the server.
        let ServedPlace { address, volume, .. } = ServedPlace::parse(place)?;
        let client = self.client(&address, volume)?;
        Ok(client.connection.pins.first().map_or(address, ToString::to_string))
    }
}
