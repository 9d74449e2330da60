//! Endpoints that fail, lie, or are slow; each is named, and none is believed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind};
use pinstripe_bucket::Bandwidth;
use pinstripe_member::{ExtentKind, ExtentName, Member, RemoteMembers, Replace};
use pinstripe_testing::{Asked, Fate, KEY_SECRET};

use crate::support::{Site, buckets};

fn name(number: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Snapshots, [number; 16])
}

fn read(member: &dyn Member, name: ExtentName) -> Result<Vec<u8>, Error> {
    member.read_whole(&[name], 1 << 20).remove(0)
}

/// What the error says and advises.
fn text(error: &Error) -> String {
    format!("{error}; {}", error.advice_text().unwrap_or_default())
}

#[test]
fn a_lost_answer_is_this_calls_own_success() {
    let Some(site) = Site::new("a_lost_answer_is_this_calls_own_success") else { return };
    let member = site.member();
    site.proxy.rule(|asked| match asked.method == "PUT" && asked.number % 2 == 0 {
        true => Fate::DropAnswer,
        false => Fate::Pass,
    });
    for number in 0..20 {
        member.put(name(number), &[number; 100]).unwrap();
        let other = member.put(name(number), b"another").unwrap_err();
        assert_eq!(other.kind(), Kind::Exists);
        assert_eq!(read(&*member, name(number)).unwrap(), [number; 100]);
    }
    assert!(site.buckets.requests().retries >= 10);
}

/// An endpoint that has it may refuse it by its head and end the connection under the body: then this
/// answer is lost, too, however often the body is sent.
#[test]
fn a_long_object_whose_answer_was_lost_is_looked_for_and_not_sent_again() {
    let test = "a_long_object_whose_answer_was_lost_is_looked_for_and_not_sent_again";
    let Some(site) = Site::new(test) else { return };
    let member = site.member();
    site.proxy.rule(|asked| match asked.method == "PUT" {
        true => Fate::DropAnswer,
        false => Fate::Pass,
    });
    site.proxy.take_log();
    let name = ExtentName::pack(pinstripe_base::id::SetId([9; 16]));
    let mut writer = member.create(name, Replace::Never).unwrap();
    writer.append(&vec![9; 3 << 20]).unwrap();
    writer.seal().unwrap();
    let log = site.proxy.take_log();
    let of = |method: &str| log.iter().filter(|line| line.starts_with(method)).count();
    assert_eq!((of("PUT"), of("HEAD")), (1, 1), "{log:?}");
    assert_eq!(member.len(name).unwrap(), 3 << 20);
    // Another object of that name is no success.
    let mut writer = member.create(name, Replace::Never).unwrap();
    writer.append(&vec![8; 3 << 20]).unwrap();
    assert_eq!(writer.seal().unwrap_err().kind(), Kind::Exists);
}

#[test]
fn a_conflict_is_not_taken_for_an_object() {
    let Some(site) = Site::new("a_conflict_is_not_taken_for_an_object") else { return };
    let member = site.member();
    let conflict = "<Error><Code>ConditionalRequestConflict</Code></Error>";
    let is_hit = every(3);
    site.proxy.rule(move |asked| match is_hit(asked) {
        true => Fate::Answer(409, conflict.to_owned()),
        false => Fate::Pass,
    });
    for number in 0..20 {
        member.put(name(number), &[number]).unwrap();
        assert_eq!(read(&*member, name(number)).unwrap(), [number]);
    }
    // "Exists" without an object: whether the answer is a lie or the object is gone, it is put.
    let is_hit = every(2);
    site.proxy.rule(move |asked| match is_hit(asked) {
        true => Fate::Answer(412, String::new()),
        false => Fate::Pass,
    });
    let retries = site.buckets.requests().retries;
    for number in 20..30 {
        member.put(name(number), &[number]).unwrap();
        assert_eq!(read(&*member, name(number)).unwrap(), [number]);
    }
    assert_eq!(site.buckets.requests().retries - retries, 10, "each was lied about once");
    // The same answer where another object is: it stays, and is told of.
    site.proxy.rule(|_| Fate::Pass);
    assert_eq!(member.put(name(20), b"another").unwrap_err().kind(), Kind::Exists);
    assert_eq!(read(&*member, name(20)).unwrap(), [20]);
}

#[test]
#[ignore = "with --all: it waits for 6 s"]
fn a_key_that_exists_and_cannot_be_read_is_named_with_what_to_do() {
    let Some(site) = Site::new("a_key_that_exists_and_cannot_be_read_is_named") else { return };
    let member = site.member();
    site.proxy.rule(|asked| match asked.method == "PUT" {
        true => Fate::Answer(412, String::new()),
        false => Fate::Pass,
    });
    let error = member.put(name(1), b"never there").unwrap_err();
    assert_eq!(error.kind(), Kind::Io, "it is neither there nor missing");
    let said = text(&error);
    assert!(said.contains("/snapshots/0101") && said.contains("provider's own tool"), "{said}");
    let asked = site.proxy.take_log().len();
    assert!((4..40).contains(&asked), "with pauses: {asked} requests");
    site.proxy.rule(|_| Fate::Pass);
    member.put(name(1), b"there").unwrap();
}

/// Of all puts every so manieth, from the first on.
fn every(times: u64) -> impl Fn(&Asked) -> bool + Send + Sync {
    let puts = AtomicU64::new(0);
    move |asked| asked.method == "PUT" && puts.fetch_add(1, Ordering::SeqCst).is_multiple_of(times)
}

#[test]
fn an_endpoint_under_load_is_asked_again_and_less() {
    let Some(site) = Site::new("an_endpoint_under_load_is_asked_again_and_less") else { return };
    let member = site.member();
    site.proxy.rule(|asked| match asked.number % 4 {
        0 => Fate::Answer(503, "<Error><Code>SlowDown</Code></Error>".to_owned()),
        1 => Fate::Answer(429, String::new()),
        _ => Fate::Pass,
    });
    let names: Vec<_> = (0..40).map(name).collect();
    names.iter().for_each(|name| member.put(*name, b"content").unwrap());
    let read = member.read_whole(&names, 100);
    assert!(read.into_iter().all(|read| read.unwrap() == b"content"));
    assert_eq!(member.list(ExtentKind::Snapshots).unwrap().len(), 40);
}

#[test]
fn bytes_that_are_cut_off_or_wrong_are_read_again_or_seen() {
    let Some(site) = Site::new("bytes_that_are_cut_off_or_wrong") else { return };
    let member = site.member();
    let content: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    member.put(name(1), &content).unwrap();
    site.proxy.rule(|asked| match asked.number % 2 {
        0 => Fate::Truncate(50_000),
        _ => Fate::Pass,
    });
    for _ in 0..4 {
        assert_eq!(read(&*member, name(1)).unwrap(), content);
        let mut part = vec![0; 90_000];
        member.read_at(name(1), 10_000, &mut part).unwrap();
        assert_eq!(part, content[10_000..]);
    }
    // On the way there a wrong bit is refused by the endpoint; it does not become the object.
    site.proxy.rule(|asked| match asked.method == "PUT" {
        true => Fate::FlipSent,
        false => Fate::Pass,
    });
    member.put(name(2), &content).unwrap_err();
    assert_eq!(member.len(name(2)).unwrap_err().kind(), Kind::NotFound);
}

/// The error of a listing and of a put while every request gets this fate.
fn refused(site: &Site, fate: impl Fn(&Asked) -> Fate + Send + Sync + 'static) -> [Error; 2] {
    let member = site.open(&site.fresh_place()).unwrap();
    site.proxy.rule(fate);
    let listed = member.list(ExtentKind::Packs).unwrap_err();
    [listed, member.put(name(1), b"x").unwrap_err()]
}

#[test]
fn what_an_endpoint_refuses_is_named_with_what_to_do() {
    let Some(site) = Site::new("what_an_endpoint_refuses_is_named") else { return };
    let error = |code: &str| format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    for (status, body, says) in [
        (403, error("AccessDenied"), "the access key needs"),
        (400, error("ExpiredToken"), "session token"),
        (403, error("RequestTimeTooSkewed"), "the clock of this host"),
        (301, error("PermanentRedirect"), "--region"),
        (404, error("NoSuchBucket"), "create the bucket"),
        (403, "<html>Forbidden by the firewall</html>".to_owned(), "HTTP 403"),
        (400, "<html>Bad Request</html>".to_owned(), "check --endpoint"),
    ] {
        let errors = refused(&site, move |_| Fate::Answer(status, body.clone()));
        for error in errors {
            assert_eq!(error.kind(), Kind::Io, "{error}");
            assert!(text(&error).contains(says), "{}", text(&error));
            assert!(error.to_string().contains("http://127.0.0.1:"), "{error}");
        }
    }
    // A page that a login portal answers everything with.
    for error in refused(&site, |_| Fate::Answer(200, "<html>Log in</html>".to_owned())) {
        assert!(text(&error).contains("check --endpoint"), "{}", text(&error));
    }
}

#[test]
fn a_wrong_key_and_a_missing_bucket_are_the_servers_own_words() {
    let Some(site) = Site::new("a_wrong_key_and_a_missing_bucket") else { return };
    let wrong = buckets("notTheSecret").open(&site.fresh_place()).unwrap();
    let error = wrong.list(ExtentKind::Packs).unwrap_err();
    assert!(text(&error).contains("AWS_SECRET_ACCESS_KEY"), "{}", text(&error));
    assert!(!text(&error).contains("notTheSecret"));
    let place = format!("s3+http://127.0.0.1:{}/no-such-bucket/p", site.server.port());
    let error = site.buckets.create(place.as_ref()).err().unwrap();
    assert!(text(&error).contains("NoSuchBucket"), "{}", text(&error));
}

#[test]
fn an_object_that_is_denied_after_its_put_is_missing_and_comes_back() {
    let Some(site) = Site::new("an_object_that_is_denied_after_its_put") else { return };
    let member = site.member();
    member.put(name(1), b"there").unwrap();
    site.proxy.rule(|asked| match &*asked.method {
        "GET" | "HEAD" => Fate::Answer(404, "<Error><Code>NoSuchKey</Code></Error>".to_owned()),
        _ => Fate::Pass,
    });
    assert_eq!(read(&*member, name(1)).unwrap_err().kind(), Kind::NotFound);
    site.proxy.rule(|_| Fate::Pass);
    assert_eq!(read(&*member, name(1)).unwrap(), b"there");
}

#[test]
fn foreign_keys_are_passed_over_and_stay() {
    let Some(site) = Site::new("foreign_keys_are_passed_over_and_stay") else { return };
    let member = site.member();
    member.put(name(1), b"ours").unwrap();
    for key in ["p0/snapshots/notes.txt", "p0/snapshots/sub/0101", "p0/other", "p00/snapshots/x"] {
        let file = site.server.file(key);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "foreign").unwrap();
    }
    assert_eq!(member.list(ExtentKind::Snapshots).unwrap(), [([1; 16], 4)]);
    assert_eq!(member.list(ExtentKind::Packs).unwrap(), []);
    assert!(site.server.file("p0/snapshots/notes.txt").exists());
}

#[test]
fn long_listings_have_many_pages_and_survive_a_failure_midway() {
    let Some(site) = Site::new("long_listings_have_many_pages") else { return };
    let member = site.member();
    let shelf = site.server.file("p0/gc");
    std::fs::create_dir_all(&shelf).unwrap();
    for number in 0..2500_u32 {
        let digits = format!("{:032x}", u128::from(number) << 64);
        std::fs::write(shelf.join(digits), "x").unwrap();
    }
    let fail_once = AtomicBool::new(true);
    site.proxy.rule(move |asked| {
        let is_next_page = asked.target.contains("continuation-token");
        match is_next_page && fail_once.swap(false, Ordering::SeqCst) {
            true => Fate::Answer(500, String::new()),
            false => Fate::Pass,
        }
    });
    let listed = member.list(ExtentKind::Gc).unwrap();
    assert_eq!(listed.len(), 2500);
    assert!(listed.is_sorted());
}

/// Sixteen parts side by side instead of pages one after the other.
#[test]
fn a_long_room_is_listed_by_the_first_digits_of_its_ids() {
    let Some(site) = Site::new("a_long_room_is_listed_by_digits") else { return };
    let member = site.member();
    let shelf = site.server.file("p0/gc");
    std::fs::create_dir_all(&shelf).unwrap();
    let spread = |number: u32| u128::from(number.wrapping_mul(0x9e37_79b1)) << 96;
    let fill = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            std::fs::write(shelf.join(format!("{:032x}", spread(number))), "x").unwrap();
        }
    };
    let listed = |count: u32| {
        site.proxy.take_log();
        let listed = member.list(ExtentKind::Gc).unwrap();
        let mut ids: Vec<_> = (0..count).map(|it| (spread(it).to_be_bytes(), 1)).collect();
        ids.sort_unstable();
        assert_eq!(listed, ids);
        let log = site.proxy.take_log();
        let next = log.iter().filter(|line| line.contains("continuation-token")).count();
        (log.len(), next)
    };
    fill(0..2000);
    assert_eq!(listed(2000), (2, 1), "a page ends in the middle: one after the other");
    fill(2000..6000);
    assert_eq!(listed(6000), (17, 0));
}

#[test]
fn an_endpoint_that_hangs_is_given_up_once() {
    let Some(site) = Site::new("an_endpoint_that_hangs_is_given_up_once") else { return };
    let member = site.open(&site.fresh_place()).unwrap();
    site.proxy.rule(|_| Fate::Hang);
    assert_eq!(member.len(name(1)).unwrap_err().kind(), Kind::Unanswered);
    let asked = site.proxy.take_log().len();
    // It is left alone for a while: the next calls do not wait for it again.
    assert_eq!(member.list(ExtentKind::Packs).unwrap_err().kind(), Kind::Unanswered);
    assert_eq!(site.proxy.take_log(), Vec::<String>::new(), "after {asked} requests");
}

#[test]
fn a_server_that_starts_again_is_waited_for() {
    let Some(mut site) = Site::new("a_server_that_starts_again_is_waited_for") else { return };
    let place = site.server.place_at(site.server.port(), "direct");
    let member = site.buckets.create(place.as_ref()).unwrap().member;
    site.server.stop();
    let retries = site.buckets.requests().retries;
    std::thread::scope(|scope| {
        let put = scope.spawn(|| member.put(name(1), b"late"));
        while site.buckets.requests().retries < retries + 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        site.server.restart(&[]);
        put.join().unwrap().unwrap();
    });
    assert_eq!(read(&*member, name(1)).unwrap(), b"late");
}

#[test]
fn a_key_that_may_only_read_reads() {
    let Some(mut site) = Site::new("a_key_that_may_only_read_reads") else { return };
    let member = site.member();
    member.put(name(1), b"there").unwrap();
    site.server.restart(&["--readonly"]);
    assert_eq!(read(&*member, name(1)).unwrap(), b"there");
    let error = member.put(name(2), b"more").unwrap_err();
    assert!(text(&error).contains("PutObject"), "{}", text(&error));
    assert_eq!(member.list(ExtentKind::Snapshots).unwrap().len(), 1);
}

#[test]
fn a_long_extent_is_sent_in_parts_and_appears_when_it_is_whole() {
    let Some(site) = Site::new("a_long_extent_is_sent_in_parts") else { return };
    let member = site.member();
    let name = ExtentName::index(pinstripe_base::id::SetId([7; 16]));
    let part: Vec<u8> = (0..1_u32 << 20).map(|at| (at ^ (at >> 11)) as u8).collect();
    let first = AtomicBool::new(true);
    site.proxy.rule(move |asked| {
        match asked.method == "POST"
            && asked.target.contains("uploadId=")
            && first.swap(false, Ordering::SeqCst)
        {
            true => Fate::DropAnswer,
            false if asked.method == "PUT" && asked.number % 5 == 0 => {
                Fate::Answer(500, String::new())
            }
            false => Fate::Pass,
        }
    });
    let mut writer = member.create(name, Replace::Never).unwrap();
    (0..80).for_each(|_| writer.append(&part).unwrap());
    assert_eq!(member.len(name).unwrap_err().kind(), Kind::NotFound);
    writer.seal().unwrap();
    assert_eq!(member.len(name).unwrap(), 80 << 20);
    let mut end = vec![0; 1 << 20];
    member.read_at(name, 79 << 20, &mut end).unwrap();
    assert!(end == part);
    // One that is dropped midway leaves nothing.
    site.proxy.rule(|_| Fate::Pass);
    let other = ExtentName::index(pinstripe_base::id::SetId([8; 16]));
    let mut writer = member.create(other, Replace::Never).unwrap();
    (0..80).for_each(|_| writer.append(&part).unwrap());
    drop(writer);
    assert_eq!(member.list(ExtentKind::Index).unwrap().len(), 1);
}

/// A listing of keys as S3 writes it.
fn listing(keys: &[(String, u64)]) -> String {
    let object = |(key, bytes): &(String, u64)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <ETag>\"x\"</ETag><Size>{bytes}</Size></Contents>"
        )
    };
    let contents: String = keys.iter().map(object).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>pinstripe</Name>\
         <IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    )
}

#[test]
fn a_listing_in_no_order_with_foreign_and_double_keys_is_put_right() {
    let Some(site) = Site::new("a_listing_in_no_order") else { return };
    let member = site.member();
    let key = |digit: char| format!("p0/gc/{}", digit.to_string().repeat(32));
    let keys = [
        (key('c'), 3),
        (key('a'), 1),
        (key('c'), 3),
        ("p0/gc/../keys/x".to_owned(), 9),
        ("elsewhere/gc/x".to_owned(), 9),
        (key('b'), u64::MAX),
        (key('G'), 9),
    ];
    let body = listing(&keys);
    site.proxy.rule(move |_| Fate::Answer(200, body.clone()));
    let listed = member.list(ExtentKind::Gc);
    // A size that no object has, or a key that is no path, may end the listing; it is not obeyed.
    if let Ok(listed) = listed {
        assert_eq!(listed, [([0xaa; 16], 1), ([0xbb; 16], u64::MAX), ([0xcc; 16], 3)]);
    }
    let body = listing(&[(key('c'), 3), (key('a'), 1), (key('c'), 3), (key('G'), 9)]);
    site.proxy.rule(move |_| Fate::Answer(200, body.clone()));
    assert_eq!(member.list(ExtentKind::Gc).unwrap(), [([0xaa; 16], 1), ([0xcc; 16], 3)]);
}

#[test]
fn bandwidth_is_kept_to() {
    let Some(site) = Site::new("bandwidth_is_kept_to") else { return };
    let limits = Bandwidth { up: Some(400_000), down: Some(400_000) };
    let slow = buckets(KEY_SECRET).with_bandwidth(limits);
    let member = slow.create(&site.fresh_place()).unwrap().member;
    let content = vec![7; 100_000];
    let began = std::time::Instant::now();
    (0..4).for_each(|number| member.put(name(number), &content).unwrap());
    // The first of them waits for no other.
    assert!(began.elapsed() >= Duration::from_millis(740), "{:?}", began.elapsed());
    let began = std::time::Instant::now();
    for number in 0..4 {
        let mut read = vec![0; content.len()];
        member.read_at(name(number), 0, &mut read).unwrap();
        assert!(read == content);
    }
    assert!(began.elapsed() >= Duration::from_millis(740), "{:?}", began.elapsed());
    assert_eq!(slow.requests_by_endpoint().len(), 1);
}

#[test]
fn a_key_that_may_not_list_is_told_which_right_it_lacks() {
    let Some(site) = Site::new("a_key_that_may_not_list") else { return };
    let member = site.member();
    site.proxy.rule(|asked| match asked.target.contains("list-type=") {
        true => Fate::Answer(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
        false => Fate::Pass,
    });
    member.put(name(1), b"there").unwrap();
    assert_eq!(read(&*member, name(1)).unwrap(), b"there");
    let error = member.list(ExtentKind::Snapshots).unwrap_err();
    assert!(text(&error).contains("ListBucket"), "{}", text(&error));
}
