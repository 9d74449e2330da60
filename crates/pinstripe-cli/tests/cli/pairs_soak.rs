//! The real command, two processes at a time: every verb of the store beside every other one, the
//! first slowed, either of them killed now and then. What a verb reported stays, and what was saved
//! comes back.
//!
//! `PINSTRIPE_SOAK_ROUNDS=N`, `PINSTRIPE_SOAK_SECONDS=N` and `PINSTRIPE_SOAK_FROM=N` choose how many
//! rounds there are, and with which pair they begin (`cargo xtask soak pairs` sets them). Which call
//! of one process meets which of the other does not repeat; the stories of the library play such
//! pairs from seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stand::{Stand, noise};

/// Rounds of the test command.
const ROUNDS: u64 = 6;
/// Rounds with one store: its members and snapshots become more.
const ROUNDS_OF_STORE: u64 = 12;
/// Longer than any verb takes here.
const DEADLINE: Duration = Duration::from_secs(120);
/// Each call of each member takes longer, so that the other verb meets all stages of this one.
const SLOW: &str = "--fault op=any,delay=1ms";
/// Exit codes that any verb may end with beside another one: done, degraded, repairable, busy.
const ALWAYS: [i32; 4] = [0, 4, 10, 18];

/// A verb: its name, its command line, and exit codes that it may end with because of the other one.
struct Verb {
    name: &'static str,
    line: fn(&Soak, u64) -> String,
    codes: &'static [i32],
}

const fn verb(name: &'static str, codes: &'static [i32], line: fn(&Soak, u64) -> String) -> Verb {
    Verb { name, line, codes }
}

const VERBS: &[Verb] = &[
    verb("backup", &[], |_, _| "backup src --json".to_owned()),
    verb("snapshots", &[], |_, _| "snapshots".to_owned()),
    verb("ls", &[11], |soak, pick| format!("ls {}", soak.snapshot(pick))),
    verb("cat", &[11], |soak, pick| format!("cat {}:{{}}/src/0", soak.snapshot(pick))),
    verb("dump", &[11], |soak, pick| format!("dump {}", soak.snapshot(pick))),
    verb("find", &[], |_, _| "find 0".to_owned()),
    verb("history", &[11], |_, _| "history {}/src/0".to_owned()),
    verb("diff", &[11], |soak, pick| {
        format!("diff {} {}", soak.snapshot(pick), soak.snapshot(pick + 1))
    }),
    verb("catalog rebuild", &[], |_, _| "catalog rebuild".to_owned()),
    verb("restore", &[11], |soak, pick| {
        format!("restore {}:{{}}/src --to out-{pick}", soak.snapshot(pick))
    }),
    verb("forget", &[11], |soak, pick| format!("forget {} --allow-empty", soak.snapshot(pick))),
    verb("forget --keep-last", &[], |_, _| "forget --keep-last 2".to_owned()),
    verb("undelete", &[11], |soak, pick| format!("undelete {}", soak.forgotten(pick))),
    verb("tag", &[11], |soak, pick| format!("tag add {} tag-{pick}", soak.snapshot(pick))),
    verb("gc", &[], |_, _| "gc --max-waste 0% --wait 60".to_owned()),
    verb("stats", &[], |_, _| "stats".to_owned()),
    verb("check", &[], |_, _| "check --read-data".to_owned()),
    verb("members", &[], |_, _| "members".to_owned()),
    verb("member add", &[], |_, pick| format!("member add new-{pick} --same-disk")),
    verb("member remove", &[2, 14, 15], |soak, pick| {
        format!("member remove {}", soak.number(pick))
    }),
    verb("member replace", &[2, 14], |soak, pick| {
        format!("member replace {} --to new-{pick} --same-disk", soak.number(pick))
    }),
    verb("member rebalance", &[], |_, _| "member rebalance".to_owned()),
    verb("repair", &[], |_, _| "repair".to_owned()),
    verb("upgrade", &[], |_, _| "upgrade".to_owned()),
    verb("scrub", &[], |_, _| "scrub".to_owned()),
    verb("key list", &[], |_, _| "key list".to_owned()),
    verb("key add", &[], |_, pick| {
        format!("key add --new-password-file pw --kdf-memory 64K --label k{pick}")
    }),
    verb("key remove", &[11, 14], |_, _| "key remove second".to_owned()),
    verb("key rotate", &[14], |_, _| {
        "key rotate --new-password-file pw --kdf-memory 64K".to_owned()
    }),
];

/// Verbs of the command that no round runs, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("init", "there is no store yet"),
    ("mount", "it stays until it is unmounted; the stories of the library play it"),
    ("member merge", "it needs a divided store; the stories of the library play it"),
    ("member", "its verbs are listed one by one"),
    ("key", "its verbs are listed one by one"),
    ("catalog", "its verbs are listed one by one"),
    ("catalog status", "it reads a file of this host"),
    ("overlay hint analyze probe config", "no verbs of a store"),
    ("serve token connect", "the pairs use the store directly; serve.rs tests the server"),
    ("split join verify inspect array record recover play fakevmcore lab", "no verbs of a store"),
    ("completions man help", "they print what the program knows"),
];

/// A snapshot, as far as verbs have reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
    Unsure,
}

struct Soak {
    stand: Stand,
    /// Snapshots by their ids, with the version of the source that they are of.
    kept: BTreeMap<String, (Wanted, u64)>,
    numbers: Vec<u64>,
    places: Vec<String>,
    version: u64,
}

/// One process of a round.
struct Ran {
    name: &'static str,
    line: String,
    /// None if it was killed.
    code: Option<i32>,
    out: String,
    err: String,
}

/// Numbers that only look like chance.
fn draw(seed: u64, what: u64, below: u64) -> u64 {
    u64::from_le_bytes(noise(seed * 31 + what, 8).try_into().unwrap()) % below
}

impl Soak {
    fn new() -> Self {
        let stand = Stand::in_memory();
        fs::write(stand.path("pw"), "x\n").unwrap();
        let members = (0..4).map(|number| format!("m{number}"));
        let places: Vec<String> = members.collect();
        let (kept, numbers) = (BTreeMap::new(), (0..4).collect());
        let mut soak = Soak { stand, kept, numbers, places, version: 0 };
        let members = "--member m0 --member m1 --member m2 --member m3";
        let init = format!("init {members} --parity 1 --same-disk --kdf-memory 64K -q");
        assert_eq!(soak.run_bare(&init).0, Some(0));
        let add = "key add --new-password-file pw --kdf-memory 64K --label second";
        assert_eq!(soak.run(add).0, Some(0));
        for _ in 0..3 {
            soak.change();
            let (code, out, err) = soak.run("backup src --json");
            assert_eq!(code, Some(0), "{err}");
            soak.save(&out);
        }
        let first = soak.kept.keys().next().unwrap().clone();
        assert_eq!(soak.run(&format!("forget {first}")).0, Some(0));
        soak.kept.get_mut(&first).unwrap().0 = Wanted::No;
        soak
    }

    /// Another version of the source, and a copy of it.
    fn change(&mut self) {
        self.version += 1;
        let (src, copy) = (self.stand.path("src"), self.stand.path(&format!("v{}", self.version)));
        for directory in [&src, &copy] {
            fs::create_dir_all(directory).unwrap();
        }
        for file in 0..4 {
            let seed = (self.version - self.version % (file + 1)) * 10 + file;
            let bytes = noise(seed, if file == 0 { 60_000 } else { 3_000 });
            for directory in [&src, &copy] {
                fs::write(directory.join(file.to_string()), &bytes).unwrap();
            }
        }
    }

    fn save(&mut self, out: &str) {
        if let Some(id) = events(out).iter().find_map(|event| event["snapshot"].as_str()) {
            self.kept.insert(id.to_owned(), (Wanted::Yes, self.version));
        }
    }

    fn snapshot(&self, pick: u64) -> &str {
        self.pick(pick, Wanted::Yes)
    }

    fn forgotten(&self, pick: u64) -> &str {
        self.pick(pick, Wanted::No)
    }

    fn pick(&self, pick: u64, wanted: Wanted) -> &str {
        let ids = self.kept.iter().filter(|(_, (it, _))| *it == wanted).map(|(id, _)| id.as_str());
        let ids: Vec<&str> = ids.collect();
        ids.get(pick as usize % ids.len().max(1)).copied().unwrap_or("latest")
    }

    fn number(&self, pick: u64) -> u64 {
        self.numbers[pick as usize % self.numbers.len()]
    }

    /// A command with the password at hand, and every member named.
    fn spawn(&self, line: &str, is_bare: bool) -> Child {
        let there = self.places.iter().filter(|place| self.stand.path(place).exists());
        let stores: Vec<String> = there.map(|place| format!("--store {place}")).collect();
        let stores = if is_bare { String::new() } else { stores.join(" ") };
        let mut command = self.stand.command(&format!("{line} {stores}"));
        let [out, err] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        command.env("PINSTRIPE_PASSWORD", "x").stdout(Stdio::from(out)).stderr(Stdio::from(err));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run_bare(&self, line: &str) -> (Option<i32>, String, String) {
        finish(self.spawn(line, true), None)
    }

    fn run(&self, line: &str) -> (Option<i32>, String, String) {
        finish(self.spawn(line, false), None)
    }

    /// Runs a pair; says what each process said.
    fn round(&mut self, seed: u64, pair: [&'static Verb; 2]) -> [Ran; 2] {
        self.change();
        let lines = [0, 1].map(|at| {
            let slow = if at == 0 { SLOW } else { "" };
            format!("{} {slow}", (pair[at].line)(self, seed * 2 + at as u64))
        });
        // One round in three kills the first or the second one.
        let killed = draw(seed, 1, 6);
        let kill = |at: u64| (killed == at).then(|| Duration::from_millis(draw(seed, 2, 700)));
        let soak = &*self;
        let [first, second] = std::thread::scope(|scope| {
            let first = soak.spawn(&lines[0], false);
            let first = scope.spawn(|| finish(first, kill(0)));
            std::thread::sleep(Duration::from_millis(draw(seed, 3, 500)));
            let second = soak.spawn(&lines[1], false);
            let second = finish(second, kill(1));
            [first.join().unwrap(), second]
        });
        let [line, other] = lines;
        let ran = |name, line, (code, out, err)| Ran { name, line, code, out, err };
        [ran(pair[0].name, line, first), ran(pair[1].name, other, second)]
    }

    /// Takes note of what a verb reported; says what is wrong with its end.
    fn note(
        &mut self,
        ran: &Ran,
        codes: &[i32],
        is_alone_about: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let Some(code) = ran.code else {
            self.be_unsure(ran);
            return None;
        };
        if !ALWAYS.contains(&code) && !codes.contains(&code) {
            self.be_unsure(ran);
            return Some(format!("'{}' ends with {code}: {}", ran.line, ran.err));
        }
        let is_done = matches!(code, 0 | 4);
        match (ran.name, is_done) {
            ("backup", true) => self.save(&ran.out),
            ("forget" | "undelete", true) => {
                let id = ran.line.split(' ').nth(1).unwrap().to_owned();
                let wanted = if ran.name == "forget" { Wanted::No } else { Wanted::Yes };
                let is_sure = is_alone_about(&id);
                if let Some(kept) = self.kept.get_mut(&id) {
                    kept.0 = if is_sure { wanted } else { Wanted::Unsure };
                }
            }
            _ => self.be_unsure(ran),
        }
        None
    }

    /// What a verb was about may be either.
    fn be_unsure(&mut self, ran: &Ran) {
        let is_rule = ran.name == "forget --keep-last";
        if is_rule || ["forget", "undelete", "tag"].contains(&ran.name) {
            let about = |id: &str| is_rule || ran.line.contains(id);
            let kept = self.kept.iter_mut().filter(|(id, _)| about(id));
            kept.for_each(|(_, kept)| kept.0 = Wanted::Unsure);
        }
    }

    /// What must hold after a round; says what does not.
    fn judge(&mut self, reads_data: bool) -> Result<(), String> {
        let (code, out, err) = self.run("members --json");
        let members = events(&out);
        let members = members.iter().filter(|event| event["event"] == "member");
        let members: Vec<_> = members
            .map(|it| (it["member"].as_u64().unwrap(), it["place"].as_str().unwrap().to_owned()))
            .collect();
        expect(code, &[0, 4, 10], "members", &err)?;
        self.numbers = members.iter().map(|(number, _)| *number).collect();
        self.places = members.into_iter().map(|(_, place)| place).collect();
        let (code, out, err) = self.run("snapshots --json");
        expect(code, &[0], "snapshots", &err)?;
        let found = events(&out);
        let found = found.iter().filter(|event| event["event"] == "snapshot");
        let listed: BTreeSet<&str> = found.filter_map(|event| event["snapshot"].as_str()).collect();
        for (id, (wanted, _)) in &self.kept {
            match (wanted, listed.contains(id.as_str())) {
                (Wanted::Yes, false) => return Err(format!("snapshot {id} is gone")),
                (Wanted::No, true) => return Err(format!("forgotten snapshot {id} is listed")),
                _ => {}
            }
        }
        if !reads_data {
            return Ok(());
        }
        let (code, _, err) = self.run("repair");
        expect(code, &[0], "repair", &err)?;
        let (code, _, err) = self.run("check --read-data");
        expect(code, &[0], "check after repair", &err)?;
        let wanted = self.kept.iter().filter(|(_, (wanted, _))| *wanted == Wanted::Yes);
        for (id, (_, version)) in wanted {
            let (code, _, err) = self.run(&format!("restore {id}:{{}}/src --to out"));
            expect(code, &[0], "restore", &err)?;
            let (out, copy) = (self.stand.path("out"), self.stand.path(&format!("v{version}")));
            if content(&out) != content(&copy) {
                return Err(format!("snapshot {id} came back otherwise"));
            }
            fs::remove_dir_all(out).unwrap();
        }
        Ok(())
    }
}

fn expect(code: Option<i32>, codes: &[i32], what: &str, err: &str) -> Result<(), String> {
    let is_right = code.is_some_and(|code| codes.contains(&code));
    if is_right { Ok(()) } else { Err(format!("{what} ends with {code:?}: {err}")) }
}

fn content(directory: &Path) -> BTreeMap<std::ffi::OsString, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

fn events(out: &str) -> Vec<Value> {
    out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits for a process, or kills it after a time, and one that hangs in any case.
fn finish(mut child: Child, kill: Option<Duration>) -> (Option<i32>, String, String) {
    let (began, read) = (Instant::now(), |from: Option<Box<dyn std::io::Read + Send>>| {
        let mut from = from.expect("it is piped");
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = from.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let out = read(child.stdout.take().map(|it| Box::new(it) as _));
    let err = read(child.stderr.take().map(|it| Box::new(it) as _));
    let mut hangs = false;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        hangs = began.elapsed() > DEADLINE;
        if hangs || kill.is_some_and(|kill| began.elapsed() >= kill) {
            let _ = child.kill();
            break child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    let code = if hangs { Some(-1) } else { status.code() };
    (code, out.join().unwrap(), err.join().unwrap())
}

/// What came of the rounds of one first verb.
#[derive(Default)]
struct Row {
    rounds: u64,
    killed: u64,
    codes: BTreeMap<i32, u64>,
    failures: u64,
}

fn number(variable: &str, or: u64) -> u64 {
    std::env::var(variable).ok().map_or(or, |it| it.parse().expect("a number"))
}

#[test]
#[ignore = "with --all: it takes 6 s, and a simulator plays pairs in the gate"]
fn every_verb_beside_every_other_one() {
    let is_soak = std::env::var_os("PINSTRIPE_SOAK_PAIRS").is_some();
    let all = (VERBS.len() * VERBS.len()) as u64;
    let rounds = number("PINSTRIPE_SOAK_ROUNDS", if is_soak { all } else { ROUNDS });
    let end = Instant::now() + Duration::from_secs(number("PINSTRIPE_SOAK_SECONDS", 1 << 20));
    let from = number("PINSTRIPE_SOAK_FROM", 0);
    let mut table: BTreeMap<&str, Row> = BTreeMap::new();
    let (mut soak, mut failures) = (Soak::new(), Vec::new());
    for round in from..from + rounds {
        if Instant::now() > end {
            break;
        }
        if (round - from) % ROUNDS_OF_STORE == ROUNDS_OF_STORE - 1 {
            soak = Soak::new();
        }
        // Neighbours in this order have nothing in common, and each pair comes once.
        let pair = (round * 421 % all) as usize;
        let pair = [&VERBS[pair / VERBS.len()], &VERBS[pair % VERBS.len()]];
        let ran = soak.round(round, pair);
        let row = table.entry(pair[0].name).or_default();
        row.rounds += 1;
        let mut wrong = Vec::new();
        for at in [0, 1] {
            let other = &ran[1 - at];
            let is_alone = |id: &str| {
                !other.line.contains(id) && other.name != "forget --keep-last" && other.name != "gc"
            };
            wrong.extend(soak.note(&ran[at], pair[at].codes, is_alone));
            match ran[at].code {
                None => row.killed += 1,
                Some(code) => *row.codes.entry(code).or_default() += 1,
            }
        }
        let reads_data = round % 4 == 0 || ran.iter().any(|ran| ran.code.is_none());
        wrong.extend(soak.judge(reads_data).err());
        if !wrong.is_empty() {
            row.failures += 1;
            eprintln!(
                "pairs: round {round} FAILED: '{}' | '{}': {wrong:#?}",
                ran[0].line, ran[1].line
            );
            failures.push(round);
            soak = Soak::new();
        }
    }
    print(&table);
    assert!(failures.is_empty(), "rounds {failures:?} failed; one alone: --rounds 1 --from N");
}

fn print(table: &BTreeMap<&str, Row>) {
    println!("| first verb | rounds | killed | exit codes of both | failed |");
    println!("|---|---:|---:|---|---:|");
    for (name, Row { rounds, killed, codes, failures }) in table {
        let codes: Vec<String> =
            codes.iter().map(|(code, count)| format!("{code}: {count}")).collect();
        println!("| {name} | {rounds} | {killed} | {} | {failures} |", codes.join(", "));
    }
}

/// A verb that is added to the command is run beside every other one, or this fails.
#[test]
fn the_pairs_have_every_verb_of_the_command() {
    let stand = Stand::new();
    let listed = |line: &str| -> Vec<String> {
        let help = stand.run(line).out;
        let verbs =
            help.lines().skip_while(|line| !matches!(*line, "Verbs:" | "Commands:")).skip(1);
        let verbs = verbs.take_while(|line| !line.is_empty());
        let names = verbs.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let mut verbs = listed("--help");
    for parent in ["member", "key", "catalog"] {
        verbs.extend(listed(&format!("{parent} --help")).iter().map(|it| format!("{parent} {it}")));
    }
    assert!(verbs.len() > 40, "{verbs:?}");
    let is_run = |verb: &str| VERBS.iter().any(|it| it.name == verb);
    let is_exempt = |verb: &str| {
        NOT_RUN.iter().any(|(names, _)| *names == verb || names.split(' ').any(|it| it == verb))
    };
    let missing: Vec<_> = verbs.iter().filter(|verb| !is_run(verb) && !is_exempt(verb)).collect();
    assert!(missing.is_empty(), "no pair has {missing:?}");
}
