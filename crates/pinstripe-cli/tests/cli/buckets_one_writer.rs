//! Stores at endpoints without create-if-absent, as Backblaze B2: one at a time writes.

use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use pinstripe_testing::{Asked, Fate, Proxy};

use crate::buckets::Cloud;

/// What B2 answers to a condition.
const NOT_IMPLEMENTED: &str = "<Error><Code>NotImplemented</Code><Message>A header you provided \
                               implies functionality that is not implemented</Message></Error>";

/// An endpoint that knows no conditions, and what else a test decides.
fn simple(proxy: &Proxy, other: impl Fn(&Asked) -> Fate + Send + Sync + 'static) {
    proxy.rule(move |asked| match asked.is_create {
        true => Fate::Answer(501, NOT_IMPLEMENTED.to_owned()),
        false => other(asked),
    });
}

/// A store there.
struct Simple {
    cloud: Cloud,
    proxy: Proxy,
    store: String,
}

impl Simple {
    fn new(test: &str) -> Option<Simple> {
        let cloud = Cloud::new(test, 1)?;
        let proxy = Proxy::start(cloud.servers[0].port());
        simple(&proxy, |_| Fate::Pass);
        let store = cloud.servers[0].place_at(proxy.port(), "host");
        cloud.done(&format!("init --encryption none --one-writer --member {store}"));
        Some(Simple { cloud, proxy, store })
    }

    /// A backup that goes on until its input ends, and has its session.
    fn backup_at_work(&self) -> Child {
        let line = format!("backup --stdin a.log --store {}", self.store);
        let mut command = self.cloud.command(&line);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let backup = command.spawn().unwrap();
        let began = Instant::now();
        while self.sessions().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "it has no session");
            std::thread::sleep(Duration::from_millis(10));
        }
        backup
    }

    /// Sessions that stand, by the names of their objects.
    fn sessions(&self) -> Vec<String> {
        let Ok(found) = self.cloud.servers[0].file("host/sessions").read_dir() else {
            return Vec::new();
        };
        found.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn ends(&self, code: i32, line: &str) -> String {
        self.cloud.ends(code, &format!("{line} --store {}", self.store))
    }
}

#[test]
fn an_endpoint_without_create_if_absent_is_used_by_one_writer_who_says_so() {
    let test = "an_endpoint_without_create_if_absent_is_used_by_one_writer";
    let Some(simple) = Simple::new(test) else { return };
    let other = simple.cloud.servers[0].place_at(simple.proxy.port(), "other");
    let refused = simple.cloud.run(&format!("init --encryption none --member {other}"));
    assert_eq!(refused.code, 20, "{}", refused.err);
    assert!(refused.err.contains("--one-writer"), "{}", refused.err);
    let probed = simple.cloud.run(&format!("probe {other}"));
    assert_eq!(probed.code, 20);
    assert!(probed.out.contains("0 of 30 races") && probed.err.contains("--one-writer"));
    let bad = simple.cloud.run("init --encryption none --one-writer --member here");
    assert_eq!(bad.code, 2, "{}", bad.err);

    simple.ends(0, "backup src");
    simple.ends(0, "backup src");
    simple.cloud.assert_restored(&simple.store, "out");
    let members = simple.ends(0, "members --json");
    assert!(members.contains(r#""unable":["create-if-absent""#), "{members}");
    simple.ends(0, "forget --keep-last 1");
    simple.ends(0, "undelete latest");
    simple.ends(0, "forget --keep-last 1");
    simple.ends(0, "gc --wait 0");
    simple.ends(0, "repair");
    simple.ends(0, "member add near");
    simple.ends(0, "member remove 1");
    simple.ends(0, "check --read-data");
    assert!(simple.sessions().is_empty());
}

#[test]
fn a_second_writer_finds_the_first_and_is_refused() {
    let Some(simple) = Simple::new("a_second_writer_finds_the_first") else { return };
    simple.ends(0, "backup src");
    let mut first = simple.backup_at_work();
    for line in ["backup src", "repair", "member add near"] {
        let said = simple.ends(18, line);
        assert!(said.contains("create-if-absent"), "{line}: {said}");
        let process = format!("(process {} on ", first.id());
        assert!(said.contains(&process), "{line}: {said}");
    }
    assert_eq!(simple.sessions().len(), 1, "those that were refused left theirs behind");
    // Readers are no writers.
    simple.ends(0, "check");
    first.stdin.take().unwrap().write_all(b"all of it").unwrap();
    assert!(first.wait().unwrap().success());
    simple.ends(0, "backup src");
    let snapshots = simple.ends(0, "snapshots");
    assert!(snapshots.contains("a.log"), "{snapshots}");
}

#[test]
fn a_session_of_another_machine_is_ended_by_hand_and_a_commit_over_its_void_is_taken_back() {
    let Some(site) = Simple::new("a_commit_over_its_void_is_taken_back") else { return };
    site.ends(0, "backup src");
    let mut first = site.backup_at_work();
    let session = site.sessions().remove(0);
    // Its commit is on its way: it has looked, and found none.
    let (tell, asked) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let (is_met, wait) = (Arc::new(AtomicBool::new(false)), Mutex::new(wait));
    simple(&site.proxy, move |it| {
        let is_commit = it.method == "PUT" && it.target.contains("/snapshots/");
        if is_commit && !is_met.swap(true, Ordering::SeqCst) {
            tell.send(()).unwrap();
            let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(5));
        }
        Fate::Pass
    });
    first.stdin.take().unwrap().write_all(b"all of it").unwrap();
    asked.recv_timeout(Duration::from_secs(60)).unwrap();
    site.ends(0, &format!("gc --fence {}", &session[..8]));
    go.send(()).unwrap();
    let ended = first.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(18), "{said}");
    assert!(said.contains("'pinstripe gc' ended this session"), "{said}");
    let snapshots = site.ends(0, "snapshots");
    assert!(!snapshots.contains("a.log"), "{snapshots}");
    site.ends(0, "check --read-data");
    site.ends(0, "backup src");
}
