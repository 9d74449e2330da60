//! Objects that are locked, and locked for longer.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use pinstripe_base::error::Kind;
use pinstripe_member::label::{MemberAbility, MemberFacts, Retention};
use pinstripe_member::{ExtentKind, ExtentName, KeptLonger, Member, RemoteMembers, Replace};
use pinstripe_testing::{KEY_ID, KEY_SECRET};

use crate::support::{Site, buckets};

fn name(kind: ExtentKind, number: u8) -> ExtentName {
    ExtentName::In(kind, [number; 16])
}

/// By the clock that the program goes by, which is some milliseconds behind the system's.
fn now() -> u64 {
    pinstripe_base::clock::now().0 as u64
}

/// A signed request by curl, past the proxy.
fn curl(site: &Site, method: &str, target: &str, header: &str) -> std::io::Result<Output> {
    Command::new("curl")
        .args(["-s", "-f", "-m", "20", "-X", method, "-H", header])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u", &format!("{KEY_ID}:{KEY_SECRET}")])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .arg(format!("http://127.0.0.1:{}/{target}", site.server.port()))
        .output()
}

/// A place in a bucket with object lock; `None` where there is no curl to make it.
fn locked_place(site: &Site, test: &str) -> Option<PathBuf> {
    let Ok(made) = curl(site, "PUT", "locked", "x-amz-bucket-object-lock-enabled: true") else {
        pinstripe_testing::not_installed(test, "curl");
        return None;
    };
    assert!(made.status.success());
    Some(format!("s3+http://127.0.0.1:{}/locked/host", site.proxy.port()).into())
}

#[test]
fn what_stays_is_locked_for_longer_once_half_of_its_time_has_passed() {
    let test = "what_stays_is_locked_for_longer";
    let Some(site) = Site::new(test) else { return };
    let Some(place) = locked_place(&site, test) else { return };
    let retention = Retention { seconds: 4, is_compliance: false };
    let buckets = buckets(KEY_SECRET).with_retention(Some(retention));
    let new = buckets.create(&place).unwrap();
    assert_eq!(new.facts.knows(MemberAbility::ObjectLock), Some(true));
    assert_eq!(new.facts.knows(MemberAbility::CreateIfAbsent), Some(true));
    assert_eq!(new.facts.retention, Some(retention));
    let member = new.member;
    let (pack, session) = (name(ExtentKind::Packs, 1), name(ExtentKind::Sessions, 1));
    member.put(pack, b"a pack").unwrap();
    member.put(session, b"a session").unwrap();
    let put_at = now();
    site.proxy.take_log();
    assert_eq!(member.keep_longer(&[pack, session]).unwrap(), KeptLonger::default());
    let log = site.proxy.take_log();
    assert!(log.len() == 1 && log[0].contains("list-type="), "one listing: {log:?}");
    while now() < put_at + 3 {
        // Nothing but the clock says that the time has passed.
        std::thread::sleep(Duration::from_millis(20));
    }
    let kept = member.keep_longer(&[pack, session]).unwrap();
    assert_eq!(kept, KeptLonger { looked: 1, extended: 1 });
    // It has its time: it is looked at, and left alone.
    let kept = member.keep_longer(&[pack, name(ExtentKind::Packs, 9)]).unwrap();
    assert_eq!(kept, KeptLonger { looked: 1, extended: 0 });
    // Of two that put it one wins, with locks, too.
    assert_eq!(member.put(pack, b"another").unwrap_err().kind(), Kind::Exists);
    member.put(pack, b"a pack").unwrap();
    // Without a word of it in the label nothing is asked.
    site.proxy.take_log();
    buckets.agree(&place, &MemberFacts::default());
    assert_eq!(member.keep_longer(&[pack]).unwrap(), KeptLonger::default());
    assert!(site.proxy.take_log().is_empty());
}

#[test]
fn what_is_sent_in_parts_is_locked_as_well() {
    let test = "what_is_sent_in_parts_is_locked_as_well";
    let Some(site) = Site::new(test) else { return };
    let Some(place) = locked_place(&site, test) else { return };
    let retention = Retention { seconds: 3600, is_compliance: false };
    let buckets = buckets(KEY_SECRET).with_retention(Some(retention));
    let member = buckets.create(&place).unwrap().member;
    let part = vec![7; 1 << 20];
    for (kind, number, parts, is_locked) in [
        (ExtentKind::Packs, 1, 1, true),
        (ExtentKind::Packs, 2, 80, true),
        (ExtentKind::Index, 3, 1, false),
        (ExtentKind::Index, 4, 80, false),
    ] {
        let extent = name(kind, number);
        site.proxy.take_log();
        let mut writer = member.create(extent, Replace::Never).unwrap();
        (0..parts).for_each(|_| writer.append(&part).unwrap());
        writer.seal().unwrap();
        let in_parts = site.proxy.take_log().iter().any(|line| line.contains("uploads"));
        assert_eq!(in_parts, parts > 1);
        let target = format!("locked/host/{}?retention=", extent.path());
        let said = curl(&site, "GET", &target, "accept: */*").unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert_eq!(text.contains("GOVERNANCE"), is_locked, "{extent}: {text}");
    }
}

#[test]
fn a_bucket_without_object_lock_locks_nothing() {
    let Some(site) = Site::new("a_bucket_without_object_lock_locks_nothing") else { return };
    let retention = Some(Retention { seconds: 3600, is_compliance: true });
    let place = site.fresh_place();
    let refused = buckets(KEY_SECRET).with_retention(retention).create(&place).err().unwrap();
    assert_eq!(refused.kind(), Kind::Unsupported);
    assert!(refused.to_string().contains("no object lock"), "{refused}");
    let place = site.fresh_place();
    site.proxy.take_log();
    let facts = site.buckets.create(&place).unwrap().facts;
    // What doc/buckets.md says it costs.
    let asked = site.proxy.take_log().len();
    assert!((66..=82).contains(&asked), "{asked} requests");
    assert_eq!(facts.knows(MemberAbility::ObjectLock), Some(false));
    assert_eq!(facts.knows(MemberAbility::Versions), Some(false));
    assert_eq!(facts.retention, None);
}

#[test]
fn an_endpoint_without_ranges_from_the_end_is_asked_for_lengths() {
    let Some(site) = Site::new("an_endpoint_without_ranges_from_the_end") else { return };
    let place = site.fresh_place();
    let member = site.buckets.create(&place).unwrap().member;
    let content: Vec<u8> = (0..200_000_u32).map(|at| (at * 7) as u8).collect();
    let mut writer = member.create(name(ExtentKind::Packs, 1), Replace::Never).unwrap();
    writer.append(&content).unwrap();
    writer.seal().unwrap();
    let facts = MemberFacts::default().with(MemberAbility::RangesFromTheEnd, false);
    for (facts, heads) in [(MemberFacts::default(), 0), (facts, 1)] {
        site.buckets.agree(&place, &facts);
        site.proxy.take_log();
        assert_eq!(member.len(name(ExtentKind::Packs, 1)).unwrap(), 200_000);
        let mut end = [0; 100];
        member.read_at(name(ExtentKind::Packs, 1), 199_900, &mut end).unwrap();
        assert_eq!(end[..], content[199_900..]);
        let log = site.proxy.take_log();
        let asked = log.iter().filter(|line| line.starts_with("HEAD")).count();
        assert_eq!((asked, log.len()), (heads, heads + 1), "{log:?}");
    }
}
