//! Every rule of `cargo xtask tidy`, as data. To change a rule, change it here.

/// Our crates, and which of ours each may depend on. A crate that is not listed is refused.
pub const CRATES: &[(&str, &[&str])] = &[
    ("pinstripe-kernel", &[]),
    ("pinstripe", &["pinstripe-kernel"]),
    ("pinstripe-lab", &["pinstripe"]),
    ("pinstripe-bench", &["pinstripe-kernel", "pinstripe", "pinstripe-lab"]),
    ("pinstripe-serve", &["pinstripe"]),
    ("pinstripe-cli", &["pinstripe", "pinstripe-lab", "pinstripe-serve"]),
    ("xtask", &[]),
];

/// The crates below which no asynchronous runtime may be.
pub const SYNCHRONOUS: &[&str] = &["pinstripe-kernel", "pinstripe", "pinstripe-lab"];

/// The asynchronous runtimes, by crate name.
pub const ASYNC_CRATES: &[&str] =
    &["async-executor", "async-std", "futures-executor", "glommio", "monoio", "smol", "tokio"];

/// The directory of the rooms.
pub const LIBRARY: &str = "crates/pinstripe/src";

/// The rooms of the library, highest floor first: a room imports from lower floors only.
pub const FLOORS: &[&[&str]] = &[
    &["ops"],
    &["pipeline", "export"],
    &["catalog"],
    &["split", "store"],
    &["array", "chunk", "codec", "dedup", "retention", "seal", "stripe", "walk"],
    &["member", "device", "fault", "process", "source", "sink"],
    &["format"],
    &["units", "error", "monitor", "id", "secret", "beneath", "clock", "descriptors"],
];

/// The lowest floor: small shared files that may know each other.
pub const GROUND: usize = 7;

/// Imports between rooms of one floor that are wanted all the same.
pub const NEIGHBOURS: &[(&str, &str)] = &[("fault", "member"), ("fault", "device")];

/// Rooms that may import less than their floor allows.
pub const NARROW: &[(&str, &[&str])] = &[("format", &["id", "units", "error", "secret"])];

/// A call that product code must not make.
pub struct BannedCall {
    /// Its spelling, from the start of a word.
    pub call: &'static str,
    /// The alternative to use.
    pub instead: &'static str,
    /// Paths that may do it, by prefix or, with a leading `*`, by suffix.
    pub except: &'static [&'static str],
}

/// Folders in which the banned calls are looked for.
pub const CORE: &[&str] =
    &["crates/pinstripe/src/", "crates/pinstripe-kernel/src/", "crates/pinstripe-lab/src/"];

const SAY: &str = "the core prints nothing: count and report to the Monitor";
const PIPELINE: &[&str] = &[
    "crates/pinstripe/src/pipeline/",
    // The threads that are left behind when a member does not answer.
    "crates/pinstripe/src/member/watched/lane.rs",
    "crates/pinstripe-lab/src/io/",
    "crates/pinstripe-lab/src/run/",
];
const THREAD: &str = "threads start in pipeline/ (in the lab in io/ and run/) only: write the loop \
                      as a function it can run";
/// The lab measures time: there the clock is no secret.
const CLOCK: &[&str] = &["*/clock.rs", "crates/pinstripe-lab/src/"];
const TIME: &str = "no hidden clock: take the time as an argument, or ask clock.rs";

/// The calls that the core never makes outside tests.
pub const BANNED_CALLS: &[BannedCall] = &[
    BannedCall { call: "println!", instead: SAY, except: &[] },
    BannedCall { call: "print!", instead: SAY, except: &[] },
    BannedCall { call: "eprintln!", instead: SAY, except: &[] },
    BannedCall { call: "eprint!", instead: SAY, except: &[] },
    BannedCall {
        call: "process::exit",
        instead: "the core exits nowhere: return an Error",
        except: &[],
    },
    BannedCall {
        call: "process::abort",
        instead: "the core exits nowhere: return an Error",
        except: &[],
    },
    BannedCall {
        call: "env::var",
        instead: "the core reads no environment: take it as an argument",
        except: &[],
    },
    BannedCall {
        call: "env::var_os",
        instead: "the core reads no environment: take it as an argument",
        except: &[],
    },
    BannedCall { call: "thread::spawn", instead: THREAD, except: PIPELINE },
    BannedCall { call: "thread::scope", instead: THREAD, except: PIPELINE },
    BannedCall { call: "thread::Builder", instead: THREAD, except: PIPELINE },
    BannedCall { call: "Instant::now", instead: TIME, except: CLOCK },
    BannedCall { call: "SystemTime::now", instead: TIME, except: CLOCK },
];

/// A text that no file of the repository may hold, comments and prose included.
pub struct BannedText {
    /// The text; where it begins or ends with a letter, it counts as a whole word only.
    pub text: &'static str,
    /// Why not, or what to do instead.
    pub instead: &'static str,
}

/// The texts that no file may hold. This folder, which must name them, is not looked at.
pub const BANNED_TEXTS: &[BannedText] = &[
    BannedText { text: "todo!(", instead: "finish it or leave it out" },
    BannedText { text: "unimplemented!(", instead: "finish it or leave it out" },
    BannedText { text: "FIXME", instead: "mend it before it is merged" },
    BannedText { text: "XXX", instead: "mend it before it is merged" },
    BannedText { text: "/Users/", instead: "a path of one machine means nothing on another" },
    BannedText { text: "/tmp/pinstripe", instead: "make a temporary directory for each run" },
];

/// The files in which the banned texts are named.
pub const NAMES_BANNED_TEXTS: &str = "xtask/src/tidy/";

/// A size at which tidy warns, and one at which it fails.
pub struct Limit {
    /// More lines than this are told.
    pub warn: usize,
    /// More lines than this are refused.
    pub fail: usize,
}

/// Lines of a Rust file, tests not counted.
pub const FILE_LINES: Limit = Limit { warn: 400, fail: 600 };
/// Lines of a function, tests not counted.
pub const FUNCTION_LINES: Limit = Limit { warn: 70, fail: 100 };

/// Pages that must exist, with the most lines they may have.
pub const PAGES: &[(&str, usize)] = &[("README.md", 120), ("ARCHITECTURE.md", 200)];

/// The page that has a sentence for each crate and each room.
pub const MAP: &str = "ARCHITECTURE.md";
/// The fewest words that count as a sentence about a room, its name included.
pub const SENTENCE_WORDS: usize = 5;

/// Folders that are not ours to judge: by name anywhere, or by path.
pub const IGNORED_FOLDERS: &[&str] =
    &[".git", "target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];
