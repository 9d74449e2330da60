//! What each role may do, over the wire.

use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::{CondemnationId, SessionId, StoreId};
use pinstripe_base::random::Noise;
use pinstripe_member::gc::{DeletionStep, GcObject, Lists};
use pinstripe_member::session::{Process, Session, Work};
use pinstripe_member::{ExtentKind, ExtentName, Member, PlannedStep, Replace};
use pinstripe_member::{SharedMember, envelope};
use pinstripe_serve::{NewToken, TokenRole};

use crate::sets::{extents, run};
use crate::setup::{directory, store};

pub fn name(kind: ExtentKind, byte: u8) -> ExtentName {
    ExtentName::In(kind, [byte; 16])
}

pub fn session(byte: u8, commit: u8, work: Work) -> (ExtentName, Vec<u8>) {
    let session = Session {
        store: StoreId([7; 16]),
        id: SessionId([byte; 16]),
        work,
        commit: [commit; 16],
        parents: Vec::new(),
        process: Process::default(),
    };
    (name(ExtentKind::Sessions, byte), session.encode())
}

pub fn snapshot() -> Vec<u8> {
    envelope::close(envelope::Object::Snapshot, b"content")
}

fn kind(result: Result<()>) -> Option<Kind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_snapshot_is_put_by_the_session_that_announced_it() {
    let server = store();
    let (_, ant) = server.token("ant", TokenRole::Append);
    let (_, bee) = server.token("bee", TokenRole::AppendRestore);
    let (ant, bee) = (server.member(&ant, 0), server.member(&bee, 0));
    let commit = name(ExtentKind::Snapshots, 1);
    assert_eq!(kind(ant.put(commit, &snapshot())), Some(Kind::NotAllowed));
    let (at, object) = session(9, 1, Work::Backup);
    ant.put(at, &object).unwrap();
    // Another host neither takes the name nor announces it again.
    assert_eq!(kind(bee.put(commit, &snapshot())), Some(Kind::NotAllowed));
    let (other, object) = session(8, 1, Work::Backup);
    assert_eq!(kind(bee.put(other, &object)), Some(Kind::NotAllowed));
    ant.put(commit, &snapshot()).unwrap();
    assert_eq!(ant.list(ExtentKind::Snapshots).unwrap().len(), 1);
    assert_eq!(bee.list(ExtentKind::Snapshots).unwrap(), []);
    assert_eq!(bee.len(commit).unwrap_err().kind(), Kind::NotAllowed);
    assert_eq!(kind(bee.delete(at)), Some(Kind::NotAllowed));
    ant.delete(at).unwrap();
}

#[test]
fn only_a_token_for_all_hosts_sees_their_snapshots() {
    let server = store();
    let local = directory(&server.state.path().join("member"));
    local.put(name(ExtentKind::Snapshots, 1), &snapshot()).unwrap();
    let (_, own) = server.token("ant", TokenRole::Restore);
    let (_, all) = server.token_with(NewToken {
        host: "desk".to_owned(),
        role: TokenRole::Restore,
        volume: server.volume,
        quota_bytes: None,
        expect_seconds: None,
        rate: None,
        all_hosts: true,
        expires_seconds: None,
    });
    assert_eq!(server.member(&own, 0).list(ExtentKind::Snapshots).unwrap(), []);
    assert_eq!(server.member(&all, 0).list(ExtentKind::Snapshots).unwrap().len(), 1);
}

#[test]
fn a_quota_ends_the_packs_of_one_host_only() {
    let server = store();
    let quota = |host: &str, quota_bytes| NewToken {
        host: host.to_owned(),
        role: TokenRole::Append,
        volume: server.volume,
        quota_bytes,
        expect_seconds: None,
        rate: None,
        all_hosts: false,
        expires_seconds: None,
    };
    let (_, small) = server.token_with(quota("ant", Some(200_000)));
    let (_, large) = server.token_with(quota("bee", None));
    let (small, large) = (server.member(&small, 0), server.member(&large, 0));
    let put = |member: &SharedMember, byte: u8| {
        let mut writer = member.create(name(ExtentKind::Packs, byte), Replace::Never)?;
        writer.append(&extents(&run(byte, 1))[0])?;
        writer.seal()
    };
    put(&small, 1).unwrap();
    assert_eq!(kind(put(&small, 2)), Some(Kind::NoSpace));
    put(&large, 3).unwrap();
}

/// Whatever a token that is not an admin's tries, everything that was there is still there.
#[test]
fn no_sequence_of_requests_takes_anything_away() {
    let seeds = pinstripe_testing::chosen_seeds("PINSTRIPE_SERVE_SEEDS", 0..12);
    for seed in seeds {
        try_everything(seed);
    }
}

fn try_everything(seed: u64) {
    let server = store();
    let local = directory(&server.state.path().join("member"));
    let mut there = Vec::new();
    for kind in ExtentKind::ALL {
        local.put(name(kind, 200), b"there").unwrap();
        there.push(name(kind, 200));
    }
    local.put(ExtentName::Label, b"there").unwrap();
    there.push(ExtentName::Label);
    let mut random = Noise(seed * 1_000_003 + 1);
    let role =
        [TokenRole::Append, TokenRole::AppendRestore, TokenRole::Restore][random.below(3) as usize];
    let (_, connection) = server.token("ant", role);
    let member = server.member(&connection, 0);
    for _ in 0..60 {
        let kind = ExtentKind::ALL[random.below(ExtentKind::ALL.len() as u64) as usize];
        let byte = [200, 1, 2][random.below(3) as usize];
        let at = if random.below(20) == 0 { ExtentName::Label } else { name(kind, byte) };
        let content = object(&mut random);
        // Each may fail; none may change what was there.
        match random.below(5) {
            4 => together(&member, &mut random, at, content),
            0 => drop(member.put(at, &content)),
            1 => drop(member.delete(at)),
            2 => {
                let mut writer = member.create(at, Replace::Allowed).unwrap();
                writer.append(&content).unwrap();
                drop(writer.seal());
            }
            _ => drop(member.sweep()),
        }
    }
    for at in there {
        let mut bytes = [0; 5];
        local.read_at(at, 0, &mut bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(&bytes, b"there", "seed {seed}: {at}");
        assert_eq!(local.len(at).unwrap(), 5, "seed {seed}: {at}");
    }
    for kind in [ExtentKind::Forgotten, ExtentKind::Keys, ExtentKind::Scrub, ExtentKind::Strays] {
        assert_eq!(local.list(kind).unwrap().len(), 1, "seed {seed}: {kind:?}");
    }
    for (id, bytes) in local.list(ExtentKind::Gc).unwrap() {
        let mut content = vec![0; bytes as usize];
        local.read_at(ExtentName::In(ExtentKind::Gc, id), 0, &mut content).unwrap();
        let step = GcObject::decode(&content).ok().map(|object| object.step);
        let may = id == [200; 16] || matches!(step, Some(DeletionStep::Ack { .. }));
        assert!(may, "seed {seed}: {step:?}");
    }
}

/// Tries several steps in one request.
fn together(member: &SharedMember, random: &mut Noise, at: ExtentName, content: Vec<u8>) {
    let mut steps = Vec::new();
    for first in [true, false, false] {
        let kind = ExtentKind::ALL[random.below(ExtentKind::ALL.len() as u64) as usize];
        let at = if first { at } else { name(kind, [200, 1, 2][random.below(3) as usize]) };
        steps.push(match random.below(2) {
            0 => PlannedStep::Put(at, if first { content.clone() } else { object(random) }),
            _ => PlannedStep::Delete(at),
        });
    }
    member.plan(&steps, 1);
    match &steps[0] {
        PlannedStep::Put(at, content) => drop(member.put(*at, content)),
        PlannedStep::Delete(at) => drop(member.delete(*at)),
        PlannedStep::Look(_) => unreachable!("no look is planned here"),
    }
}

fn object(random: &mut Noise) -> Vec<u8> {
    let ids = SessionId([1; 16]);
    let gc = |step| GcObject {
        store: StoreId([7; 16]),
        condemnation: CondemnationId([1; 16]),
        by: ids,
        step,
    };
    let kinds = [
        envelope::Object::Label,
        envelope::Object::Snapshot,
        envelope::Object::Forgotten,
        envelope::Object::Checkpoint,
        envelope::Object::Heartbeat,
    ];
    match random.below(10) {
        0 => extents(&run(1, 1)).swap_remove(0),
        1 => session(1, 2, Work::Backup).1,
        2 => session(1, 2, Work::Collect).1,
        3 => gc(DeletionStep::Void { session: ids }).encode(),
        4 => gc(DeletionStep::Reaping(Lists::default())).encode(),
        5 => gc(DeletionStep::Ack { session: ids, packs: Vec::new() }).encode(),
        6 => b"junk".to_vec(),
        other => envelope::close(kinds[(other as usize * 3 + random.below(5) as usize) % 5], b"x"),
    }
}
