//! Stores in buckets, on a real S3 server: every verb, several endpoints, one of them gone.

use std::process::Command;

use pinstripe_testing::{Fate, KEY_ID, KEY_SECRET, Proxy, S3Server};
use serde_json::Value;

use crate::mount::Mounted;
use crate::stand::{Ran, Stand, ran};

/// A stand with S3 servers.
pub struct Cloud {
    pub stand: Stand,
    pub servers: Vec<S3Server>,
}

impl Cloud {
    /// `None` where there is no server to be had.
    pub fn new(test: &str, servers: usize) -> Option<Cloud> {
        Self::at(Stand::new(), test, servers)
    }

    /// The same on this stand.
    pub fn at(stand: Stand, test: &str, servers: usize) -> Option<Cloud> {
        stand.make_tree();
        let start = |number| S3Server::start(test, &stand.path(&format!("server{number}")));
        let servers = (0..servers).map(start).collect::<Option<Vec<_>>>()?;
        Some(Cloud { stand, servers })
    }

    /// A place on a server.
    pub fn place(&self, server: usize, prefix: &str) -> String {
        let server = &self.servers[server];
        server.place_at(server.port(), prefix)
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = self.stand.command(line);
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY_SECRET);
        command
    }

    pub fn run(&self, line: &str) -> Ran {
        ran(&mut self.command(line))
    }

    /// Runs a line that must end with this code. Returns what it printed.
    #[track_caller]
    pub fn ends(&self, code: i32, line: &str) -> String {
        self.run(line).ends(code, line)
    }

    /// Runs a line that is to end well, and returns what it printed.
    pub fn done(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}\n{}{}", ran.out, ran.err);
        ran.out
    }

    /// Keys in the file of profiles, for commands that are started elsewhere.
    fn write_profile(&self) {
        std::fs::create_dir_all(self.stand.path("home/.aws")).unwrap();
        let text = format!(
            "[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {KEY_SECRET}\n"
        );
        std::fs::write(self.stand.path("home/.aws/config"), text).unwrap();
    }

    /// Restores all of the newest snapshot and compares it with the source.
    pub fn assert_restored(&self, store: &str, to: &str) {
        let ran = self.run(&format!("restore latest --to {to} --store {store}"));
        assert!(ran.code == 0 || ran.code == 4, "{}{}", ran.out, ran.err);
        self.stand.assert_source_is_at(to);
    }
}

/// The summary of a run with `--json`.
pub fn summary(out: &str) -> Value {
    serde_json::from_str(out.lines().last().expect("there is a summary")).unwrap()
}

/// The id of the oldest snapshot listed.
pub fn first_snapshot(out: &str) -> String {
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
#[ignore = "with --all: it waits for 14 s"]
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
    assert!(taken.err.contains("already a member of a store"), "{}", taken.err);
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
    // Of a store that is known here, too: its disks need not be attached.
    let mut wrong = cloud.command(&format!("snapshots --store {store}"));
    let wrong = ran(wrong.env("AWS_SECRET_ACCESS_KEY", "aWrongSecret"));
    assert!(wrong.err.contains("check AWS_ACCESS_KEY_ID"), "{}", wrong.err);
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
    let test = "requests_are_counted_and_few";
    let Some(cloud) = Cloud::at(Stand::apart(), test, 1) else { return };
    let proxy = Proxy::start(cloud.servers[0].port());
    let make_store = |prefix: &str| {
        let store = cloud.servers[0].place_at(proxy.port(), prefix);
        cloud.done(&format!("init --encryption none --member {store}"));
        store
    };
    let store = make_store("host");
    let asked_of = |store: &str, line: &str| {
        proxy.take_log();
        let out = cloud.done(&format!("{line} --store {store} --json"));
        let log = proxy.take_log();
        let summary = summary(&out);
        let counted: u64 = ["puts", "gets", "lists", "deletes"]
            .iter()
            .map(|class| summary[format!("request_{class}")].as_u64().unwrap())
            .sum();
        // A listing that was asked for ahead and not waited for may end with the process, before the
        // proxy has seen it.
        let seen = log.len() as u64;
        assert!((seen..=seen + 1).contains(&counted), "{line}: {counted} counted, {seen} seen");
        log
    };
    let asked = |line: &str| asked_of(&store, line);
    let within = |line: &str, log: &[String], most: usize| {
        assert!(log.len() <= most, "{line} made {} requests:\n{}", log.len(), log.join("\n"));
    };
    let budget = |line: &str, most: usize| within(line, &asked(line), most);
    // Files that were written in the tick of the first backup are looked at once more by the second.
    pinstripe_testing::await_tick();
    // A few more than are made, for what depends on which thread is first.
    budget("backup src", 20);
    budget("backup src", 20);
    let unchanged = cloud.stand.steady(|number| {
        let store = make_store(&format!("unchanged{number}"));
        asked_of(&store, "backup src");
        asked_of(&store, "backup src")
    });
    // The label once more after the snapshot (`left_meanwhile`).
    within("an unchanged backup", &unchanged, 13);
    budget("snapshots", 6);
    budget("ls latest", 6);
    budget("restore latest --to out", 10);
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
    assert_eq!(listed.code, 12, "{}{}", listed.out, listed.err);
    assert!(listed.err.contains("two locations have the label of member 1"), "{}", listed.err);
    cloud.done(&format!("check --read-data --store {store}"));
}

#[test]
fn what_it_costs_is_said_by_the_prices_of_the_config_file() {
    let Some(cloud) = Cloud::new("what_it_costs_is_said", 2) else { return };
    let port = cloud.servers[0].port();
    let prices = |port: u16, name: &str| {
        format!(
            "[price.{name}]\nendpoint = 'http://127.0.0.1:{port}'\ncurrency = 'EUR'\nput = 1000\n\
             get = 1\nlist = 1\ngb-out = 1\ngb-month = 1000\n"
        )
    };
    std::fs::write(cloud.stand.path("prices.toml"), prices(port, "near")).unwrap();
    let (one, two) = (cloud.place(0, "one"), cloud.place(1, "two"));
    cloud.done(&format!("init --encryption none --parity 1 --member {one} --member {two}"));
    let at = format!("--store {one} --config prices.toml");
    let dry = summary(&cloud.done(&format!("backup src --dry-run {at} --json")));
    assert!(dry["cost_once"].as_f64().unwrap() > 1.0, "{dry}");
    // 700 kB at 1000 a GB, all of it on each of two members, of which one has prices.
    let monthly = dry["cost_monthly"].as_f64().unwrap();
    assert!((0.6..0.8).contains(&monthly), "{dry}");
    assert_eq!(dry["price_currency"], "EUR");
    let backup = cloud.run(&format!("backup src {at}"));
    assert!(backup.err.contains("price of the requests of this run: "), "{}", backup.err);
    assert!(backup.err.contains(" EUR; the config file has no prices for http"), "{}", backup.err);
    std::fs::write(cloud.stand.path("src/hello"), "hello again\n").unwrap();
    let made = summary(&cloud.done(&format!("backup src {at} --json")));
    let price = made["request_price"].as_f64().unwrap();
    assert!(price >= 1.0 && price <= made["request_puts"].as_f64().unwrap() + 1.0, "{made}");
    // What a dry run says is no less, also where nothing is new.
    for line in ["backup src", "gc --wait 0"] {
        let dry = summary(&cloud.done(&format!("{line} --dry-run {at} --json")));
        let made = summary(&cloud.done(&format!("{line} {at} --json")));
        let said = |it: &Value, key: &str| it[key].as_f64().unwrap();
        assert!(said(&dry, "cost_once") >= said(&made, "request_price"), "{line}: {dry} {made}");
    }
    assert_eq!(made["price_unknown_endpoints"].as_array().unwrap().len(), 1);
    cloud.done(&format!("forget --keep-last 1 {at}"));
    let gc = summary(&cloud.done(&format!("gc --dry-run --max-waste 0% {at} --json")));
    assert!(gc["cost_once"].as_f64().is_some() && gc["moved_bytes"].as_u64().is_some(), "{gc}");
    std::fs::write(cloud.stand.path("bad.toml"), "[price.near]\nput = 'cheap'\n").unwrap();
    let bad = cloud.run(&format!("snapshots --store {one} --config bad.toml"));
    assert!(bad.code == 2 && bad.err.contains("bad.toml:2"), "{}", bad.err);
}

/// Waiting for bandwidth is longer here than a silent member is waited for.
#[test]
#[ignore = "with --all: it waits for 7 s"]
fn a_limit_of_bandwidth_is_no_silence_of_the_member() {
    let Some(cloud) = Cloud::new("a_limit_of_bandwidth_is_no_silence", 1) else { return };
    let store = cloud.place(0, "host");
    cloud.done(&format!("init --encryption none --member {store}"));
    let slow = "--bandwidth-up 120K --bandwidth-down 120K --member-timeout 3s";
    let began = std::time::Instant::now();
    cloud.done(&format!("backup src --store {store} {slow}"));
    assert!(began.elapsed().as_secs_f64() > 3.5, "{:?}", began.elapsed());
    cloud.assert_restored(&format!("{store} {slow}"), "out");
    assert_eq!(cloud.run(&format!("snapshots --store {store} --bandwidth-up 9")).code, 2);
}

/// Bits that flip on the way, and listings that are those of a while ago.
#[test]
fn wrong_bits_and_stale_listings_are_not_believed() {
    let Some(cloud) = Cloud::new("wrong_bits_and_stale_listings", 1) else { return };
    let proxy = Proxy::start(cloud.servers[0].port());
    let store = cloud.servers[0].place_at(proxy.port(), "host");
    cloud.done(&format!("init --encryption none --member {store}"));
    cloud.done(&format!("backup src --store {store}"));
    proxy.rule(|asked| match asked.method == "GET" && asked.target.contains("/packs/") {
        true => Fate::FlipAnswer,
        false => Fate::Pass,
    });
    let check = cloud.run(&format!("check --read-data --store {store}"));
    assert!(matches!(check.code, 3 | 10), "{}{}", check.out, check.err);
    let restore = cloud.run(&format!("restore latest --to bad --store {store}"));
    assert_ne!(restore.code, 0, "{}", restore.out);
    // A listing of packs from before there were any: the snapshot's packs seem to be missing, and
    // what seems to be missing is not taken for deleted.
    let empty = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>pinstripe</Name>\
                 <IsTruncated>false</IsTruncated></ListBucketResult>";
    proxy.rule(|asked| {
        match asked.target.contains("list-type=") && asked.target.contains("packs") {
            true => Fate::Answer(200, empty.to_owned()),
            false => Fate::Pass,
        }
    });
    cloud.run(&format!("gc --wait 0 --max-waste 0% --store {store}"));
    cloud.run(&format!("backup src --store {store}"));
    proxy.rule(|_| Fate::Pass);
    cloud.done(&format!("check --read-data --store {store}"));
    cloud.assert_restored(&store, "out");
}

#[test]
fn a_bucket_is_shown_by_an_overlay_and_a_store_in_one_by_a_mount() {
    let test = "a_bucket_is_shown_by_an_overlay_and_a_store_in_one_by_a_mount";
    if let Some(obstacle) = crate::fakevmcore::obstacle() {
        return crate::stand::skipped(test, obstacle);
    }
    let Some(cloud) = Cloud::new(test, 1) else { return };
    cloud.write_profile();
    let store = cloud.place(0, "host");
    cloud.done(&format!("init --encryption none --member {store}"));
    cloud.done(&format!("backup src --store {store}"));
    cloud.done(&format!("upgrade --store {store}"));
    let mounted = Mounted::of(&cloud.stand, &format!("mount mnt --store {store}"), "mnt");
    let source = cloud.stand.path("src").canonicalize().unwrap();
    let shown = mounted.place.join("latest").join(source.strip_prefix("/").unwrap());
    for name in ["hello", "sub/noise"] {
        let wanted = std::fs::read(source.join(name)).unwrap();
        assert!(std::fs::read(shown.join(name)).unwrap() == wanted, "{name}");
    }
    assert_eq!(mounted.end(), 0);
    // Objects of others: large ones are read ahead.
    let content = crate::stand::noise(3, 9 << 20);
    std::fs::create_dir_all(cloud.servers[0].file("data/sub")).unwrap();
    std::fs::write(cloud.servers[0].file("data/sub/large"), &content).unwrap();
    std::fs::write(cloud.servers[0].file("data/small"), "small").unwrap();
    let place = cloud.place(0, "data");
    let mounted = Mounted::of(&cloud.stand, &format!("overlay {place} over"), "over");
    assert!(std::fs::read(mounted.place.join("sub/large")).unwrap() == content);
    assert_eq!(std::fs::read(mounted.place.join("small")).unwrap(), b"small");
    let mut names: Vec<_> = std::fs::read_dir(&mounted.place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["small", "sub"]);
    assert!(std::fs::write(mounted.place.join("new"), "new").is_err());
    assert_eq!(mounted.end(), 0);
    let empty = cloud.stand.run(&format!("overlay {} over", cloud.place(0, "nowhere")));
    assert!(empty.err.contains("the key of no object begins with this prefix"), "{}", empty.err);
}

/// A signed request to the bucket of a server, by curl; its answer.
pub fn curl(server: &S3Server, method: &str, target: &str, body: &str) -> String {
    let output = Command::new("curl")
        .args(["-s", "-f", "-m", "20", "-X", method, "--data", body])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u", &format!("{KEY_ID}:{KEY_SECRET}")])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .arg(format!("http://127.0.0.1:{}/pinstripe{target}", server.port()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{method} {target}");
    String::from_utf8(output.stdout).unwrap()
}

/// The texts between two marks.
pub fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).filter_map(|rest| Some(rest.split_once(to)?.0)).collect()
}

/// A thief has the keys of a writer and deletes all there is. In a bucket with versions that makes
/// marks of deletion; when they are removed the store is whole, with what gc deleted before.
#[test]
fn a_store_that_a_thief_deleted_comes_back_with_the_versions() {
    let test = "a_store_that_a_thief_deleted_comes_back_with_the_versions";
    if Command::new("curl").arg("--version").output().is_err() {
        return pinstripe_testing::not_installed(test, "curl");
    }
    let Some(cloud) = Cloud::new(test, 1) else { return };
    let server = &cloud.servers[0];
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    curl(server, "PUT", "?versioning=", enabled);
    let store = cloud.place(0, "host");
    cloud.done(&format!("init --encryption none --member {store}"));
    cloud.done(&format!("backup src --store {store}"));
    std::fs::write(cloud.stand.path("src/hello"), "hello again\n").unwrap();
    cloud.done(&format!("backup src --store {store}"));
    cloud.done(&format!("forget --keep-last 1 --store {store}"));
    cloud.done(&format!("gc --wait 0 --max-waste 0% --store {store}"));
    let listed = curl(server, "GET", "?list-type=2&prefix=host%2F", "");
    let keys = between(&listed, "<Key>", "</Key>");
    assert!(keys.len() > 5, "{listed}");
    keys.iter().for_each(|key| drop(curl(server, "DELETE", &format!("/{key}"), "")));
    assert_eq!(cloud.run(&format!("snapshots --store {store}")).code, 11);

    let versions = curl(server, "GET", "?prefix=host%2F&versions=", "");
    for mark in between(&versions, "<DeleteMarker>", "</DeleteMarker>") {
        let one = |name: &str| between(mark, &format!("<{name}>"), &format!("</{name}>"))[0];
        let target = format!("/{}?versionId={}", one("Key"), one("VersionId"));
        curl(server, "DELETE", &target, "");
    }
    cloud.done(&format!("check --read-data --store {store}"));
    cloud.assert_restored(&store, "out");
    cloud.done(&format!("gc --wait 0 --store {store}"));
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
    assert!(refused.err.contains("one successful writer"), "{}", refused.err);
    let other = cloud.place(1, "host");
    cloud.done(&format!("init --encryption none --member {other}"));
    let refused = cloud.run(&format!("member add {store} --store {other}"));
    assert_eq!(refused.code, 20, "{}{}", refused.out, refused.err);
    // Nothing was made: the same prefix is taken once the endpoint is sound.
    proxy.rule(|_| Fate::Pass);
    cloud.done(&line);
}
