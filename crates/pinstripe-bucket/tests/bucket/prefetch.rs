//! What is asked ahead: few requests, and never an answer from before a change.

use std::fs;

use pinstripe_member::{ExtentKind, ExtentName, Member, PrefetchHint, RemoteMembers, Replace};
use pinstripe_testing::Fate;

use crate::support::Site;

const WANTED: [PrefetchHint; 4] = [
    PrefetchHint::new(ExtentKind::Snapshots, 1),
    PrefetchHint::new(ExtentKind::Gc, 2),
    PrefetchHint { again: true, ..PrefetchHint::new(ExtentKind::Index, 1) },
    PrefetchHint::maybe(ExtentKind::Packs, 1),
];

fn name(kind: ExtentKind, number: u8) -> ExtentName {
    ExtentName::In(kind, [number; 16])
}

fn seal(member: &dyn Member, name: ExtentName, bytes: &[u8]) {
    let mut writer = member.create(name, Replace::Never).unwrap();
    writer.append(bytes).unwrap();
    writer.seal().unwrap();
}

fn read(member: &dyn Member, name: ExtentName) -> Vec<u8> {
    member.read_whole(&[name], 1 << 20).remove(0).unwrap()
}

fn lists(log: &[String]) -> usize {
    log.iter().filter(|line| line.contains("list-type=")).count()
}

#[test]
fn one_listing_answers_for_all_rooms_of_a_small_member() {
    let Some(site) = Site::new("one_listing_answers_for_all_rooms") else { return };
    let member = site.member();
    for number in 1..4 {
        member.put(name(ExtentKind::Snapshots, number), &[number; 9]).unwrap();
        member.put(name(ExtentKind::Gc, number), &[number; 7]).unwrap();
    }
    seal(&*member, name(ExtentKind::Index, 1), &[5; 3000]);
    seal(&*member, name(ExtentKind::Packs, 1), &[6; 200_000]);
    site.proxy.take_log();
    member.prefetch(&WANTED);
    assert_eq!(member.list(ExtentKind::Snapshots).unwrap().len(), 3);
    assert_eq!(member.list(ExtentKind::Gc).unwrap().len(), 3);
    assert_eq!(member.names(ExtentKind::Gc).unwrap().len(), 3);
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), [([1; 16], 200_000)]);
    assert_eq!(member.list(ExtentKind::Index).unwrap(), [([1; 16], 3000)]);
    assert_eq!(member.list(ExtentKind::Index).unwrap(), [([1; 16], 3000)]);
    for number in 1..4 {
        assert_eq!(read(&*member, name(ExtentKind::Snapshots, number)), [number; 9]);
        assert_eq!(read(&*member, name(ExtentKind::Gc, number)), [number; 7]);
    }
    let mut bytes = [0; 100];
    assert_eq!(member.len(name(ExtentKind::Index, 1)).unwrap(), 3000);
    member.read_at(name(ExtentKind::Index, 1), 2900, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 100]);
    let log = site.proxy.take_log();
    // The prefix once, the runs once more; three snapshots, three steps, the end of one run.
    assert_eq!((lists(&log), log.len()), (2, 9), "{}", log.join("\n"));
    // What was promised so often was used up: this is a listing of its own.
    assert_eq!(member.list(ExtentKind::Gc).unwrap().len(), 3);
    assert_eq!(lists(&site.proxy.take_log()), 1);
    // Seen again, what did not change is not fetched again.
    member.prefetch(&WANTED);
    assert_eq!(read(&*member, name(ExtentKind::Gc, 2)), [2; 7]);
    let log = site.proxy.take_log();
    assert_eq!(log.len() - lists(&log), 0, "{}", log.join("\n"));
}

#[test]
fn a_change_of_this_process_is_seen_in_spite_of_what_was_predicted() {
    let Some(site) = Site::new("a_change_of_this_process_is_seen") else { return };
    let member = site.member();
    member.put(name(ExtentKind::Gc, 1), b"one").unwrap();
    member.prefetch(&WANTED);
    member.put(name(ExtentKind::Gc, 2), b"two").unwrap();
    assert_eq!(member.list(ExtentKind::Gc).unwrap().len(), 2);
    member.prefetch(&WANTED);
    member.list(ExtentKind::Snapshots).unwrap();
    // Put before a listing of another kind: what that shows must be from afterwards, too.
    member.put(name(ExtentKind::Sessions, 3), b"session").unwrap();
    let other = site.buckets.requests().lists;
    member.list(ExtentKind::Gc).unwrap();
    assert_eq!(site.buckets.requests().lists, other + 1);
    member.prefetch(&WANTED);
    member.delete(name(ExtentKind::Gc, 1)).unwrap();
    assert_eq!(member.names(ExtentKind::Gc).unwrap(), [[2; 16]]);
    member.prefetch(&WANTED);
    seal(&*member, name(ExtentKind::Index, 4), b"a run");
    assert_eq!(member.names(ExtentKind::Index).unwrap(), [[4; 16]]);
    member.prefetch(&WANTED);
    member.list(ExtentKind::Snapshots).unwrap();
    member.list(ExtentKind::Index).unwrap();
    member.names(ExtentKind::Index).unwrap();
    member.prefetch(&[]);
    site.proxy.take_log();
    member.list(ExtentKind::Gc).unwrap();
    assert_eq!(lists(&site.proxy.take_log()), 1);
}

#[test]
fn an_object_that_another_host_replaced_is_read_anew() {
    let Some(site) = Site::new("an_object_that_another_host_replaced") else { return };
    let place = site.fresh_place();
    let member = site.buckets.create(&place).unwrap().member;
    let other = crate::support::buckets(pinstripe_testing::KEY_SECRET).open(&place).unwrap();
    member.put(name(ExtentKind::Snapshots, 1), b"before").unwrap();
    member.prefetch(&WANTED);
    assert_eq!(read(&*member, name(ExtentKind::Snapshots, 1)), b"before");
    other.delete(name(ExtentKind::Snapshots, 1)).unwrap();
    other.put(name(ExtentKind::Snapshots, 1), b"behind").unwrap();
    other.put(name(ExtentKind::Snapshots, 2), b"another").unwrap();
    member.prefetch(&[]);
    member.prefetch(&WANTED);
    assert_eq!(member.list(ExtentKind::Snapshots).unwrap().len(), 2);
    assert_eq!(read(&*member, name(ExtentKind::Snapshots, 1)), b"behind");
}

#[test]
fn what_cannot_be_predicted_is_asked() {
    let Some(site) = Site::new("what_cannot_be_predicted_is_asked") else { return };
    let member = site.member();
    member.put(name(ExtentKind::Gc, 1), b"one").unwrap();
    let lies = std::sync::atomic::AtomicUsize::new(0);
    site.proxy.rule(move |asked| {
        let is_list = asked.target.contains("list-type=");
        match is_list && lies.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 1 {
            true => Fate::Answer(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
            false => Fate::Pass,
        }
    });
    member.prefetch(&WANTED);
    assert_eq!(member.names(ExtentKind::Gc).unwrap(), [[1; 16]]);
    // A portal's page is no listing, whether a verb asked for it or the announcement did.
    site.proxy.rule(|asked| match asked.target.contains("list-type=") {
        true => Fate::Answer(200, "<html>Log in</html>".to_owned()),
        false => Fate::Pass,
    });
    member.prefetch(&WANTED);
    assert!(member.names(ExtentKind::Gc).is_err());
}

#[test]
fn a_large_member_is_listed_by_room() {
    let Some(site) = Site::new("a_large_member_is_listed_by_room") else { return };
    let member = site.member();
    member.put(name(ExtentKind::Gc, 1), b"one").unwrap();
    let dir = site.server.file("p0/packs/ab");
    fs::create_dir_all(&dir).unwrap();
    for number in 0..1100 {
        fs::write(dir.join(format!("ab{number:030x}")), b"pack").unwrap();
    }
    site.proxy.take_log();
    for _ in 0..2 {
        member.prefetch(&WANTED);
        assert_eq!(member.names(ExtentKind::Gc).unwrap(), [[1; 16]]);
        assert!(member.names(ExtentKind::Index).unwrap().is_empty());
        member.prefetch(&[]);
    }
    // The prefix once in vain, then three kinds at each turn; packs only when they are asked for.
    let log = site.proxy.take_log();
    assert_eq!(lists(&log), 7, "{}", log.join("\n"));
    assert_eq!(member.names(ExtentKind::Packs).unwrap().len(), 1100);
}

#[test]
fn a_put_begun_ahead_is_one_put() {
    let Some(site) = Site::new("a_put_begun_ahead_is_one_put") else { return };
    let member = site.member();
    member.put_ahead(name(ExtentKind::Gc, 1), b"one");
    member.put(name(ExtentKind::Gc, 1), b"one").unwrap();
    assert_eq!(site.proxy.take_log().len(), 1);
    // Other bytes are another put, and there is one winner.
    member.put_ahead(name(ExtentKind::Gc, 2), b"one");
    let other = member.put(name(ExtentKind::Gc, 2), b"two");
    let there = read(&*member, name(ExtentKind::Gc, 2));
    assert_eq!(other.is_ok(), there == b"two");
}
