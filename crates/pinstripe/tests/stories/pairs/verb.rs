//! The verbs of the store: the list from which all pairs are made.
//!
//! Invariant: each operation of the library that opens a store is one of these, or is listed in
//! [`NOT_PLAYED`] with the reason. A test compares both with the sources of the library.

use std::collections::BTreeSet;

use pinstripe::beside::{self, VerbRole};

/// What a verb does to the store, as far as that decides what may happen beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It reads.
    Reader,
    /// It writes, and runs beside other writers.
    Writer,
    /// It moves or rewrites what is stored: one process at a time.
    Mover,
    /// It changes the keys.
    Key,
}

macro_rules! verbs {
    ($($verb:ident $class:ident $name:literal $operation:literal)+) => {
        /// A verb.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Verb { $($verb),+ }

        impl Verb {
            /// Every verb.
            pub const ALL: &[Verb] = &[$(Verb::$verb),+];

            pub fn name(self) -> &'static str {
                match self { $(Verb::$verb => $name),+ }
            }

            /// The operation of the library: the module in `ops`, and the function in it.
            pub fn operation(self) -> &'static str {
                match self { $(Verb::$verb => $operation),+ }
            }

            pub fn class(self) -> Class {
                match self { $(Verb::$verb => Class::$class),+ }
            }
        }
    };
}

verbs! {
    Backup Writer "backup" "backup::run"
    Resume Writer "backup, resumed" "backup::run"
    Stream Writer "backup of a stream" "backup::run_stream"
    Restore Reader "restore" "restore::run"
    Preview Reader "restore --dry-run" "preview::run"
    Survey Reader "backup --dry-run" "backup::survey"
    Ls Reader "ls" "ls::run"
    Cat Reader "cat" "cat::run"
    Dump Reader "dump" "dump::run"
    Diff Reader "diff" "diff::run"
    Find Reader "find" "find::run"
    History Reader "history" "history::run"
    Catalog Reader "catalog" "catalog::rebuild"
    Mount Reader "mount" "mount::new"
    Snapshots Reader "snapshots" "snapshots::run"
    Seen Reader "seen" "seen::compare"
    Stats Reader "stats" "stats::run"
    Members Reader "members" "members::run"
    Check Reader "check" "check::run"
    Forget Writer "forget" "forget::run"
    ForgetByRule Writer "forget by rule" "forget::run"
    Undelete Writer "undelete" "forget::undelete"
    Gc Writer "gc" "gc::run"
    Scrub Writer "scrub" "scrub::run"
    ScrubStatus Reader "scrub --status" "scrub::status"
    Repair Mover "repair" "repair::run"
    Upgrade Mover "upgrade" "upgrade::run"
    KeyList Reader "key list" "key::list"
    KeyAdd Key "key add" "key::add"
    KeyRemove Key "key remove" "key::remove"
    KeyRotate Key "key rotate" "key::rotate"
    MemberAdd Mover "member add" "member::add"
    MemberRemove Mover "member remove" "member::remove"
    ReplaceLiving Mover "replace living" "member::replace"
    ReplaceDead Mover "replace dead" "member::replace"
    Rebalance Mover "rebalance" "member::rebalance"
    Merge Writer "member merge" "member::merge"
    Tag Writer "tag" "tag::run"
}

/// Operations that no story plays, and why.
const NOT_PLAYED: [(&str, &str); 18] = [
    ("gc::preview", "changes nothing: it is the dry run of a gc"),
    ("analyze", "it opens no store"),
    ("init", "there is no store yet"),
    ("join", "it reads the outputs of a split"),
    ("split", "it writes the outputs of a split"),
    ("select", "a helper of other operations"),
    ("backup::exclude_members", "a part of backup"),
    ("backup::refuse_members", "a part of backup"),
    ("backup::run_unless_unchanged", "a part of backup: `run` calls it"),
    ("check::judge", "a part of check"),
    ("members::redundancy", "a part of members, stats and check"),
    ("snapshots::all", "a part of undelete and of `snapshots --all`"),
    ("forget::forget_damaged", "only for a snapshot that no member has whole"),
    ("gc::fence", "only for a session of another host: the stress test plays it"),
    ("catalog::current", "a part of find and history"),
    ("catalog::searched", "a part of find and history"),
    ("catalog::status", "it reads a file of this host and lists one room"),
    ("shared", "it reads the store and writes to a database of a server"),
];

/// Readers that the library's table of what may run beside what does not list by themselves.
const LISTED_AS_READERS: [Verb; 3] = [Verb::Survey, Verb::Seen, Verb::ScrubStatus];

impl Verb {
    /// Its name in the library's table of what may run beside what.
    fn name_beside(self) -> &'static str {
        match self {
            Verb::Resume | Verb::Stream => "backup",
            Verb::Preview => "restore",
            Verb::ForgetByRule => "forget",
            Verb::ReplaceLiving | Verb::ReplaceDead => "member replace",
            Verb::Rebalance => "member rebalance",
            _ => self.name(),
        }
    }

    /// What it puts on the members while it works.
    pub fn role(self) -> VerbRole {
        let found = beside::VERBS.iter().find(|(name, _)| *name == self.name_beside());
        found.map_or(VerbRole::Reader, |(_, role)| *role)
    }

    /// All ordered pairs, by number.
    pub const PAIRS: u64 = (Self::ALL.len() * Self::ALL.len()) as u64;

    /// The pair of a number: the verb that begins, and the one beside it.
    pub fn pair(number: u64) -> [Verb; 2] {
        let (number, all) = ((number % Self::PAIRS) as usize, Self::ALL);
        [all[number / all.len()], all[number % all.len()]]
    }

    pub fn writes(self) -> bool {
        self.class() != Class::Reader
    }
}

/// The public functions of a source file that take a store.
fn functions(module: &str, source: &str) -> BTreeSet<String> {
    let begins = source.match_indices("\npub fn ").map(|(at, found)| &source[at + found.len()..]);
    let taking = begins.filter_map(|rest| {
        let (name, arguments) = rest.split_once('(')?;
        let (arguments, _) = arguments.split_once("{\n")?;
        let name = name.split_once('<').map_or(name, |(name, _)| name);
        arguments.contains("Store").then(|| format!("{module}::{name}"))
    });
    taking.collect()
}

fn operations() -> BTreeSet<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
    let read = |name: &std::path::Path| std::fs::read_to_string(name).unwrap();
    let mut found = BTreeSet::new();
    for line in read(&root.join("mod.rs")).lines() {
        let Some(module) = line.strip_prefix("pub mod ").and_then(|it| it.strip_suffix(';')) else {
            continue;
        };
        let (file, folder) = (root.join(format!("{module}.rs")), root.join(module));
        let mut files = vec![file];
        if folder.is_dir() {
            files.extend(std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()));
        }
        let files = files.iter().filter(|file| file.is_file());
        found.extend(files.flat_map(|file| functions(module, &read(file))));
    }
    found
}

/// A verb that is added to the library is played beside every other one, or this fails.
#[test]
fn the_stories_play_every_operation_of_the_library() {
    let played: BTreeSet<&str> = Verb::ALL.iter().map(|verb| verb.operation()).collect();
    let is_exempt = |operation: &str| {
        let module = operation.split("::").next().unwrap();
        NOT_PLAYED.iter().any(|(name, _)| *name == operation || *name == module)
    };
    let found = operations();
    let missing: Vec<_> = found
        .iter()
        .filter(|operation| !played.contains(operation.as_str()) && !is_exempt(operation))
        .collect();
    assert!(missing.is_empty(), "no story plays {missing:?}");
    // `mount` is a type.
    let made_up: Vec<_> =
        played.iter().filter(|it| !found.contains(**it) && **it != "mount::new").collect();
    assert!(made_up.is_empty(), "the library does not have {made_up:?}");
}

/// The table of what may run beside what lists no verb that is not played, and the other way round.
#[test]
fn the_stories_play_every_verb_of_the_documented_table() {
    let played: BTreeSet<&str> = Verb::ALL
        .iter()
        .filter(|verb| !LISTED_AS_READERS.contains(verb))
        .map(|verb| verb.name_beside())
        .collect();
    let documented: BTreeSet<&str> = beside::VERBS.iter().map(|(name, _)| *name).collect();
    assert_eq!(played, documented);
}

#[test]
fn every_ordered_pair_has_a_number() {
    let pairs: std::collections::BTreeSet<[Verb; 2]> = (0..Verb::PAIRS).map(Verb::pair).collect();
    assert_eq!(pairs.len() as u64, Verb::PAIRS);
}

/// The table of pairs in doc/measured.md has a row and a column for each verb, and no empty cell.
#[test]
fn the_measured_table_lacks_no_pair() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/measured.md");
    let page = std::fs::read_to_string(path).unwrap();
    let table: Vec<Vec<&str>> = page
        .lines()
        .skip_while(|line| !line.starts_with("| began | 1 | 2 |"))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let names: Vec<String> =
        (1..).zip(Verb::ALL).map(|(number, verb)| format!("{number} {}", verb.name())).collect();
    let measured: Vec<&str> = table.iter().skip(2).map(|row| row[0]).collect();
    assert_eq!(measured, names);
    for row in &table[2..] {
        let runs = &row[1..row.len() - 1];
        assert_eq!(runs.len(), names.len(), "{}", row[0]);
        assert!(runs.iter().all(|runs| runs.parse::<u64>().unwrap() > 0), "{}", row[0]);
    }
}
