//! Endpoints that answer at once, and not what was asked for: what they say is told as it is.

use pinstripe::member::{ExtentName, Member, RemoteMembers, Room};
use pinstripe_base::error::{Error, Kind};
use pinstripe_bucket::{Access, Buckets, EndpointDefaults};
use pinstripe_testing::s3::{KEY_ID, KEY_SECRET};
use pinstripe_testing::{Fate, Proxy};

use crate::support::Site;

const NAME: ExtentName = ExtentName::In(Room::Snapshots, [1; 16]);

/// What the error says and advises.
fn text(error: &Error) -> String {
    format!("{error}; {}", error.advice_text().unwrap_or_default())
}

/// What each kind of request comes to.
fn all(member: &dyn Member) -> [Error; 5] {
    [
        member.read_whole(&[NAME], 1 << 20).remove(0).unwrap_err(),
        member.list(Room::Packs).unwrap_err(),
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
    let error = member.list(Room::Packs).unwrap_err();
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
    for error in [read, member.list(Room::Packs).unwrap_err(), member.delete(NAME).unwrap_err()] {
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
    assert!(said.contains("no room left") && !said.contains("GetObject"), "{said}");
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
        for error in [read, label, member.list(Room::Packs).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Io, "{status}: {error}");
            let said = text(&error);
            let is_listing = said.contains("no listing");
            assert!(said.contains("web page") || is_listing, "{status}: {said}");
            assert!(said.contains("proxies in between"), "{status}: {said}");
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
