//! Several hosts write one bucket for a while: each is killed now and then, gc runs beside them and is
//! killed too, the way to the server loses answers and refuses what was done, and the server is
//! restarted. What a backup said that it finished is there at the end.
//!
//! `PINSTRIPE_SOAK_SECONDS=N` goes on for so long (`cargo xtask soak buckets` does). Which kill meets
//! which request does not repeat; `pinstripe-bucket/tests/hosts` plays such stories from seeds.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pinstripe_testing::{Fate, KEY_ID, KEY_SECRET, Proxy};
use serde_json::Value;

use crate::buckets::{Cloud, summary};
use crate::stand::{noise, set_home};

const HOSTS: u64 = 4;
/// Files of a source, of which each round writes one anew.
const FILES: u64 = 12;
/// The snapshots of a host that `forget` leaves: as many at least are restored at the end.
const KEPT: usize = 3;

/// How long the test command lets it go on.
const SECONDS: u64 = 6;

fn time() -> Duration {
    let seconds = std::env::var("PINSTRIPE_SOAK_SECONDS").ok();
    Duration::from_secs(seconds.map_or(SECONDS, |it| it.parse().expect("a number of seconds")))
}

/// What the commands of one host told it.
#[derive(Default)]
struct Told {
    finished: u64,
    killed: u64,
    failed: u64,
    /// By snapshot: the content of each file, as the seed of its noise.
    snapshots: BTreeMap<String, BTreeMap<String, u64>>,
}

struct Soak {
    dir: PathBuf,
    store: String,
    end: Instant,
}

/// Numbers that only look like chance, so that each host does something else.
fn draw(host: u64, round: u64, below: u64) -> u64 {
    let bytes = noise(host * 1_000_003 + round, 8);
    u64::from_le_bytes(bytes.try_into().unwrap()) % below
}

impl Soak {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn source(&self, host: u64) -> PathBuf {
        self.dir.join(format!("source{host}"))
    }

    /// A command of a host, which has a home of its own.
    fn start(&self, host: u64, line: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pinstripe"));
        command.args(line.split(' ')).args(["--store", &self.store]).current_dir(&self.dir);
        command.env_clear().env("TZ", "UTC");
        set_home(&mut command, &self.dir.join(format!("home{host}")));
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY_SECRET);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Its output if it ended well; `None` if it was killed or failed.
    fn end(
        &self,
        mut child: Child,
        kill_after: Option<Duration>,
        told: &mut Told,
    ) -> Option<String> {
        if let Some(after) = kill_after {
            sleep(after);
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            None => told.killed += 1,
            Some(0) => {
                told.finished += 1;
                return Some(String::from_utf8(output.stdout).unwrap());
            }
            Some(code) => {
                told.failed += 1;
                // A server that restarts, a lost fence: a backup may fail, and says why.
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(code != 101 && !text.is_empty(), "exit code {code}: {text}");
                println!("exit code {code}: {text}");
            }
        }
        None
    }

    /// Backs up again and again, each time with one file changed.
    fn host(&self, host: u64) -> Told {
        let (mut told, mut content) = (Told::default(), BTreeMap::new());
        fs::create_dir_all(self.source(host)).unwrap();
        for round in 0.. {
            if self.is_over() && round > 0 {
                return told;
            }
            // What was written in the clock tick of a backup is read by the next one, too.
            pinstripe_testing::await_tick();
            let few = if round == 0 { FILES } else { 1 };
            for file in 0..few {
                let name = ((round + file) % FILES).to_string();
                let seed = host << 32 | round << 8 | file;
                fs::write(self.source(host).join(&name), content_of(seed)).unwrap();
                content.insert(name, seed);
            }
            let dies = draw(host, round, 3) == 0;
            let after = dies.then(|| Duration::from_millis(draw(host, round + 7, 900)));
            let child = self.start(host, &format!("backup source{host} --host h{host} --json"));
            if let Some(out) = self.end(child, after, &mut told) {
                let summary = summary(&out);
                let snapshot = summary["snapshot"].as_str().unwrap().to_owned();
                told.snapshots.insert(snapshot, content.clone());
            }
        }
        unreachable!("rounds go on until it is over")
    }

    /// Forgets and collects, and is killed as the others are.
    fn collector(&self) -> Told {
        let mut told = Told::default();
        let host = HOSTS;
        for round in 0.. {
            if self.is_over() {
                return told;
            }
            let kept = format!("forget --keep-last {KEPT} --json");
            let child = self.start(host, &kept);
            self.end(child, None, &mut told);
            let dies = draw(host, round, 3) == 0;
            let after = dies.then(|| Duration::from_millis(draw(host, round + 7, 2000)));
            let child = self.start(host, "gc --wait 2 --json");
            self.end(child, after, &mut told);
        }
        unreachable!("rounds go on until it is over")
    }
}

/// Restores what a host was told of, as far as it was not forgotten, and compares.
fn assert_restored(cloud: &Cloud, soak: &Soak, host: u64, told: &Told, listed: &[Value]) {
    let source = soak.source(host).canonicalize().unwrap();
    for (snapshot, content) in &told.snapshots {
        if !listed.iter().any(|it| it["snapshot"] == **snapshot) {
            continue;
        }
        let to = format!("restored{host}-{snapshot}");
        let wanted = format!("{snapshot}:{}", source.display());
        cloud.done(&format!("restore {wanted} --to {to} --store {}", soak.store));
        for (name, seed) in content {
            let bytes = fs::read(soak.dir.join(&to).join(name)).unwrap();
            assert!(bytes == content_of(*seed), "{snapshot}: {name}");
        }
        fs::remove_dir_all(soak.dir.join(&to)).unwrap();
    }
}

fn content_of(seed: u64) -> Vec<u8> {
    noise(seed, 1000 + 400 * (seed as usize % 700))
}

#[test]
#[ignore = "with --all: it takes 10 s"]
fn hosts_that_die_beside_gc_and_a_server_that_restarts_lose_nothing_finished() {
    let test = "hosts_that_die_beside_gc_and_a_server_that_restarts_lose_nothing_finished";
    let Some(mut cloud) = Cloud::new(test, 1) else { return };
    let mut server = cloud.servers.pop().unwrap();
    let proxy = Proxy::start(server.port());
    let store = server.place_at(proxy.port(), "crowd");
    cloud.done(&format!("init --encryption none --member {store}"));
    let puts = AtomicU64::new(0);
    proxy.rule(move |asked| {
        if asked.method != "PUT" {
            return Fate::Pass;
        }
        match puts.fetch_add(1, Ordering::SeqCst) {
            put if put % 7 == 6 => Fate::DropAnswer,
            put if put % 11 == 10 => Fate::Answer(409, String::new()),
            _ => Fate::Pass,
        }
    });
    let dir = cloud.stand.path("").canonicalize().unwrap();
    let soak = Soak { dir, store, end: Instant::now() + time() };
    let told = Mutex::new(BTreeMap::new());
    let collected = std::thread::scope(|scope| {
        for host in 0..HOSTS {
            let (soak, told) = (&soak, &told);
            scope.spawn(move || told.lock().unwrap().insert(host, soak.host(host)));
        }
        let collector = scope.spawn(|| soak.collector());
        while !soak.is_over() {
            sleep(Duration::from_secs(4));
            server.restart(&[]);
        }
        collector.join().unwrap()
    });
    println!("it was over {:.1} s after its time", soak.end.elapsed().as_secs_f64());
    proxy.rule(|_| Fate::Pass);
    let told = told.into_inner().unwrap();
    let checked = cloud.run(&format!("check --read-data --store {} --json", soak.store));
    let summary = summary(&checked.out);
    let losses = (&summary["lost"], &summary["hurt_snapshots"]);
    assert_eq!(losses, (&0.into(), &0.into()), "{}", checked.err);
    let listed = cloud.done(&format!("snapshots --store {} --json", soak.store));
    let listed: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (host, told) in &told {
        // A backup that was killed when it had ended counts among those that are kept.
        let standing = listed.iter().filter(|it| it["host"] == format!("h{host}")).count();
        assert!(standing >= told.snapshots.len().min(KEPT), "host {host}: {listed:?}");
        assert_restored(&cloud, &soak, *host, told, &listed);
    }
    let sum = |of: fn(&Told) -> u64| told.values().map(of).sum::<u64>();
    println!(
        "{} backups finished, {} killed, {} failed; gc: {} commands ended, {} killed, {} failed",
        sum(|it| it.finished),
        sum(|it| it.killed),
        sum(|it| it.failed),
        collected.finished,
        collected.killed,
        collected.failed
    );
    assert!(sum(|it| it.finished) >= HOSTS, "hardly anything was backed up");
}
