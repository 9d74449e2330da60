//! Real processes: a host that is killed while it backs up through a server, and a server that is
//! killed while a host backs up. A backup that reported a snapshot has made exactly one, a killed one
//! makes at most one, each snapshot restores, and the quota counts what is stored.
//!
//! `PINSTRIPE_SERVE_KILL_SEEDS=FROM..TO` chooses seeds (`cargo xtask soak serve` does). A seed gives
//! sources and moments; which moment meets which request does not repeat.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pinstripe_base::random::{Noise, of_run};
use serde_json::Value;

use crate::serve::{Serving, as_host, await_that, done, run};
use crate::stand::{Stand, assert_same_tree, noise};

/// The versions of the source that one seed backs up.
const VERSIONS: u64 = 2;
/// The kills of each version, before a backup that is left to end.
const KILLS: u64 = 2;
/// Long enough that a host waits for a server that is started again at once.
const PATIENCE: &str = "--member-timeout 30s";
/// The most bytes of an index run whose extents come one by one: it counts as a whole for the quota
/// when the first has come. A pack has more.
const PART_BYTES: u64 = 64 << 10;
/// Exit codes of a host whose server was killed: done, degraded, busy, and failed.
const WITH_A_LOST_SERVER: [i32; 4] = [0, 4, 18, 1];

/// How a backup ended.
enum Ended {
    Killed,
    With(i32),
}

/// A store behind a server, a host, and the snapshots that were reported to the host.
struct Scene {
    stand: Stand,
    server: Serving,
    /// The join string of an administrator.
    admin: String,
    random: Noise,
    version: u64,
    /// The version of the source that each reported snapshot has.
    reported: BTreeMap<String, u64>,
    /// The same for each listed snapshot.
    listed: BTreeMap<String, u64>,
    /// The backups that could not report.
    unreported: u64,
    /// The time that a backup of the first version takes.
    span: Duration,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        println!("seed {seed}: PINSTRIPE_SERVE_KILL_SEEDS={seed}..{}", seed + 1);
        let stand = Stand::with_store();
        let line = "--store m0 --listen 127.0.0.1:0 --state {}/state --access-log {}/log";
        let server = Serving::start(&stand, line);
        let token = |host: &str, options: &str| {
            let line = format!("token add {host} --state {{}}/state --quiet {options}");
            done(&stand, "server", &line).out.trim().to_owned()
        };
        let ant = token("ant", "--role append-restore --quota 4G");
        let admin = token("desk", "--role admin");
        done(&stand, "ant", &format!("connect {ant}"));
        let random = Noise(of_run(seed, 1));
        let (reported, listed) = <(_, _)>::default();
        let (version, unreported, span) = (0, 0, Duration::ZERO);
        let mut scene =
            Scene { stand, server, admin, random, version, reported, listed, unreported, span };
        scene.change_source();
        let began = Instant::now();
        assert!(matches!(scene.back_up(|_, _| ()), Ended::With(0)));
        scene.span = began.elapsed();
        scene.take_list();
        scene
    }

    /// Makes the next version of the source, and keeps a copy.
    fn change_source(&mut self) {
        self.version += 1;
        let bytes = 200_000 + self.random.below(1_000_000);
        let seed = self.random.next();
        fs::write(self.stand.path("src/changed"), noise(seed, bytes as usize)).unwrap();
        let name = format!("src/new-{}", self.version);
        fs::write(self.stand.path(&name), noise(seed ^ 1, 40_000)).unwrap();
        let copied = Command::new("cp")
            .arg("-a")
            .args([self.stand.path("src"), self.copy(self.version)])
            .status();
        assert!(copied.unwrap().success());
    }

    fn copy(&self, version: u64) -> PathBuf {
        self.stand.path(&format!("version-{version}"))
    }

    fn output(&self, of: &str) -> String {
        fs::read_to_string(self.stand.path(of)).unwrap()
    }

    /// A moment of a backup, or soon after its end.
    fn moment(&mut self) -> Duration {
        let share = self.random.below(1000) as f64 / 1000.0;
        self.span.mul_f64(1.1 * share)
    }

    /// Backs up; `meanwhile` may kill the host.
    fn back_up(&mut self, meanwhile: impl FnOnce(&mut Scene, &mut Child)) -> Ended {
        let mut command = as_host(&self.stand, "ant", &format!("backup src --json {PATIENCE}"));
        let file = |name: &str| Stdio::from(File::create(self.stand.path(name)).unwrap());
        let mut child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        meanwhile(self, &mut child);
        let status = child.wait().unwrap();
        let out = self.output("out");
        let events = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let summary = events.into_iter().find(|event| event["event"] == "summary");
        if let Some(snapshot) = summary.as_ref().and_then(|it| it["snapshot"].as_str()) {
            let before = self.reported.insert(snapshot.to_owned(), self.version);
            assert_eq!(before, None, "two backups report the snapshot {snapshot}");
        } else {
            assert!(
                !matches!(status.code(), Some(0 | 4)),
                "a backup that ended well reports: {out}"
            );
            self.unreported += 1;
        }
        match status.code() {
            Some(code) => Ended::With(code),
            None => Ended::Killed,
        }
    }

    fn kill_server(&mut self, down: Duration) {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
        sleep(down);
        let address = self.server.address.clone();
        let line =
            format!("--store m0 --listen {address} --state {{}}/state --access-log {{}}/log");
        self.server = Serving::start(&self.stand, &line);
    }

    /// The snapshots are those that were reported, and at most one for each backup that could not
    /// report.
    fn take_list(&mut self) {
        let out = done(&self.stand, "ant", "snapshots --json").out;
        let events = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let ids: Vec<String> = events
            .filter(|event| event["event"] == "snapshot")
            .map(|event| event["snapshot"].as_str().unwrap().to_owned())
            .collect();
        let mut known = std::mem::take(&mut self.listed);
        for id in ids {
            let version = known.remove(&id).unwrap_or(self.version);
            let before = self.listed.insert(id.clone(), version);
            assert_eq!(before, None, "the snapshot {id} is listed twice");
        }
        assert!(known.is_empty(), "snapshots are lost: {known:?}");
        for (id, version) in &self.reported {
            assert_eq!(self.listed.get(id), Some(version), "{id}");
        }
        let most = self.reported.len() as u64 + self.unreported;
        assert!(self.listed.len() as u64 <= most, "{:?} {:?}", self.listed, self.reported);
    }

    fn assert_all_restore(&self) {
        for (id, version) in &self.listed {
            done(&self.stand, "ant", &format!("restore {id}:{{}}/src --to restored"));
            assert_same_tree(&self.copy(*version), &self.stand.path("restored"));
            fs::remove_dir_all(self.stand.path("restored")).unwrap();
        }
    }

    /// The bytes that count for the quota of a host; `None` without a program that asks the server.
    fn used_bytes(&self, host: &str) -> Option<u64> {
        let header = format!("Authorization: Bearer {}", self.admin);
        let url = format!("https://{}/metrics", self.server.address);
        let mut command = Command::new("curl");
        let asked = command.args(["--silent", "--insecure", "--header", &header, &url]).output();
        let Ok(asked) = asked else {
            pinstripe_testing::not_installed("serve_killed", "curl");
            return None;
        };
        let text = String::from_utf8(asked.stdout).unwrap();
        let label = format!("host=\"{host}\"");
        let is_it =
            |line: &&str| line.starts_with("pinstripe_used_bytes{") && line.contains(&label);
        let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no figure: {text}"));
        line.rsplit(' ').next().unwrap().parse().ok()
    }

    /// The bytes of packs and index on all members.
    fn stored_bytes(&self) -> u64 {
        let members = ["m0", "m1", "m2", "m3"].map(|it| self.stand.path(it));
        members
            .iter()
            .map(|it| bytes_below(&it.join("packs")) + bytes_below(&it.join("index")))
            .sum()
    }

    /// A backup that nothing disturbs.
    fn back_up_undisturbed(&mut self) {
        let ended = self.back_up(|_, _| ());
        assert!(matches!(ended, Ended::With(0)), "{}", self.output("err"));
        self.take_list();
    }

    /// The quota, the end of dead sessions, and what `check` says.
    fn judge(&mut self, seed: u64) {
        let (lost, reported) = (self.unreported, self.reported.len());
        println!("seed {seed}: {lost} without a report, {reported} reported");
        // The server may still be about to see that the last host is gone.
        let is_right = || {
            let stored = self.stored_bytes();
            self.used_bytes("ant").is_none_or(|used| used.abs_diff(stored) < PART_BYTES)
        };
        await_that("the quota counts what is stored", is_right);
        // An index run of which some members have their extents, for example.
        done(&self.stand, "server", "repair --store m0");
        let checked = run(&self.stand, "server", "check --store m0");
        assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
        let admin = self.admin.clone();
        done(&self.stand, "desk", &format!("gc --store {admin}"));
        for member in ["m0", "m1", "m2", "m3"] {
            let left = fs::read_dir(self.stand.path(member).join("sessions")).unwrap().count();
            assert_eq!(left, 0, "sessions of killed processes stay on {member}");
        }
        self.take_list();
        self.assert_all_restore();
        done(&self.stand, "server", "check --read-data --store m0");
    }
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = |path: PathBuf| match path.is_dir() {
        true => bytes_below(&path),
        false => fs::metadata(path).map_or(0, |it| it.len()),
    };
    entries.map(|entry| bytes(entry.path())).sum()
}

fn seeds() -> std::ops::Range<u64> {
    pinstripe_testing::chosen_seeds("PINSTRIPE_SERVE_KILL_SEEDS", 0..3)
}

/// A host is killed, runs again, and is killed again, until one run ends.
fn kill_a_host(seed: u64) {
    let mut scene = Scene::new(seed);
    for _ in 0..VERSIONS {
        scene.change_source();
        for _ in 0..KILLS {
            let moment = scene.moment();
            scene.back_up(|_, child| {
                sleep(moment);
                child.kill().unwrap();
            });
            scene.take_list();
        }
        scene.back_up_undisturbed();
    }
    scene.judge(seed);
}

/// The server is killed and started again while a host backs up; the host then backs up once more.
fn kill_a_server(seed: u64) {
    let mut scene = Scene::new(seed);
    for _ in 0..VERSIONS {
        scene.change_source();
        for _ in 0..KILLS {
            let (moment, down) = (scene.moment(), scene.random.below(300));
            let ended = scene.back_up(|scene, _| {
                sleep(moment);
                scene.kill_server(Duration::from_millis(down));
            });
            let is_known = matches!(ended, Ended::With(code) if WITH_A_LOST_SERVER.contains(&code));
            assert!(is_known, "{}", scene.output("err"));
            scene.take_list();
        }
        scene.back_up_undisturbed();
    }
    scene.judge(seed);
}

#[test]
fn a_host_that_is_killed_and_runs_again_makes_one_snapshot_for_each_report() {
    seeds().for_each(kill_a_host);
}

#[test]
fn a_host_whose_server_is_killed_makes_one_snapshot_for_each_report() {
    seeds().for_each(kill_a_server);
}
