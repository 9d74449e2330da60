//! What cases of files have in common: options, where files are made, and figures from a job.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pinstripe::device::Policy;
use pinstripe::error::{Error, Kind, Result};
use pinstripe::units::format_size;

use super::{CaseOption, Form, Values};
use crate::io::{Done, Engine, Job};
use crate::result::Note;
use crate::run::Outcome;

/// How bytes go to the disk.
pub const POLICY: CaseOption = CaseOption {
    name: "policy",
    value: "NAME",
    form: Form::OneOf(&["buffered", "dsync", "sync", "direct", "direct+dsync", "uncached"]),
    default: Some("buffered"),
    about: "How bytes go: buffered, dsync, sync, direct, direct+dsync or uncached",
    more: "direct goes past the page cache; dsync and sync wait for the disk at each write; uncached \
           goes through the page cache without staying there.",
};

/// Who carries out requests.
pub const ENGINE: CaseOption = CaseOption {
    name: "engine",
    value: "NAME",
    form: Form::OneOf(&["psync", "uring"]),
    default: Some("psync"),
    about: "Who carries out requests: psync or uring",
    more: "psync: threads with one request at a time each. uring: each thread leaves --depth requests \
           at a time to the kernel (io_uring).",
};

/// Threads.
pub const THREADS: CaseOption = CaseOption {
    name: "workers",
    value: "N",
    form: Form::Count,
    default: Some("1"),
    about: "Threads that make requests",
    more: "",
};

/// Requests of each thread at a time.
pub const DEPTH: CaseOption = CaseOption {
    name: "depth",
    value: "N",
    form: Form::Count,
    default: Some("1"),
    about: "Requests of each thread at a time, with --engine uring",
    more: "",
};

/// What is written.
pub const CONTENT: CaseOption = CaseOption {
    name: "content",
    value: "NAME",
    form: Form::Text,
    default: Some("noise"),
    about: "What is written: noise, zeros, or zeros:PERCENT",
    more: "noise is made smaller by nothing and never the same twice. zeros are not written at all by \
           some file systems and disks.",
};

/// Whether reads begin with an empty cache.
pub const CACHE: CaseOption = CaseOption {
    name: "cache",
    value: "WAY",
    form: Form::OneOf(&["drop", "keep"]),
    default: Some("drop"),
    about: "What the page cache holds of the files before each run: drop or keep it",
    more: "Only that of these files is dropped, by fadvise(2). What still comes from the cache is marked \
           'page cache'.",
};

/// Reads [`ENGINE`].
pub fn engine(values: &Values) -> Engine {
    match values.text(ENGINE.name) {
        Some("uring") => Engine::Uring,
        _ => Engine::Psync,
    }
}

/// A directory of our own below one that was named; removed with all that is in it by [`Folder::remove`].
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it where there is room for so many bytes.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] where there is not; otherwise as the system says.
    pub fn make(below: &Path, case: &str, bytes: u64) -> Result<Folder> {
        let free = rustix::fs::statvfs(below)
            .map_err(|errno| Error::io("cannot be measured", below, errno))?;
        let free = free.f_bavail * free.f_frsize;
        if free < bytes {
            let error = Error::new(Kind::NoSpace, "has too little room for the files").at(below);
            let error = error.expected(format_size(bytes), format_size(free));
            return Err(error.advice("name another directory, or less with --total-size"));
        }
        let path = below.join(format!("pinstripe-lab-{case}-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| Error::io("cannot make", &path, error))?;
        Ok(Folder(path))
    }

    /// Names of files in it.
    pub fn files(&self, name: &str, count: u64) -> Vec<PathBuf> {
        (0..count).map(|number| self.0.join(format!("{name}.{number:04}"))).collect()
    }

    /// Removes it.
    ///
    /// # Errors
    /// As the system says.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.0).map_err(|error| Error::io("cannot remove", &self.0, error))
    }
}

/// Removes files that are there.
///
/// # Errors
/// As the system says.
pub fn remove_files(paths: &[PathBuf]) -> Result<()> {
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

/// Figures of a job. The value is millions of bytes per second, with the sync at the end counted in.
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
        value: rate(done.seconds + done.sync_s),
        operations: done.requests,
        read_bytes: done.read_bytes,
        written_bytes: done.written_bytes,
        syncs: done.syncs.count(),
        latency: latency.map(|(kind, times)| (kind.to_owned(), times.clone())).collect(),
        figures,
        notes,
        ..Outcome::default()
    }
}
