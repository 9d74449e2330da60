//! A member behind a server keeps every rule of the seam, also while its server is restarted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::Kind;
use pinstripe_member::{
    Caps, ExtentKind, ExtentName, Member, Replace, SharedMember, check_conformance,
};
use pinstripe_remote::{RemoteClient, ServedVolumes};
use pinstripe_serve::TokenRole;

use crate::setup::{self, PATIENCE, StoreFixture, directory, exported};

/// A member that keeps its server running.
struct Kept(SharedMember, #[expect(dead_code, reason = "it ends with this")] StoreFixture);

macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)+) => {
        $(fn $name(&self, $($arg: $type),*) -> $out { self.0.$name($($arg),*) })+
    };
}
pub(crate) use pass;

impl Member for Kept {
    pass! {
        create(name: ExtentName, replace: Replace)
            -> pinstripe_base::error::Result<Box<dyn pinstripe_member::ExtentWriter>>;
        put(name: ExtentName, bytes: &[u8]) -> pinstripe_base::error::Result<()>;
        read_at(name: ExtentName, offset: u64, buf: &mut [u8]) -> pinstripe_base::error::Result<()>;
        read_at_hand(name: ExtentName, offset: u64, buf: &mut [u8]) -> bool;
        len(name: ExtentName) -> pinstripe_base::error::Result<u64>;
        list(kind: ExtentKind) -> pinstripe_base::error::Result<Vec<([u8; 16], u64)>>;
        delete(name: ExtentName) -> pinstripe_base::error::Result<()>;
        sync() -> pinstripe_base::error::Result<()>;
        sweep() -> pinstripe_base::error::Result<u64>;
        caps() -> Caps;
        place() -> &Path;
        batched() -> Option<&dyn pinstripe_member::BatchedMember>;
    }
}

#[test]
fn a_served_member_passes_the_suite_of_every_member() {
    check_conformance(&|| {
        let server = exported();
        let (_, connection) = server.token("ant", TokenRole::Admin);
        Box::new(Kept(server.member(&connection, 0), server))
    });
}

fn pack(byte: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Packs, [byte; 16])
}

#[test]
fn long_extents_and_long_listings_arrive_complete() {
    let server = exported();
    let (_, connection) = server.token("ant", TokenRole::Admin);
    let member = server.member(&connection, 0);
    let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at * 7 % 251) as u8).collect();
    let mut writer = member.create(pack(1), Replace::Never).unwrap();
    bytes.chunks(100_000).for_each(|part| writer.append(part).unwrap());
    writer.seal().unwrap();
    let mut read = vec![0; bytes.len()];
    member.read_at(pack(1), 0, &mut read).unwrap();
    assert!(read == bytes);
    let local = directory(&server.state.path().join("member"));
    let mut names = Vec::new();
    for number in 0..40_000_u32 {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        names.push((id, 1));
    }
    // Few files, many names: a listing of another kind is shown by a member that lists them.
    let listing = Arc::new(Listing(local, names.clone()));
    let state = tempfile::tempdir().unwrap();
    let other =
        setup::start(state, setup::volume(false, vec![listing]), "127.0.0.1:0".parse().unwrap());
    let (_, connection) = other.token("ant", TokenRole::Admin);
    assert!(other.member(&connection, 0).list(ExtentKind::Packs).unwrap() == names);
}

/// A member with a listing that was made up.
struct Listing(SharedMember, Vec<([u8; 16], u64)>);

impl Member for Listing {
    pass! {
        create(name: ExtentName, replace: Replace)
            -> pinstripe_base::error::Result<Box<dyn pinstripe_member::ExtentWriter>>;
        put(name: ExtentName, bytes: &[u8]) -> pinstripe_base::error::Result<()>;
        read_at(name: ExtentName, offset: u64, buf: &mut [u8]) -> pinstripe_base::error::Result<()>;
        read_at_hand(name: ExtentName, offset: u64, buf: &mut [u8]) -> bool;
        len(name: ExtentName) -> pinstripe_base::error::Result<u64>;
        delete(name: ExtentName) -> pinstripe_base::error::Result<()>;
        sync() -> pinstripe_base::error::Result<()>;
        sweep() -> pinstripe_base::error::Result<u64>;
        caps() -> Caps;
        place() -> &Path;
        batched() -> Option<&dyn pinstripe_member::BatchedMember>;
    }

    fn list(&self, _: ExtentKind) -> pinstripe_base::error::Result<Vec<([u8; 16], u64)>> {
        Ok(self.1.clone())
    }
}

#[test]
fn a_client_waits_for_a_server_that_returns() {
    let server = exported();
    let (_, connection) = server.token("ant", TokenRole::Admin);
    let member = server.member(&connection, 0);
    member.put(pack(1), b"before").unwrap();
    let (address, place) = (server.address, server.state.path().join("member"));
    let state = server.stop();
    let waiting = std::thread::spawn(move || member.put(pack(2), b"after"));
    std::thread::sleep(Duration::from_millis(300));
    let again = setup::start(state, setup::volume(false, vec![directory(&place)]), address);
    waiting.join().unwrap().unwrap();
    let local = directory(&place);
    assert_eq!(local.len(pack(1)).unwrap(), 6);
    assert_eq!(local.len(pack(2)).unwrap(), 5);
    drop(again);
}

#[test]
fn a_server_that_is_away_is_unanswered_within_the_deadline() {
    let server = exported();
    let (_, connection) = server.token("ant", TokenRole::Admin);
    let member = server.member_within(&connection, 0, Duration::from_millis(0));
    drop(server);
    assert_eq!(member.len(pack(1)).unwrap_err().kind(), Kind::Unanswered);
}

#[test]
fn a_server_with_another_key_gets_no_request() {
    let server = exported();
    let (_, mut connection) = server.token("ant", TokenRole::Admin);
    connection.pins[0].0[0] ^= 1;
    let member = server.member(&connection, 0);
    let error = member.len(pack(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::WrongServer);
    // The announced next key is one of two that the client accepts.
    connection.pins.push(server.pin);
    let member = server.member(&connection, 0);
    assert_eq!(member.len(pack(1)).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn the_greeting_names_the_keys_and_the_role() {
    let server = exported();
    let (_, connection) = server.token("ant", TokenRole::AppendRestore);
    let volumes = ServedVolumes::new(vec![connection.clone()], PATIENCE);
    let client: Arc<RemoteClient> = volumes.client(&connection.address, connection.volume).unwrap();
    let hello = client.hello().unwrap();
    assert_eq!(hello.pins.len(), 2);
    assert_eq!(hello.pins[0], server.pin.to_string());
    assert_eq!((hello.role.as_str(), hello.host.as_str()), ("append-restore", "ant"));
    assert_eq!(hello.volumes[0].members, [0]);
}

/// Had the answer been "not found", the client would believe that the extent does not exist.
#[test]
fn an_extent_of_a_member_that_went_away_is_not_missing() {
    let state = tempfile::tempdir().unwrap();
    let member = |name: &str| {
        pinstripe_member::Places::default().create(&state.path().join(name)).unwrap().member
    };
    let members = setup::volume(false, vec![member("a"), member("b")]);
    let server = setup::start(state, members, "127.0.0.1:0".parse().unwrap());
    let (_, connection) = server.token("ant", TokenRole::Admin);
    let [there, gone] = [0, 1].map(|number| server.member(&connection, number));
    for member in [&there, &gone] {
        member.put(pack(1), b"pack").unwrap();
    }
    let mut volume = (*server.server.volume()).clone();
    volume.members.remove(&1);
    volume.absent.insert(1, "/gone".into());
    let is_unknown = |error: pinstripe_base::error::Error| {
        assert!(!matches!(error.kind(), Kind::NotFound | Kind::Corrupt), "{error}");
    };
    let other = pinstripe_base::id::StoreId([8; 16]);
    let elsewhere = pinstripe_serve::ServedVolume { id: other, ..volume.clone() };
    let mut volume_without = volume.clone();
    volume_without.absent.clear();
    for changed in [volume, volume_without] {
        server.server.set_volume(changed);
        for member in [&gone, &server.member(&connection, 1)] {
            is_unknown(member.len(pack(1)).unwrap_err());
            is_unknown(member.read_at(pack(1), 0, &mut [0; 4]).unwrap_err());
            is_unknown(member.read_span(pack(1), 0, 4).unwrap_err());
            is_unknown(member.list(ExtentKind::Packs).unwrap_err());
            is_unknown(member.put(pack(2), b"more").unwrap_err());
            is_unknown(member.delete(pack(1)).unwrap_err());
            let read = member.read_whole(&[pack(1), pack(2)], 10);
            read.into_iter().for_each(|read| is_unknown(read.unwrap_err()));
            is_unknown(member.read_whole(&[pack(1)], 10).remove(0).unwrap_err());
        }
        assert_eq!(there.len(pack(1)).unwrap(), 4);
    }
    // The same address serves another store now.
    let state = server.stop();
    let address = connection.address.parse().unwrap();
    let _other = setup::start(state, elsewhere, address);
    is_unknown(there.len(pack(1)).unwrap_err());
    is_unknown(there.list(ExtentKind::Packs).unwrap_err());
}
