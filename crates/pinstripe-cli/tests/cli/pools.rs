//! Stores in pools of a real Ceph cluster, which PINSTRIPE_CEPH_CONF names; and what is said where no
//! cluster answers.

use std::path::PathBuf;
use std::process::Command;

use crate::stand::{Ran, Stand, ran, skipped};

/// A stand with a pool of its own, which is removed in the end.
struct Pooled {
    stand: Stand,
    conf: PathBuf,
    pool: String,
}

impl Pooled {
    /// `None` where no cluster was named.
    fn new(test: &str) -> Option<Self> {
        let Some(conf) = std::env::var_os("PINSTRIPE_CEPH_CONF").map(PathBuf::from) else {
            skipped(test, "PINSTRIPE_CEPH_CONF names no cluster (its ceph.conf)");
            return None;
        };
        let stand = Stand::new();
        stand.make_tree();
        let pool = format!("pinstripe.{test}.{}", std::process::id());
        let pooled = Pooled { stand, conf, pool };
        pooled.ceph("ceph", &["osd", "pool", "create", &pooled.pool, "4"]);
        Some(pooled)
    }

    /// Has one of Ceph's own tools do something, and returns what it printed.
    fn ceph(&self, program: &str, args: &[&str]) -> Vec<u8> {
        let done = Command::new(program).arg("-c").arg(&self.conf).args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    }

    /// The same with the objects of a namespace.
    fn rados(&self, namespace: &str, args: &[&str]) -> Vec<u8> {
        self.ceph("rados", &[&["-p", &self.pool, "-N", namespace], args].concat())
    }

    fn names(&self, namespace: &str) -> Vec<String> {
        let listed = String::from_utf8(self.rados(namespace, &["ls"])).unwrap();
        listed.lines().map(str::to_owned).collect()
    }

    fn place(&self, namespace: &str) -> String {
        format!("rados://{}/{namespace}", self.pool)
    }

    fn run(&self, line: &str) -> Ran {
        ran(self.stand.command(line).env("CEPH_CONF", &self.conf))
    }

    /// Runs a line that is to end with this code, and returns what it printed.
    fn ends(&self, code: i32, line: &str) -> String {
        self.run(line).ends(code, line)
    }

    /// Restores all of the newest snapshot and compares it with the source.
    fn assert_restored(&self, at: &str, to: &str) {
        self.ends(0, &format!("restore latest --to {to} {at}"));
        self.stand.assert_source_is_at(to);
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let sure = "--yes-i-really-really-mean-it";
        self.ceph("ceph", &["osd", "pool", "delete", &self.pool, &self.pool, sure]);
    }
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn every_verb_works_on_one_pool() {
    let Some(pooled) = Pooled::new("verbs") else { return };
    pooled.ends(0, &format!("init --member {} --key-file key", pooled.place("host")));
    let at = format!("--store {} --key-file key", pooled.place("host"));
    pooled.ends(0, &format!("backup src {at}"));
    std::fs::write(pooled.stand.path("src/hello"), "hello again\n").unwrap();
    pooled.ends(0, &format!("backup src {at}"));
    assert!(pooled.ends(0, &format!("ls latest {at}")).contains("hello"));
    let dir = pooled.stand.path("src").canonicalize().unwrap();
    let cat = pooled.ends(0, &format!("cat latest:{}/hello {at}", dir.display()));
    assert_eq!(cat, "hello again\n");
    pooled.assert_restored(&at, "out");
    for line in ["find hello", "check --read-data", "scrub", "repair", "key list", "members"] {
        pooled.ends(0, &format!("{line} {at}"));
    }
    pooled.ends(0, &format!("forget --keep-last 1 {at}"));
    pooled.ends(0, &format!("gc --wait 0 {at}"));
    pooled.ends(0, &format!("gc --wait 0 {at}"));
    pooled.ends(0, &format!("check --read-data {at}"));
    pooled.assert_restored(&at, "out2");
    assert!(pooled.names("host/sessions").is_empty(), "all sessions are over");
    // A second store does not take the namespace of one.
    let taken =
        pooled.ends(14, &format!("init --encryption none --member {}", pooled.place("host")));
    assert!(taken.contains("the namespace is not empty"), "{taken}");
    let missing = pooled.run("snapshots --store rados://pinstripe.no-such-pool/host");
    assert_eq!(missing.code, 11, "{}", missing.err);
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn pools_and_a_directory_stand_in_for_each_other() {
    let Some(pooled) = Pooled::new("mixed") else { return };
    let [one, two, three] = ["one", "two", "three"].map(|namespace| pooled.place(namespace));
    let line =
        format!("init --encryption none --parity 1 --member {one} --member {two} --member near");
    // One cluster is one fate.
    assert!(pooled.ends(14, &line).contains("--same-fate"));
    pooled.ends(0, &format!("{line} --same-fate"));
    let at = format!("--store {one}");
    pooled.ends(0, &format!("backup src {at}"));
    pooled.assert_restored(&at, "out");
    // An object that is damaged behind the store's back.
    let extent = pooled.names("two/packs").remove(0);
    let file = pooled.stand.path("object");
    let name = file.to_str().unwrap();
    pooled.rados("two/packs", &["get", &extent, name]);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    pooled.rados("two/packs", &["put", &extent, name]);
    pooled.ends(10, &format!("check --read-data {at}"));
    pooled.assert_restored(&at, "out2");
    pooled.ends(0, &format!("scrub {at}"));
    pooled.ends(0, &format!("check --read-data {at}"));
    // A member that is emptied, and one that takes its place.
    for namespace in ["two", "two/packs", "two/index", "two/snapshots", "two/keys"] {
        for name in pooled.names(namespace) {
            pooled.rados(namespace, &["rm", &name]);
        }
    }
    pooled.assert_restored(&at, "out3");
    pooled.ends(0, &format!("member replace 1 --to {three} --same-fate {at}"));
    pooled.ends(0, &format!("check --read-data {at}"));
    pooled.assert_restored(&format!("--store {three}"), "out4");
}

#[test]
#[ignore = "with --all: it needs a Ceph"]
fn a_pool_at_its_quota_is_forgotten_in_and_collected() {
    let Some(pooled) = Pooled::new("quota") else { return };
    let store = pooled.place("host");
    pooled.ends(0, &format!("init --encryption none --member {store}"));
    let at = format!("--store {store}");
    let change = |seed| {
        let noise = pinstripe_testing::noise(seed, 700_000);
        std::fs::write(pooled.stand.path("src/sub/noise"), noise).unwrap();
    };
    for seed in [2, 3] {
        change(seed);
        pooled.ends(0, &format!("backup src {at}"));
    }
    pooled.ceph("ceph", &["osd", "pool", "set-quota", &pooled.pool, "max_bytes", "1000000"]);
    // The cluster counts now and then, and until it has counted more goes in.
    let refused = (4..40).find_map(|seed| {
        change(seed);
        let ran = pooled.run(&format!("backup src {at}"));
        std::thread::sleep(std::time::Duration::from_secs(1));
        (ran.code != 0).then_some(ran)
    });
    let refused = refused.expect("the quota is reached");
    assert_eq!(refused.code, 1, "{}", refused.err);
    let packs = pooled.names("host/packs").len();
    pooled.ends(0, &format!("forget --keep-last 1 {at}"));
    pooled.ends(0, &format!("gc --wait 0 {at}"));
    assert!(pooled.names("host/packs").len() < packs);
    pooled.ends(0, &format!("check --read-data {at}"));
    pooled.ceph("ceph", &["osd", "pool", "set-quota", &pooled.pool, "max_bytes", "0"]);
}

/// librados is all that it takes; without it the error is another one.
#[test]
#[ignore = "with --all: it waits for 12 s"]
fn a_cluster_that_does_not_answer_is_said_and_not_waited_for() {
    let stand = Stand::new();
    stand.make_tree();
    let conf = stand.path("ceph.conf");
    let text = "[global]\nmon host = v2:127.0.0.1:1\nauth client required = none\n\
                log to stderr = false\nerr to stderr = false\n";
    std::fs::write(&conf, text).unwrap();
    let run = |line: &str| ran(stand.command(line).env("CEPH_CONF", &conf));
    let init = run("init --encryption none --member rados://data/host --member-timeout 1s");
    assert_eq!(init.code, 1, "{}", init.err);
    if init.err.contains("librados2") {
        return pinstripe_testing::not_installed("a_cluster_that_does_not_answer", "librados");
    }
    assert!(init.err.contains("ceph.conf"), "{}", init.err);
    // Beside two directories it is one member that does not answer.
    let made = "init --encryption none --parity 1 --same-disk --member m0 --member m1 --member m2";
    assert_eq!(run(made).code, 0);
    let replaced = run("member replace 2 --to rados://data/host --store m0 --member-timeout 1s");
    assert_eq!(replaced.code, 1, "{}", replaced.err);
    assert_eq!(run("backup src --store m0").code, 0);
}
