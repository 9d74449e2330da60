//! A store behind a server, as its hosts and its administrator use it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::stand::{Ran, Stand, noise, ran};

/// A running `pinstripe serve`; it ends when this is dropped.
pub struct Serving {
    pub child: Child,
    /// What it prints: a closed one would end it.
    out: BufReader<ChildStdout>,
    pub address: String,
}

impl Serving {
    pub fn start(stand: &Stand, line: &str) -> Serving {
        Self::start_command(as_host(stand, "server", &format!("serve --json {line}")))
    }

    pub fn start_command(mut command: Command) -> Serving {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut first = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut first).unwrap();
        let event: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(event["event"], "serving");
        Serving { child, out, address: event["server"].as_str().unwrap().to_owned() }
    }

    /// The address for hosts.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends SIGTERM, and returns the exit code.
    pub fn terminate(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("\"exit_code\":0"), "{rest}");
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command of a host of its own: nothing that it remembers is shared with another host.
pub fn as_host(stand: &Stand, host: &str, line: &str) -> Command {
    let mut command = stand.command(line);
    let home = stand.path(&format!("hosts/{host}"));
    std::fs::create_dir_all(&home).unwrap();
    command.env("HOME", &home).env("XDG_STATE_HOME", home.join("state"));
    command
}

pub fn run(stand: &Stand, host: &str, line: &str) -> Ran {
    ran(&mut as_host(stand, host, line))
}

/// The join string of a new token.
pub fn join(stand: &Stand, host: &str, role: &str) -> String {
    join_with(stand, host, role, "")
}

/// The join string of a new token with more options.
pub fn join_with(stand: &Stand, host: &str, role: &str, options: &str) -> String {
    let line = format!("token add {host} --role {role} --store m0 --quiet {options}");
    let made = run(stand, "server", &line);
    assert_eq!(made.code, 0, "{}", made.err);
    made.out.trim().to_owned()
}

pub const LISTEN: &str = "--store m0 --listen 127.0.0.1:0";

pub fn done(stand: &Stand, host: &str, line: &str) -> Ran {
    let ran = run(stand, host, line);
    assert_eq!(ran.code, 0, "{host}: {line}\n{}{}", ran.out, ran.err);
    ran
}

pub fn snapshots(stand: &Stand, host: &str, line: &str) -> usize {
    done(stand, host, &format!("snapshots --json {line}")).out.matches("\"snapshot\":\"").count()
}

/// The ids of the snapshots that are listed, oldest first.
fn snapshot_ids(stand: &Stand, store: &str) -> Vec<String> {
    let listed = done(stand, "desk", &format!("snapshots --json --store {store}")).out;
    let parsed = listed.lines().filter_map(|line| serde_json::from_str(line).ok());
    let id = |event: serde_json::Value| Some(event["snapshot"].as_str()?.to_owned());
    parsed.filter_map(id).collect()
}

#[test]
fn two_hosts_back_up_through_a_server_and_restore() {
    let stand = Stand::with_store();
    let server = Serving::start(&stand, LISTEN);
    for (host, role) in [("ant", "append-restore"), ("bee", "append")] {
        done(&stand, host, &format!("connect {}", join(&stand, host, role)));
        let backup = done(&stand, host, "backup src");
        assert_eq!(backup.err, "", "{host}");
        // The second one finds its parent. The tree of the second host may be that of the first
        // one, which it may not read.
        let again = done(&stand, host, "backup src --json").out;
        assert!(host == "bee" || again.contains("\"read_bytes\":0"), "{again}");
    }
    assert_eq!(snapshots(&stand, "ant", ""), 2);
    assert_eq!(snapshots(&stand, "bee", ""), 2);
    done(&stand, "ant", "restore latest --to out");
    stand.assert_source_is_at("out");
    // A join string is a store, without 'connect' before.
    let all = join(&stand, "desk", "admin");
    assert_eq!(snapshots(&stand, "desk", &format!("--store {all}")), 4);
    assert_eq!(server.terminate(), 0);
    assert_eq!(done(&stand, "server", "check --store m0").code, 0);
}

/// The labels stay as they are, although each host reaches the members by places of the server.
#[test]
fn an_administrator_works_through_the_server() {
    let stand = Stand::with_store();
    let labels = || {
        ["m0", "m1", "m2", "m3"]
            .map(|it| std::fs::read(stand.path(it).join("pinstripe.member")).unwrap())
    };
    let before = labels();
    let server = Serving::start(&stand, LISTEN);
    done(&stand, "desk", &format!("connect {}", join(&stand, "desk", "admin")));
    for number in 0..6 {
        std::fs::write(stand.path("src/more"), noise(number, 50_000)).unwrap();
        done(&stand, "desk", "backup src");
    }
    for line in [
        "check --read-data",
        "forget --keep-last 1",
        "undelete latest",
        "forget --keep-last 1",
        "gc",
        "scrub",
        "repair",
        "members",
        "stats",
        "ls latest",
        "backup src",
        "check --read-data",
    ] {
        let ran = done(&stand, "desk", line);
        assert!(!ran.err.contains("warning"), "{line}: {}", ran.err);
    }
    assert!(before == labels());
    drop(server);
    done(&stand, "server", "check --read-data --store m0");
}

#[test]
fn a_host_that_may_only_append_takes_nothing_away() {
    let stand = Stand::with_store();
    done(&stand, "server", "backup src --store m0");
    let _server = Serving::start(&stand, LISTEN);
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append")));
    // More runs than a backup would leave unmerged.
    for number in 0..6 {
        std::fs::write(stand.path("src/more"), noise(number, 50_000)).unwrap();
        assert_eq!(done(&stand, "ant", "backup src").err, "");
    }
    for line in [
        "forget latest",
        "forget --keep-last 1",
        "gc",
        "repair",
        "scrub",
        "upgrade",
        "key add --new-key-file {}/new",
        "member add {}/m9 --same-disk",
        "member remove 1",
        "member rebalance",
    ] {
        let ran = run(&stand, "ant", line);
        assert!(ran.code != 0, "{line}: {}{}", ran.out, ran.err);
    }
    assert_eq!(snapshots(&stand, "server", "--store m0"), 7);
    done(&stand, "server", "check --read-data --store m0");
}

/// A token that sees fewer snapshots than another one does not make the store look older.
#[test]
fn one_machine_may_use_several_tokens_and_the_store_itself() {
    let stand = Stand::with_store();
    let _server = Serving::start(&stand, LISTEN);
    let (one, other) = (join(&stand, "one", "append-restore"), join(&stand, "other", "append"));
    for store in ["m0", &one, &other] {
        done(&stand, "desk", &format!("backup src --store {store}"));
    }
    for (store, all) in [(one.as_str(), 1), ("m0", 3), (&other, 1), ("m0", 3), (&one, 1)] {
        let ran = done(&stand, "desk", &format!("snapshots --store {store}"));
        assert_eq!(ran.err, "", "{store}");
        assert_eq!(snapshots(&stand, "desk", &format!("--store {store}")), all, "{store}");
    }
    // What another machine forgets is missed, and what this one forgets is not.
    let newest = snapshot_ids(&stand, &other).pop().unwrap();
    done(&stand, "server", &format!("forget {newest} --store m0"));
    done(&stand, "server", "gc --store m0");
    let missed = done(&stand, "desk", &format!("snapshots --store {other}"));
    assert!(missed.err.contains("has already seen a newer state"), "{}", missed.err);
    let newest = snapshot_ids(&stand, &one).pop().unwrap();
    done(&stand, "desk", "check --accept-older --store m0");
    done(&stand, "desk", &format!("forget {newest} --store m0"));
    done(&stand, "desk", "gc --store m0");
    assert_eq!(done(&stand, "desk", &format!("snapshots --store {one}")).err, "");
}

#[test]
fn a_wrong_server_and_a_refused_token_have_codes_of_their_own() {
    let stand = Stand::with_store();
    let server = Serving::start(&stand, LISTEN);
    let good = join(&stand, "ant", "append");
    done(&stand, "ant", &format!("connect {good}"));
    let cut = run(&stand, "ant", &format!("connect {}", &good[..good.len() - 3]));
    assert_eq!(cut.code, 2, "{}", cut.err);
    done(&stand, "server", "token revoke ant --store m0");
    let refused = run(&stand, "ant", "snapshots");
    assert_eq!(refused.code, 22, "{}", refused.err);
    assert!(refused.err.contains("was revoked"), "{}", refused.err);
    // The server was set up anew at the same address, with another key.
    let address = server.address.clone();
    drop(server);
    let line = format!("--store m0 --state {{}}/other --listen {address}");
    let _other = Serving::start(&stand, &line);
    let wrong = run(&stand, "ant", "snapshots");
    assert_eq!(wrong.code, 21, "{}", wrong.err);
    assert!(!wrong.out.contains("snapshot"), "{}", wrong.out);
}

#[test]
fn a_server_without_a_member_says_so_and_backups_are_degraded() {
    let stand = Stand::with_store();
    std::fs::rename(stand.path("m2"), stand.path("away")).unwrap();
    let server = Serving::start(&stand, LISTEN);
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
    let degraded = run(&stand, "ant", "backup src");
    assert_eq!(degraded.code, 4, "{}", degraded.err);
    done(&stand, "ant", "restore latest --to out");
    stand.assert_source_is_at("out");
    drop(server);
    std::fs::rename(stand.path("away"), stand.path("m2")).unwrap();
    done(&stand, "server", "repair --store m0");
    done(&stand, "server", "check --store m0");
}

#[test]
fn a_store_spans_three_servers() {
    let stand = Stand::in_memory();
    stand.make_tree();
    let mut servers = Vec::new();
    let mut joins = Vec::new();
    for site in ["x", "y", "z"] {
        let line = format!("--export {{}}/{site} --state {{}}/state-{site} --listen 127.0.0.1:0");
        servers.push(Serving::start(&stand, &line));
        let token = format!("token add ant --role admin --state {{}}/state-{site} --quiet");
        joins.push(done(&stand, "server", &token).out.trim().to_owned());
    }
    for join in &joins {
        done(&stand, "ant", &format!("connect {join}"));
    }
    let members: String = joins.iter().map(|join| format!(" --member {join}")).collect();
    done(&stand, "ant", &format!("init --encryption none --parity 1{members}"));
    done(&stand, "ant", "backup src");
    // One server is away: everything can still be read.
    drop(servers.remove(1));
    let line = "restore latest --to out --member-timeout 1s";
    let restored = run(&stand, "ant", line);
    assert!([0, 4].contains(&restored.code), "{}", restored.err);
    stand.assert_source_is_at("out");
}

#[test]
fn tokens_are_listed_without_their_secrets() {
    let stand = Stand::with_store();
    let early = run(&stand, "server", "token add ant --store m0");
    assert_eq!(early.code, 2, "{}", early.err);
    let made = done(
        &stand,
        "server",
        "token add ant --store m0 --address a.example:7473 --quota 2T --expect 24h",
    );
    let listed = done(&stand, "server", "token list --store m0");
    assert!(listed.out.contains("ant") && listed.out.contains("2.0 TiB"), "{}", listed.out);
    assert!(!listed.out.contains("pst1_") && made.out.contains("pst1_"));
    assert_eq!(run(&stand, "server", "token add ant --store m0 --address a:1").code, 1);
    done(&stand, "server", "token rotate ant --store m0 --address a.example:7473");
    assert_eq!(run(&stand, "server", "token revoke bee --store m0").code, 11);
    done(&stand, "server", "token revoke ant --store m0");
    let listed = done(&stand, "server", "token list --store m0").out;
    assert!(listed.contains("revoked"), "{listed}");
}

/// Waits until a condition holds; panics after a minute, which no machine takes.
pub fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{what}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn write_config(stand: &Stand, text: &str) {
    let dir = stand.path("").canonicalize().unwrap();
    std::fs::write(stand.path("config.toml"), text.replace("{}", dir.to_str().unwrap())).unwrap();
}

/// Jobs run beside a host, a member that is lost is replaced by the spare, and each alarm is sent
/// once. The server needs no command meanwhile.
#[test]
fn the_server_scrubs_and_replaces_a_lost_member_and_sends_alarms() {
    let stand = Stand::with_store();
    write_config(
        &stand,
        "[serve.job.scrub]\nevery = \"1s\"\n[serve.job.gc]\nevery = \"2s\"\n\
         [serve.replace]\nafter = \"1s\"\nspares = [\"{}/spare\"]\nsame-fate = true\n\
         [serve.alarm]\ncommand = [\"/bin/sh\", \"-c\", \"cat >> {}/alarms; echo >> {}/alarms\"]\n",
    );
    let checked = done(&stand, "server", "serve check-config --config config.toml");
    assert!(checked.out.contains("2 jobs, 1 spare, 1 alarm channel"), "{}", checked.out);
    let line = format!("{LISTEN} --state {{}}/state --config config.toml");
    let server = Serving::start(&stand, &line);
    let token = "token add ant --role append-restore --state {}/state --quiet --expect 1h";
    let join = done(&stand, "server", token).out;
    done(&stand, "ant", &format!("connect {}", join.trim()));
    done(&stand, "ant", "backup src");
    let jobs = || std::fs::read_to_string(stand.path("state/jobs.json")).unwrap_or_default();
    let is_good = |job: &str| {
        let jobs: Value = serde_json::from_str(&jobs()).unwrap_or_default();
        jobs["last"][job]["exit_code"] == 0
    };
    await_that("scrub and gc end well", || is_good("scrub") && is_good("gc"));
    std::fs::remove_dir_all(stand.path("m2")).unwrap();
    await_that("the member is replaced", || is_good("replace"));
    // The server finds the new member without a restart.
    let again = || run(&stand, "ant", "backup src").code == 0;
    await_that("a backup is complete again", again);
    // Backups in the meantime were stored without the new member: the next scrub copies them.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let scrubbed = || {
        let jobs: Value = serde_json::from_str(&jobs()).unwrap_or_default();
        jobs["last"]["scrub"]["began_seconds"].as_u64() > Some(now) && is_good("scrub")
    };
    await_that("a later scrub is well", scrubbed);
    done(&stand, "ant", "restore latest --to out");
    stand.assert_source_is_at("out");
    let alarms = || std::fs::read_to_string(stand.path("alarms")).unwrap_or_default();
    await_that("the missing spare is an alarm", || alarms().contains("no spare is left"));
    let alarms = alarms();
    let alarms: Vec<Value> =
        alarms.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (at, alarm) in alarms.iter().enumerate() {
        let same = alarms[..at].iter().rev().find(|it| it["subject"] == alarm["subject"]);
        assert!(same.is_none_or(|it| it["change"] != alarm["change"]), "{alarms:?}");
    }
    drop(server);
    done(&stand, "server", "check --read-data --store m0");
}

/// The page and the metrics show what a scrub of the server found on each member.
#[test]
fn damage_that_a_job_finds_is_shown_with_its_member() {
    let test = "damage_that_a_job_finds_is_shown_with_its_member";
    if Command::new("curl").arg("--version").output().is_err() {
        return pinstripe_testing::not_installed(test, "curl");
    }
    let stand = Stand::with_store();
    done(&stand, "server", "backup src --store m0");
    let packs = stand.path("m1/packs");
    let first = std::fs::read_dir(packs).unwrap().next().unwrap().unwrap().path();
    let pack = std::fs::read_dir(first).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    write_config(&stand, "[serve.job.scrub]\nevery = \"1h\"\n");
    let line = format!("{LISTEN} --state {{}}/state --config config.toml");
    let server = Serving::start(&stand, &line);
    let token = "token add desk --role admin --state {}/state --quiet";
    let admin = done(&stand, "server", token).out;
    let shows = || page(&server.address, admin.trim()).contains("1 found by the last scrub");
    await_that("the page shows the damage", shows);
    let metrics = Command::new("curl")
        .args(["--silent", "--insecure", "--header"])
        .arg(format!("Authorization: Bearer {}", admin.trim()))
        .arg(format!("https://{}/metrics", server.address))
        .output()
        .unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    let damage = |member: u8| {
        let is_it = |line: &&str| {
            line.starts_with("pinstripe_member_damage{")
                && line.contains(&format!("member=\"{member}\""))
        };
        metrics.lines().find(is_it).and_then(|it| it.rsplit(' ').next()).unwrap_or_default()
    };
    assert_eq!([0, 1, 2, 3].map(damage), ["0", "1", "0", "0"], "{metrics}");
    assert!(metrics.contains("pinstripe_scrub_oldest_timestamp_seconds{"), "{metrics}");
}

/// Snapshots have the machine's name; the server knows the token's.
#[test]
fn the_name_of_a_token_and_that_of_its_machine_may_differ() {
    let stand = Stand::with_store();
    let _server = Serving::start(&stand, &format!("{LISTEN} --state {{}}/state"));
    let token = |host: &str, role: &str| {
        let line = format!("token add {host} --role {role} --state {{}}/state --quiet");
        done(&stand, "server", &line).out.trim().to_owned()
    };
    for (host, machine) in [("web1", "alike"), ("web2", "alike")] {
        done(&stand, host, &format!("connect {}", token(host, "append-restore")));
        done(&stand, host, &format!("backup src --host {machine}"));
    }
    // Each token sees its own snapshot.
    assert_eq!([snapshots(&stand, "web1", ""), snapshots(&stand, "web2", "")], [1, 1]);
    done(&stand, "web1", "restore latest --all-hosts --to out");
    stand.assert_source_is_at("out");
    // Snapshots are grouped by the machine's name: those of both tokens are one group.
    let desk = token("desk", "admin");
    let listed = done(&stand, "desk", &format!("snapshots --json --store {desk}")).out;
    assert_eq!(listed.matches("\"host\":\"alike\"").count(), 2, "{listed}");
    let none = run(&stand, "desk", &format!("forget --host web1 --keep-last 1 --store {desk}"));
    assert_eq!(none.code, 11, "{}{}", none.out, none.err);
    done(&stand, "desk", &format!("forget --host alike --keep-last 1 --store {desk}"));
    assert_eq!(snapshots(&stand, "desk", &format!("--store {desk}")), 1);
}

#[test]
fn settings_of_the_server_are_checked_and_read_again() {
    let stand = Stand::with_store();
    let refuse = |text: &str, what: &str| {
        write_config(&stand, text);
        let refused = run(&stand, "server", "serve check-config --config config.toml");
        assert_eq!(refused.code, 2, "{text}: {}", refused.out);
        assert!(refused.err.contains(what), "{text}: {}", refused.err);
    };
    refuse("[serve.job.scrubb]\nevery = \"1d\"\n", "'scrubb' cannot be a job");
    refuse("[serve.job.scrub]\n", "needs the key 'every'");
    refuse("[serve.job.scrub]\nevery = \"often\"\n", "this is not a time");
    refuse("[serve.job.repair]\nevery = \"1d\"\nkey-file = \"/k\"\n", "'key-file'");
    refuse("[serve.replace]\nspares = []\n", "'spares'");
    refuse("[serve.alarm]\nwebhook = \"ftp://x\"\n", "URL");
    refuse("[serve.alarm]\nmial-to = \"x\"\n", "'mial-to'");
    write_config(&stand, "[serve.job.check]\nevery = \"1d\"\nkey-file = \"{}/absent\"\n");
    assert_eq!(run(&stand, "server", "serve check-config --config config.toml").code, 11);
    write_config(&stand, "[serve.alarm]\ncommand = [\"/no/such/program\"]\n");
    assert_eq!(run(&stand, "server", "serve check-config --config config.toml").code, 11);
    // A server uses the file that SIGHUP makes it read, unless the file is damaged.
    write_config(&stand, "");
    let line = format!("{LISTEN} --state {{}}/state --config config.toml");
    let server = Serving::start(&stand, &line);
    let pid = rustix::process::Pid::from_child(&server.child);
    let events = || std::fs::read_to_string(stand.path("state/events.jsonl")).unwrap();
    let reload = |text: &str, event: &str| {
        write_config(&stand, text);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        await_that(event, || events().contains(event));
    };
    reload("[serve]\nodd = 1\n", "did not change");
    reload("[serve.job.repair]\nevery = \"1d\"\n", "job repair: ok");
    assert_eq!(server.terminate(), 0);
}

/// The page as an administrator's script sees it.
pub fn page(address: &str, admin: &str) -> String {
    let curl = |args: &[&str]| {
        let mut command = Command::new("curl");
        let out = command.args(["--silent", "--insecure"]).args(args).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let (url, form) = (format!("https://{address}"), format!("join={admin}"));
    let head = curl(&["--include", "--data", &form, &format!("{url}/login")]);
    let cookie = head.lines().find(|it| it.to_lowercase().starts_with("set-cookie:")).unwrap();
    let cookie = cookie.split_once(':').unwrap().1.split(';').next().unwrap().trim();
    curl(&["--cookie", cookie, &url])
}

/// The walk of an administrator: four directories, three hosts with networks of their own, a lost
/// disk, and a token that is revoked.
#[test]
fn three_hosts_in_networks_of_their_own_survive_a_lost_disk() {
    let test = "three_hosts_in_networks_of_their_own_survive_a_lost_disk";
    if Command::new("curl").arg("--version").output().is_err() {
        return pinstripe_testing::not_installed(test, "curl");
    }
    pinstripe_testing::in_own_networks(test, 3, |networks| {
        let stand = Stand::with_store();
        let server = Serving::start(&stand, "--store m0 --listen 0.0.0.0:7473");
        for (number, network) in networks.iter().enumerate() {
            let host = format!("host{number}");
            let line = format!(
                "token add {host} --store m0 --quiet --address 10.77.{}.1:7473",
                number + 1
            );
            let join = done(&stand, "server", &line).out;
            let mut connect = as_host(&stand, &host, &format!("connect {}", join.trim()));
            let connected = network.within(|| ran(&mut connect));
            assert_eq!(connected.code, 0, "{}", connected.err);
            std::fs::create_dir_all(stand.path(&format!("of-{host}"))).unwrap();
            let bytes = noise(number as u64, 3_000_000);
            std::fs::write(stand.path(&format!("of-{host}/only-on-{host}")), bytes).unwrap();
        }
        let back_up_all = |codes: [i32; 3]| {
            std::thread::scope(|scope| {
                let runs: Vec<_> = networks
                    .iter()
                    .enumerate()
                    .map(|(number, network)| {
                        let host = format!("host{number}");
                        let mut backup = as_host(&stand, &host, &format!("backup src of-{host}"));
                        scope.spawn(move || network.within(|| ran(&mut backup)))
                    })
                    .collect();
                for (ran, code) in runs.into_iter().map(|it| it.join().unwrap()).zip(codes) {
                    assert_eq!(ran.code, code, "{}", ran.err);
                }
            });
        };
        back_up_all([0; 3]);
        let admin = done(
            &stand,
            "server",
            "token add desk --role admin --store m0 --quiet --address 127.0.0.1:7473",
        );
        let (admin, address) = (admin.out.trim(), "127.0.0.1:7473");
        let is_shown = |text: &str| page(address, admin).contains(text);
        await_that("every member is well", || is_shown("Every host and member is as expected."));
        std::fs::remove_dir_all(stand.path("m2")).unwrap();
        await_that("the page shows the lost member", || is_shown("1 member not answering."));
        back_up_all([4; 3]);
        done(&stand, "server", "member replace 2 --to m4 --same-fate --store m0");
        await_that("the new member is served", || {
            is_shown("Every host and member is as expected.")
        });
        done(&stand, "server", "token revoke host0 --store m0");
        back_up_all([22, 0, 0]);
        // The administrator finds and restores a file of the host whose token is revoked.
        let found = done(&stand, "desk", &format!("find only-on-host0 --store {admin} --json"));
        let found = &found.events_of("found")[0];
        let (id, path) = (found["snapshots"][0].as_str().unwrap(), found["path"].as_str().unwrap());
        assert_eq!(snapshots(&stand, "desk", &format!("--store {admin}")), 8);
        done(&stand, "desk", &format!("restore {id}:{path} --to out --store {admin}"));
        let restored = stand.path("out/only-on-host0");
        assert!(std::fs::read(restored).unwrap() == noise(0, 3_000_000));
        assert_eq!(server.terminate(), 0);
        done(&stand, "server", "check --read-data --store m0");
    });
}

/// Idle connections delay no other client, use little memory, and are closed after a deadline.
#[test]
fn ten_thousand_idle_connections_do_not_stop_the_server() {
    const IDLE: u64 = 10_000;
    let files = rustix::process::Resource::Nofile;
    let limit = rustix::process::getrlimit(files);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if limit.maximum.is_some_and(|most| most < IDLE + 1000)
        || rustix::process::setrlimit(files, raised).is_err()
    {
        let test = "ten_thousand_idle_connections_do_not_stop_the_server";
        return pinstripe_testing::skipped(test, "fewer than 11,000 files may be open");
    }
    let stand = Stand::with_store();
    let server = Serving::start(&stand, LISTEN);
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
    let connect = |_| std::net::TcpStream::connect(&server.address).unwrap();
    let idle: Vec<_> = (0..IDLE).map(connect).collect();
    done(&stand, "ant", "backup src");
    let status = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 300 << 10, "{kib} KiB");
    for mut stream in idle.into_iter().step_by(1000) {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let ended = stream.read(&mut [0]);
        let is_reset = |it: &std::io::Error| it.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(is_reset), "{ended:?}");
    }
}

#[test]
fn packs_are_sent_once_and_their_parity_is_computed_by_the_server() {
    let stand = Stand::with_store();
    std::fs::write(stand.path("src/large"), noise(1, 3_000_000)).unwrap();
    let server = Serving::start(&stand, &format!("{LISTEN} --access-log {{}}/log"));
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
    done(&stand, "ant", "backup src");
    let count = |method: &str, part: &str| {
        let log = std::fs::read_to_string(stand.path("log")).unwrap();
        let is_it = |line: &&str| line.contains(&format!("\"{method}\"")) && line.contains(part);
        log.lines().filter(is_it).count()
    };
    assert!(count("POST", "/pack/packs/") > 0 && count("POST", "/pack/index/") > 0);
    assert_eq!(count("PUT", "/extent/packs/") + count("PUT", "/extent/index/"), 0);
    // Content is read back by parts of sets, and rebuilt where the strips are.
    std::fs::remove_dir_all(stand.path("m1/packs")).unwrap();
    done(&stand, "bee", &format!("connect {}", join(&stand, "bee", "admin")));
    done(&stand, "bee", "restore latest --to out");
    stand.assert_source_is_at("out");
    assert!(count("POST", "/fetch") > 0);
    assert_eq!(server.terminate(), 0);
    // A repair by a process that uses the members finds the sets as if it had written them.
    done(&stand, "server", "repair --store m0");
    done(&stand, "server", "check --read-data --store m0");
}

/// The faults below a server: a disk that fails, lies, is cut short, hangs.
#[test]
fn bad_disks_below_a_server_cost_no_data() {
    for fault in [
        "op=append,member=1,after=2,error=EIO",
        "op=put,member=1,error=ENOSPC",
        "op=seal,member=1,after=1,error=EIO",
        "op=read,member=1,flip=3",
        "op=read,member=1,error=EIO",
        "op=append,member=1,torn=100",
        "op=append,member=1,lost=yes",
        "op=list,member=1,error=EIO",
        "op=delete,member=1,error=EROFS",
        "op=any,member=1,after=5,hang=yes",
    ] {
        let stand = Stand::with_store();
        std::fs::write(stand.path("src/large"), noise(1, 2_000_000)).unwrap();
        let line = format!("{LISTEN} --member-timeout 1s --fault {fault}");
        let server = Serving::start(&stand, &line);
        done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
        for _ in 0..2 {
            let ran = run(&stand, "ant", "backup src --member-timeout 2s");
            assert!([0, 4].contains(&ran.code), "{fault}: {}", ran.err);
        }
        let ran = run(&stand, "ant", "restore latest --to out --member-timeout 2s");
        assert!([0, 4].contains(&ran.code), "{fault}: {}", ran.err);
        stand.assert_source_is_at("out");
        drop(server);
        // What the fault left is found and repaired.
        let scrubbed = run(&stand, "server", "scrub --store m0");
        assert_eq!(scrubbed.code, 0, "{fault}: {}{}", scrubbed.out, scrubbed.err);
        done(&stand, "server", "check --read-data --store m0");
    }
}

/// The server is killed at many moments of a backup, and started again at once.
#[test]
fn a_server_that_is_killed_amid_a_backup_loses_no_acknowledged_snapshot() {
    let stand = Stand::with_store();
    let line = format!("{LISTEN} --access-log {{}}/log");
    let mut server = Serving::start(&stand, &line);
    let address = server.address.clone();
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
    let mut taken = 0;
    for kill_after in [1, 2, 3, 5, 8, 12, 20] {
        std::fs::write(stand.path("src/large"), noise(kill_after as u64, 3_000_000)).unwrap();
        let requests = || {
            let log = std::fs::read_to_string(stand.path("log")).unwrap_or_default();
            log.lines().count()
        };
        let before = requests();
        let mut backup = as_host(&stand, "ant", "backup src --member-timeout 20s");
        let ran = std::thread::scope(|scope| {
            let ran = scope.spawn(move || ran(&mut backup));
            while requests() < before + kill_after && !ran.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            let line = format!("--store m0 --listen {address} --access-log {{}}/log");
            server = Serving::start(&stand, &line);
            ran.join().unwrap()
        });
        assert!([0, 4, 18].contains(&ran.code), "{kill_after}: {}{}", ran.out, ran.err);
        taken += usize::from(ran.code != 18);
        let found = snapshots(&stand, "ant", "");
        assert!(found >= taken && found <= taken + 1, "{kill_after}: {found} {taken}");
        taken = found;
        let checked = run(&stand, "server", "check --read-data --store m0");
        assert!([0, 10].contains(&checked.code), "{kill_after}: {}", checked.err);
        assert_eq!(checked.err.matches("lost").count(), 0, "{kill_after}: {}", checked.err);
    }
    done(&stand, "ant", "restore latest --to out");
    done(&stand, "server", "repair --store m0");
    done(&stand, "server", "check --read-data --store m0");
}

#[test]
fn a_port_in_use_and_an_odd_address_are_named() {
    let stand = Stand::with_store();
    let server = Serving::start(&stand, LISTEN);
    let line = format!("serve --store m0 --state {{}}/other --listen {}", server.address);
    let refused = run(&stand, "server", &line);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("another program uses this port"), "{}", refused.err);
    let odd = run(&stand, "server", "serve --store m0 --listen nowhere");
    assert_eq!(odd.code, 2, "{}", odd.err);
}

/// Neither a host whose clock is years ahead nor one whose clock is years behind loses anything,
/// and the server's own clock decides what is overdue.
#[test]
fn hosts_with_wrong_clocks_back_up_through_a_server() {
    let test = "hosts_with_wrong_clocks_back_up_through_a_server";
    let Some(library) = crate::clocks::library() else {
        return pinstripe_testing::not_installed(test, "libfaketime");
    };
    let stand = Stand::with_store();
    let _server = Serving::start(&stand, LISTEN);
    for (host, time) in [("ant", "@2039-01-01 00:00:00"), ("bee", "@2003-01-01 00:00:00")] {
        let wrong = |line: &str| {
            let mut command = as_host(&stand, host, line);
            command.env("LD_PRELOAD", &library).env("FAKETIME", time);
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
            let ran = ran(&mut command);
            assert_eq!(ran.code, 0, "{host} {line}: {}", ran.err);
        };
        wrong(&format!("connect {}", join(&stand, host, "append-restore")));
        wrong("backup src");
        wrong("backup src");
        wrong(&format!("restore latest --to out-{host}"));
        stand.assert_source_is_at(&format!("out-{host}"));
    }
    done(&stand, "server", "gc --store m0");
    assert_eq!(snapshots(&stand, "server", "--store m0"), 4);
    done(&stand, "server", "check --read-data --store m0");
}
