//! Stores in buckets, on a real S3 server: every verb, several endpoints, one of them gone.

use std::process::Command;

use pinstripe_testing::s3::{KEY_ID, KEY_SECRET};
use pinstripe_testing::{Fate, Proxy, S3Server};
use serde_json::Value;

use crate::stand::{Ran, Stand};

/// A stand with S3 servers.
struct Cloud {
    stand: Stand,
    servers: Vec<S3Server>,
}

impl Cloud {
    /// `None` where there is no server to be had.
    fn new(test: &str, servers: usize) -> Option<Cloud> {
        let stand = Stand::new();
        stand.make_tree();
        let start = |number| S3Server::start(test, &stand.path(&format!("server{number}")));
        let servers = (0..servers).map(start).collect::<Option<Vec<_>>>()?;
        Some(Cloud { stand, servers })
    }

    /// A place on a server.
    fn place(&self, server: usize, prefix: &str) -> String {
        let server = &self.servers[server];
        server.place_at(server.port(), prefix)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.stand.command(line);
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY_SECRET);
        command
    }

    fn run(&self, line: &str) -> Ran {
        ran(&mut self.command(line))
    }

    /// Runs a line that is to end well, and returns what it printed.
    fn done(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}\n{}{}", ran.out, ran.err);
        ran.out
    }

    /// Restores all of the newest snapshot and compares it with the source.
    fn assert_restored(&self, store: &str, to: &str) {
        let ran = self.run(&format!("restore latest --to {to} --store {store}"));
        assert!(ran.code == 0 || ran.code == 4, "{}{}", ran.out, ran.err);
        let source = self.stand.path("src").canonicalize().unwrap();
        let restored = self.stand.path(to).join(source.strip_prefix("/").unwrap());
        let compared = Command::new("diff").arg("-r").arg(source).arg(restored).output().unwrap();
        assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().expect("the command is not killed by a signal"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The summary of a run with `--json`.
fn summary(out: &str) -> Value {
    serde_json::from_str(out.lines().last().expect("there is a summary")).unwrap()
}

/// The id of the oldest snapshot listed.
fn first_snapshot(out: &str) -> String {
    let events = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut ids = events.filter_map(|event| event["snapshot"].as_str().map(str::to_owned));
    ids.next().expect("there is a snapshot")
}

#[test]
fn every_verb_works_on_one_bucket() {
    let Some(cloud) = Cloud::new("every_verb_works_on_one_bucket", 1) else { return };
    let port = cloud.servers[0].port();
    // As users write it: a bucket, and the endpoint as an option once.
    cloud.done(&format!(
        "init --member s3://pinstripe/host --endpoint http://127.0.0.1:{port} --key-file key"
    ));
    let store = cloud.place(0, "host");
    let at = format!("--store {store} --key-file key");
    cloud.done(&format!("backup src {at}"));
    std::fs::write(cloud.stand.path("src/hello"), "hello again\n").unwrap();
    cloud.done(&format!("backup src {at}"));
    assert_eq!(cloud.done(&format!("snapshots {at} --json")).matches("\"snapshot\":").count(), 2);
    assert!(cloud.done(&format!("ls latest {at}")).contains("hello"));
    let dir = cloud.stand.path("src").canonicalize().unwrap();
    let cat = cloud.done(&format!("cat latest:{}/hello {at}", dir.display()));
    assert_eq!(cat, "hello again\n");
    cloud.assert_restored(&format!("{store} --key-file key"), "out");
    let first = first_snapshot(&cloud.done(&format!("snapshots {at} --json")));
    assert!(cloud.done(&format!("diff {first} latest {at}")).contains("hello"));
    cloud.done(&format!("find hello {at}"));
    cloud.done(&format!("check --read-data {at}"));
    cloud.done(&format!("scrub {at}"));
    cloud.done(&format!("repair {at}"));
    cloud.done(&format!("key list {at}"));
    cloud.done(&format!("members {at}"));
    cloud.done(&format!("forget --keep-last 1 {at}"));
    cloud.done(&format!("gc --wait 0 {at}"));
    cloud.done(&format!("gc --wait 0 {at}"));
    cloud.done(&format!("check --read-data {at}"));
    cloud.assert_restored(&format!("{store} --key-file key"), "out2");
    // The host remembers it, and its label knows the endpoint: no option is needed any more.
    let files = walk(&cloud.stand.path("server0"));
    assert!(files.iter().all(|bytes| !contains(bytes, KEY_SECRET.as_bytes())));
    let remembered = walk(&cloud.stand.path("home"));
    assert!(remembered.iter().any(|bytes| contains(bytes, b"s3+http://127.0.0.1:")));
    assert!(remembered.iter().all(|bytes| !contains(bytes, KEY_SECRET.as_bytes())));
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// The contents of all files below a directory.
fn walk(dir: &std::path::Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(walk(&entry.path())),
            false => all.push(std::fs::read(entry.path()).unwrap()),
        }
    }
    all
}

#[test]
fn one_of_four_endpoints_may_be_gone() {
    let Some(mut cloud) = Cloud::new("one_of_four_endpoints_may_be_gone", 4) else { return };
    let members: String =
        (0..4).map(|at| format!(" --member {}", cloud.place(at, "host"))).collect();
    cloud.done(&format!("init --encryption none --parity 1{members}"));
    let store = cloud.place(0, "host");
    cloud.done(&format!("backup src --store {store}"));
    cloud.servers[2].stop();
    cloud.assert_restored(&store, "out");
    let backup = cloud.run(&format!("backup src --store {store}"));
    assert_eq!(backup.code, 4, "{}{}", backup.out, backup.err);
    assert!(backup.err.contains("127.0.0.1"), "{}", backup.err);
    // It opens by any member that is there, also when the named one is gone: the host remembers.
    cloud.assert_restored(&cloud.place(2, "host"), "out2");
    // Back again it is brought up to date.
    cloud.servers[2].restart(&[]);
    cloud.done(&format!("repair --store {store}"));
    cloud.done(&format!("check --read-data --store {store}"));
    // Replaced by a directory: a mixed store.
    cloud.servers[1].stop();
    cloud.done(&format!("member replace 1 --to near --store {store}"));
    cloud.assert_restored(&store, "out3");
    cloud.done(&format!("check --read-data --store {}", cloud.stand.path("near").display()));
}

#[test]
fn directories_and_a_bucket_are_one_store() {
    let Some(cloud) = Cloud::new("directories_and_a_bucket_are_one_store", 2) else { return };
    let far = cloud.place(0, "far");
    cloud.done(&format!(
        "init --encryption none --parity 1 --same-disk --member m0 --member m1 --member {far}"
    ));
    cloud.done("backup src --store m0");
    cloud.done(&format!("member add {} --store m0", cloud.place(1, "more")));
    cloud.done("member rebalance --store m0");
    std::fs::write(cloud.stand.path("src/more"), "more").unwrap();
    cloud.done("backup src --store m0");
    cloud.done("member remove 0 --store m1");
    cloud.assert_restored("m1", "out");
    std::fs::remove_dir_all(cloud.stand.path("m1")).unwrap();
    cloud.assert_restored(&far, "out2");
    cloud.done(&format!("member replace 1 --to m2 --same-fate --store {far}"));
    cloud.done(&format!("check --read-data --store {far}"));
}

#[test]
fn one_endpoint_is_one_fate() {
    let Some(cloud) = Cloud::new("one_endpoint_is_one_fate", 1) else { return };
    let (one, two) = (cloud.place(0, "one"), cloud.place(0, "two"));
    let line = format!("init --encryption none --parity 1 --member {one} --member {two}");
    let refused = cloud.run(&line);
    assert_eq!(refused.code, 14, "{}", refused.err);
    assert!(refused.err.contains("--same-fate"), "{}", refused.err);
    cloud.done(&format!("{line} --same-fate"));
    let nested = cloud.run(&format!("member add {one}/in --same-fate --store {one}"));
    assert_eq!(nested.code, 2, "{}", nested.err);
    // A second store does not take a place that has one.
    let taken = cloud.run(&format!("init --encryption none --member {one}"));
    assert_eq!(taken.code, 14, "{}", taken.err);
    assert!(taken.err.contains("a member of a store already"), "{}", taken.err);
}

#[test]
fn what_is_wrong_with_an_endpoint_is_said_without_the_secret() {
    let Some(cloud) = Cloud::new("what_is_wrong_with_an_endpoint_is_said", 1) else { return };
    let store = cloud.place(0, "host");
    let line = format!("init --encryption none --member {store}");
    let no_keys = cloud.stand.run(&line);
    assert_ne!(no_keys.code, 0);
    assert!(no_keys.err.contains("AWS_ACCESS_KEY_ID"), "{}", no_keys.err);
    let mut wrong = cloud.command(&line);
    let wrong = ran(wrong.env("AWS_SECRET_ACCESS_KEY", "aWrongSecret"));
    assert_ne!(wrong.code, 0);
    assert!(wrong.err.contains("SignatureDoesNotMatch"), "{}", wrong.err);
    assert!(!wrong.err.contains("aWrongSecret"));
    let missing = cloud.run(&line.replace("/pinstripe/", "/no-such-bucket/"));
    assert!(missing.err.contains("create the bucket first"), "{}", missing.err);
    let odd = cloud.run("init --encryption none --member s3://pinstripe/../x");
    assert_eq!(odd.code, 2, "{}", odd.err);
    cloud.done(&line);
    let elsewhere = cloud.run(&format!("snapshots --store {}", cloud.place(0, "elsewhere")));
    assert!(elsewhere.err.contains("under this prefix"), "{}", elsewhere.err);
}

/// The file of profiles that other tools share serves several endpoints at once.
#[test]
fn profiles_have_the_keys_of_endpoints() {
    let Some(cloud) = Cloud::new("profiles_have_the_keys_of_endpoints", 2) else { return };
    let mut config = String::new();
    for (number, server) in cloud.servers.iter().enumerate() {
        config += &format!(
            "[profile p{number}]\nendpoint_url = http://127.0.0.1:{}\n\
             aws_access_key_id = {KEY_ID}\naws_secret_access_key = {KEY_SECRET}\n",
            server.port()
        );
    }
    std::fs::create_dir_all(cloud.stand.path("home/.aws")).unwrap();
    std::fs::write(cloud.stand.path("home/.aws/config"), config).unwrap();
    let members: String =
        (0..2).map(|at| format!(" --member {}", cloud.place(at, "host"))).collect();
    let init = cloud.stand.run(&format!("init --encryption none --parity 1{members}"));
    assert_eq!(init.code, 0, "{}", init.err);
    let store = cloud.place(1, "host");
    let mut listed = cloud.stand.command("snapshots");
    let listed = ran(listed.env("PINSTRIPE_STORE", format!("/nowhere:{store}")));
    assert_eq!(listed.code, 0, "{}", listed.err);
    let mut other = cloud.stand.command("snapshots --store s3://pinstripe/host");
    assert_eq!(ran(other.env("AWS_PROFILE", "p0")).code, 0);
}

#[test]
fn requests_are_counted_and_few() {
    let Some(cloud) = Cloud::new("requests_are_counted_and_few", 1) else { return };
    let proxy = Proxy::start(cloud.servers[0].port());
    let store = cloud.servers[0].place_at(proxy.port(), "host");
    cloud.done(&format!("init --encryption none --member {store}"));
    let budget = |line: &str, most: u64| {
        proxy.take_log();
        let out = cloud.done(&format!("{line} --store {store} --json"));
        let log = proxy.take_log();
        let summary = summary(&out);
        let counted: u64 = ["puts", "gets", "lists", "deletes"]
            .iter()
            .map(|class| summary[format!("request_{class}")].as_u64().unwrap())
            .sum();
        assert_eq!(counted, log.len() as u64, "{line}");
        assert!(counted <= most, "{line} made {counted} requests:\n{}", log.join("\n"));
    };
    // A few more than are made, for what depends on which thread is first.
    budget("backup src", 20);
    budget("backup src", 16);
    budget("snapshots", 10);
    budget("ls latest", 12);
    budget("restore latest --to out", 16);
    budget("check", 60);
}

/// Credentials without the right to delete: backups are made, and what stays behind is said.
#[test]
fn a_key_without_the_right_to_delete_backs_up() {
    let Some(cloud) = Cloud::new("a_key_without_the_right_to_delete_backs_up", 1) else { return };
    let proxy = Proxy::start(cloud.servers[0].port());
    let store = cloud.servers[0].place_at(proxy.port(), "host");
    cloud.done(&format!("init --encryption none --member {store}"));
    proxy.rule(|asked| match asked.method == "DELETE" {
        true => Fate::Answer(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
        false => Fate::Pass,
    });
    let backup = cloud.run(&format!("backup src --store {store}"));
    assert_eq!(backup.code, 0, "{}{}", backup.out, backup.err);
    assert!(backup.err.contains("DeleteObject"), "{}", backup.err);
    cloud.assert_restored(&store, "out");
    assert_ne!(cloud.run(&format!("gc --wait 0 --store {store}")).code, 0);
}

#[test]
fn a_commit_survives_lost_answers_and_conflicts() {
    let Some(cloud) = Cloud::new("a_commit_survives_lost_answers_and_conflicts", 1) else { return };
    let proxy = Proxy::start(cloud.servers[0].port());
    let store = cloud.servers[0].place_at(proxy.port(), "host");
    let puts = std::sync::atomic::AtomicU64::new(0);
    proxy.rule(move |asked| {
        if asked.method != "PUT" {
            return Fate::Pass;
        }
        let number = puts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match (number % 7, number % 11) {
            (3, _) => Fate::DropAnswer,
            (_, 5) => Fate::Answer(409, String::new()),
            _ => Fate::Pass,
        }
    });
    cloud.done(&format!("init --encryption none --member {store}"));
    for number in 0..4 {
        std::fs::write(cloud.stand.path("src/hello"), format!("hello {number}\n")).unwrap();
        cloud.done(&format!("backup src --store {store}"));
    }
    cloud.done(&format!("forget --keep-last 2 --store {store}"));
    cloud.done(&format!("gc --wait 0 --store {store}"));
    cloud.done(&format!("check --read-data --store {store}"));
    cloud.assert_restored(&store, "out");
    let listed = cloud.done(&format!("snapshots --store {store} --json"));
    assert_eq!(listed.matches("\"snapshot\":").count(), 2);
}

/// What a provider does to one of three members is found, named and mended.
#[test]
fn damage_behind_the_back_of_a_store_is_mended() {
    let Some(cloud) = Cloud::new("damage_behind_the_back_of_a_store", 3) else { return };
    let members: String =
        (0..3).map(|at| format!(" --member {}", cloud.place(at, "host"))).collect();
    cloud.done(&format!("init --encryption none --parity 1{members}"));
    let store = cloud.place(0, "host");
    cloud.done(&format!("backup src --store {store}"));
    // Every pack of one member is replaced by other bytes, and its snapshots vanish.
    let packs = cloud.servers[1].file("host/packs");
    for shelf in std::fs::read_dir(packs).unwrap().flatten() {
        for pack in std::fs::read_dir(shelf.path()).unwrap().flatten() {
            let bytes = std::fs::metadata(pack.path()).unwrap().len();
            std::fs::write(pack.path(), vec![7; bytes as usize]).unwrap();
        }
    }
    std::fs::remove_dir_all(cloud.servers[1].file("host/snapshots")).unwrap();
    cloud.assert_restored(&store, "out");
    assert_eq!(cloud.run(&format!("check --read-data --store {store}")).code, 10);
    cloud.done(&format!("repair --store {store}"));
    cloud.done(&format!("check --read-data --store {store}"));
    // A label that was copied elsewhere makes no member of the place.
    let label = cloud.servers[1].file("host/pinstripe.member");
    std::fs::create_dir_all(cloud.servers[1].file("copy")).unwrap();
    std::fs::copy(label, cloud.servers[1].file("copy/pinstripe.member")).unwrap();
    let copy = cloud.place(1, "copy");
    let listed = cloud.run(&format!("snapshots --store {copy}"));
    assert!(listed.out.contains("src"), "{}{}", listed.out, listed.err);
    cloud.done(&format!("check --read-data --store {store}"));
}

/// An endpoint that says yes to every writer is no place for a store, and scripts can tell.
#[test]
fn an_endpoint_that_lets_several_win_has_an_exit_code_of_its_own() {
    let Some(cloud) = Cloud::new("an_endpoint_that_lets_several_win", 2) else { return };
    let proxy = Proxy::start(cloud.servers[0].port());
    let store = cloud.servers[0].place_at(proxy.port(), "host");
    proxy.rule(|asked| match asked.method == "PUT" {
        true => Fate::Answer(200, String::new()),
        false => Fate::Pass,
    });
    let line = format!("init --encryption none --member {store}");
    let refused = cloud.run(&line);
    assert_eq!(refused.code, 20, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("one winner"), "{}", refused.err);
    let other = cloud.place(1, "host");
    cloud.done(&format!("init --encryption none --member {other}"));
    let refused = cloud.run(&format!("member add {store} --store {other}"));
    assert_eq!(refused.code, 20, "{}{}", refused.out, refused.err);
    // Nothing was made: the same prefix is taken once the endpoint is sound.
    proxy.rule(|_| Fate::Pass);
    cloud.done(&line);
}
