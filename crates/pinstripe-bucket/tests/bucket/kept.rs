//! What a host keeps of earlier runs: fewer requests, never another answer.

use std::path::Path;
use std::sync::Arc;

use pinstripe_base::id::StoreId;
use pinstripe_member::envelope::Object;
use pinstripe_member::{
    ExtentKind, ExtentName, PrefetchHint, RemoteMembers, SealedCache, SharedMember, envelope,
};
use pinstripe_testing::{Fate, KEY_SECRET};

use crate::support::{Site, buckets};

const WANTED: [PrefetchHint; 2] =
    [PrefetchHint::new(ExtentKind::Snapshots, 1), PrefetchHint::new(ExtentKind::Forgotten, 1)];

/// A run of its own with the cache in a directory.
fn run(place: &Path, dir: &Path) -> SharedMember {
    let cache = SealedCache::open(dir, 16 << 20, StoreId([1; 16]), |_, error| panic!("{error}"));
    let buckets = buckets(KEY_SECRET);
    buckets.keep_in(Arc::new(cache.unwrap()));
    let member = buckets.open(place).unwrap();
    member.prefetch(&WANTED);
    member
}

fn mark(number: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Forgotten, [number; 16])
}

fn object(number: u8) -> Vec<u8> {
    envelope::close(Object::Forgotten, &[number; 30])
}

fn read(member: &SharedMember, number: u8) -> Vec<u8> {
    member.read_whole(&[mark(number)], 1 << 20).remove(0).unwrap()
}

fn gets(log: &[String]) -> usize {
    log.iter().filter(|line| line.starts_with("GET") && !line.contains("list-type=")).count()
}

#[test]
fn what_an_earlier_run_read_is_not_asked_again() {
    let Some(site) = Site::new("what_an_earlier_run_read_is_not_asked_again") else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = site.fresh_place();
    let writer = site.buckets.create(&place).unwrap().member;
    (0..5).for_each(|number| writer.put(mark(number), &object(number)).unwrap());
    for expected in [5, 0] {
        site.proxy.take_log();
        let member = run(&place, dir.path());
        (0..5).for_each(|number| assert_eq!(read(&member, number), object(number)));
        assert_eq!(gets(&site.proxy.take_log()), expected);
    }
    // What the listing does not show is not there, whatever is kept of it.
    writer.delete(mark(1)).unwrap();
    let member = run(&place, dir.path());
    assert_eq!(member.list(ExtentKind::Forgotten).unwrap().len(), 4);
    assert!(member.read_whole(&[mark(1)], 1 << 20).remove(0).is_err());
    // Another object under the name has another tag.
    writer.put(mark(1), &object(77)).unwrap();
    assert_eq!(read(&run(&place, dir.path()), 1), object(77));
    assert_eq!(read(&run(&place, dir.path()), 2), object(2));
}

#[test]
fn what_is_put_is_kept_as_the_next_listing_shows_it() {
    let Some(site) = Site::new("what_is_put_is_kept") else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = site.fresh_place();
    let elsewhere = site.buckets.create(&place).unwrap().member;
    let member = run(&place, dir.path());
    member.put(mark(1), &object(1)).unwrap();
    // Nothing that has no checksum of its own.
    member.put(mark(2), b"no object").unwrap();
    drop(member);
    site.proxy.take_log();
    let member = run(&place, dir.path());
    assert_eq!(read(&member, 1), object(1));
    assert_eq!(read(&member, 2), b"no object");
    assert_eq!(gets(&site.proxy.take_log()), 1);
    // Another host's object under the name.
    elsewhere.delete(mark(1)).unwrap();
    elsewhere.put(mark(1), &object(3)).unwrap();
    assert_eq!(read(&run(&place, dir.path()), 1), object(3));
}

#[test]
fn what_arrived_wrong_is_not_kept() {
    let Some(site) = Site::new("what_arrived_wrong_is_not_kept") else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = site.fresh_place();
    let writer = site.buckets.create(&place).unwrap().member;
    writer.put(mark(1), &object(1)).unwrap();
    site.proxy.rule(|asked| match asked.target.contains("/forgotten/") {
        true => Fate::FlipAnswer,
        false => Fate::Pass,
    });
    assert_ne!(read(&run(&place, dir.path()), 1), object(1));
    site.proxy.rule(|_| Fate::Pass);
    assert_eq!(read(&run(&place, dir.path()), 1), object(1));
}
