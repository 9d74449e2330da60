//! Runs the same job with fio.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::Policy;

use super::import;
use crate::histogram::Histogram;
use crate::io::{Content, Direction, Engine, Job, Order};
use crate::program::{self, Ran};
use crate::result::{Measured, Run};
use crate::run::{Live, Outcome};

/// The version of fio, if it is installed.
pub fn version() -> Option<String> {
    let found = Command::new("fio").arg("--version").stderr(Stdio::null()).output().ok()?;
    found.status.success().then(|| String::from_utf8_lossy(&found.stdout).trim().to_owned())
}

/// Whether fio makes requests in this order.
pub(crate) fn can_do(order: Order) -> bool {
    matches!(order, Order::Sequential | Order::Random)
}

/// Fails if fio cannot check the job.
///
/// # Errors
/// [`Kind::Usage`] with the reason.
pub fn refuse(job: &Job, places: usize, is_device: bool) -> Result<()> {
    let what = if places > 1 {
        "fio can check only one directory at a time"
    } else if is_device {
        "fio cannot check the results of a device"
    } else if job.syncing.every.is_some() {
        "fio has no option to sync every file after N requests"
    } else if job.threads > 1 {
        "with several threads, the loads of fio and pinstripe would differ, because fio gives each \
         thread its own requests"
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Usage, what).advice("leave out --cross-check"))
}

/// The command-line arguments of fio.
pub fn arguments(job: &Job, paths: &[PathBuf], file_bytes: u64, policy: Policy) -> Vec<OsString> {
    let (order, read_percent) = match job.pattern.direction {
        Direction::Read => ("read", None),
        Direction::Write => ("write", None),
        Direction::Mixed(reads) => ("rw", Some((reads * 100.0).round())),
    };
    let is_random = job.pattern.order == Order::Random;
    let all_bytes = file_bytes * paths.len() as u64;
    let mut options = vec![
        "--name=check".to_owned(),
        "--output-format=json+".to_owned(),
        format!("--rw={}{order}", if is_random { "rand" } else { "" }),
        format!("--bs={}", job.pattern.block_bytes),
        format!("--size={all_bytes}"),
        // It takes no number beyond 2^63.
        format!("--randseed={}", job.seed >> 1),
        format!("--file_service_type={}", if is_random { "random" } else { "sequential" }),
        "--norandommap".to_owned(),
        "--thread".to_owned(),
        "--invalidate=0".to_owned(),
        "--fallocate=none".to_owned(),
        format!("--direct={}", u8::from(policy.is_direct())),
    ];
    options.extend(read_percent.map(|percent| format!("--rwmixread={percent}")));
    match job.engine {
        Engine::Psync => options.push("--ioengine=psync".to_owned()),
        Engine::Uring => {
            options.push("--ioengine=io_uring".to_owned());
            options.push(format!("--iodepth={}", job.depth));
        }
    }
    options.extend(match policy {
        Policy::Dsync | Policy::DirectDsync => Some("--sync=dsync".to_owned()),
        Policy::Sync => Some("--sync=sync".to_owned()),
        Policy::Uncached => Some("--uncached=1".to_owned()),
        Policy::Buffered | Policy::Direct => None,
    });
    options.extend(job.time.map(|time| format!("--runtime={}ms", time.as_millis())));
    if job.requests.is_none() {
        options.push("--time_based".to_owned());
    }
    if job.syncing.at_end {
        options.push("--end_fsync=1".to_owned());
    }
    options.extend(job.rate.map(|rate| format!("--rate_iops={rate}")));
    match job.content {
        Content::Noise => {}
        Content::Zeros => options.push("--zero_buffers".to_owned()),
        Content::PartZeros(zeros) => {
            options.push(format!("--buffer_compress_percentage={zeros}"));
            options.push("--buffer_compress_chunk=4096".to_owned());
        }
    }
    options.into_iter().map(OsString::from).chain([filename(paths)]).collect()
}

/// Joins the names by `:`; a `:` within a name is preceded by a backslash.
fn filename(paths: &[PathBuf]) -> OsString {
    let mut option = b"--filename=".to_vec();
    for (at, path) in paths.iter().enumerate() {
        if at > 0 {
            option.push(b':');
        }
        for byte in path.as_os_str().as_bytes() {
            if *byte == b':' {
                option.push(b'\\');
            }
            option.push(*byte);
        }
    }
    OsString::from_vec(option)
}

/// Runs fio for a job on files.
///
/// # Errors
/// [`Kind::NotFound`] if fio is missing, [`Kind::Io`] with the message of fio if it fails,
/// [`Kind::Interrupted`] after a stop.
pub fn run(
    job: &Job,
    paths: &[PathBuf],
    file_bytes: u64,
    policy: Policy,
    live: &Live,
) -> Result<Outcome> {
    let mut command = Command::new("fio");
    command.args(arguments(job, paths, file_bytes, policy));
    let Ran { status, out: text, err: said } = program::run(&mut command, live)?;
    if !status.success() {
        let said = said.lines().chain(text.lines()).find(|line| !line.trim().is_empty());
        let what = format!("fio failed ({status}): {}", said.unwrap_or("it printed no message"));
        return Err(Error::new(Kind::Io, what).advice("leave out --cross-check"));
    }
    let results = import(&[&text])?;
    let outcome = outcome(results.variants.into_iter().flat_map(|it| it.runs).collect());
    live.moved(outcome.measured.read_bytes + outcome.measured.written_bytes);
    Ok(outcome)
}

/// Combines the reads and the writes of a job into one outcome.
fn outcome(runs: Vec<Run>) -> Outcome {
    let (mut all, mut other_cpu_s) = (Measured::default(), 0.0_f64);
    for run in runs {
        let side = run.measured;
        all.value += side.value;
        all.operations += side.operations;
        all.read_bytes += side.read_bytes;
        all.written_bytes += side.written_bytes;
        all.latency.extend(side.latency);
        *all.figures.entry("requests_per_s".to_owned()).or_default() +=
            side.figures.get("requests_per_s").copied().unwrap_or(0.0);
        // Each side has the processor time of the whole job.
        other_cpu_s = run.cpu_s.max(other_cpu_s);
    }
    let syncs = all.latency.get("sync").map_or(0, Histogram::count);
    Outcome { measured: all, syncs, other_cpu_s, ..Outcome::default() }
}
