//! The rules of the seam at an endpoint that the developer names, as Ceph's gateway: PINSTRIPE_S3_PLACE
//! is a place in a bucket there, `s3+http://HOST:PORT/BUCKET/PREFIX`, which AWS_ACCESS_KEY_ID and
//! AWS_SECRET_ACCESS_KEY open.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinstripe_base::error::Kind;
use pinstripe_bucket::{Access, Buckets, EndpointDefaults};
use pinstripe_member::label::MemberAbility;
use pinstripe_member::{
    ExtentKind, ExtentName, Member, RemoteMembers, Replace, SharedMember, check_conformance,
};

/// A request that is signed with this key, by curl; the status of its answer.
fn status(key: &(String, String), method: &str, url: &str, more: &[&str]) -> String {
    let asked = Command::new("curl")
        .args(["-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", "-X", method])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u", &format!("{}:{}", key.0, key.1)])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(more)
        .arg(url)
        .output()
        .unwrap();
    String::from_utf8(asked.stdout).unwrap()
}

fn buckets_with(credentials: &[(String, String)]) -> Buckets {
    let credentials = credentials.to_vec();
    let access = move |_: &_| {
        Ok(Access {
            region: "us-east-1".to_owned(),
            credentials: credentials.clone(),
            ..Access::default()
        })
    };
    Buckets::new(EndpointDefaults::default(), access)
}

/// A variable that is set and not empty.
pub fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Members below a place; what is there is removed in the end.
pub struct NamedEndpoint {
    pub buckets: Buckets,
    credentials: Vec<(String, String)>,
    below: PathBuf,
    prefixes: AtomicUsize,
}

impl NamedEndpoint {
    /// Below a place in a bucket that these options of credentials open.
    pub fn at(test: &str, place: &str, credentials: Vec<(String, String)>) -> Self {
        let buckets = buckets_with(&credentials);
        let below = format!("{}/{test}.{}", place.trim_end_matches('/'), std::process::id());
        NamedEndpoint { buckets, credentials, below: below.into(), prefixes: AtomicUsize::new(0) }
    }

    /// `None` where no endpoint of S3 was named.
    fn new(test: &str) -> Option<Self> {
        let names = ["PINSTRIPE_S3_PLACE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let [Some(place), Some(id), Some(secret)] = names.map(set) else {
            let reason =
                "PINSTRIPE_S3_PLACE names no place at an endpoint, or there is no key for it";
            pinstripe_testing::skipped(test, reason);
            return None;
        };
        let credentials = [("aws_access_key_id", id), ("aws_secret_access_key", secret)]
            .map(|(name, value)| (name.to_owned(), value));
        Some(NamedEndpoint::at(test, &place, credentials.into()))
    }

    /// The key and its secret.
    fn key(&self) -> (String, String) {
        (self.credentials[0].1.clone(), self.credentials[1].1.clone())
    }

    /// Those of another run.
    pub fn other_buckets(&self) -> Buckets {
        buckets_with(&self.credentials)
    }

    fn place(&self, number: usize) -> PathBuf {
        format!("{}-{number}", self.below.display()).into()
    }

    /// A place that nothing is at.
    pub fn fresh_place(&self) -> PathBuf {
        self.place(self.prefixes.fetch_add(1, Ordering::Relaxed))
    }

    pub fn open(&self, place: &std::path::Path) -> SharedMember {
        self.buckets.open(place).unwrap()
    }

    pub fn keeps_the_rules_of_the_seam(&self) {
        check_conformance(&|| Box::new(self.open(&self.fresh_place())));
    }

    /// `ends` says whether it has ranges from the end.
    pub fn passes_the_probe_and_keeps_nothing_of_it(&self, ends: bool) {
        let place = self.fresh_place();
        let report = self.buckets.probe(&place).unwrap();
        assert_eq!(report.missing(), None, "{report:?}");
        assert_eq!(report.abilities[0].seen, "30 of 30 races had one successful writer");
        let facts = self.buckets.create(&place).unwrap().facts;
        for (ability, is_there) in [
            (MemberAbility::CreateIfAbsent, true),
            (MemberAbility::ListAfterPut, true),
            (MemberAbility::ListAfterDelete, true),
            (MemberAbility::RangesFromTheEnd, ends),
        ] {
            assert_eq!(facts.knows(ability), Some(is_there), "{ability:?}");
        }
    }

    pub fn keeps_long_extents_whole_and_does_not_write_over_them(&self) {
        let member = self.open(&self.fresh_place());
        let name = ExtentName::In(ExtentKind::Index, [7; 16]);
        let part: Vec<u8> = (0..1_u32 << 20).map(|at| (at ^ (at >> 11)) as u8).collect();
        for (replace, count, kind) in [
            (Replace::Never, 80, None),
            (Replace::Never, 81, Some(Kind::Exists)),
            (Replace::Allowed, 82, None),
        ] {
            let mut writer = member.create(name, replace).unwrap();
            (0..count).for_each(|_| writer.append(&part).unwrap());
            assert_eq!(writer.seal().err().map(|error| error.kind()), kind, "{count} parts");
        }
        assert_eq!(member.len(name).unwrap(), 82 << 20);
        let mut end = vec![0; 1 << 20];
        member.read_at(name, 81 << 20, &mut end).unwrap();
        assert!(end == part);
        let other = ExtentName::In(ExtentKind::Index, [8; 16]);
        let mut dropped = member.create(other, Replace::Never).unwrap();
        (0..80).for_each(|_| dropped.append(&part).unwrap());
        drop(dropped);
        assert_eq!(member.list(ExtentKind::Index).unwrap().len(), 1);
    }
}

impl Drop for NamedEndpoint {
    fn drop(&mut self) {
        for number in 0..self.prefixes.load(Ordering::Relaxed) {
            let member = self.open(&self.place(number));
            for kind in ExtentKind::ALL {
                for (id, _) in member.list(kind).unwrap_or_default() {
                    let _ = member.delete(ExtentName::In(kind, id));
                }
            }
            let _ = member.delete(ExtentName::Label);
        }
    }
}

#[test]
#[ignore = "with --all: it needs an endpoint that the developer names"]
fn a_named_endpoint_keeps_the_rules_of_the_seam() {
    let Some(named) = NamedEndpoint::new("rules") else { return };
    named.keeps_the_rules_of_the_seam();
}

#[test]
#[ignore = "with --all: it needs an endpoint that the developer names"]
fn a_named_endpoint_passes_the_probe_and_keeps_nothing_of_it() {
    let Some(named) = NamedEndpoint::new("probe") else { return };
    named.passes_the_probe_and_keeps_nothing_of_it(true);
}

#[test]
#[ignore = "with --all: it needs an endpoint that the developer names"]
fn a_named_endpoint_keeps_long_extents_whole_and_does_not_write_over_them() {
    let Some(named) = NamedEndpoint::new("parts") else { return };
    named.keeps_long_extents_whole_and_does_not_write_over_them();
}

/// A bucket of its own stays behind, empty but for old versions.
#[test]
#[ignore = "with --all: it needs an endpoint that the developer names"]
fn a_named_endpoint_that_makes_objects_twice_with_versions_is_found_out_later() {
    let Some(named) = NamedEndpoint::new("later") else { return };
    let key = named.key();
    let bucket = format!("pinstripe-later-{}", std::process::id());
    let place = named.below.to_str().unwrap();
    let (scheme, rest) = place.split_once("+http").unwrap();
    let host = rest.split_once("://").unwrap().1.split_once('/').unwrap().0;
    let protocol = format!("http{}", rest.split_once("://").unwrap().0);
    let url = format!("{protocol}://{host}/{bucket}");
    assert_eq!(status(&key, "PUT", &url, &[]), "200");
    let place = PathBuf::from(format!("{scheme}+{protocol}://{host}/{bucket}/host"));
    let facts = named.buckets.create(&place).unwrap().facts;
    assert_eq!(facts.knows(MemberAbility::Versions), Some(false));
    let enabled = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                   <Status>Enabled</Status></VersioningConfiguration>";
    let versioning = format!("{url}?versioning=");
    assert_eq!(status(&key, "PUT", &versioning, &["-d", enabled]), "200");
    let again = ["-H", "if-none-match: *", "-d", "content"];
    let twice = [(); 2].map(|()| status(&key, "PUT", &format!("{url}/once"), &again));
    let later = named.other_buckets();
    later.agree(&place, &facts);
    let member = later.open(&place).unwrap();
    let name = ExtentName::In(ExtentKind::Sessions, [1; 16]);
    match &twice.each_ref().map(String::as_str) {
        ["200", "412"] => member.put(name, b"a session").unwrap(),
        ["200", "200"] => {
            for _ in 0..2 {
                let refused = member.put(name, b"a session").unwrap_err();
                assert_eq!(refused.kind(), Kind::NoOneWinner, "{refused}");
                assert_eq!(member.list(ExtentKind::Sessions).unwrap(), []);
            }
        }
        other => panic!("{other:?}"),
    }
}
