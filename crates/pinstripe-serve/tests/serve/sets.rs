//! Stripe sets that the server lays and reads.

use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::{SetId, StoreId};
use pinstripe_member::record::{RecordKind, write_head};
use pinstripe_member::stripe_set::{Geometry, SetKind};
use pinstripe_member::{
    ExtentKind, ExtentName, FaultMember, Member, Places, PowerCut, Replace, RunPart, RunToLay,
    SetServer, SharedMember, server_of,
};
use pinstripe_remote::Connection;
use pinstripe_serve::{NewToken, TokenRole};
use pinstripe_stripe::{SetReader, SetWriter, StripSink};

use crate::setup::{StoreFixture, directory, members_of, members_within, start, store_of, volume};

const STORE: StoreId = StoreId([7; 16]);

struct Extents(Vec<Vec<u8>>);

impl StripSink for Extents {
    fn append(&mut self, slot: usize, bytes: Vec<u8>) -> Result<()> {
        self.0[slot].extend(bytes);
        Ok(())
    }
}

/// The extents of a set, as a host lays them.
pub fn extents(run: &RunToLay) -> Vec<Vec<u8>> {
    let ExtentName::In(_, id) = run.name else { panic!("a label") };
    let mut sink = Extents(vec![Vec::new(); run.geometry.members()]);
    let mut writer = SetWriter::new(STORE, SetId(id), SetKind::Pack, run.geometry);
    writer.append(&run.bytes, &mut sink).unwrap();
    writer.finish(run.index.clone(), &mut sink).unwrap();
    sink.0
}

fn record(body: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    write_head(&mut record, RecordKind::PackIndex, 0, &[], body.len() as u32, body);
    record.extend_from_slice(body);
    record
}

/// A pack of some records, of which the last is its index.
pub fn run(byte: u8, members: u16) -> RunToLay {
    let records: Vec<_> = (0..30_usize).map(|at| record(&vec![byte; at * 401])).collect();
    let bytes = records.concat();
    let index = (bytes.len() - records[29].len()) as u64..bytes.len() as u64;
    let geometry = Geometry::new((members - 1).max(1) as u8, u8::from(members > 1), 4096).unwrap();
    let (name, members) = (ExtentName::pack(SetId([byte; 16])), (0..members).collect());
    RunToLay { name, geometry, members, index, bytes }
}

fn server_behind(members: &[SharedMember]) -> Arc<dyn SetServer> {
    server_of(members.iter().map(|member| &**member)).unwrap().0
}

fn content(member: &SharedMember, name: ExtentName) -> Option<Vec<u8>> {
    let mut bytes = vec![0; member.len(name).ok()? as usize];
    member.read_at(name, 0, &mut bytes).unwrap();
    Some(bytes)
}

fn locals(server: &StoreFixture, count: usize) -> Vec<SharedMember> {
    (0..count)
        .map(|number| directory(&server.state.path().join(format!("member{number}"))))
        .collect()
}

fn kinds(laid: Vec<Result<()>>) -> Vec<Option<Kind>> {
    laid.into_iter().map(|result| result.err().map(|error| error.kind())).collect()
}

#[test]
fn one_request_lays_a_set_as_a_host_would() {
    let server = store_of(4);
    let (_, connection) = server.token("ant", TokenRole::Append);
    let behind = server_behind(&members_of(&connection, 4));
    // The slots are on the members in any order.
    let laid = Arc::new(RunToLay { members: vec![2, 0, 3, 1], ..run(1, 4) });
    let before = server.requests();
    assert_eq!(kinds(behind.lay(&laid).unwrap()), [None; 4]);
    assert_eq!(server.requests() - before, 1);
    let expected = extents(&laid);
    let there = locals(&server, 4);
    for (slot, member) in laid.members.iter().enumerate() {
        let found = content(&there[usize::from(*member)], laid.name).unwrap();
        assert!(found == expected[slot], "{slot}");
    }
    // The same set again is laid already; another set of this name is not.
    assert_eq!(kinds(behind.lay(&laid).unwrap()), [None; 4]);
    let other = RunToLay { name: laid.name, ..run(2, 4) };
    assert_eq!(kinds(behind.lay(&Arc::new(other)).unwrap()), [Some(Kind::Exists); 4]);
    assert!(content(&there[2], laid.name).unwrap() == expected[0]);
}

#[test]
fn a_member_that_fails_or_lacks_space_does_not_stop_the_others() {
    let state = tempfile::tempdir().unwrap();
    let member = |number: usize| {
        let place = state.path().join(format!("member{number}"));
        Places::default().create(&place).unwrap().member
    };
    let failing = |plan: &str, member| -> SharedMember {
        Arc::new(FaultMember::new(member, plan.parse().unwrap()))
    };
    let members = vec![
        member(0),
        failing("op=append,after=2,error=ENOSPC", member(1)),
        failing("op=seal,error=EIO", member(2)),
        failing("op=create,error=EIO", member(3)),
    ];
    let server = start(state, volume(true, members), "127.0.0.1:0".parse().unwrap());
    let (_, connection) = server.token("ant", TokenRole::Append);
    let laid = Arc::new(run(1, 4));
    let results = kinds(server_behind(&members_of(&connection, 4)).lay(&laid).unwrap());
    assert_eq!(results, [None, Some(Kind::NoSpace), Some(Kind::Io), Some(Kind::Io)]);
    let there: Vec<_> = locals(&server, 4).iter().map(|it| it.len(laid.name).is_ok()).collect();
    assert_eq!(there, [true, false, false, false]);
}

/// A server with many hosts takes longer than the deadline of a host, and a server that is gone does
/// not answer at all.
#[test]
fn a_host_waits_for_a_server_that_lives() {
    let state = tempfile::tempdir().unwrap();
    let member = |number: usize| -> SharedMember {
        let place = state.path().join(format!("member{number}"));
        let member = Places::default().create(&place).unwrap().member;
        Arc::new(FaultMember::new(member, "op=seal,delay=6s".parse().unwrap()))
    };
    let members = vec![member(0), member(1)];
    let server = start(state, volume(true, members), "127.0.0.1:0".parse().unwrap());
    let (_, connection) = server.token("ant", TokenRole::Append);
    // Two megabytes have two more seconds.
    let behind = server_behind(&members_within(&connection, 2, Duration::from_millis(100)));
    let long = |byte| {
        let bytes: Vec<u8> = (0..20).flat_map(|_| record(&vec![byte; 110_000])).collect();
        Arc::new(RunToLay { bytes, index: 0..0, ..run(byte, 2) })
    };
    assert_eq!(kinds(behind.lay(&long(1)).unwrap()), [None; 2]);
    drop(server);
    assert_eq!(behind.lay(&long(2)).unwrap_err().kind(), Kind::Unanswered);
}

#[test]
fn a_run_with_a_damaged_record_is_refused_and_nothing_is_laid() {
    let server = store_of(3);
    let (_, connection) = server.token("ant", TokenRole::AppendRestore);
    let behind = server_behind(&members_of(&connection, 3));
    let refused = |run: RunToLay| behind.lay(&Arc::new(run)).unwrap_err().kind();
    let sound = run(1, 3);
    for at in [0, 30, 70, 5000, sound.bytes.len() - 1] {
        let mut damaged = sound.clone();
        damaged.bytes[at] ^= 1;
        assert_eq!(refused(damaged), Kind::Corrupt, "{at}");
    }
    let mut cut = sound.clone();
    cut.bytes.pop();
    assert_eq!(refused(RunToLay { index: 0..0, ..cut }), Kind::Corrupt);
    let outside = sound.bytes.len() as u64..sound.bytes.len() as u64 + 1;
    assert_eq!(refused(RunToLay { index: outside, ..sound.clone() }), Kind::Usage);
    assert_eq!(refused(RunToLay { members: vec![0, 1, 1], ..sound.clone() }), Kind::Usage);
    let snapshot = ExtentName::In(ExtentKind::Snapshots, [1; 16]);
    assert_eq!(refused(RunToLay { name: snapshot, ..sound.clone() }), Kind::Usage);
    for member in locals(&server, 3) {
        assert_eq!(member.list(ExtentKind::Packs).unwrap(), []);
    }
    // A member that the server does not have costs the set one extent.
    let unknown = RunToLay { members: vec![0, 5, 2], ..run(3, 3) };
    let laid = kinds(behind.lay(&Arc::new(unknown)).unwrap());
    assert_eq!(laid, [None, Some(Kind::WrongMember), None]);
    let (_, reader) = server.token("bee", TokenRole::Restore);
    let behind = server_behind(&members_of(&reader, 3));
    assert_eq!(behind.lay(&Arc::new(sound)).unwrap_err().kind(), Kind::NotAllowed);
}

fn token_with_quota(server: &StoreFixture, quota_bytes: u64) -> Connection {
    let (_, connection) = server.token_with(NewToken {
        quota_bytes: Some(quota_bytes),
        ..server.new_token("ant", TokenRole::Append)
    });
    connection
}

#[test]
fn a_quota_counts_all_extents_of_a_set() {
    let first = extents(&run(1, 3));
    let bytes: usize = first.iter().map(Vec::len).sum();
    let server = store_of(3);
    let connection = token_with_quota(&server, bytes as u64 + 100);
    let members = members_of(&connection, 3);
    let behind = server_behind(&members);
    assert_eq!(kinds(behind.lay(&Arc::new(run(1, 3))).unwrap()), [None; 3]);
    assert_eq!(behind.lay(&Arc::new(run(2, 3))).unwrap_err().kind(), Kind::NoSpace);
    // Extents that a host lays itself count in the same way.
    let server = store_of(3);
    let members = members_of(&token_with_quota(&server, bytes as u64 + 100), 3);
    let put = |run: &RunToLay, slot: usize| {
        let mut writer = members[slot].create(run.name, Replace::Never)?;
        writer.append(&extents(run)[slot])?;
        writer.seal()
    };
    (0..3).for_each(|slot| put(&run(1, 3), slot).unwrap());
    assert_eq!(put(&run(2, 3), 0).unwrap_err().kind(), Kind::NoSpace);
}

#[test]
fn an_extent_with_a_damaged_strip_is_accepted_only_from_an_admin() {
    let server = store_of(2);
    let laid = run(1, 2);
    let mut damaged = extents(&laid)[0].clone();
    damaged[4096 + 100] ^= 1;
    let put = |role: TokenRole| {
        let (_, connection) = server.token(&role.to_string(), role);
        let member = members_of(&connection, 2).swap_remove(0);
        let mut writer = member.create(laid.name, Replace::Never)?;
        writer.append(&damaged)?;
        writer.seal()
    };
    assert_eq!(put(TokenRole::AppendRestore).unwrap_err().kind(), Kind::Corrupt);
    // A move of what cannot be repaired must not fail.
    put(TokenRole::Admin).unwrap();
}

#[test]
fn parts_are_read_also_with_a_member_gone_and_a_strip_damaged() {
    let server = store_of(3);
    let (_, connection) = server.token("ant", TokenRole::AppendRestore);
    let behind = server_behind(&members_of(&connection, 3));
    let laid = Arc::new(run(1, 3));
    behind.lay(&laid).unwrap();
    let part = |offset: usize, bytes: usize| RunPart {
        name: laid.name,
        offset: offset as u64,
        bytes: bytes as u32,
    };
    let bounds: Vec<usize> =
        (0..30).map(|at: usize| at * (at.saturating_sub(1)) / 2 * 401 + at * 64).collect();
    let all = |least_rebuilt: u64| {
        let before = server.requests();
        let whole = behind.fetch(part(0, laid.bytes.len())).unwrap();
        assert!(whole.bytes == laid.bytes);
        assert!(whole.rebuilt >= least_rebuilt);
        assert_eq!(server.requests() - before, 1);
        for ends in bounds.windows(2) {
            let fetched = behind.fetch(part(ends[0], ends[1] - ends[0])).unwrap();
            assert!(fetched.bytes == laid.bytes[ends[0]..ends[1]], "{ends:?}");
        }
    };
    let there = locals(&server, 3);
    there[1].delete(laid.name).unwrap();
    all(1);
    // Laid again, with a damaged strip: a record is read by checksums then.
    let mut extent = extents(&laid)[1].clone();
    (4096..12_000).for_each(|at| extent[at] ^= 0x55);
    let mut writer = there[1].create(laid.name, Replace::Never).unwrap();
    writer.append(&extent).unwrap();
    writer.seal().unwrap();
    for ends in bounds.windows(2) {
        let fetched = behind.fetch(part(ends[0], ends[1] - ends[0])).unwrap();
        assert!(fetched.bytes == laid.bytes[ends[0]..ends[1]], "{ends:?}");
    }
    // Beyond the end, and a set that does not exist.
    assert_eq!(behind.fetch(part(laid.bytes.len(), 1)).unwrap_err().kind(), Kind::Corrupt);
    let other = RunPart { name: ExtentName::pack(SetId([9; 16])), offset: 0, bytes: 1 };
    assert_eq!(behind.fetch(other).unwrap_err().kind(), Kind::NotFound);
    let (_, append) = server.token("bee", TokenRole::Append);
    let behind = server_behind(&members_of(&append, 3));
    assert_eq!(behind.fetch(part(0, 1)).unwrap_err().kind(), Kind::NotAllowed);
}

/// What was acknowledged is there after a power cut at any step of any disk.
#[test]
fn a_laid_set_survives_a_power_cut_at_every_step() {
    for step in 0.. {
        let state = tempfile::tempdir().unwrap();
        let place = |number: usize| state.path().join(format!("member{number}"));
        (0..3).for_each(|number| drop(Places::default().create(&place(number)).unwrap()));
        let power = Arc::new(PowerCut::new(step));
        let places = Places { steps: Some(power.clone()), ..Places::default() };
        let members = (0..3).map(|number| places.open(&place(number)).unwrap()).collect();
        let server = start(state, volume(true, members), "127.0.0.1:0".parse().unwrap());
        let (_, connection) = server.token("ant", TokenRole::Append);
        let behind = server_behind(&members_of(&connection, 3));
        let laid = Arc::new(run(1, 3));
        let results = behind.lay(&laid);
        let is_complete = !power.is_off();
        let state = server.stop();
        power.after_power_cut(step).unwrap();
        let there: Vec<Option<SharedMember>> = (0..3)
            .map(|number| Some(directory(&state.path().join(format!("member{number}")))))
            .collect();
        let results = kinds(results.unwrap_or_default());
        for (slot, _) in results.iter().enumerate().filter(|(_, it)| it.is_none()) {
            let found = there[slot].as_ref().and_then(|member| content(member, laid.name));
            assert!(found.unwrap() == extents(&laid)[slot], "step {step}, slot {slot}");
        }
        if is_complete {
            assert_eq!(results, [None; 3]);
            let reader = SetReader::open(&there, laid.name, STORE, SetId([1; 16])).unwrap();
            assert_eq!(reader.logical_bytes(), laid.bytes.len() as u64);
            assert!(step > 10, "{step}");
            return;
        }
    }
}

#[test]
fn a_set_is_laid_while_its_server_is_restarted() {
    let server = store_of(3);
    let (_, connection) = server.token("ant", TokenRole::Append);
    let behind = server_behind(&members_of(&connection, 3));
    let address = server.address;
    let state = server.stop();
    let waiting = std::thread::spawn(move || behind.lay(&Arc::new(run(1, 3))));
    std::thread::sleep(Duration::from_millis(200));
    let members = (0..3).map(|it| directory(&state.path().join(format!("member{it}")))).collect();
    let again = start(state, volume(true, members), address);
    assert_eq!(kinds(waiting.join().unwrap().unwrap()), [None; 3]);
    drop(again);
}
