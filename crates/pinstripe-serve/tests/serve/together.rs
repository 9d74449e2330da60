//! Requests that concern all members of a volume at once.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Kind, Result};
use pinstripe_member::{
    ExtentKind, ExtentName, Member, PlannedStep, PrefetchHint, Replace, SharedMember,
};
use pinstripe_serve::TokenRole;

use crate::setup::{StoreFixture, directory, members_of, store_of};

fn name(byte: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Scrub, [byte; 16])
}

/// A server with the three members of a store, those members as a host sees them, and themselves.
struct Three {
    server: StoreFixture,
    members: Vec<SharedMember>,
    locals: Vec<SharedMember>,
}

fn three() -> Three {
    let server = store_of(3);
    let (_, connection) = server.token("desk", TokenRole::Admin);
    let members = members_of(&connection, 3);
    let local = |number: usize| directory(&server.state.path().join(format!("member{number}")));
    let locals = (0..3).map(local).collect();
    Three { server, members, locals }
}

impl Three {
    fn plan(&self, steps: &[PlannedStep]) {
        self.members.iter().for_each(|member| member.plan(steps, 3));
    }

    fn put(&self, name: ExtentName, bytes: &[u8]) -> Vec<Option<Kind>> {
        self.members.iter().map(|member| kind(member.put(name, bytes))).collect()
    }

    fn delete(&self, name: ExtentName) -> Vec<Option<Kind>> {
        self.members.iter().map(|member| kind(member.delete(name))).collect()
    }

    fn holders(&self, name: ExtentName) -> Vec<bool> {
        self.locals.iter().map(|member| member.len(name).is_ok()).collect()
    }

    /// The number of requests during `work`.
    fn requests(&self, work: impl FnOnce()) -> usize {
        let before = self.server.requests();
        work();
        self.server.requests() - before
    }
}

fn kind(result: Result<()>) -> Option<Kind> {
    result.err().map(|error| error.kind())
}

fn object(text: &[u8]) -> Vec<u8> {
    use pinstripe_member::envelope::{Object, close};
    close(Object::Forgotten, text)
}

fn hints() -> Vec<PrefetchHint> {
    vec![PrefetchHint::new(ExtentKind::Scrub, 1), PrefetchHint::new(ExtentKind::Gc, 2)]
}

#[test]
fn one_request_puts_an_object_on_all_members() {
    let all = three();
    let bytes = object(b"x");
    let count = all.requests(|| {
        all.plan(&[PlannedStep::Put(name(1), bytes.clone())]);
        assert_eq!(all.put(name(1), &bytes), [None; 3]);
    });
    assert_eq!((count, all.holders(name(1))), (1, vec![true; 3]));
    // The result of a plan answers one call.
    assert_eq!(all.put(name(1), &bytes), [Some(Kind::Exists); 3]);
    all.plan(&[PlannedStep::Put(name(1), bytes.clone())]);
    assert_eq!(all.put(name(1), &bytes), [Some(Kind::Exists); 3]);
    // Other bytes than planned are another object.
    all.plan(&[PlannedStep::Put(name(2), bytes)]);
    assert_eq!(all.put(name(2), &object(b"y")), [None; 3]);
    let mut there = vec![0; object(b"y").len()];
    all.locals[2].read_at(name(2), 0, &mut there).unwrap();
    assert_eq!(there, object(b"y"));
}

#[test]
fn the_first_member_decides() {
    let all = three();
    let bytes = object(b"ours");
    all.locals[0].put(name(1), &object(b"theirs")).unwrap();
    all.plan(&[PlannedStep::Put(name(1), bytes.clone())]);
    assert_eq!(kind(all.members[0].put(name(1), &bytes)), Some(Kind::Exists));
    assert_eq!(all.holders(name(1)), [true, false, false]);
}

#[test]
fn a_step_is_begun_when_all_members_have_done_the_one_before() {
    let all = three();
    let bytes = object(b"ours");
    all.locals.iter().for_each(|member| member.put(name(9), &object(b"session")).unwrap());
    let steps =
        |byte| [PlannedStep::Put(name(byte), object(b"ours")), PlannedStep::Delete(name(9))];
    all.locals[1].put(name(1), &object(b"theirs")).unwrap();
    all.plan(&steps(1));
    assert_eq!(all.put(name(1), &bytes), [None, Some(Kind::Exists), None]);
    assert_eq!(all.holders(name(9)), [true; 3]);
    // The same object counts as done.
    all.locals[1].put(name(2), &bytes).unwrap();
    let count = all.requests(|| {
        all.plan(&steps(2));
        assert_eq!(all.put(name(2), &bytes), [None, Some(Kind::Exists), None]);
    });
    assert_eq!((count, all.holders(name(9))), (1, vec![false; 3]));
    // The calls only take their results.
    let count = all.requests(|| {
        all.plan(&[PlannedStep::Delete(name(9))]);
        assert_eq!(all.delete(name(9)), [None; 3]);
    });
    assert_eq!(count, 0);
    let count = all.requests(|| assert_eq!(all.delete(name(9)), [None; 3]));
    assert_eq!(count, 3);
}

#[test]
fn steps_after_the_first_need_every_member_of_the_store() {
    let all = three();
    all.locals.iter().for_each(|member| member.put(name(9), &object(b"session")).unwrap());
    let steps = [PlannedStep::Put(name(1), object(b"x")), PlannedStep::Delete(name(9))];
    // One more member is somewhere else.
    all.members.iter().for_each(|member| member.plan(&steps, 4));
    assert_eq!(all.put(name(1), &object(b"x")), [None; 3]);
    assert_eq!(all.holders(name(9)), [true; 3]);
}

#[test]
fn a_look_follows_the_put() {
    let all = three();
    let wanted = hints();
    let count = all.requests(|| {
        all.plan(&[PlannedStep::Put(name(1), object(b"x")), PlannedStep::Look(wanted.clone())]);
        all.put(name(1), &object(b"x"));
        for member in &all.members {
            member.prefetch(&wanted);
            assert_eq!(member.list(ExtentKind::Scrub).unwrap().len(), 1);
            assert_eq!(member.list(ExtentKind::Gc).unwrap().len(), 0);
            assert_eq!(member.list(ExtentKind::Gc).unwrap().len(), 0);
        }
    });
    assert_eq!(count, 1);
    // The look was used up, and is asked for again.
    all.locals[1].put(ExtentName::In(ExtentKind::Gc, [3; 16]), b"x").unwrap();
    assert_eq!(all.members[1].list(ExtentKind::Gc).unwrap().len(), 1);
}

#[test]
fn a_change_by_this_process_ends_what_was_prefetched() {
    let all = three();
    let wanted = hints();
    let gc = |byte| ExtentName::In(ExtentKind::Gc, [byte; 16]);
    all.plan(&[PlannedStep::Put(name(1), object(b"x")), PlannedStep::Look(wanted.clone())]);
    all.put(name(1), &object(b"x"));
    all.members[0].put(name(2), &object(b"y")).unwrap();
    // Others may have relied on that they see the put.
    all.locals[2].put(gc(1), b"x").unwrap();
    all.members.iter().for_each(|member| member.prefetch(&wanted));
    assert_eq!(all.members[2].list(ExtentKind::Gc).unwrap().len(), 1);
    // As long as nothing was changed, a plan may say that what is there is new enough.
    all.locals[2].put(gc(2), b"x").unwrap();
    let rest = [PrefetchHint::new(ExtentKind::Gc, 1)];
    all.members[2].plan(&[PlannedStep::Look(rest.to_vec())], 3);
    all.members[2].prefetch(&rest);
    assert_eq!(all.members[2].list(ExtentKind::Gc).unwrap().len(), 1);
    all.members[2].prefetch(&rest);
    assert_eq!(all.members[2].list(ExtentKind::Gc).unwrap().len(), 2);
}

#[test]
fn one_request_lists_a_kind_on_all_members() {
    let all = three();
    for round in 0..3 {
        // Each round shows what came before it, also what one member was not asked for last time.
        all.locals[2].put(name(round), &object(b"x")).unwrap();
        let next = PrefetchHint::new(ExtentKind::Scrub, 1);
        all.members.iter().for_each(|member| member.list_next(next, true));
        let asked = &all.members[if round == 1 { 0..2 } else { 0..3 }];
        let count = all.requests(|| {
            let listed: Vec<_> =
                asked.iter().map(|it| it.list(ExtentKind::Scrub).unwrap().len()).collect();
            let expected = [0, 0, usize::from(round) + 1];
            assert_eq!(listed, expected[..asked.len()]);
        });
        assert_eq!(count, 1);
    }
    // Whether an object still exists is another question.
    all.locals[2].delete(name(0)).unwrap();
    assert_eq!(all.members[2].len(name(0)).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn one_request_opens_an_extent_on_all_members() {
    let all = three();
    let pack = ExtentName::In(ExtentKind::Packs, [1; 16]);
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let write = |member: &SharedMember, bytes: &[u8]| {
        member.delete(pack).unwrap();
        let mut writer = member.create(pack, Replace::Never).unwrap();
        writer.append(bytes).unwrap();
        writer.seal().unwrap();
    };
    write(&all.locals[0], &bytes);
    write(&all.locals[2], &bytes);
    let read = |member: usize, offset: usize, length: usize| {
        let mut part = vec![0; length];
        all.members[member].read_at(pack, offset as u64, &mut part).map(|()| part)
    };
    let count = all.requests(|| {
        assert_eq!(all.members[2].len(pack).unwrap(), 100_000);
        assert_eq!(read(2, 90_000, 10_000).unwrap(), bytes[90_000..]);
        assert_eq!(read(0, 0, 4096).unwrap(), bytes[..4096]);
        assert_eq!(read(2, 0, 4096).unwrap(), bytes[..4096]);
    });
    assert_eq!(count, 1);
    // Each part answers one read, and none whether an extent exists.
    assert_eq!(all.requests(|| assert_eq!(read(0, 0, 4096).unwrap(), bytes[..4096])), 1);
    assert_eq!(all.members[1].len(pack).unwrap_err().kind(), Kind::NotFound);
    all.locals[0].delete(pack).unwrap();
    assert_eq!(all.members[0].len(pack).unwrap_err().kind(), Kind::NotFound);
    // A short extent, and an empty one.
    write(&all.locals[1], b"short");
    assert_eq!((all.members[1].len(pack).unwrap(), read(1, 1, 3).unwrap()), (5, b"hor".to_vec()));
    write(&all.locals[1], b"");
    assert_eq!(all.members[1].len(pack).unwrap(), 0);
    assert_eq!(read(1, 0, 1).unwrap_err().kind(), Kind::Corrupt);
    // Bytes that this process has removed are not returned.
    write(&all.locals[1], b"former");
    assert_eq!(all.members[1].len(pack).unwrap(), 6);
    all.members[1].delete(pack).unwrap();
    write(&all.locals[1], b"latter");
    assert_eq!(read(1, 0, 6).unwrap(), b"latter");
}

#[test]
fn what_a_role_may_not_read_is_not_opened() {
    let server = store_of(1);
    let pack = ExtentName::In(ExtentKind::Packs, [1; 16]);
    let local = directory(&server.state.path().join("member0"));
    local.put(pack, b"of another host").unwrap();
    let (_, connection) = server.token("ant", TokenRole::Append);
    let members = members_of(&connection, 1);
    assert_eq!(members[0].len(pack).unwrap_err().kind(), Kind::NotAllowed);
}

#[test]
fn a_key_that_a_prefetched_listing_lacks_takes_no_request() {
    let all = three();
    let key = |byte| ExtentName::In(ExtentKind::Keys, [byte; 16]);
    all.locals.iter().for_each(|member| member.put(key(1), b"ring").unwrap());
    let wanted = [PrefetchHint { label: true, ..PrefetchHint::new(ExtentKind::Keys, 1) }];
    let read = |member: &SharedMember, byte| {
        member.read_whole(&[key(byte)], 100).pop().unwrap().map_err(|error| error.kind())
    };
    let count = all.requests(|| {
        for member in &all.members {
            member.prefetch(&wanted);
            assert_eq!(member.list(ExtentKind::Keys).unwrap().len(), 1);
            assert_eq!(read(member, 1), Ok(b"ring".to_vec()));
            assert_eq!(read(member, 2), Err(Kind::NotFound));
        }
    });
    assert!(count <= 3, "{count}");
    // After a change by this process, the member is asked again.
    all.locals[0].put(key(2), b"next").unwrap();
    all.members[0].put(name(1), &object(b"x")).unwrap();
    assert_eq!(read(&all.members[0], 2), Ok(b"next".to_vec()));
}

/// Passes bytes on, and drops the server's answers while `drops` is set.
fn proxy(to: SocketAddr, drops: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, drops) = (listener.local_addr().unwrap(), Arc::clone(drops));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(to).unwrap();
            let (mut from, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut into);
                let _ = into.shutdown(Shutdown::Both);
            });
            let (mut from, mut into, drops) = (server, client, Arc::clone(&drops));
            std::thread::spawn(move || {
                let mut part = [0; 1 << 16];
                while let Ok(count @ 1..) = from.read(&mut part) {
                    // An answer that is dropped ends its connection.
                    if drops.swap(false, Ordering::SeqCst)
                        || into.write_all(&part[..count]).is_err()
                    {
                        break;
                    }
                }
                let _ = into.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn an_answer_that_was_lost_is_no_failure() {
    let server = store_of(3);
    let (_, mut connection) = server.token("desk", TokenRole::Admin);
    let drops = Arc::new(AtomicBool::new(false));
    connection.address = proxy(server.address, &drops).to_string();
    let members = members_of(&connection, 3);
    let steps = [PlannedStep::Put(name(1), object(b"x")), PlannedStep::Delete(name(9))];
    members[0].list(ExtentKind::Gc).unwrap();
    members.iter().for_each(|member| member.plan(&steps, 3));
    drops.store(true, Ordering::SeqCst);
    for member in &members {
        member.put(name(1), &object(b"x")).unwrap();
        member.delete(name(9)).unwrap();
    }
    assert!(!drops.load(Ordering::SeqCst));
}

#[test]
fn each_object_is_judged_as_in_a_request_of_its_own() {
    let server = store_of(2);
    let (_, connection) = server.token("ant", TokenRole::AppendRestore);
    let members = members_of(&connection, 2);
    let refused = |steps: &[PlannedStep]| {
        members.iter().for_each(|member| member.plan(steps, 2));
        let result = |member: &SharedMember| match &steps[0] {
            PlannedStep::Put(name, bytes) => kind(member.put(*name, bytes)),
            PlannedStep::Delete(name) => kind(member.delete(*name)),
            PlannedStep::Look(_) => None,
        };
        members.iter().map(result).collect::<Vec<_>>()
    };
    let not_allowed = [Some(Kind::NotAllowed); 2];
    let forgotten = ExtentName::In(ExtentKind::Forgotten, [1; 16]);
    assert_eq!(refused(&[PlannedStep::Put(forgotten, object(b"x"))]), not_allowed);
    assert_eq!(refused(&[PlannedStep::Delete(forgotten)]), not_allowed);
    let snapshot = ExtentName::In(ExtentKind::Snapshots, [1; 16]);
    assert_eq!(refused(&[PlannedStep::Put(snapshot, object(b"x"))]), not_allowed);
    let heartbeat = ExtentName::In(ExtentKind::Heartbeats, [1; 16]);
    assert_eq!(refused(&[PlannedStep::Put(heartbeat, b"junk".to_vec())]), [Some(Kind::Usage); 2]);
    // Packs and index count for the quota, in requests of their own.
    let pack = ExtentName::In(ExtentKind::Packs, [1; 16]);
    assert_eq!(refused(&[PlannedStep::Put(pack, object(b"x"))]), [Some(Kind::Usage); 2]);
    let local = directory(&server.state.path().join("member0"));
    for kind in [ExtentKind::Forgotten, ExtentKind::Snapshots, ExtentKind::Packs] {
        assert_eq!(local.list(kind).unwrap(), []);
    }
}
