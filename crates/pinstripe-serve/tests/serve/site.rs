//! Sites whose stores are opened through servers.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pinstripe::init::{InitOptions, Seal};
use pinstripe::{OpenOptions, Store, init};
use pinstripe_base::error::Result;
use pinstripe_base::id::StoreId;
use pinstripe_io::fault::Plan;
use pinstripe_member::session::Process;
use pinstripe_member::{DirectoryMember, Places};
use pinstripe_remote::{Connection, ServedPlace, ServedVolumes};
use pinstripe_serve::{ServedVolume, TokenRole};
use pinstripe_sim::SuiteSite;
use pinstripe_sim::{NoWait, STRIP_BYTES, Site as DirectorySite, credential, new_slot};

use crate::setup::{PATIENCE, StoreFixture, start};

/// Faults are those of the host's members.
const ABOVE: u8 = 0;
/// Faults are those of the server's members.
const BELOW: u8 = 1;
/// Each member has a server of its own, and faults are those of the host's members.
const APART: u8 = 2;

pub type Above = ServedSite<ABOVE>;
pub type Below = ServedSite<BELOW>;
pub type Apart = ServedSite<APART>;

/// A site whose store is opened through a server; tests may change the directories of the members
/// behind its back.
pub struct ServedSite<const KIND: u8> {
    directories: DirectorySite,
    servers: Vec<(StoreFixture, Connection)>,
    /// The store as the server has it open, as long as its members are served.
    kept: Mutex<Option<Store>>,
}

impl<const KIND: u8> Deref for ServedSite<KIND> {
    type Target = DirectorySite;
    fn deref(&self) -> &DirectorySite {
        &self.directories
    }
}

impl<const KIND: u8> DerefMut for ServedSite<KIND> {
    fn deref_mut(&mut self) -> &mut DirectorySite {
        &mut self.directories
    }
}

/// The members of a store, as `pinstripe serve` serves them.
fn volume_of(store: &Store) -> ServedVolume {
    let (mut members, mut absent) = (BTreeMap::new(), BTreeMap::new());
    for (number, slot) in (0..).zip(&store.member_slots) {
        match &slot.member {
            Some(member) => drop(members.insert(number, Arc::clone(member))),
            None if slot.row.is_some() => drop(absent.insert(number, slot.place.clone())),
            None => {}
        }
    }
    ServedVolume { id: store.config.store, is_store: true, members, absent }
}

/// One directory, as `pinstripe serve --export` serves it; nothing while it is away.
fn export_of(directory: &Path, id: StoreId) -> ServedVolume {
    let mut members = BTreeMap::new();
    if let Ok(member) = DirectoryMember::open(directory) {
        members.insert(0, Arc::new(member) as _);
    }
    ServedVolume { id, is_store: false, members, absent: BTreeMap::new() }
}

fn serve(volume: ServedVolume) -> (StoreFixture, Connection) {
    let state = tempfile::tempdir().unwrap();
    let server = start(state, volume, "127.0.0.1:0".parse().unwrap());
    let (_, connection) = server.token("desk", TokenRole::Admin);
    (server, connection)
}

fn place(connection: &Connection, member: u16) -> PathBuf {
    let (address, volume) = (connection.address.clone(), connection.volume);
    ServedPlace { address, volume, member }.path()
}

impl<const KIND: u8> ServedSite<KIND> {
    fn make(directories: DirectorySite, parity: u8, seal: Seal) -> Self {
        if KIND == APART {
            return Self::make_apart(directories, parity, seal);
        }
        directories.init_sealed(parity, "4K", seal, Arc::new(NoWait)).unwrap();
        let servers = vec![serve(volume_of(&directories.locked_store()))];
        ServedSite { directories, servers, kept: Mutex::default() }
    }

    fn make_apart(directories: DirectorySite, parity: u8, seal: Seal) -> Self {
        let export = |(number, directory): (u8, &PathBuf)| {
            Places::default().create(directory).unwrap();
            serve(export_of(directory, StoreId([0x80 + number; 16])))
        };
        let servers: Vec<_> = (0..).zip(&directories.members).map(export).collect();
        let site = ServedSite { directories, servers, kept: Mutex::default() };
        let options = InitOptions {
            members: site.servers.iter().map(|(_, connection)| place(connection, 0)).collect(),
            parity,
            strip_bytes: STRIP_BYTES,
            chunking: "4K".parse().unwrap(),
            codec: "zstd:1".parse().unwrap(),
            seal,
            same_disk: true,
            now_seconds: 0,
        };
        let places = Places { remote: Some(site.volumes()), ..Places::default() };
        init::run_with(&options, &places).unwrap();
        site
    }

    /// The connection of a host to the server, or to the first one.
    pub fn connection(&self) -> &Connection {
        &self.servers[0].1
    }

    /// Opens the store by another connection to the server; a doomed process is one that all others
    /// consider dead.
    pub fn open_through(
        &self,
        connection: &Connection,
        volumes: ServedVolumes,
        is_doomed: bool,
    ) -> Result<Store> {
        let own = pinstripe_member::own_process();
        let process = is_doomed.then_some(Process { started_ticks: own.started_ticks + 1, ..own });
        let remote = Some(Arc::new(volumes) as _);
        let options = OpenOptions { remote, process, ..OpenOptions::default() };
        let mut store = Store::open_with(&place(connection, 0), options)?;
        store.unlock(&credential())?;
        Ok(store)
    }

    fn volumes(&self) -> Arc<ServedVolumes> {
        let connections = self.servers.iter().map(|(_, connection)| connection.clone());
        Arc::new(ServedVolumes::new(connections.collect(), PATIENCE))
    }

    /// Makes the servers open the directories as they are now.
    fn reopen(&self, member: usize, faults: &str) {
        if KIND == APART {
            for ((server, connection), directory) in self.servers.iter().zip(&self.members) {
                server.server.set_volume(export_of(directory, connection.volume));
            }
            return;
        }
        let options = OpenOptions {
            faults: plan(faults),
            steps: Some(Arc::new(NoWait)),
            ..OpenOptions::default()
        };
        // A store that cannot be opened now is served as before.
        if let Ok(store) = Store::open_with(&self.members[member], options) {
            self.servers[0].0.server.set_volume(volume_of(&store));
            *self.kept.lock().unwrap() = Some(store);
        }
    }
}

impl<const KIND: u8> SuiteSite for ServedSite<KIND> {
    fn new(members: usize, parity: u8) -> Self {
        Self::make(DirectorySite::bare(members), parity, Seal::with(new_slot()))
    }

    fn clear(members: usize, parity: u8) -> Self {
        let mut bare = DirectorySite::bare(members);
        bare.sealed = false;
        Self::make(bare, parity, Seal::none())
    }

    fn locked_store_with_faults(&self, member: usize, faults: &str) -> Store {
        let (above, below) = if KIND == BELOW { ("", faults) } else { (faults, "") };
        self.reopen(member, below);
        let named = match KIND {
            APART => place(&self.servers[member].1, 0),
            _ => place(&self.servers[0].1, member as u16),
        };
        let (faults, remote) = (plan(above), Some(self.volumes() as _));
        let steps = Some(Arc::new(NoWait) as _);
        let options = OpenOptions { faults, remote, steps, ..OpenOptions::default() };
        Store::open_with(&named, options).unwrap()
    }

    fn is_place_of(&self, found: &Path, number: usize) -> bool {
        match KIND {
            APART => self.servers.get(number).is_some_and(|(_, it)| found == place(it, 0)),
            _ => found == place(&self.servers[0].1, number as u16),
        }
    }

    /// Each verb opens connections: the gate tests some cases.
    fn stride() -> usize {
        if pinstripe_testing::is_all() { 1 } else { 18 }
    }

    fn has_keyless_server(&self) -> bool {
        KIND != APART
    }

    /// A host sends a long extent in one request.
    fn counts_calls(&self) -> bool {
        KIND != BELOW
    }
}

fn plan(faults: &str) -> Plan {
    if faults.is_empty() { Plan::default() } else { faults.parse().unwrap() }
}
