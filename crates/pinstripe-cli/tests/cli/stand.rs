//! The stand of a test: a directory of its own, the command run in it, and its output.

pub use pinstripe_testing::{noise, skipped};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;

/// How often `Stand::steady` begins again before it gives up.
const STEADY_TRIES: usize = 16;

/// A directory with a home in it, and the transcript of what was run.
pub struct Stand {
    dir: TempDir,
    transcript: RefCell<String>,
}

/// The outcome of a run.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Stand {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Stand { dir, transcript: RefCell::default() }
    }

    /// A stand beside which no other test makes directories all the time: those above it stand in the
    /// tree of each backup.
    pub fn apart() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Stand { dir, transcript: RefCell::default() }
    }

    /// A stand in memory where there is such a place, for tests that write the same again and
    /// again: none of it waits for a disk.
    pub fn in_memory() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Stand { dir, transcript: RefCell::default() }
    }

    /// Calls `act` with 0, 1, 2 and so on until no directory above the stand changed during a call,
    /// and returns what that call gave: a backup has those directories in its tree, and other tests
    /// make theirs in them. The number lets each call begin with a store of its own: runs of an index
    /// that earlier calls left would be merged by a later one, which takes requests.
    pub fn steady<T>(&self, mut act: impl FnMut(usize) -> T) -> T {
        let above = || -> Vec<_> {
            let looks = self.dir.path().ancestors().skip(1).map(|it| fs::metadata(it).unwrap());
            looks.map(|it| (it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec())).collect()
        };
        for number in 0..STEADY_TRIES {
            let before = above();
            let done = act(number);
            if above() == before {
                return done;
            }
        }
        panic!("the directories above {} change all the time", self.dir.path().display());
    }

    /// A stand in memory with a tree `src` and a store of four members `m0` to `m3`, of which one
    /// may be lost.
    pub fn with_store() -> Self {
        let stand = Stand::in_memory();
        stand.make_tree();
        stand.make_store();
        stand
    }

    /// A store of four members `m0` to `m3`, of which one may be lost.
    pub fn make_store(&self) {
        let line = "init --encryption none --member m0 --member m1 --member m2 --member m3 --parity 1 --same-disk --quiet";
        assert_eq!(self.run(line).code, 0);
    }

    /// A small tree of files, a directory, a symlink and a hard link.
    pub fn make_tree(&self) {
        let src = self.path("src");
        fs::create_dir_all(src.join("sub")).unwrap();
        fs::write(src.join("hello"), "hello\n").unwrap();
        fs::write(src.join("sub/noise"), noise(1, 700_000)).unwrap();
        fs::write(src.join("sub/empty"), "").unwrap();
        std::os::unix::fs::symlink("sub/noise", src.join("link")).unwrap();
        fs::hard_link(src.join("hello"), src.join("sub/hello again")).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Whether strips are being written on a member: anything smaller is a session.
    pub fn is_being_filled(&self, member: &str) -> bool {
        let files = fs::read_dir(self.path(member).join("tmp")).into_iter().flatten().flatten();
        files.flat_map(|file| file.metadata()).any(|file| file.len() >= 4096)
    }

    /// The command with nothing in its environment but directories of a home. `{}` in the line is the stand's
    /// directory.
    pub fn command(&self, line: &str) -> Command {
        if line.starts_with("backup") {
            // What was made in the clock tick in which a backup begins is read again by the next
            // one, and would count as changed: let the tick pass.
            pinstripe_testing::await_tick();
        }
        let dir = self.dir.path().canonicalize().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pinstripe"));
        command
            .args(line.split_whitespace().map(|word| word.replace("{}", dir.to_str().unwrap())))
            .env_clear()
            .env("TZ", "UTC")
            .current_dir(&dir)
            .stdin(Stdio::null());
        set_home(&mut command, &dir.join("home"));
        if ["array", "mount", "overlay"].iter().any(|verb| line.starts_with(verb)) {
            // Their tests look for what is served there.
            command.env("XDG_STATE_HOME", dir.join("state"));
            command.env("XDG_RUNTIME_DIR", dir.join("run"));
        }
        command
    }

    pub fn run(&self, line: &str) -> Ran {
        ran(&mut self.command(line))
    }

    /// Compares what was restored below a directory with the source.
    pub fn assert_source_is_at(&self, to: &str) {
        let source = self.path("src").canonicalize().unwrap();
        let restored = self.path(to).join(source.strip_prefix("/").unwrap());
        let compared = Command::new("diff").arg("-r").arg(source).arg(restored).output().unwrap();
        assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    }

    /// Runs a line and adds it to the transcript with all that it said.
    pub fn tell(&self, line: &str) -> Ran {
        let ran = self.run(line);
        let mut told = self.transcript.borrow_mut();
        *told += &format!("$ pinstripe {line}\n");
        *told += &ran.out;
        *told += &ran.err;
        *told += &format!("exit {}\n\n", ran.code);
        ran
    }

    /// Adds something that the test did between two commands.
    pub fn act(&self, what: &str, act: impl FnOnce()) {
        act();
        *self.transcript.borrow_mut() += &format!("# {what}\n\n");
    }

    /// Holds the transcript against the one that is kept, without what differs from run to run.
    pub fn assert(&self, name: &str) {
        let dir = self.dir.path().canonicalize().unwrap();
        let told = self.transcript.borrow().replace(dir.to_str().unwrap(), "[DIR]");
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        for (pattern, instead) in VOLATILE {
            settings.add_filter(pattern, *instead);
        }
        settings.bind(|| insta::assert_snapshot!(name, told));
    }
}

/// The parts that differ from run to run.
const VOLATILE: &[(&str, &str)] = &[
    (r"(packs/)[0-9a-f]{2}/[0-9a-f]{32}", "$1[ID]"),
    (r"\b[0-9a-f]{32}\b", "[ID]"),
    (r"\b[0-9a-f]{8}(?::[0-9a-f]{8}){3}\b", "[ID]"),
    (r"\b(snapshot|store|slot) [0-9a-f]{8}\b", "$1 [SHORT]"),
    (r"(?m)^[0-9a-f]{8}  ", "[SHORT]   "),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "[TIME]"),
    (
        r"(\[TIME\]|  -) +((?:first|content|metadata|gone) +)?[0-9a-f]{8}(?:\.\.[0-9a-f]{8})?\b",
        "$1 $2[SHORT]",
    ),
    // The directories above a stand are others' to change, and make versions of their own.
    (
        r"\d+ versions of paths in \d+ directories",
        "[COUNT] versions of paths in [COUNT] directories",
    ),
    (r"(catalog\.sqlite has) [\d.]+ KiB", "$1 [SIZE]"),
    (r"\bin [\d.]+ s\b", "in [SPAN]"),
    // The defaults are chosen by measuring, and stand in the help.
    (r"strip size \S+ \S+, chunk size \S+, codec \S+,", "[SETTINGS]"),
    (r"[\d.]+ MB/s", "[RATE]"),
    (r"[\d.]+ [KM]iB of [\d.]+ [KM]iB", "[SIZE] of [SIZE]"),
    (r"(?m)^((?:never|within).*  )[\d.]+ [KM]iB  ([\d. %]+)$", "$1[SIZE]  $2"),
    (
        r"[\d.]+ \w+ after compression, [\d.]+ \w+ written",
        "[SIZE] after compression, [SIZE] written",
    ),
    // Small trees have few strips: whether the lost ones held data is a matter of chance.
    (r"(?m)^rebuilt .* strips? from parity\n", ""),
    (r"(\d|), [\d.]+ [KM]iB (in|read)", "$1, [SIZE] $2"),
    (r"(snapshots? with) [\d.]+ [KM]iB of data", "$1 [SIZE] of data"),
    // So it is which of them a member has to begin with.
    (r"(?m)^(rebuilt|moved) \d+ extents? ", "$1 [COUNT] extents "),
    // How much is free decides how wide the table is.
    (r"(?m)^( +\d+  present) .*  (\S+)$", "$1 [..] $2"),
    (r"(?m)^( +\d+  absent)  .*?  (\[DIR\])", "$1 [..] $2"),
    (r"(?m)^member  state .*  place$", "member  state [..] place"),
    (r"(moved \d+ extents?), [\d.]+ [KM]iB", "$1, [SIZE]"),
    (r"(the array 'pool' \()[0-9a-f]{8}", "$1[SHORT]"),
    (r"the same disk \(.*?\) as", "the same disk ([DISK]) as"),
    (r"(?m)^(-|l)([rwxsStT-]{9}) +(\d+) +\d+ +\d+ +(\d+) ", "$1$2 $3 [OWNER] $4 "),
    (r"(?m)^d([rwxsStT-]{9}) +\d+ +\d+ +\d+ +\d+ ", "d$1 [OWNER] "),
];

/// Sets every variable by which a command finds a directory that its line does not name. For root,
/// some of these directories are the system's if no variable is set.
pub fn set_home(command: &mut Command, home: &Path) {
    const BELOW: [(&str, &str); 5] = [
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_RUNTIME_DIR", "run"),
    ];
    command.env("HOME", home);
    for (variable, below) in BELOW {
        command.env(variable, home.join(below));
    }
}

/// Runs a command that is not killed.
pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().expect("the command is not killed by a signal"),
        out: String::from_utf8(output.stdout).expect("only UTF-8 is printed"),
        err: String::from_utf8(output.stderr).expect("only UTF-8 is printed"),
    }
}

/// Sends SIGINT to a running command.
pub fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[track_caller]
pub fn assert_ends(ran: &Ran, code: i32, part: &str) {
    assert_eq!(ran.code, code, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains(part), "{part}: {}", ran.err);
}

impl Ran {
    /// Expects that the line ended with this code. Returns what it printed.
    #[track_caller]
    pub fn ends(self, code: i32, line: &str) -> String {
        assert_eq!(self.code, code, "{line}\n{}{}", self.out, self.err);
        self.out + &self.err
    }

    /// The lines of standard output as events, in order.
    ///
    /// # Panics
    /// When a line is no object with an event, or the last is not the one summary.
    pub fn events(&self) -> Vec<Value> {
        let parse = |line| -> Value {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_documented(&event);
            event
        };
        let events: Vec<_> = self.out.lines().map(parse).collect();
        let summaries = events.iter().filter(|event| event["event"] == "summary").count();
        assert_eq!(summaries, 1, "{}", self.out);
        assert_eq!(events.last().unwrap()["event"], "summary", "{}", self.out);
        assert_eq!(events.last().unwrap()["exit_code"], self.code, "{}", self.out);
        events
    }

    /// The events of one name.
    pub fn events_of(&self, name: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == name).collect()
    }

    /// The summary event.
    pub fn summary(&self) -> Value {
        self.events().pop().unwrap()
    }
}

/// Every event and every key of it stands in doc/json.md, or for a config file in doc/config.md.
fn assert_documented(event: &Value) {
    const PAGES: [&str; 2] =
        [include_str!("../../../../doc/json.md"), include_str!("../../../../doc/config.md")];
    /// All that stands between two backticks: each key of each event is looked up here.
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let words = PAGES.iter().flat_map(|page| page.split('`'));
        words.collect()
    });
    let stands = |word: &str| WORDS.contains(word);
    let name = event["event"].as_str().unwrap_or_else(|| panic!("no event: {event}"));
    assert!(PAGES[0].contains(&format!("| `{name}` |")), "doc/json.md has no event '{name}'");
    for key in event.as_object().unwrap().keys() {
        let is_bare = stands(key)
            || key.strip_suffix("_bytes").is_some_and(stands)
            || ["old_", "new_"].iter().any(|it| key.strip_prefix(it).is_some_and(stands))
            || name == "config" && PAGES[1].contains(&format!("[{key}"));
        assert!(is_bare, "doc/json.md has no key '{key}' of {name}");
    }
}

/// Does the same with each of several, so many at once: for work that mostly waits.
///
/// # Panics
/// When `work` does, after all of it has ended.
pub fn each_at_once<T: Sync>(at_once: usize, all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(it) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(it);
                }
            });
        }
    });
}

/// One entry of a tree, with all that a restore must bring back.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    path: PathBuf,
    mode: u32,
    mtime: (i64, i64),
    links: u64,
    content: Vec<u8>,
}

fn look(root: &Path, below: &Path, found: &mut Vec<Found>) {
    let path = root.join(below);
    let stat = fs::symlink_metadata(&path).unwrap();
    let content = match stat.file_type() {
        kind if kind.is_symlink() => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
        kind if kind.is_file() => fs::read(&path).unwrap(),
        _ => Vec::new(),
    };
    let links = if stat.is_dir() { 0 } else { stat.nlink() };
    let mtime = (stat.mtime(), stat.mtime_nsec());
    found.push(Found { path: below.to_owned(), mode: stat.mode(), mtime, links, content });
    if stat.is_dir() {
        for entry in fs::read_dir(&path).unwrap() {
            look(root, &below.join(entry.unwrap().file_name()), found);
        }
    }
}

/// Panics unless both trees have the same entries with the same metadata and content.
pub fn assert_same_tree(left: &Path, right: &Path) {
    let [mut left, mut right] = [left, right].map(|root| {
        let mut found = Vec::new();
        look(root, Path::new(""), &mut found);
        found
    });
    left.sort();
    right.sort();
    let names = |tree: &[Found]| tree.iter().map(|it| it.path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right));
    for (left, right) in left.iter().zip(&right) {
        assert!(left == right, "{} differs", left.path.display());
    }
}

/// A name that is not UTF-8.
pub fn odd_name() -> &'static OsStr {
    OsStr::from_bytes(b"odd \xff\n")
}
