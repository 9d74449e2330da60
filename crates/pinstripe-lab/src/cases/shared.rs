//! What cases about files share: options, the place of the files, and the figures of a job.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::Policy;
use pinstripe_io::mounts;
use pinstripe_io::remove::remove_tree;

use super::{CaseOption, Setting, ValueForm, Values, leftovers};
use crate::histogram::Histogram;
use crate::io::{Done, Engine, Job, Pattern, Syncing};
use crate::result::{Measured, Note, Parameter};
use crate::run::{Outcome, Plan};

/// The names of the write policies.
pub(crate) const POLICY_NAMES: &[&str] =
    &["buffered", "dsync", "sync", "direct", "direct+dsync", "uncached"];

/// The policy for writing bytes to the disk.
pub const POLICY: CaseOption = CaseOption {
    name: "policy",
    value: "NAME",
    form: ValueForm::OneOf(POLICY_NAMES),
    default: Some("buffered"),
    about: "Write policy: buffered, dsync, sync, direct, direct+dsync or uncached",
    more: "The policy direct bypasses the page cache. The policies dsync and sync wait for the \
           disk at each write. With the policy uncached, data goes through the page cache, but \
           does not stay in it.",
};

/// Several policies, which are compared.
pub const POLICIES: CaseOption = CaseOption {
    name: "policies",
    value: "NAME,...",
    form: ValueForm::SomeOf(POLICY_NAMES),
    default: Some("buffered,dsync,sync,direct,direct+dsync,uncached"),
    about: "Write policies to compare: buffered, dsync, sync, direct, direct+dsync, uncached",
    more: "The first value is the baseline, with which the other values are compared.",
};

/// The engine that carries out requests.
pub(crate) const ENGINE: CaseOption = CaseOption {
    name: "engine",
    value: "NAME",
    form: ValueForm::OneOf(&["psync", "uring"]),
    default: Some("psync"),
    about: "I/O engine: psync or uring",
    more: "With psync, each thread has one request in flight; with uring (io_uring), each thread \
           keeps up to --depth requests in flight.",
};

/// Threads.
pub const THREADS: CaseOption = CaseOption {
    name: "workers",
    value: "N",
    form: ValueForm::Count,
    default: Some("1"),
    about: "Number of threads that issue requests",
    more: "",
};

/// Requests of each thread at a time.
pub const DEPTH: CaseOption = CaseOption {
    name: "depth",
    value: "N",
    form: ValueForm::Count,
    default: Some("1"),
    about: "Number of requests in flight per thread with --engine uring",
    more: "",
};

/// The option of how long a run may take.
pub(crate) const RUN_TIME: CaseOption = CaseOption {
    name: "run-time",
    value: "S",
    form: ValueForm::Number,
    default: Some("10"),
    about: "Maximum duration of a run in seconds",
    more: "",
};

/// The option for the bytes per request.
pub(crate) const RECORD_SIZE: CaseOption = CaseOption {
    name: "record-size",
    value: "SIZE",
    form: ValueForm::Size,
    default: Some("1M"),
    about: "Size of each request",
    more: "",
};

/// The option for the number of clients that work at the same time.
pub const CLIENTS: CaseOption = CaseOption {
    name: "clients",
    value: "N,...",
    form: ValueForm::Counts,
    default: Some("1,10"),
    about: "Numbers of concurrent clients to compare",
    more: "",
};

/// The content written.
pub const CONTENT: CaseOption = CaseOption {
    name: "content",
    value: "NAME",
    form: ValueForm::Text,
    default: Some("noise"),
    about: "Content to write: noise, zeros, or zeros:PERCENT (noise with this share of zeros)",
    more: "The content noise cannot be compressed, and no two blocks of it are equal. Some file \
           systems and disks do not store blocks of zeros at all.",
};

/// Whether reads begin with an empty cache.
pub(crate) const CACHE: CaseOption = CaseOption {
    name: "cache",
    value: "WAY",
    form: ValueForm::OneOf(&["drop", "keep"]),
    default: Some("drop"),
    about: "Page cache of the files before each run: drop or keep",
    more: "Only the page cache of the measured files is dropped, by fadvise(2). A run whose reads \
           were still served from the page cache is marked 'page cache'.",
};

/// Whether the figure includes the time until bytes are durable.
pub const SYNC: CaseOption = CaseOption {
    name: "sync",
    value: "WHEN",
    form: ValueForm::OneOf(&["end", "never"]),
    default: Some("end"),
    about: "When to sync the files: end (at the end of each run) or never",
    more: "With --sync never, results of writes are marked 'accepted, not durable'.",
};

/// Paced requests.
pub const RATE: CaseOption = CaseOption {
    name: "rate",
    value: "N",
    form: ValueForm::Count,
    default: None,
    about: "Number of requests per second of all threads together [default: unlimited]",
    more: "With --rate, the latency 'response' is measured from the time at which a request was \
           due, so that a stall increases the latency of all requests that it delayed.",
};

/// A second opinion.
pub(crate) const CROSS_CHECK: CaseOption = CaseOption {
    name: "cross-check",
    value: "PROGRAM",
    form: ValueForm::OneOf(&["fio"]),
    default: None,
    about: "Also run the same tests with fio, interleaved with the runs of pinstripe, and show \
            both results",
    more: "If fio is not installed, the check is skipped, and this is reported. The option \
           --cross-check applies only to sequential and random reads and writes.",
};

/// Returns the directories or the device, and whether it is a device.
pub fn places(setting: &Setting) -> (Vec<PathBuf>, bool) {
    match &setting.device {
        Some(device) => (vec![device.clone()], true),
        None => (setting.dirs.clone(), false),
    }
}

/// Formats a number of bytes as an option takes it, in the largest unit that divides it, for
/// example `256K`.
pub fn typed(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift << shift == bytes && bytes > 0);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Bytes per file for this many files, in complete blocks.
///
/// # Errors
/// [`Kind::Usage`] if that is less than one block.
pub fn file_bytes(total: u64, files: u64, block_bytes: u64) -> Result<u64> {
    let blocks = (total / files).checked_div(block_bytes).filter(|blocks| *blocks > 0);
    blocks.map(|blocks| blocks * block_bytes).ok_or_else(|| {
        Error::new(Kind::Usage, "with these options, each file would be smaller than one block")
            .advice("use a larger total size, smaller blocks, or fewer files")
    })
}

/// Makes a job from the options with the common names.
///
/// # Errors
/// [`Kind::Usage`] for options that contradict each other.
pub fn job(setting: &Setting, values: &Values, pattern: Pattern, syncing: Syncing) -> Result<Job> {
    let engine = engine(values);
    let depth = values.count(DEPTH.name) as usize;
    if engine == Engine::Psync && depth > 1 {
        let error = Error::new(Kind::Usage, "--depth has no effect with the engine psync");
        return Err(error.advice("add --engine uring, or use more --workers"));
    }
    Ok(Job {
        engine,
        threads: values.count(THREADS.name) as usize,
        depth,
        time: Some(seconds(values, "run-time")?),
        syncing,
        content: values.parsed(CONTENT.name)?,
        seed: setting.seed,
        rate: values.has(RATE.name).then(|| values.count(RATE.name) as f64),
        ..Job::new(pattern)
    })
}

/// Every option with its value as it was given, once for each value if there are several; an option
/// that is not set has a value that says so.
pub fn parameters(options: &[CaseOption], values: &Values) -> Vec<Parameter> {
    let of = |option: &CaseOption| {
        let given = values.texts(option.name);
        let shown = if given.is_empty() { vec!["none"] } else { given };
        shown.into_iter().map(|value| Parameter::new(option.name, value)).collect::<Vec<_>>()
    };
    options.iter().flat_map(of).collect()
}

/// Returns the directory of a case that measures in one directory and on no device.
///
/// # Errors
/// [`Kind::Usage`] if a device or several directories are given.
pub(crate) fn one_directory(setting: &Setting) -> Result<PathBuf> {
    match (&setting.device, setting.dirs.as_slice()) {
        (None, [dir]) => Ok(dir.clone()),
        (Some(device), _) => {
            Err(Error::new(Kind::Usage, "this case works in a directory, not on a device")
                .at(device))
        }
        _ => Err(Error::new(Kind::Usage, "this case can measure only one directory at a time")
            .advice("run the case once for each directory")),
    }
}

/// The intent of a case in a directory, for people.
pub fn intent(dir: &Path, case: &str, bytes: u64) -> String {
    let (dir, size) = (dir.display(), format_size(bytes));
    format!(
        "create up to {size} of files in a new directory pinstripe-lab-{case}@* in {dir}, and \
         remove that directory at the end"
    )
}

/// The length of a run in seconds.
///
/// # Errors
/// [`Kind::Usage`] if the time is longer than a clock can represent.
pub fn seconds(values: &Values, name: &str) -> Result<Duration> {
    Duration::try_from_secs_f64(values.number(name))
        .map_err(|_| Error::new(Kind::Usage, format!("the time of --{name} is too long")))
}

/// The number of requests that took more than 100 ms; for a recording each is a stall.
pub fn stalls(times: &Histogram) -> f64 {
    const STALL_NANOS: u64 = 100_000_000;
    let stalled = times.buckets().filter(|(nanos, _)| *nanos > STALL_NANOS);
    stalled.map(|(_, count)| count).sum::<u64>() as f64
}

/// Reads [`ENGINE`].
fn engine(values: &Values) -> Engine {
    match values.text(ENGINE.name) {
        Some("uring") => Engine::Uring,
        _ => Engine::Psync,
    }
}

/// Checks that a tree that a case reads is a directory. Returns its path; the walkers do not follow
/// a symlink, so it is replaced by the path of the directory that it leads to.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when it does not exist, with [`Kind::Usage`] when it is a file, or
/// with [`Kind::Io`].
pub(super) fn existing_tree(tree: &Path) -> Result<PathBuf> {
    let failed = |error| Error::of_named("cannot open the tree", tree, error);
    if !fs::metadata(tree).map_err(failed)?.is_dir() {
        return Err(Error::new(Kind::Usage, "the tree is not a directory").at(tree));
    }
    match fs::symlink_metadata(tree).map_err(failed)?.is_symlink() {
        true => fs::canonicalize(tree).map_err(failed),
        false => Ok(tree.to_path_buf()),
    }
}

/// Fails if a directory does not have space for this many bytes.
///
/// # Errors
/// [`Kind::NoSpace`]; other errors as the system reports them.
pub(crate) fn refuse_without_room(dir: &Path, bytes: u64, what: &str) -> Result<()> {
    let free = rustix::fs::statvfs(dir).map_err(|errno| {
        Error::io("the free space of this directory cannot be determined", dir, errno)
    })?;
    let Some(free) = mounts::free_bytes(&free).filter(|free| *free < bytes) else { return Ok(()) };
    let error =
        Error::new(Kind::NoSpace, format!("this directory has too little space for {what}"))
            .at(dir);
    let error = error.expected(format_size(bytes), format_size(free));
    Err(error.advice(
        "give another directory, or measure a smaller size: see the options for sizes in --help",
    ))
}

/// Fails if the directories of a plan do not have space for the files that exist at the same time;
/// directories on one file system share its space.
///
/// # Errors
/// [`Kind::NoSpace`]; other errors as the system reports them.
pub fn refuse_plan_without_room(plan: &dyn Plan) -> Result<()> {
    let mut needed: BTreeMap<u64, (PathBuf, u64)> = BTreeMap::new();
    for (dir, bytes) in plan.room() {
        let found = fs::metadata(&dir);
        let found = found.map_err(|error| {
            Error::io("the free space of this directory cannot be determined", &dir, error)
        })?;
        let (_, sum) = needed.entry(found.dev()).or_insert((dir, 0));
        *sum = sum.saturating_add(bytes);
    }
    needed.values().try_for_each(|(dir, bytes)| refuse_without_room(dir, *bytes, "the files"))
}

/// A lab directory below a directory that the user named; [`Folder::remove`] removes it with its
/// content.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the lab directory if the file system has space for this many bytes.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if there is not enough space; other errors as the system reports them.
    pub fn make(below: &Path, case: &str, bytes: u64) -> Result<Folder> {
        refuse_without_room(below, bytes, "the files")?;
        let path = below.join(leftovers::name(case));
        fs::create_dir(&path).map_err(|error| Error::io("cannot create", &path, error))?;
        Ok(Folder(path))
    }

    /// The names of files in the lab directory.
    pub fn files(&self, name: &str, count: u64) -> Vec<PathBuf> {
        (0..count).map(|number| self.0.join(format!("{name}.{number:04}"))).collect()
    }

    /// A path in the lab directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Removes it.
    ///
    /// # Errors
    /// Returns errors as the system reports them.
    pub fn remove(&self) -> Result<()> {
        remove_tree(&self.0).map_err(|error| Error::io("cannot remove", &self.0, error))
    }
}

/// Removes existing files.
///
/// # Errors
/// Returns errors as the system reports them.
pub(crate) fn remove_files(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("cannot remove", path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the figures of a job. The value is in millions of bytes per second; the time includes
/// the sync at the end.
pub fn outcome(done: &Done, job: &Job, policy: Policy, is_direct: bool) -> Outcome {
    let rate = |seconds: f64| done.bytes() as f64 / seconds.max(1e-9) / 1e6;
    let mut notes = Vec::new();
    let waits = job.syncing.at_end || job.syncing.every.is_some();
    let is_durable = waits || matches!(policy, Policy::Dsync | Policy::Sync | Policy::DirectDsync);
    if done.written_bytes > 0 && !is_durable {
        notes.push(Note::AcceptedNotDurable);
    }
    if policy.is_direct() && !is_direct {
        notes.push(Note::NotDirect);
    }
    if done.has_wrapped {
        notes.push(Note::Wrapped);
    }
    let kinds = [
        ("read", &done.reads),
        ("write", &done.writes),
        ("sync", &done.syncs),
        ("response", &done.responses),
    ];
    let latency = kinds.into_iter().filter(|(_, it)| !it.is_empty());
    let mut figures = BTreeMap::from([(
        "requests_per_s".to_owned(),
        done.requests as f64 / done.seconds.max(1e-9),
    )]);
    if done.written_bytes > 0 {
        figures.insert("accepted_mb_per_s".to_owned(), rate(done.seconds));
        figures.insert("sync_s".to_owned(), done.sync_s);
    }
    Outcome {
        measured: Measured {
            value: rate(done.seconds + done.sync_s),
            operations: done.requests,
            read_bytes: done.read_bytes,
            written_bytes: done.written_bytes,
            latency: latency.map(|(kind, times)| (kind.to_owned(), times.clone())).collect(),
            figures,
        },
        syncs: done.syncs.count(),
        notes,
        ..Outcome::default()
    }
}
