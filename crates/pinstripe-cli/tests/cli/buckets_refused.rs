//! Stores in buckets that cannot be used as they should be: what is wrong is told, with its cause.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, SystemTime};

use pinstripe_testing::{Asked, Fate, Proxy};

use crate::buckets::Cloud;

/// A store over three endpoints, of which one may be lost, and a proxy before the last one.
struct Three {
    cloud: Cloud,
    proxy: Proxy,
}

impl Three {
    fn new(test: &str) -> Option<Three> {
        let cloud = Cloud::new(test, 3)?;
        let proxy = Proxy::start(cloud.servers[2].port());
        let last = cloud.servers[2].place_at(proxy.port(), "host");
        let [first, second] = [0, 1].map(|server| cloud.place(server, "host"));
        cloud.done(&format!(
            "init --parity 1 --encryption none --member {first} --member {second} --member {last}"
        ));
        Some(Three { cloud, proxy })
    }

    /// Runs a line on the store, which is to end so; returns all that it says.
    fn ends(&self, code: i32, line: &str) -> String {
        let line = format!("{line} --store {}", self.cloud.place(0, "host"));
        self.cloud.ends(code, &line)
    }
}

/// Copies a label to another prefix of the first server, as the tools of a provider do: the copy is
/// younger.
fn copy_label(cloud: &Cloud, from: &str, to: &str) {
    let [from, to] = [from, to].map(|prefix| cloud.servers[0].file(prefix));
    std::fs::create_dir_all(&to).unwrap();
    let copied = Command::new("cp").arg("-a").arg(from.join("pinstripe.member")).arg(&to).status();
    assert!(copied.unwrap().success());
    let label = File::options().append(true).open(to.join("pinstripe.member")).unwrap();
    label.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
}

#[test]
fn a_copied_label_is_refused_while_the_member_stands_where_it_was() {
    let test = "a_copied_label_is_refused_while_the_member_stands_where_it_was";
    let Some(three) = Three::new(test) else { return };
    let cloud = &three.cloud;
    three.ends(0, "backup src");
    copy_label(cloud, "host", "copy");
    let (place, copy) = (cloud.place(0, "host"), cloud.place(0, "copy"));
    for line in ["backup src", "restore latest --to out", "snapshots", "repair"] {
        let said = cloud.ends(12, &format!("{line} --store {copy}"));
        assert!(
            said.contains(&format!(
                "{copy}: two locations have the label of member 0: this location and "
            )),
            "{said}"
        );
        assert!(said.contains(&format!("and {place}")), "{said}");
    }
    // The same bucket under another name is no copy.
    let front = Proxy::start(cloud.servers[0].port());
    let alias = cloud.servers[0].place_at(front.port(), "host");
    cloud.ends(0, &format!("snapshots --store {alias}"));
    // A member that was moved stands in one place.
    std::fs::remove_dir_all(cloud.servers[0].file("copy")).unwrap();
    std::fs::rename(cloud.servers[0].file("host"), cloud.servers[0].file("copy")).unwrap();
    let said = cloud.ends(0, &format!("backup src --store {copy}"));
    assert!(said.contains(", and no longer at "), "{said}");
    cloud.ends(0, &format!("repair --store {copy}"));
    cloud.assert_restored(&copy, "out");
}

#[test]
fn without_credentials_they_are_asked_for_and_no_store_is_made() {
    let Some(cloud) = Cloud::new("without_credentials_they_are_asked_for", 1) else { return };
    let place = cloud.place(0, "host");
    for line in ["snapshots", "check", "backup src", "restore latest --to out", "gc", "members"] {
        let ran = cloud.stand.run(&format!("{line} --store {place}"));
        assert_eq!(ran.code, 1, "{line}: {}", ran.err);
        assert!(ran.err.contains("no credentials") && ran.err.contains("AWS_ACCESS_KEY_ID"));
        assert!(!ran.err.contains("pinstripe init"), "{}", ran.err);
    }
}

#[test]
fn a_member_that_refuses_is_told_with_its_cause_and_is_no_unplugged_disk() {
    let test = "a_member_that_refuses_is_told_with_its_cause";
    let Some(three) = Three::new(test) else { return };
    three.ends(0, "backup src");
    three.proxy.rule(|_| {
        let head = vec!["x-amz-request-id: R4711".to_owned()];
        Fate::AnswerWith(400, head, "<Error><Code>ExpiredToken</Code></Error>".to_owned())
    });
    for (code, line) in
        [(10, "check"), (0, "restore latest --to out"), (10, "repair"), (10, "scrub")]
    {
        let said = three.ends(code, line);
        for words in ["is absent", "ExpiredToken", "R4711", "get new credentials"] {
            assert!(said.contains(words), "{line}: {words} in {said}");
        }
        assert!(!said.contains("is the disk mounted"), "{line}: {said}");
    }
}

fn is_listing(asked: &Asked) -> bool {
    asked.method == "GET" && asked.target.contains("list-type=")
}

#[test]
fn what_is_not_listed_is_not_told_as_lacking() {
    let Some(three) = Three::new("what_is_not_listed_is_not_told_as_lacking") else { return };
    three.ends(0, "backup src");
    three.ends(0, "backup src");
    three.ends(0, "check");
    three.proxy.rule(|asked| match is_listing(asked) {
        true => Fate::Answer(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
        false => Fate::Pass,
    });
    let said = three.ends(10, "check");
    assert!(said.contains("ListBucket was refused") && !said.contains("it lacks"), "{said}");
    // A listing may be behind, and say so of nothing.
    three.proxy.rule(|asked| match is_listing(asked) {
        true => Fate::Answer(
            200,
            "<ListBucketResult><Name>pinstripe</Name><KeyCount>0</KeyCount>\
             <IsTruncated>false</IsTruncated></ListBucketResult>"
                .to_owned(),
        ),
        false => Fate::Pass,
    });
    let said = three.ends(10, "check");
    assert!(said.contains(" lacks 2 snapshots that the member has"), "{said}");
    assert!(!said.contains("it lacks") && !said.contains("no damage was found"), "{said}");
}
