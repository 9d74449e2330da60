//! A store behind a server, as its hosts and its administrator use it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::stand::{Ran, Stand, noise, ran, set_home};

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
        // A test that failed while a file system is stopped must end: so must this wait.
        for _ in 0..1000 {
            if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}

/// A command of a host of its own: nothing that it remembers is shared with another host.
pub fn as_host(stand: &Stand, host: &str, line: &str) -> Command {
    let mut command = stand.command(line);
    let home = stand.path(&format!("hosts/{host}"));
    std::fs::create_dir_all(&home).unwrap();
    set_home(&mut command, &home);
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

/// Also by root, for whom the place would be one of the system otherwise.
#[test]
fn a_connection_is_saved_in_the_home_of_the_stand() {
    let stand = Stand::with_store();
    let _server = Serving::start(&stand, LISTEN);
    let connected = stand.run(&format!("connect {}", join(&stand, "ant", "append")));
    assert_eq!(connected.code, 0, "{}", connected.err);
    assert!(stand.path("home/.local/state/pinstripe/connections.json").exists());
    assert!(stand.path("hosts/server/.local/state/pinstripe/serve").exists());
}

#[test]
fn a_host_that_may_only_append_takes_nothing_away() {
    let stand = Stand::with_store();
    // Other files: a part of the host's tree that the server has stored too is not the host's to
    // read, and its backup says so. Whether a part is the same depends on the store's random key.
    std::fs::create_dir(stand.path("other")).unwrap();
    std::fs::write(stand.path("other/file"), noise(9, 50_000)).unwrap();
    done(&stand, "server", "backup other --store m0");
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
