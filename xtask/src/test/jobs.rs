//! Runs several test programs at the same time: many tests wait for a disk, a process or a
//! deadline, and other tests can use the processors meanwhile.
//!
//! Invariants: the output of a job is shown in one piece, when the job has ended; each job is
//! announced when it starts, so that one that hangs is known by name; no job runs longer than
//! `LONGEST_JOB`.
//!
//! Tests that passed are only counted on the terminal; the file `tests.log` has the output of all
//! tests. A reader of a gate's output wants the failures, and programs limit what they read.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::SKIP_LOG;
use super::tally::Tally;
use crate::workspace::Result;

/// The number of jobs that run at the same time. The tests of each job use as many threads as there
/// are processors, so two jobs are enough to keep the processors busy.
const AT_ONCE: usize = 2;

/// The time after which a job counts as hung. The longest one takes two minutes in the gate and ten
/// in `--all`, on two processors that do nothing else.
const LONGEST_JOB: Duration = Duration::from_secs(30 * 60);

/// The time between two checks of a running job.
const POLL: Duration = Duration::from_millis(10);

/// The jobs that take longest, and those that mostly wait. These jobs are started first, so that no
/// long job runs alone at the end.
const LONGEST: &[&str] = &[
    "pinstripe-cli: test cli",
    "pinstripe: test it",
    "pinstripe-lab: lib pinstripe_lab",
    "pinstripe-lab: bin pinstripe-bench",
    "pinstripe-record: lib pinstripe_record",
    "pinstripe-bucket: test bucket",
    "pinstripe: test stories",
    "pinstripe-array: lib pinstripe_array",
    "pinstripe: test stress",
    "pinstripe: lib pinstripe",
];

/// A program whose output has the format of libtest.
pub(super) struct Job {
    /// The name of the job, for people.
    pub name: String,
    pub command: Command,
}

/// A job that has ended.
struct Ended {
    name: String,
    seconds: f64,
    output: String,
    /// The exit status of the job, or the error if it could not be run or hung.
    status: Result<ExitStatus>,
}

/// Runs all jobs, shows and counts the output of each; returns the seconds of each job. `log` is
/// the file of skipped tests; `folder` contains the output of running jobs, and `tests.log` with the
/// output of all jobs that ended.
pub(super) fn run(
    mut jobs: Vec<Job>,
    log: &Path,
    folder: &Path,
    tally: &mut Tally,
) -> Vec<(String, f64)> {
    jobs.sort_by_key(|job| rank(&job.name));
    let waiting = Mutex::new(VecDeque::from(jobs));
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (send, ended) = mpsc::channel();
    let mut all = File::create(folder.join("tests.log")).ok();
    std::thread::scope(|scope| {
        for lane in 0..AT_ONCE {
            let (take, send) = (&take, send.clone());
            let output = folder.join(format!("output-{lane}"));
            scope.spawn(move || {
                while let Some(job) = take() {
                    let _ = send.send(run_one(job, log, &output));
                }
            });
        }
        drop(send);
        let shown = ended.into_iter().map(|job| {
            if let Some(all) = &mut all {
                let _ = writeln!(all, "-- {}, {:.1} s\n{}", job.name, job.seconds, job.output);
            }
            show(&job, tally);
            (job.name, job.seconds)
        });
        shown.collect()
    })
}

/// Returns the position of a job in the order of starts.
fn rank(name: &str) -> usize {
    LONGEST.iter().position(|it| *it == name).unwrap_or(LONGEST.len())
}

fn run_one(job: Job, log: &Path, output: &Path) -> Ended {
    println!("-- {} runs", job.name);
    let began = Instant::now();
    let Job { name, mut command } = job;
    let mut start = || {
        let file = File::create(output)?;
        let errors = file.try_clone()?;
        command.env(SKIP_LOG, log).stdin(Stdio::null()).stdout(file).stderr(errors).spawn()
    };
    let status = start()
        .map_err(|error| format!("cannot run {name}: {error}"))
        .and_then(|child| wait_for(child, &name, LONGEST_JOB));
    let output = String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned();
    Ended { name, seconds: began.elapsed().as_secs_f64(), output, status }
}

/// Waits until a job ends. One that runs longer than `longest` is killed; the error names its
/// threads, which libtest names after its tests.
fn wait_for(mut child: Child, name: &str, longest: Duration) -> Result<ExitStatus> {
    let began = Instant::now();
    let told = |error| format!("cannot wait for {name}: {error}");
    while began.elapsed() < longest {
        if let Some(status) = child.try_wait().map_err(told)? {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
    let threads = threads_of(child.id()).join(", ");
    child.kill().and_then(|()| child.wait()).map_err(told)?;
    Err(format!("{name}: killed after {} s; its threads were {threads}", longest.as_secs()))
}

/// The name of each thread of a process, with the function of the kernel in which it waits.
fn threads_of(process: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    threads
        .map(|it| format!("{} ({})", read(it.path().join("comm")), read(it.path().join("wchan"))))
        .collect()
}

/// Counts the results of a job. Prints its output without the tests that passed if something
/// failed, and otherwise only the counts.
fn show(job: &Ended, tally: &mut Tally) {
    let failed_before = tally.failed.len();
    job.output.lines().for_each(|line| tally.count(line));
    match &job.status {
        Ok(status) if status.success() || tally.failed.len() > failed_before => {}
        Ok(status) => {
            tally.failed.push(format!("{}: it crashed ({status}; see above)", job.name));
        }
        Err(error) => tally.failed.push(error.clone()),
    }
    println!("-- {}, {:.1} s", job.name, job.seconds);
    let has_failed = tally.failed.len() > failed_before;
    let is_shown = |line: &&str| match has_failed {
        true => !is_of_good_test(line),
        false => line.starts_with("test result: "),
    };
    job.output.lines().filter(is_shown).for_each(|line| println!("{line}"));
}

/// Whether a line says that a test passed or was ignored.
fn is_of_good_test(line: &str) -> bool {
    let is_good = |fate: &str| fate.starts_with("ok") || fate.starts_with("ignored");
    line.starts_with("test ") && line.split_once(" ... ").is_some_and(|(_, fate)| is_good(fate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn every_job_is_counted_and_a_crash_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("skipped.log");
        let jobs = vec![
            shell("sound", "echo 'test result: ok. 3 passed; 0 failed'"),
            shell("failing", "echo 'test a::b ... FAILED'; exit 101"),
            shell("crashing", "echo 'test a::c ... ok'; exit 3"),
            shell("skipping", &format!("echo why >> ${SKIP_LOG}")),
            Job { name: "absent".to_owned(), command: Command::new("/no/such/program") },
        ];
        let mut tally = Tally::default();
        run(jobs, &log, folder.path(), &mut tally);
        assert_eq!(tally.passed, 3);
        tally.failed.sort();
        let failed = tally.failed;
        assert_eq!(failed.len(), 3, "{failed:?}");
        assert_eq!(failed[0], "a::b");
        assert!(failed[1].starts_with("cannot run absent: "), "{failed:?}");
        assert!(failed[2].starts_with("crashing: it crashed"), "{failed:?}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "why\n");
        let all = fs::read_to_string(folder.path().join("tests.log")).unwrap();
        assert!(all.contains("-- crashing, ") && all.contains("test a::c ... ok\n"), "{all}");
    }

    #[test]
    fn a_job_that_hangs_is_killed_and_its_threads_are_named() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let error = wait_for(child, "asleep", Duration::from_millis(300)).unwrap_err();
        assert!(error.starts_with("asleep: killed after 0 s; its threads were sleep ("), "{error}");
    }

    /// Each waits until the other one has opened the pipe, too.
    #[test]
    fn two_run_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let jobs = vec![
            shell("one", &format!("timeout 60 sh -c 'echo word > {}'", fifo.display())),
            shell("other", &format!("timeout 60 cat {}", fifo.display())),
        ];
        let mut tally = Tally::default();
        run(jobs, &folder.path().join("log"), folder.path(), &mut tally);
        assert_eq!(tally.failed, Vec::<String>::new());
    }

    #[test]
    fn long_jobs_start_first() {
        assert!(rank(LONGEST[0]) < rank(LONGEST[1]));
        assert!(rank(LONGEST[LONGEST.len() - 1]) < rank("pinstripe-base: lib pinstripe_base"));
    }
}
