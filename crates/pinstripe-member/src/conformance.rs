//! The one suite that every member passes: each rule of the seam, said as a test.

#![allow(clippy::disallowed_methods, reason = "these tests run threads in a race")]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ExtentKind, ExtentName, Member, PlannedStep, PrefetchHint, Replace};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::units::MIB;

/// Runs every check, each on a fresh, empty member.
///
/// # Panics
/// Panics when the member breaks a rule.
pub fn run(fresh: &dyn Fn() -> Box<dyn Member>) {
    for check in [
        an_extent_is_seen_when_it_is_sealed,
        a_dropped_writer_leaves_nothing,
        never_keeps_the_old_bytes,
        allowed_replaces_whole,
        put_is_create_if_absent,
        put_has_one_winner,
        seal_has_one_winner,
        reads_are_whole_or_fail,
        what_is_missing_is_not_found,
        lists_are_sorted_and_exact,
        extents_are_read_whole_each_on_its_own,
        rooms_are_apart,
        empty_and_big_extents,
        deleted_is_gone_and_may_come_back,
        writers_side_by_side,
        replacing_under_readers,
        a_plan_alone_does_nothing,
        planned_steps_are_done_in_order,
        a_step_that_fails_ends_its_plan,
        a_result_is_that_of_the_call,
        a_plan_of_more_members_waits_for_them,
        a_listing_that_was_announced_is_new,
        content_that_was_announced_is_new,
    ] {
        check(fresh().as_ref());
    }
}

fn pack(number: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Packs, [number; 16])
}

fn write(member: &dyn Member, name: ExtentName, replace: Replace, bytes: &[u8]) -> Option<Kind> {
    let mut writer = member.create(name, replace).unwrap();
    writer.append(bytes).unwrap();
    writer.seal().err().map(|error| error.kind())
}

fn read(member: &dyn Member, name: ExtentName) -> Vec<u8> {
    let mut bytes = vec![0; member.len(name).unwrap() as usize];
    member.read_at(name, 0, &mut bytes).unwrap();
    bytes
}

fn assert_absent(member: &dyn Member, name: ExtentName) {
    assert_eq!(member.len(name).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(member.read_at(name, 0, &mut [0]).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(member.read_at(name, 0, &mut []).unwrap_err().kind(), Kind::NotFound);
    if let ExtentName::In(kind, id) = name {
        assert!(member.list(kind).unwrap().iter().all(|(listed, _)| *listed != id));
    }
}

fn an_extent_is_seen_when_it_is_sealed(member: &dyn Member) {
    for name in [pack(1), ExtentName::Label, ExtentName::In(ExtentKind::Snapshots, [9; 16])] {
        let mut writer = member.create(name, Replace::Never).unwrap();
        assert_absent(member, name);
        writer.append(b"one ").unwrap();
        writer.append(b"").unwrap();
        writer.append(b"two").unwrap();
        assert_absent(member, name);
        writer.seal().unwrap();
        assert_eq!(read(member, name), b"one two");
    }
}

fn a_dropped_writer_leaves_nothing(member: &dyn Member) {
    let mut writer = member.create(pack(1), Replace::Never).unwrap();
    writer.append(b"half").unwrap();
    drop(writer);
    assert_absent(member, pack(1));
    assert_eq!(write(member, pack(1), Replace::Never, b"old"), None);
    let mut writer = member.create(pack(1), Replace::Allowed).unwrap();
    writer.append(b"half").unwrap();
    drop(writer);
    assert_eq!(read(member, pack(1)), b"old");
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), [([1; 16], 3)]);
}

fn never_keeps_the_old_bytes(member: &dyn Member) {
    assert_eq!(write(member, pack(1), Replace::Never, b"first"), None);
    assert_eq!(write(member, pack(1), Replace::Never, b"second"), Some(Kind::Exists));
    assert_eq!(read(member, pack(1)), b"first");
    // Also when the name was free at `create`.
    let mut late = member.create(pack(2), Replace::Never).unwrap();
    late.append(b"late").unwrap();
    assert_eq!(write(member, pack(2), Replace::Never, b"early"), None);
    assert_eq!(late.seal().unwrap_err().kind(), Kind::Exists);
    assert_eq!(read(member, pack(2)), b"early");
}

fn allowed_replaces_whole(member: &dyn Member) {
    assert_eq!(write(member, pack(1), Replace::Allowed, b"a free name"), None);
    let mut writer = member.create(pack(1), Replace::Allowed).unwrap();
    writer.append(b"new").unwrap();
    // The old one stays whole until the seal, also for readers that opened it before.
    assert_eq!(read(member, pack(1)), b"a free name");
    writer.seal().unwrap();
    assert_eq!(read(member, pack(1)), b"new");
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), [([1; 16], 3)]);
}

fn put_is_create_if_absent(member: &dyn Member) {
    for name in [ExtentName::Label, ExtentName::In(ExtentKind::Keys, [3; 16]), pack(3)] {
        member.put(name, b"first").unwrap();
        assert_eq!(member.put(name, b"second").unwrap_err().kind(), Kind::Exists);
        assert_eq!(read(member, name), b"first");
    }
}

fn put_has_one_winner(member: &dyn Member) {
    for round in 0..8 {
        let name = ExtentName::In(ExtentKind::Snapshots, [round; 16]);
        race(member, name, &|bytes| member.put(name, bytes).err().map(|error| error.kind()));
    }
}

fn seal_has_one_winner(member: &dyn Member) {
    for round in 0..4 {
        let name = pack(round);
        race(member, name, &|bytes| write(member, name, Replace::Never, bytes));
    }
}

/// Eight threads make the same name; one succeeds, and its bytes are present.
fn race(member: &dyn Member, name: ExtentName, make: &(dyn Fn(&[u8]) -> Option<Kind> + Sync)) {
    let winners = AtomicUsize::new(0);
    let winner = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (winners, winner) = (&winners, &winner);
            scope.spawn(move || match make(&[thread as u8; 1000]) {
                None => {
                    winners.fetch_add(1, Ordering::Relaxed);
                    winner.store(thread, Ordering::Relaxed);
                }
                Some(kind) => assert_eq!(kind, Kind::Exists),
            });
        }
    });
    assert_eq!(winners.into_inner(), 1);
    assert_eq!(read(member, name), [winner.into_inner() as u8; 1000]);
}

fn reads_are_whole_or_fail(member: &dyn Member) {
    assert_eq!(write(member, pack(1), Replace::Never, b"0123456789"), None);
    let mut buf = [0; 4];
    member.read_at(pack(1), 3, &mut buf).unwrap();
    assert_eq!(&buf, b"3456");
    member.read_at(pack(1), 6, &mut buf).unwrap();
    assert_eq!(&buf, b"6789");
    assert_eq!(member.read_span(pack(1), 3, 4).unwrap(), b"3456");
    assert_eq!(member.read_span(pack(1), 0, 10).unwrap(), b"0123456789");
    for offset in [7, 10, 11, 1 << 40, i64::MAX as u64, u64::MAX - 3, u64::MAX] {
        let read = member.read_at(pack(1), offset, &mut buf);
        for error in [read.unwrap_err(), member.read_span(pack(1), offset, 4).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Corrupt, "offset {offset}");
            assert!(error.to_string().contains("found 10"), "{error}");
        }
    }
    assert_eq!(member.read_span(pack(2), 0, 4).unwrap_err().kind(), Kind::NotFound);
    for offset in [0, 10, 11, u64::MAX] {
        member.read_at(pack(1), offset, &mut []).unwrap();
    }
    // Bytes that are available in memory equal those of `read_at`.
    for offset in (0..12).chain([u64::MAX]) {
        let is_at_hand = member.read_at_hand(pack(1), offset, &mut buf);
        assert!(!is_at_hand || buf == b"0123456789"[offset as usize..offset as usize + 4]);
    }
    assert!(!member.read_at_hand(pack(2), 0, &mut buf), "it does not exist");
}

fn what_is_missing_is_not_found(member: &dyn Member) {
    let kinds = ExtentKind::ALL.map(|kind| ExtentName::In(kind, [5; 16]));
    for name in kinds.into_iter().chain([ExtentName::Label]) {
        assert_absent(member, name);
        let error = member.len(name).unwrap_err();
        assert_eq!(error.place(), Some(member.place().join(name.path()).as_path()));
        member.delete(name).unwrap();
    }
    for kind in ExtentKind::ALL {
        assert_eq!(member.list(kind).unwrap(), []);
    }
    member.sync().unwrap();
}

fn lists_are_sorted_and_exact(member: &dyn Member) {
    let mut expected = Vec::new();
    for number in 0..60_u8 {
        // Spread, with shared first bytes, and made out of order.
        let mut id = [number.wrapping_mul(73); 16];
        id[0] = number.wrapping_mul(151) & 0xe1;
        let bytes = vec![number; usize::from(number) * 3];
        for kind in [ExtentKind::Packs, ExtentKind::Index] {
            assert_eq!(write(member, ExtentName::In(kind, id), Replace::Never, &bytes), None);
        }
        expected.push((id, bytes.len() as u64));
    }
    member.put(ExtentName::Label, b"label").unwrap();
    expected.sort_unstable();
    let names: Vec<_> = expected.iter().map(|(id, _)| *id).collect();
    for kind in [ExtentKind::Packs, ExtentKind::Index] {
        assert_eq!(member.list(kind).unwrap(), expected);
        assert_eq!(member.names(kind).unwrap(), names);
    }
    assert_eq!(member.names(ExtentKind::Gc).unwrap(), [[0; 16]; 0]);
}

fn extents_are_read_whole_each_on_its_own(member: &dyn Member) {
    let long = vec![7; 1000];
    member.put(pack(1), &long).unwrap();
    member.put(pack(3), b"").unwrap();
    member.put(ExtentName::Label, b"label").unwrap();
    let names = [pack(1), pack(2), pack(3), ExtentName::Label];
    let kind = |read: Result<Vec<u8>>| read.map_err(|error| error.kind());
    let read: Vec<_> = member.read_whole(&names, 1000).into_iter().map(kind).collect();
    assert_eq!(read, [Ok(long), Err(Kind::NotFound), Ok(Vec::new()), Ok(b"label".to_vec())]);
    let read: Vec<_> = member.read_whole(&names[..1], 999).into_iter().map(kind).collect();
    assert_eq!(read, [Err(Kind::Corrupt)]);
}

fn rooms_are_apart(member: &dyn Member) {
    for (at, kind) in ExtentKind::ALL.into_iter().enumerate() {
        member.put(ExtentName::In(kind, [1; 16]), &[at as u8; 4]).unwrap();
    }
    member.delete(ExtentName::In(ExtentKind::Index, [1; 16])).unwrap();
    for (at, kind) in ExtentKind::ALL.into_iter().enumerate() {
        if kind == ExtentKind::Index {
            assert_eq!(member.list(kind).unwrap(), []);
        } else {
            assert_eq!(member.list(kind).unwrap(), [([1; 16], 4)]);
            assert_eq!(read(member, ExtentName::In(kind, [1; 16])), [at as u8; 4]);
        }
    }
}

fn empty_and_big_extents(member: &dyn Member) {
    assert_eq!(write(member, pack(0), Replace::Never, b""), None);
    member.create(pack(1), Replace::Never).unwrap().seal().unwrap();
    member.put(pack(2), b"").unwrap();
    for number in 0..3 {
        assert_eq!(member.len(pack(number)).unwrap(), 0);
        let error = member.read_at(pack(number), 0, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
    }
    let big: Vec<u8> = (0..10 * MIB).map(|at| (at ^ (at >> 9)) as u8).collect();
    let mut writer = member.create(pack(3), Replace::Never).unwrap();
    for part in big.chunks(3 * MIB as usize + 7) {
        writer.append(part).unwrap();
    }
    writer.seal().unwrap();
    assert_eq!(member.len(pack(3)).unwrap(), big.len() as u64);
    assert!(read(member, pack(3)) == big, "10 MiB come back as they were");
}

fn deleted_is_gone_and_may_come_back(member: &dyn Member) {
    for name in [pack(1), ExtentName::Label] {
        member.put(name, b"one").unwrap();
        assert_eq!(read(member, name), b"one");
        member.delete(name).unwrap();
        assert_absent(member, name);
        member.delete(name).unwrap();
        member.sync().unwrap();
        member.put(name, b"another").unwrap();
        assert_eq!(read(member, name), b"another");
        member.sync().unwrap();
    }
}

fn writers_side_by_side(member: &dyn Member) {
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            scope.spawn(move || {
                for turn in 0..4_u8 {
                    let number = thread * 4 + turn;
                    let mut writer = member.create(pack(number), Replace::Never).unwrap();
                    for _ in 0..10 {
                        writer.append(&[number; 1000]).unwrap();
                    }
                    writer.seal().unwrap();
                    assert_eq!(read(member, pack(number)), [number; 10_000]);
                }
            });
        }
    });
    let expected: Vec<_> = (0..32).map(|number| ([number; 16], 10_000)).collect();
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), expected);
}

fn replacing_under_readers(member: &dyn Member) {
    assert_eq!(write(member, pack(1), Replace::Never, &[0; 4096]), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=20_u8 {
                assert_eq!(write(member, pack(1), Replace::Allowed, &[turn; 4096]), None);
                assert_eq!(read(member, pack(1))[0], turn, "a replacer sees its own bytes");
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let bytes = read(member, pack(1));
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "one or the other, whole");
                }
            });
        }
    });
    assert_eq!(read(member, pack(1)), [20; 4096]);
}

fn mark(number: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Forgotten, [number; 16])
}

fn put_of(name: ExtentName, bytes: &[u8]) -> PlannedStep {
    PlannedStep::Put(name, bytes.to_vec())
}

fn kind_of(result: Result<()>) -> Option<Kind> {
    result.err().map(|error| error.kind())
}

fn a_plan_alone_does_nothing(member: &dyn Member) {
    member.put(mark(2), b"there").unwrap();
    member.plan(&[put_of(mark(1), b"one"), PlannedStep::Delete(mark(2))], 1);
    assert_absent(member, mark(1));
    assert_eq!(read(member, mark(2)), b"there");
    assert_eq!(member.list(ExtentKind::Forgotten).unwrap(), [([2; 16], 5)]);
}

fn planned_steps_are_done_in_order(member: &dyn Member) {
    let look = || vec![PrefetchHint::new(ExtentKind::Forgotten, 1)];
    member.put(mark(3), b"old").unwrap();
    member.plan(
        &[
            put_of(mark(1), b"one"),
            put_of(mark(2), b""),
            PlannedStep::Delete(mark(3)),
            PlannedStep::Look(look()),
        ],
        1,
    );
    member.put(mark(1), b"one").unwrap();
    member.put(mark(2), b"").unwrap();
    member.delete(mark(3)).unwrap();
    member.sync().unwrap();
    member.prefetch(&look());
    assert_eq!(member.list(ExtentKind::Forgotten).unwrap(), [([1; 16], 3), ([2; 16], 0)]);
    assert_eq!((read(member, mark(1)), read(member, mark(2))), (b"one".to_vec(), Vec::new()));
    assert_absent(member, mark(3));
    // The listing answered once; what follows is seen.
    member.put(mark(4), b"four").unwrap();
    assert_eq!(member.list(ExtentKind::Forgotten).unwrap().len(), 3);
}

/// The next step relies on the one before it.
fn a_step_that_fails_ends_its_plan(member: &dyn Member) {
    member.put(mark(1), b"other").unwrap();
    member.put(mark(3), b"stays").unwrap();
    let steps = [put_of(mark(1), b"one"), put_of(mark(2), b"two"), PlannedStep::Delete(mark(3))];
    member.plan(&steps, 1);
    assert_eq!(kind_of(member.put(mark(1), b"one")), Some(Kind::Exists));
    assert_eq!(read(member, mark(1)), b"other");
    assert_absent(member, mark(2));
    assert_eq!(read(member, mark(3)), b"stays");
    // Its caller may still carry out the next one.
    member.put(mark(2), b"two").unwrap();
    assert_eq!(read(member, mark(2)), b"two");
}

/// A plan is a hint: a call that differs from it counts, and each result answers one call.
fn a_result_is_that_of_the_call(member: &dyn Member) {
    member.plan(&[put_of(mark(1), b"planned")], 1);
    member.put(mark(1), b"put").unwrap();
    assert_eq!(read(member, mark(1)), b"put");
    let both = [put_of(mark(2), b"two"), PlannedStep::Delete(mark(1))];
    member.plan(&both, 1);
    member.put(mark(2), b"two").unwrap();
    assert_eq!(kind_of(member.put(mark(2), b"2nd")), Some(Kind::Exists));
    member.delete(mark(1)).unwrap();
    member.put(mark(1), b"again").unwrap();
    assert_eq!(read(member, mark(1)), b"again");
    member.delete(mark(1)).unwrap();
    assert_absent(member, mark(1));
    // Out of order, and in part.
    member.plan(&[put_of(mark(4), b"four"), put_of(mark(5), b"five")], 1);
    member.put(mark(5), b"five").unwrap();
    assert_absent(member, mark(4));
    member.put(mark(4), b"four").unwrap();
    assert_eq!(member.names(ExtentKind::Forgotten).unwrap(), [[2; 16], [4; 16], [5; 16]]);
    // The same plan again, when it has been carried out. A member that cannot tell its own earlier
    // attempt by anything else than the bytes may accept equal bytes.
    member.plan(&both, 1);
    assert!(matches!(kind_of(member.put(mark(2), b"two")), None | Some(Kind::Exists)));
}

fn a_plan_of_more_members_waits_for_them(member: &dyn Member) {
    member.put(mark(3), b"stays").unwrap();
    let steps = [put_of(mark(1), b"one"), put_of(mark(2), b"two"), PlannedStep::Delete(mark(3))];
    member.plan(&steps, 2);
    member.put(mark(1), b"one").unwrap();
    // The other member has not got the first step yet.
    assert_absent(member, mark(2));
    assert_eq!(read(member, mark(3)), b"stays");
    member.put(mark(2), b"two").unwrap();
    member.delete(mark(3)).unwrap();
    assert_eq!(member.names(ExtentKind::Forgotten).unwrap(), [[1; 16], [2; 16]]);
}

fn a_listing_that_was_announced_is_new(member: &dyn Member) {
    let next = |with_content| {
        member.list_next(PrefetchHint::new(ExtentKind::Forgotten, 1), with_content);
    };
    let list = || member.names(ExtentKind::Forgotten).unwrap();
    next(false);
    assert_eq!(list(), [[0; 16]; 0]);
    for number in 1..4 {
        member.put(mark(number), &[number]).unwrap();
        next(number % 2 == 0);
        assert_eq!(list().len(), usize::from(number));
        // Without a hint, too.
        assert_eq!(list().len(), usize::from(number));
    }
    // Changes between the hint and the listing.
    next(true);
    member.put(mark(9), b"nine").unwrap();
    assert_eq!(list(), [[1; 16], [2; 16], [3; 16], [9; 16]]);
    next(true);
    member.delete(mark(1)).unwrap();
    assert_eq!(list(), [[2; 16], [3; 16], [9; 16]]);
    // A hint for one kind says nothing about another.
    next(false);
    member.put(pack(1), b"pack").unwrap();
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), [([1; 16], 4)]);
    assert_eq!(member.list(ExtentKind::Gc).unwrap(), []);
    assert_eq!(list(), [[2; 16], [3; 16], [9; 16]]);
}

fn content_that_was_announced_is_new(member: &dyn Member) {
    member.put(mark(1), b"one").unwrap();
    member.put(mark(2), b"two").unwrap();
    member.put(ExtentName::Label, b"label").unwrap();
    let next = || {
        let hint = PrefetchHint { label: true, ..PrefetchHint::new(ExtentKind::Forgotten, 1) };
        member.list_next(hint, true);
        assert_eq!(member.list(ExtentKind::Forgotten).unwrap().len(), 2);
    };
    let whole = |name| member.read_whole(&[name], 100).remove(0).map_err(|error| error.kind());
    next();
    assert_eq!(whole(mark(1)), Ok(b"one".to_vec()));
    assert_eq!(read(member, mark(2)), b"two");
    assert_eq!(whole(ExtentName::Label), Ok(b"label".to_vec()));
    next();
    assert_eq!(write(member, mark(1), Replace::Allowed, b"another"), None);
    assert_eq!(write(member, ExtentName::Label, Replace::Allowed, b"new label"), None);
    assert_eq!(whole(mark(1)), Ok(b"another".to_vec()));
    assert_eq!(read(member, ExtentName::Label), b"new label");
    next();
    member.delete(mark(2)).unwrap();
    assert_eq!(whole(mark(2)), Err(Kind::NotFound));
    assert_absent(member, mark(2));
}
