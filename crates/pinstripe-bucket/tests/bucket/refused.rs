//! Endpoints that answer at once, and not what was asked for: what they say is told as it is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind};
use pinstripe_bucket::{Access, Buckets, EndpointDefaults};
use pinstripe_member::{Deadlines, ExtentKind, ExtentName, Member, RemoteMembers, WatchedMember};
use pinstripe_testing::{Fate, KEY_ID, KEY_SECRET, Proxy};

use crate::support::Site;

const NAME: ExtentName = ExtentName::In(ExtentKind::Snapshots, [1; 16]);

/// What the error says and advises.
fn text(error: &Error) -> String {
    format!("{error}; {}", error.advice_text().unwrap_or_default())
}

/// What each kind of request comes to.
fn all(member: &dyn Member) -> [Error; 5] {
    [
        member.read_whole(&[NAME], 1 << 20).remove(0).unwrap_err(),
        member.list(ExtentKind::Packs).unwrap_err(),
        member.put(NAME, b"mine").unwrap_err(),
        member.len(NAME).unwrap_err(),
        member.delete(NAME).unwrap_err(),
    ]
}

/// The body of an error of S3.
fn said(status: u16, code: &'static str) -> impl Fn(&pinstripe_testing::Asked) -> Fate {
    move |_| Fate::Answer(status, format!("<Error><Code>{code}</Code></Error>"))
}

/// The other host answers as the true one does: what it says would be believed.
#[test]
fn a_redirect_is_told_of_and_not_followed() {
    let Some(site) = Site::new("a_redirect_is_told_of_and_not_followed") else { return };
    let other = Proxy::start(site.server.port());
    let buckets = Buckets::new(EndpointDefaults::default(), |_| {
        let credentials = [
            ("aws_access_key_id", KEY_ID),
            ("aws_secret_access_key", KEY_SECRET),
            ("aws_session_token", "for the endpoint alone"),
        ];
        let credentials = credentials.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let region = "us-east-1".to_owned();
        Ok(Access { region, credentials: credentials.into(), ..Access::default() })
    });
    let member = buckets.open(&site.fresh_place()).unwrap();
    for status in [301, 302, 307, 308] {
        let host = format!("127.0.0.1:{}", other.port());
        let to = format!("Location: http://{host}");
        site.proxy.rule(move |asked| {
            Fate::AnswerWith(status, vec![format!("{to}{}", asked.target)], String::new())
        });
        site.proxy.take_log();
        for error in all(&*member) {
            let said = text(&error);
            assert!(said.contains(&format!("HTTP {status}")) && said.contains(&host), "{said}");
            assert!(said.contains("another region"), "{said}");
        }
        assert_eq!(other.take_log(), Vec::<String>::new(), "{status}");
        assert_eq!(site.proxy.take_log().len(), 5, "sent again after {status}");
    }
    // Where the answer says the region it is named.
    site.proxy.rule(|_| {
        let region = "x-amz-bucket-region: eu-west-1".to_owned();
        Fate::AnswerWith(301, vec![region], "<Error><Code>PermanentRedirect</Code></Error>".into())
    });
    let error = member.list(ExtentKind::Packs).unwrap_err();
    assert!(text(&error).contains("the bucket is in eu-west-1"), "{}", text(&error));
}

#[test]
fn a_user_that_the_endpoint_does_not_know_is_no_absent_object() {
    let test = "a_user_that_the_endpoint_does_not_know_is_no_absent_object";
    let Some(site) = Site::new(test) else { return };
    let member = site.member();
    site.proxy.rule(said(404, "XAdminUserNotFound"));
    // The answer to a HEAD has no code, so that the length is not asked for here.
    let read = member.read_whole(&[NAME], 1 << 20).remove(0).unwrap_err();
    for error in
        [read, member.list(ExtentKind::Packs).unwrap_err(), member.delete(NAME).unwrap_err()]
    {
        assert_eq!(error.kind(), Kind::Io, "{error}");
        let said = text(&error);
        assert!(
            said.contains("XAdminUserNotFound") && said.contains("AWS_ACCESS_KEY_ID"),
            "{said}"
        );
    }
    site.proxy.rule(said(404, "NoSuchKey"));
    let read = member.read_whole(&[NAME], 1 << 20).remove(0).unwrap_err();
    assert_eq!(read.kind(), Kind::NotFound);
}

#[test]
fn a_quota_that_is_used_up_is_no_lack_of_rights() {
    let Some(site) = Site::new("a_quota_that_is_used_up_is_no_lack_of_rights") else { return };
    let member = site.member();
    site.proxy.rule(said(403, "QuotaExceeded"));
    let error = member.put(NAME, b"mine").unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
    let said = text(&error);
    assert!(said.contains("or the quota of") && !said.contains("GetObject"), "{said}");
}

#[test]
fn a_refusal_names_the_right_that_was_asked_for() {
    let Some(site) = Site::new("a_refusal_names_the_right_that_was_asked_for") else { return };
    let member = site.member();
    site.proxy.rule(said(403, "AccessDenied"));
    let rights = ["GetObject", "ListBucket", "PutObject", "GetObject", "DeleteObject"];
    for (error, right) in all(&*member).into_iter().zip(rights) {
        let said = text(&error);
        assert!(said.contains(&format!("({right} was refused)")), "{said}");
    }
}

#[test]
fn a_web_page_is_neither_an_object_nor_an_answer() {
    let Some(site) = Site::new("a_web_page_is_neither_an_object_nor_an_answer") else { return };
    for status in [200, 403, 404] {
        let member = site.member();
        site.proxy.rule(move |_| {
            let kind = "Content-Type: text/html; charset=utf-8".to_owned();
            Fate::AnswerWith(status, vec![kind], "<!DOCTYPE html><html>log in</html>".into())
        });
        let read = member.read_whole(&[NAME], 1 << 20).remove(0).unwrap_err();
        let label = member.read_whole(&[ExtentName::Label], 1 << 20).remove(0).unwrap_err();
        for error in [read, label, member.list(ExtentKind::Packs).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Io, "{status}: {error}");
            let said = text(&error);
            let is_listing = said.contains("not a listing");
            assert!(said.contains("web page") || is_listing, "{status}: {said}");
            assert!(said.contains("proxies between"), "{status}: {said}");
        }
        site.proxy.rule(|_| Fate::Pass);
    }
    // An object may be a page.
    let member = site.member();
    site.proxy.rule(|_| {
        let head = ["Content-Type: text/html", "ETag: \"1\""].map(str::to_owned);
        Fate::AnswerWith(200, head.into(), "<html>mine</html>".into())
    });
    let read = member.read_whole(&[NAME], 1 << 20).remove(0).unwrap();
    assert_eq!(read, b"<html>mine</html>");
}

/// A member has a deadline for its answers, and these are answers.
#[test]
fn an_endpoint_that_is_asked_too_much_is_not_silent() {
    let Some(site) = Site::new("an_endpoint_that_is_asked_too_much_is_not_silent") else { return };
    let member = site.member();
    let patience = Deadlines::new(Duration::from_millis(400), Arc::default(), |_, _| ());
    let watched = WatchedMember::new(member, patience);
    let asked = AtomicUsize::new(0);
    site.proxy.rule(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        // The pauses between them take longer than the deadline.
        0..6 => Fate::Answer(503, "<Error><Code>SlowDown</Code></Error>".to_owned()),
        _ => Fate::Pass,
    });
    let error = watched.list(ExtentKind::Packs).err();
    assert!(error.is_none(), "{}", error.unwrap());
}

/// The client refuses the whole page for it.
#[test]
fn keys_of_others_that_are_no_paths_are_passed_over() {
    let Some(site) = Site::new("keys_of_others_that_are_no_paths_are_passed_over") else { return };
    let member = site.member();
    site.proxy.rule(|_| {
        let object = |key: &str| {
            format!(
                "<Contents><Key>p0/snapshots/{key}</Key><Size>7</Size><ETag>&quot;x&quot;</ETag>\
                 <LastModified>2026-11-25T10:00:00.000Z</LastModified></Contents>"
            )
        };
        let objects = [object("../mine"), object(&"01".repeat(16))].concat();
        let page = format!("<ListBucketResult>{objects}<IsTruncated>false</IsTruncated>");
        Fate::Answer(200, format!("{page}</ListBucketResult>"))
    });
    assert_eq!(member.list(ExtentKind::Snapshots).unwrap(), [([1; 16], 7)]);
    assert_eq!(site.proxy.take_log().len(), 2);
}

/// Refuses what is asked for so, with the right that it needs.
fn without(site: &Site, is_it: impl Fn(&pinstripe_testing::Asked) -> bool + Send + Sync + 'static) {
    site.proxy.rule(move |asked| match is_it(asked) {
        true => Fate::Answer(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
        false => Fate::Pass,
    });
}

#[test]
fn a_probe_tells_what_may_not_be_done_and_what_it_left() {
    let test = "a_probe_tells_what_may_not_be_done_and_what_it_left";
    let Some(site) = Site::new(test) else { return };
    let place = site.fresh_place();
    without(&site, |asked| asked.method == "DELETE");
    let report = site.buckets.probe(&place).unwrap();
    let seen: Vec<_> = report.abilities.iter().map(|it| &*it.seen).collect();
    assert_eq!(seen[0], "1 of 1 races had one successful writer");
    assert_eq!(seen[2], "not tested: deletion is not permitted");
    assert_eq!(seen.len(), 7, "{seen:?}");
    let said = text(&report.refused.unwrap());
    assert!(said.contains("DeleteObject was refused"), "{said}");
    assert!(said.contains("still in the bucket (3, for example p0/probe-"), "{said}");
    let init = site.buckets.create(&site.fresh_place()).err().unwrap();
    assert!(
        text(&init).contains("still in the bucket (3, for example p1/probe-"),
        "{}",
        text(&init)
    );

    without(&site, |asked| asked.target.contains("list-type="));
    let report = site.buckets.probe(&site.fresh_place()).unwrap();
    let seen: Vec<_> = report.abilities.iter().map(|it| (it.what, &*it.seen)).collect();
    assert!(
        seen.contains(&("listings after a put", "refused: HTTP 403, AccessDenied")),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 6, "{seen:?}");
    let said = text(&report.refused.unwrap());
    assert!(
        said.contains("ListBucket was refused") && !said.contains("still in the bucket"),
        "{said}"
    );
}

/// As moto and Swift answer.
#[test]
fn an_answer_without_a_body_is_no_web_page() {
    let Some(site) = Site::new("an_answer_without_a_body_is_no_web_page") else { return };
    let member = site.member();
    for (method, status, head) in
        [("DELETE", 204, None), ("DELETE", 200, None), ("PUT", 200, Some("ETag: \"1\""))]
    {
        site.proxy.rule(move |asked| match asked.method == method {
            true => {
                let head = ["Content-Type: text/html; charset=utf-8"].into_iter().chain(head);
                Fate::AnswerWith(status, head.map(str::to_owned).collect(), String::new())
            }
            false => Fate::Pass,
        });
        let done = if method == "PUT" { member.put(NAME, b"mine") } else { member.delete(NAME) };
        assert!(done.is_ok(), "{method} {status}: {}", done.unwrap_err());
    }
}

#[test]
fn an_endpoint_that_ignores_ranges_is_refused() {
    let Some(site) = Site::new("an_endpoint_that_ignores_ranges_is_refused") else { return };
    for (status, range, body) in
        [(200, None, "0123456789"), (206, Some("Content-Range: bytes 0-3/10"), "0123")]
    {
        // The objects of the races are created only if they are absent, the one for ranges is not.
        let puts = Arc::<Mutex<Vec<String>>>::default();
        site.proxy.rule(move |asked| {
            let mut puts = puts.lock().unwrap();
            if asked.method == "PUT" && !asked.is_create {
                puts.push(asked.target.clone());
            }
            match asked.method == "GET" && puts.contains(&asked.target) {
                true => {
                    let time = "Last-Modified: Sat, 28 Nov 2026 10:00:00 GMT";
                    let head = ["ETag: \"1\"", time].into_iter().chain(range);
                    Fate::AnswerWith(status, head.map(str::to_owned).collect(), body.to_owned())
                }
                false => Fate::Pass,
            }
        });
        let report = site.buckets.probe(&site.fresh_place()).unwrap();
        assert_eq!(report.missing().map(|it| it.what), Some("ranges of an object"), "{report:?}");
        let refused = site.buckets.create(&site.fresh_place()).err().unwrap();
        assert_eq!(refused.kind(), Kind::NoOneWinner);
        assert!(text(&refused).contains("does not return the requested part"), "{refused}");
    }
}
