//! Every rule of `cargo xtask tidy`, as data. To change a rule, change it here.

pub mod words;

/// The workspace's crates, and the crates of the workspace on which each may depend. A crate that
/// is not listed is refused.
pub const CRATES: &[(&str, &[&str])] = &[
    ("pinstripe-kernel", &[]),
    ("pinstripe-base", &[]),
    ("pinstripe-testing", &[]),
    // Statistics are independent of the measurements.
    ("pinstripe-stats", &["pinstripe-base"]),
    ("pinstripe-io", &["pinstripe-base", "pinstripe-testing"]),
    // The array and the servers are independent of the store, and of each other.
    (
        "pinstripe-array",
        &["pinstripe-kernel", "pinstripe-base", "pinstripe-io", "pinstripe-testing"],
    ),
    ("pinstripe-fuse", &["pinstripe-base", "pinstripe-io", "pinstripe-testing"]),
    ("pinstripe-nbd", &["pinstripe-base", "pinstripe-io", "pinstripe-fuse", "pinstripe-testing"]),
    ("pinstripe-prefetch", &["pinstripe-base", "pinstripe-testing"]),
    // It shows any directory, and is independent of the store.
    (
        "pinstripe-overlay",
        &["pinstripe-base", "pinstripe-io", "pinstripe-prefetch", "pinstripe-testing"],
    ),
    // The recorder writes plain files: it is independent of the store, the array and the servers.
    ("pinstripe-record", &["pinstripe-base", "pinstripe-io", "pinstripe-testing"]),
    // A member of a store knows what is put on it, and no store.
    (
        "pinstripe-member",
        &["pinstripe-base", "pinstripe-io", "pinstripe-prefetch", "pinstripe-testing"],
    ),
    (
        "pinstripe-stripe",
        &[
            "pinstripe-kernel",
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-member",
            "pinstripe-testing",
        ],
    ),
    // A split uses no store: an output describes itself.
    (
        "pinstripe-split",
        &[
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-member",
            "pinstripe-prefetch",
            "pinstripe-stripe",
            "pinstripe-testing",
        ],
    ),
    (
        "pinstripe",
        &[
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-member",
            "pinstripe-prefetch",
            "pinstripe-split",
            "pinstripe-stripe",
            "pinstripe-schedule",
            "pinstripe-sim",
            "pinstripe-testing",
        ],
    ),
    // Tests of the store and of buckets share these two; the second replaces functions of the C library.
    (
        "pinstripe-sim",
        &[
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-member",
            "pinstripe-stripe",
            "pinstripe",
            "pinstripe-testing",
        ],
    ),
    ("pinstripe-schedule", &["pinstripe-sim"]),
    // Other kinds of members. `pinstripe` is for their tests alone.
    (
        "pinstripe-rados",
        &["pinstripe-base", "pinstripe-io", "pinstripe-member", "pinstripe-testing"],
    ),
    (
        "pinstripe-remote",
        &["pinstripe-base", "pinstripe-io", "pinstripe-member", "pinstripe-testing"],
    ),
    // The server knows members and no store: `pinstripe` is for its tests alone.
    (
        "pinstripe-serve",
        &[
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-member",
            "pinstripe-remote",
            "pinstripe-stripe",
            "pinstripe",
            "pinstripe-sim",
            "pinstripe-testing",
        ],
    ),
    (
        "pinstripe-bucket",
        &[
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-member",
            "pinstripe-overlay",
            "pinstripe-split",
            "pinstripe-stripe",
            "pinstripe",
            "pinstripe-schedule",
            "pinstripe-sim",
            "pinstripe-testing",
        ],
    ),
    (
        "pinstripe-lab",
        &[
            "pinstripe-kernel",
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-array",
            "pinstripe-fuse",
            "pinstripe-member",
            "pinstripe-nbd",
            "pinstripe-record",
            "pinstripe-prefetch",
            "pinstripe-rados",
            "pinstripe-split",
            "pinstripe-stats",
            "pinstripe-stripe",
            "pinstripe",
            "pinstripe-testing",
        ],
    ),
    (
        "pinstripe-cli",
        &[
            "pinstripe-base",
            "pinstripe-io",
            "pinstripe-array",
            "pinstripe-fuse",
            "pinstripe-member",
            "pinstripe-nbd",
            "pinstripe-overlay",
            "pinstripe-prefetch",
            "pinstripe-rados",
            "pinstripe-record",
            "pinstripe-remote",
            "pinstripe-serve",
            "pinstripe-split",
            "pinstripe-stripe",
            "pinstripe",
            "pinstripe-bucket",
            "pinstripe-lab",
            "pinstripe-testing",
        ],
    ),
    ("xtask", &[]),
];

/// The crates that must not depend on an asynchronous runtime, directly or indirectly.
pub const SYNCHRONOUS: &[&str] = &[
    "pinstripe-kernel",
    "pinstripe-base",
    "pinstripe-stats",
    "pinstripe-io",
    "pinstripe-array",
    "pinstripe-fuse",
    "pinstripe-nbd",
    "pinstripe-prefetch",
    "pinstripe-rados",
    "pinstripe-overlay",
    "pinstripe-record",
    "pinstripe-member",
    "pinstripe-stripe",
    "pinstripe-split",
    "pinstripe",
    "pinstripe-lab",
];

/// The asynchronous runtimes, by crate name.
pub const ASYNC_CRATES: &[&str] =
    &["async-executor", "async-std", "futures-executor", "glommio", "monoio", "smol", "tokio"];

/// The rooms of one crate: its top-level modules.
pub struct Rooms {
    /// The directory of the crate's sources.
    pub folder: &'static str,
    /// The rooms by floor, highest floor first; a room imports from lower floors only.
    pub floors: &'static [&'static [&'static str]],
    /// Permitted imports between rooms of one floor.
    pub neighbours: &'static [(&'static str, &'static str)],
    /// Rooms that may import less than their floor permits.
    pub narrow: &'static [(&'static str, &'static [&'static str])],
}

/// The crate whose rooms ARCHITECTURE.md describes one by one.
pub const LIBRARY: &str = "crates/pinstripe/src";

/// The rooms of every crate that has several rooms.
pub const ROOMS: &[Rooms] = &[
    Rooms {
        folder: "crates/pinstripe-base/src",
        floors: &[
            &["byte_enum", "each", "id", "monitor", "ranked", "units", "weighted_cache", "wire"],
            &["sync"],
            &["checksum", "clock", "error", "random"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-io/src",
        floors: &[
            &["beneath", "fault", "write_queue"],
            &[
                "control",
                "descriptors",
                "device",
                "disk",
                "file_tree",
                "library",
                "paths",
                "pool",
                "process",
                "remove",
                "replace",
            ],
            &["calls", "mounts"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: LIBRARY,
        floors: &[
            &["ops"],
            &["pipeline"],
            &["catalog"],
            &["store"],
            &["walk"],
            &["source", "sink"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-member/src",
        floors: &[
            &["conformance", "fault"],
            &["catalog", "places", "sealed_cache"],
            &["directory", "memory", "shared", "timed"],
            &["planned", "process", "set_server", "stat", "steps", "watched"],
            &["format"],
            &["secret"],
        ],
        neighbours: &[],
        narrow: &[("format", &["secret"])],
    },
    Rooms {
        folder: "crates/pinstripe-stripe/src",
        floors: &[&["abort", "chunk", "codec", "dedup", "retention", "seal", "stripe"]],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-split/src",
        floors: &[&["ops"], &["pipeline"], &["outputs"], &["source"], &["format"]],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-array/src",
        floors: &[
            &["ops"],
            &["volume"],
            &["engine", "md"],
            &["compute", "member"],
            &["cache", "traffic"],
            &["plan"],
            &["geometry", "signature", "sums"],
            &["executor", "format", "limits", "probe", "ranked", "runs", "set"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-nbd/src",
        floors: &[
            &["server"],
            &["client"],
            &["executor"],
            &["context", "queue", "send_queue"],
            &["export", "heuristic", "memory", "settings"],
            &["address", "fuse", "limits", "protocol", "receive_buffer"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-fuse/src",
        floors: &[&["mountpoint", "tree"], &["attributes", "hints", "passthrough"]],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-prefetch/src",
        floors: &[&["hint", "readers", "runner", "simulation"], &["latencies", "planner"]],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-remote/src",
        floors: &[
            &["volumes"],
            &["catalog", "member"],
            &["client"],
            &["batches"],
            &["answer", "ends", "looks", "sets", "tls"],
            &["objects"],
            &["catalog_frames"],
            &["catalog_messages", "look_messages"],
            &["client_certificate", "pem", "place", "protocol"],
            &["join_string"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-serve/src",
        floors: &[
            &["listen"],
            &["routes"],
            &["sets"],
            &["objects"],
            &["look"],
            &["catalog_routes"],
            &["extent", "page", "peers", "watch"],
            &["overview"],
            &["app"],
            &["auth", "metrics"],
            &["status"],
            &["notify", "tls"],
            &["alarms", "catalog", "events", "identity", "jobs", "ledger", "open_sets", "tokens"],
            &["access_log", "answer", "body", "checks", "logins", "role", "state_file", "volume"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-rados/src",
        floors: &[
            &["remote"],
            &["member"],
            &["listing"],
            &["manifest", "many"],
            &["cluster"],
            &["library"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-overlay/src",
        floors: &[
            &["tree"],
            &["blocks", "listings"],
            &["cache", "calls", "nodes"],
            &["source"],
            &["locks"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-record/src",
        floors: &[
            &["ring_size"],
            &["calibrate", "overdub"],
            &["play", "recorder", "verify"],
            &["recover"],
            &["directories", "engine", "input"],
            &["alsa", "jack", "take"],
            &["flac"],
            &["header", "meter", "ring", "shares", "start"],
            &["drift", "osc", "realtime", "sample", "writes"],
            &["limits", "locks"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-bucket/src",
        floors: &[
            &["remote"],
            &["one_winner", "probe", "retention"],
            &["member", "output", "source"],
            &["writer"],
            &["reserve"],
            &["inner"],
            &["prefetch"],
            &["kept"],
            &["clients", "past_look"],
            &["listing"],
            &["blocks", "session", "tails"],
            &["past", "lock", "attempts", "own_pages", "versions"],
            &["signed"],
            &["endpoint"],
            &["bandwidth", "traffic", "window"],
            &["connection", "fault", "key"],
            &["place", "proxy", "refusal", "renewed", "utc"],
            &["locks"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-lab/src",
        floors: &[
            &["report"],
            &["agents", "show"],
            &["cases"],
            &["arrays", "catalog", "fio", "scratch"],
            &["io", "knobs", "program"],
            &["advice", "run"],
            &["result", "safety"],
            &["fingerprint"],
            &["display", "guard", "histogram", "machine", "questions", "table"],
        ],
        neighbours: &[],
        narrow: &[],
    },
    Rooms {
        folder: "crates/pinstripe-cli/src",
        floors: &[
            &["knobs", "other_tools"],
            &["cli"],
            &["verbs"],
            &["choice_args", "exclude_args"],
            &["run"],
            &["config"],
            &["aws"],
            &["args"],
            &["bucket_args"],
            &["command_output", "credential", "journal", "message", "rules", "signals"],
            &[
                "config",
                "escape",
                "event",
                "exit",
                "lists",
                "snapshot_path",
                "system",
                "table",
                "time",
                "jobs",
                "users",
                "values",
                "xdg",
            ],
        ],
        neighbours: &[],
        narrow: &[],
    },
];

/// A text that no file of the repository may contain, including comments and prose.
pub struct BannedText {
    /// The text; at an end that is a letter, it must match whole words only.
    pub text: &'static str,
    /// The reason for the ban, or what to write instead.
    pub instead: &'static str,
}

/// The texts that no file may contain. The directory of `tidy` itself, which must contain these
/// texts, is not checked.
pub const BANNED_TEXTS: &[BannedText] = &[
    BannedText { text: "todo!(", instead: "finish it or leave it out" },
    BannedText { text: "unimplemented!(", instead: "finish it or leave it out" },
    BannedText { text: "FIXME", instead: "mend it before it is merged" },
    BannedText { text: "XXX", instead: "mend it before it is merged" },
    BannedText { text: "/Users/", instead: "a path of one machine means nothing on another" },
    BannedText { text: "/tmp/pinstripe", instead: "make a temporary directory for each run" },
];

/// The path of the files that may contain the banned texts.
pub const NAMES_BANNED_TEXTS: &str = "xtask/src/tidy/";

/// A size from which tidy warns, and a size from which it fails.
pub struct Limit {
    /// A file or function with more lines than this causes a warning.
    pub warn: usize,
    /// A file or function with more lines than this is an error.
    pub fail: usize,
}

/// The limits for the lines of a Rust file, without tests.
pub const FILE_LINES: Limit = Limit { warn: 400, fail: 600 };
/// The limits for the lines of a function, without tests.
pub const FUNCTION_LINES: Limit = Limit { warn: 70, fail: 100 };

/// The beginning of an attribute that takes a module from another directory; code that several
/// tests share belongs in a crate instead.
pub const PATH_ELSEWHERE: &str = "#[path = \"../";

/// The beginning of the attribute of a test that `cargo xtask test --all` runs and the gate
/// ignores.
pub const IGNORED_TEST: &str = "#[ignore = \"with --all: ";

/// Names that no function may have.
pub const NO_NAMES: &[&str] = &["expect", "unwrap"];

/// Parts of the paths of code that only tests run, and that may therefore panic.
pub const UNSHIPPED: &[&str] = &["crates/pinstripe-testing/", "/conformance.rs"];

/// Crates that are parts of tests; rules for products do not apply to them.
pub const CRATES_OF_TESTS: [&str; 2] = ["crates/pinstripe-schedule/", "crates/pinstripe-sim/"];

/// The number of public type names that more than one crate uses. The number is a ratchet, which
/// may only be reduced.
pub const NAMES_OF_SEVERAL_CRATES: usize = 69;

/// Crates with public modules in their root. The roots of all other crates re-export what other
/// crates use.
pub const PUBLIC_ROOTS: &[&str] =
    &["crates/pinstripe-base", "crates/pinstripe-io", "crates/pinstripe-kernel"];

/// The number of public items of libraries that no other crate uses. The number is a ratchet, which
/// may only be reduced.
pub const UNUSED_PUBLIC_ITEMS: usize = 129;

/// The number of cycles of files that import each other. The number is a ratchet, which may only be
/// reduced.
pub const FILE_CYCLES: usize = 9;

/// The most files in one cycle.
pub const FILES_OF_A_CYCLE: usize = 4;

/// Pages that must exist, with the most words that each may have, including code.
pub const PAGES: &[(&str, usize)] =
    &[("README.md", 1000), ("ARCHITECTURE.md", 2000), ("CONTRIBUTING.md", 1200)];

/// The most characters of a line of a page, except in tables and code.
pub const PAGE_COLUMNS: usize = 120;

/// The page that contains a sentence about each crate and each room.
pub const MAP: &str = "ARCHITECTURE.md";
/// The fewest words of a sentence about a room, including the room's name.
pub const SENTENCE_WORDS: usize = 5;

/// Directories that are not checked, given by a name that may be anywhere, or by path.
pub const IGNORED_FOLDERS: &[&str] =
    &[".git", "target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];
