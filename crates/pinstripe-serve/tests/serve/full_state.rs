//! A server whose state has no more room.

use std::path::Path;

use pinstripe_base::error::Kind;
use pinstripe_member::session::Work;
use pinstripe_member::{ExtentKind, Member, Places};
use pinstripe_remote::{Connection, JoinString, TokenId};
use pinstripe_serve::TokenRole;
use tempfile::TempDir;

use crate::roles::{name, session, snapshot};
use crate::setup::{StoreFixture, directory, start, volume};

/// Calls `work` with a small file system, and with a directory for a member on another one.
fn on_small_disk(test: &str, work: impl FnOnce(&Path, &Path) + Send) {
    pinstripe_testing::in_own_mounts(test, || {
        let outer = tempfile::tempdir().unwrap();
        if !pinstripe_testing::mount("tmpfs", "size=512k", "none".as_ref(), outer.path()) {
            return pinstripe_testing::skipped(test, "no tmpfs can be mounted");
        }
        let place = tempfile::tempdir().unwrap();
        work(outer.path(), &place.path().join("member"));
        pinstripe_testing::unmount(outer.path());
    });
}

fn serve(state: TempDir, member: &Path) -> StoreFixture {
    let member = match member.exists() {
        true => directory(member),
        false => Places::default().create(member).unwrap().member,
    };
    start(state, volume(true, vec![member]), "127.0.0.1:0".parse().unwrap())
}

fn fill(disk: &Path) {
    let fill = std::fs::write(disk.join("filler"), vec![1; 1 << 20]);
    assert_eq!(fill.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

/// Without room for its own records, a server acknowledges nothing, and it recovers.
#[test]
fn a_full_disk_of_the_state_refuses_puts() {
    on_small_disk("a_full_disk_of_the_state_refuses_puts", |disk, place| {
        let server = serve(tempfile::tempdir_in(disk).unwrap(), place);
        let (_, connection) = server.token("ant", TokenRole::Append);
        let client = server.member(&connection, 0);
        fill(disk);
        let (at, object) = session(9, 1, Work::Backup);
        assert_eq!(client.put(at, &object).unwrap_err().kind(), Kind::NoSpace);
        let local = directory(place);
        assert_eq!(local.len(at).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(client.list(ExtentKind::Sessions).unwrap(), []);
        std::fs::remove_file(disk.join("filler")).unwrap();
        client.put(at, &object).unwrap();
        client.put(name(ExtentKind::Snapshots, 1), &snapshot()).unwrap();
    });
}

/// A record that did not fit completely hides none that follow it, also after a restart.
#[test]
fn records_after_one_that_did_not_fit_are_kept() {
    on_small_disk("records_after_one_that_did_not_fit_are_kept", |disk, place| {
        let server = serve(tempfile::tempdir_in(disk).unwrap(), place);
        let (token, connection) = server.token("ant", TokenRole::AppendRestore);
        let client = server.member(&connection, 0);
        let (at, object) = session(200, 200, Work::Backup);
        client.put(at, &object).unwrap();
        fill(disk);
        // The last page of the ledger has room for some records, and for a part of one.
        let refused = (1..200).find(|byte| {
            let (at, object) = session(*byte, *byte, Work::Backup);
            client.put(at, &object).is_err_and(|error| error.kind() == Kind::NoSpace)
        });
        let refused = refused.expect("the disk is full");
        std::fs::remove_file(disk.join("filler")).unwrap();
        let (at, object) = session(refused, refused, Work::Backup);
        client.put(at, &object).unwrap();
        client.put(name(ExtentKind::Snapshots, refused), &snapshot()).unwrap();
        let (pin, volume) = (server.pin, server.volume);
        let again = serve(server.stop(), place);
        let (id, address) = (TokenId::from_hex(&token.id).unwrap(), again.address.to_string());
        let secret = connection.join_string().secret;
        let connection = Connection::from(JoinString { pin, token: id, secret, volume, address });
        let listed = again.member(&connection, 0).list(ExtentKind::Snapshots).unwrap();
        assert_eq!(listed.len(), 1, "the host's snapshot is the host's after a restart");
    });
}

/// A host that was given a new secret restores, although the end of the former one cannot be stored.
#[test]
fn a_full_disk_of_the_state_refuses_no_reads() {
    on_small_disk("a_full_disk_of_the_state_refuses_no_reads", |disk, place| {
        let server = serve(tempfile::tempdir_in(disk).unwrap(), place);
        let (token, former) = server.token("ant", TokenRole::Restore);
        let (_, secret) = server.tokens().rotate("ant", 1_700_000_000).unwrap();
        let JoinString { pin, volume, address, .. } = former.join_string();
        let id = TokenId::from_hex(&token.id).unwrap();
        let rotated = Connection::from(JoinString { pin, token: id, secret, volume, address });
        fill(disk);
        let rotated = server.member(&rotated, 0);
        assert_eq!(rotated.list(ExtentKind::Index).unwrap(), []);
        std::fs::remove_file(disk.join("filler")).unwrap();
        assert_eq!(rotated.list(ExtentKind::Index).unwrap(), []);
        let former = server.member(&former, 0).list(ExtentKind::Index);
        assert_eq!(former.unwrap_err().kind(), Kind::NotAllowed);
    });
}
