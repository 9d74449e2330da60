//! A server in this process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pinstripe_base::id::StoreId;
use pinstripe_member::{DirectoryMember, Places, RemoteMembers, SharedMember};
use pinstripe_remote::{Connection, JoinString, KeyPin, ServedPlace, ServedVolumes, TokenId};
use pinstripe_serve::{
    AccessLog, AlarmTargets, ClientAuthority, DatabaseTarget, HostToken, JobPlans, NewToken,
    ServedVolume, ServerKey, ServerOptions, StoreServer, TokenRole, TokenStore,
};
use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running server; it ends when this is dropped.
pub struct StoreFixture {
    pub state: TempDir,
    pub address: SocketAddr,
    pub volume: StoreId,
    pub pin: KeyPin,
    pub server: Arc<StoreServer>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A volume of some members.
pub fn volume(is_store: bool, members: Vec<SharedMember>) -> ServedVolume {
    let members = (0..).zip(members).collect();
    ServedVolume { id: StoreId([7; 16]), is_store, members, absent: BTreeMap::new() }
}

/// A server with one exported, empty directory in its state directory.
pub fn exported() -> StoreFixture {
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("member");
    let member = Places::default().create(&place).unwrap().member;
    start(state, volume(false, vec![member]), "127.0.0.1:0".parse().unwrap())
}

/// A server with the members of a store: one empty directory.
pub fn store() -> StoreFixture {
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("member");
    let member = Places::default().create(&place).unwrap().member;
    start(state, volume(true, vec![member]), "127.0.0.1:0".parse().unwrap())
}

/// A server with the members of a store: empty directories.
pub fn store_of(count: usize) -> StoreFixture {
    let state = tempfile::tempdir().unwrap();
    let member = |number| {
        let place = state.path().join(format!("member{number}"));
        Places::default().create(&place).unwrap().member
    };
    let members = (0..count).map(member).collect();
    start(state, volume(true, members), "127.0.0.1:0".parse().unwrap())
}

/// The members of a volume as a host with this connection sees them.
pub fn members_of(connection: &Connection, count: u16) -> Vec<SharedMember> {
    members_within(connection, count, PATIENCE)
}

pub fn members_within(it: &Connection, count: u16, patience: Duration) -> Vec<SharedMember> {
    let volumes = ServedVolumes::new(vec![it.clone()], patience);
    let (address, volume) = (&it.address, it.volume);
    let open = |member| {
        let place = ServedPlace { address: address.clone(), volume, member }.path();
        volumes.open(&place).unwrap()
    };
    let members = (0..count).map(open).collect();
    // The threads that move their bytes end with the volumes.
    std::mem::forget(volumes);
    members
}

pub fn start(state: TempDir, volume: ServedVolume, address: SocketAddr) -> StoreFixture {
    start_with(state, volume, address, AlarmTargets::default())
}

/// A server with the members of a store, one empty directory, and a shared catalog.
pub fn store_with_catalog(url: &str) -> StoreFixture {
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("member");
    let member = Places::default().create(&place).unwrap().member;
    with_catalog(state, volume(true, vec![member]), url)
}

/// A server with a shared catalog.
pub fn with_catalog(state: TempDir, volume: ServedVolume, url: &str) -> StoreFixture {
    let identity = ServerKey::open(state.path()).unwrap();
    let catalog = Some(DatabaseTarget::parse(url, None).unwrap());
    let address = "127.0.0.1:0".parse().unwrap();
    begin(state, volume, address, (AlarmTargets::default(), None), identity, catalog)
}

pub fn start_with(
    state: TempDir,
    volume: ServedVolume,
    address: SocketAddr,
    alarms: AlarmTargets,
) -> StoreFixture {
    let identity = ServerKey::open(state.path()).unwrap();
    begin(state, volume, address, (alarms, None), identity, None)
}

/// A server with a key of its own.
pub fn start_as(state: TempDir, volume: ServedVolume, identity: ServerKey) -> StoreFixture {
    let address = "127.0.0.1:0".parse().unwrap();
    begin(state, volume, address, (AlarmTargets::default(), None), identity, None)
}

/// A server with one exported, empty directory that requires certificates of clients.
pub fn start_requiring(authority: ClientAuthority) -> StoreFixture {
    let state = tempfile::tempdir().unwrap();
    let member = Places::default().create(&state.path().join("member")).unwrap().member;
    let identity = ServerKey::open(state.path()).unwrap();
    let (served, options) =
        (volume(false, vec![member]), (AlarmTargets::default(), Some(authority)));
    begin(state, served, "127.0.0.1:0".parse().unwrap(), options, identity, None)
}

fn begin(
    state: TempDir,
    volume: ServedVolume,
    address: SocketAddr,
    (alarms, client_authority): (AlarmTargets, Option<ClientAuthority>),
    identity: ServerKey,
    catalog: Option<DatabaseTarget>,
) -> StoreFixture {
    let (id, pin) = (volume.id, identity.pin);
    let options = ServerOptions {
        volumes: vec![volume],
        state: state.path().to_path_buf(),
        identity,
        client_authority,
        access_log: Some(AccessLog::open(&state.path().join("access")).unwrap()),
        drain: Duration::from_secs(5),
        address: "server.example.org:7473".to_owned(),
        jobs: JobPlans::default(),
        alarms,
        catalog,
    };
    let socket = StoreServer::listen_at(address).unwrap();
    let server = Arc::new(StoreServer::from_socket(socket, options).unwrap());
    let address = server.address().unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let (flag, running) = (Arc::clone(&ends), Arc::clone(&server));
    let thread = Some(std::thread::spawn(move || running.run(&flag, &|| ())));
    StoreFixture { state, address, volume: id, pin, server, ends, thread }
}

impl StoreFixture {
    /// The number of requests that were answered so far.
    pub fn requests(&self) -> usize {
        let log = std::fs::read_to_string(self.state.path().join("access")).unwrap();
        log.lines().count()
    }

    pub fn tokens(&self) -> TokenStore {
        TokenStore::new(self.state.path())
    }

    /// Makes a token, and the connection that it gives.
    pub fn token(&self, host: &str, role: TokenRole) -> (HostToken, Connection) {
        self.token_with(self.new_token(host, role))
    }

    /// A token without limits that is to be made.
    pub fn new_token(&self, host: &str, role: TokenRole) -> NewToken {
        NewToken {
            host: host.to_owned(),
            role,
            volume: self.volume,
            quota_bytes: None,
            expect_seconds: None,
            rate: None,
            all_hosts: false,
            expires_seconds: None,
        }
    }

    pub fn token_with(&self, new: NewToken) -> (HostToken, Connection) {
        let (token, secret) = self.tokens().add(&new, 1_700_000_000).unwrap();
        let address = self.address.to_string();
        let id = TokenId::from_hex(&token.id).unwrap();
        let join = JoinString { pin: self.pin, token: id, secret, volume: self.volume, address };
        (token, join.into())
    }

    /// A member as a host with this connection sees it.
    pub fn member(&self, connection: &Connection, number: u16) -> SharedMember {
        self.member_within(connection, number, PATIENCE)
    }

    pub fn member_within(&self, it: &Connection, number: u16, patience: Duration) -> SharedMember {
        let volumes = ServedVolumes::new(vec![it.clone()], patience);
        let (address, volume) = (it.address.clone(), it.volume);
        let place = ServedPlace { address, volume, member: number }.path();
        let member = volumes.open(&place).unwrap();
        // The threads that move its bytes end with the volumes.
        std::mem::forget(volumes);
        member
    }

    /// Ends the server, as SIGTERM does, and returns its state.
    pub fn stop(mut self) -> TempDir {
        self.end();
        let other = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.state, other)
    }

    fn end(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for StoreFixture {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn directory(place: &Path) -> SharedMember {
    Arc::new(DirectoryMember::open(place).unwrap())
}
