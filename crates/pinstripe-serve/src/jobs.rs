//! Jobs: verbs of this program that the server runs from time to time, each in a process of its own.
//!
//! A job uses the members directly, as another host does, so it may run while hosts back up.
//!
//! Invariants: at most one job runs at a time; the result of a job is durable before the job counts
//! as done, so a job that a restart interrupted runs again; a spare is tried once.

#![allow(clippy::disallowed_methods, reason = "starts processes, each with threads that read")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::lock;
use serde::{Deserialize, Serialize};

use crate::state_file;

/// How often the state of a running job is read.
const POLL: Duration = Duration::from_millis(100);
/// How long a job may take to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// The most bytes of a job's error messages that are kept.
const MESSAGES_MAX_BYTES: usize = 4096;
/// A longer line of a job's output is not a JSON object.
const LINE_MAX_BYTES: u64 = 1 << 20;

/// A verb that runs from time to time.
#[derive(Debug, Clone)]
pub struct JobPlan {
    /// The name of the job, for people.
    pub name: String,
    /// The time from the begin of a run to the begin of the next one.
    pub every: Duration,
    /// The program with its arguments. It prints JSON objects; the last one is its summary.
    pub command: Vec<OsString>,
}

/// The replacement of members that do not answer.
#[derive(Debug, Clone)]
pub struct ReplacePlan {
    /// How long a member must have been silent.
    pub after: Duration,
    /// The places of new members, in the order in which they are used.
    pub spares: Vec<OsString>,
    /// The program with its arguments; the number of the member and the spare are appended.
    pub command: Vec<OsString>,
}

/// All jobs of a server.
#[derive(Debug, Clone, Default)]
pub struct JobPlans {
    /// Jobs that run from time to time.
    pub timed: Vec<JobPlan>,
    /// Replacements, if there are spares.
    pub replace: Option<ReplacePlan>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobResult {
    pub began_seconds: i64,
    pub ended_seconds: i64,
    /// The exit code; `None` if a signal ended the process.
    pub exit_code: Option<i32>,
    /// The error messages of a job that failed.
    pub messages: String,
    /// What the job found or changed: the counts of its summary that are not zero.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// The damage that a scrub found on each member, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub damage: BTreeMap<u16, u64>,
}

/// The counts of a summary that are kept, with their words for people.
const COUNTS: [(&str, &str); 8] = [
    ("lost", "lost"),
    ("repairable", "to be repaired"),
    ("hurt_snapshots", "snapshots with losses"),
    ("mended_extents", "extents repaired"),
    ("mended_objects", "objects repaired"),
    ("repaired_extents", "extents repaired"),
    ("repaired_objects", "objects repaired"),
    ("deleted_packs", "packs deleted"),
];

/// A job that runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunningJob {
    pub name: String,
    pub began_seconds: i64,
    /// The share that is done, from 0 to 1.
    pub done: Option<f64>,
}

/// A job, for the page and the metrics.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobStatus {
    pub name: String,
    pub every: Option<Duration>,
    pub last: Option<JobResult>,
}

#[derive(Default, Serialize, Deserialize)]
struct JobFile {
    /// By the name of the job.
    last: BTreeMap<String, JobResult>,
    /// The spares that were tried, successfully or not.
    #[serde(default)]
    used_spares: Vec<String>,
}

/// The jobs of a server, and their results in the file `jobs.json`.
pub(crate) struct Jobs {
    path: PathBuf,
    state: Mutex<JobsState>,
}

#[derive(Default)]
struct JobsState {
    plans: JobPlans,
    file: JobFile,
    running: Option<RunningJob>,
    /// The counts of the summary of the job that runs.
    counts: BTreeMap<String, u64>,
    /// The findings of the job that runs, by member.
    damage: BTreeMap<u16, u64>,
}

/// The next run of a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DueJob {
    pub name: String,
    pub command: Vec<OsString>,
    /// The spare that a replacement uses.
    spare: Option<String>,
}

const REPLACE: &str = "replace";
const SCRUB: &str = "scrub";

impl JobResult {
    /// Whether the job did what it is for.
    pub fn is_good(&self) -> bool {
        self.exit_code == Some(0)
    }
}

impl Jobs {
    /// Opens the file of results in a state directory.
    pub fn open(state: &Path, plans: JobPlans) -> Result<Jobs> {
        let path = state.join("jobs.json");
        let file = state_file::read_json(&path)?.unwrap_or_default();
        Ok(Jobs { path, state: Mutex::new(JobsState { plans, file, ..JobsState::default() }) })
    }

    /// Uses other plans from now on.
    pub(crate) fn set_plans(&self, plans: JobPlans) {
        lock(&self.state).plans = plans;
    }

    /// All jobs, with the last result of each.
    pub fn status(&self) -> Vec<JobStatus> {
        let state = lock(&self.state);
        let timed = state.plans.timed.iter().map(|it| (it.name.as_str(), Some(it.every)));
        let replace = state.plans.replace.iter().map(|_| (REPLACE, None));
        let status = |(name, every): (&str, _)| JobStatus {
            name: name.to_owned(),
            every,
            last: state.file.last.get(name).cloned(),
        };
        timed.chain(replace).map(status).collect()
    }

    /// The damage that the last scrub found on each member; `None` before the first scrub.
    pub(crate) fn damage(&self) -> Option<BTreeMap<u16, u64>> {
        lock(&self.state).file.last.get(SCRUB).map(|last| last.damage.clone())
    }

    /// The job that runs.
    pub fn running(&self) -> Option<RunningJob> {
        lock(&self.state).running.clone()
    }

    /// The spares that are left; `None` without a plan for replacements.
    pub(crate) fn spares_left(&self) -> Option<usize> {
        let state = lock(&self.state);
        let plan = state.plans.replace.as_ref()?;
        let used = &state.file.used_spares;
        Some(plan.spares.iter().filter(|it| !used.contains(&text_of(it))).count())
    }

    /// The job that has to run now: a replacement first, and else the one that is due longest.
    /// `silent` are the members that do not answer, and for how long.
    pub fn due(&self, now_seconds: i64, silent: &[(u16, Duration)]) -> Option<DueJob> {
        let state = lock(&self.state);
        let JobFile { last, used_spares } = &state.file;
        if let Some(plan) = &state.plans.replace
            && let Some((number, _)) = silent.iter().find(|(_, time)| *time >= plan.after)
            && let Some(spare) = plan.spares.iter().find(|it| !used_spares.contains(&text_of(it)))
        {
            let mut command = plan.command.clone();
            command.extend([number.to_string().into(), "--to".into(), spare.clone()]);
            return Some(DueJob { name: REPLACE.to_owned(), command, spare: Some(text_of(spare)) });
        }
        let late = |plan: &JobPlan| {
            // A clock that was set back does not delay a job for years.
            let began = last.get(&plan.name).map(|it| it.began_seconds.min(now_seconds));
            let since = began.map_or(i64::MAX, |began| now_seconds - began);
            since.checked_sub(i64::try_from(plan.every.as_secs()).ok()?).filter(|late| *late >= 0)
        };
        let due = state.plans.timed.iter().filter_map(|plan| Some((late(plan)?, plan)));
        let (_, plan) = due.max_by_key(|(late, _)| *late)?;
        Some(DueJob { name: plan.name.clone(), command: plan.command.clone(), spare: None })
    }

    /// Runs a job to its end. Returns its result, or `None` if `ends` was set.
    ///
    /// # Errors
    /// Fails if the result cannot be stored.
    pub fn run(&self, job: DueJob, ends: &AtomicBool) -> Result<Option<JobResult>> {
        let DueJob { name, command, spare } = job;
        let began_seconds = clock::now().0;
        {
            let mut state = lock(&self.state);
            state.running = Some(RunningJob { name: name.clone(), began_seconds, done: None });
            state.counts.clear();
            state.damage.clear();
        }
        if let Some(spare) = spare {
            // Before it is used: a run that is cut off leaves data in it.
            let mut state = lock(&self.state);
            state.file.used_spares.push(spare);
            state_file::replace_json(&self.path, &state.file)?;
        }
        let ended = self.run_process(&command, ends);
        let mut state = lock(&self.state);
        state.running = None;
        let (exit_code, messages) = match ended {
            Ok(Some(ended)) => ended,
            Ok(None) => return Ok(None),
            Err(error) => (Some(1), error.to_string()),
        };
        let ended_seconds = clock::now().0;
        let counts = std::mem::take(&mut state.counts);
        let damage = std::mem::take(&mut state.damage);
        let result =
            JobResult { began_seconds, ended_seconds, exit_code, messages, counts, damage };
        state.file.last.insert(name, result.clone());
        state_file::replace_json(&self.path, &state.file)?;
        Ok(Some(result))
    }

    fn run_process(
        &self,
        command: &[OsString],
        ends: &AtomicBool,
    ) -> Result<Option<(Option<i32>, String)>> {
        let failed = |error| Error::io("cannot run", command[0].clone(), error);
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).stdin(Stdio::null());
        let mut child =
            process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            scope
                .spawn(|| self.follow(out.into_iter().flat_map(|it| lines_of(BufReader::new(it)))));
            let messages = scope.spawn(|| errors.map(last_of).unwrap_or_default());
            let status = loop {
                if let Some(status) = child.try_wait().map_err(failed)? {
                    break status;
                }
                if ends.load(Ordering::Relaxed) {
                    end(&mut child);
                    return Ok(None);
                }
                clock::sleep(POLL);
            };
            Ok(Some((status.code(), messages.join().unwrap_or_default())))
        })
    }

    /// Reads the progress of a job from its output.
    fn follow(&self, lines: impl Iterator<Item = Vec<u8>>) {
        for line in lines {
            let Ok(event) = serde_json::from_slice::<serde_json::Value>(&line) else { continue };
            let number = |key: &str| event[key].as_f64();
            if let (Some(done), Some(total)) = (number("done_bytes"), number("total_bytes"))
                && let Some(running) = &mut lock(&self.state).running
            {
                running.done = (total > 0.0).then(|| (done / total).min(1.0));
            }
            if event["event"] == "finding"
                && let Some(member) = event["member"].as_u64().and_then(|it| it.try_into().ok())
            {
                *lock(&self.state).damage.entry(member).or_default() += 1;
            }
            if event["event"] == "summary" {
                let count = |(key, _): &(&str, &str)| {
                    let count = event[*key].as_u64().filter(|count| *count > 0)?;
                    Some(((*key).to_owned(), count))
                };
                lock(&self.state).counts = COUNTS.iter().filter_map(count).collect();
            }
        }
    }
}

fn text_of(place: &OsString) -> String {
    place.to_string_lossy().into_owned()
}

/// The lines of a job's output; one that is too long ends them, and the rest is read and dropped.
fn lines_of(mut from: impl BufRead) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let read = from.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line).unwrap_or(0);
        if read as u64 == LINE_MAX_BYTES {
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
        (read > 0).then_some(line)
    })
}

/// The end of what a job reports as errors.
fn last_of(mut from: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; MESSAGES_MAX_BYTES]);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..read]);
        let excess = kept.len().saturating_sub(MESSAGES_MAX_BYTES);
        kept.drain(..excess);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// Ends a process with SIGTERM, and with SIGKILL if that takes too long.
fn end(child: &mut Child) {
    let _ = rustix::process::kill_process(
        rustix::process::Pid::from_child(child),
        rustix::process::Signal::TERM,
    );
    let began = clock::monotonic();
    while clock::since(began) < ENDS_WITHIN {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        clock::sleep(POLL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Describes the exit code of a job, for people.
pub(crate) fn outcome(result: &JobResult) -> String {
    let mut text = match result.exit_code {
        Some(0) => "ok".to_owned(),
        Some(3) => "data is lost (exit code 3)".to_owned(),
        Some(10) => "something remains to be repaired (exit code 10)".to_owned(),
        Some(code) => format!("failed (exit code {code})"),
        None => "ended by a signal".to_owned(),
    };
    for (key, word) in COUNTS {
        if let Some(count) = result.counts.get(key) {
            text += &format!(", {count} {word}");
        }
    }
    text
}

/// Runs the jobs that are due until `ends` is set. `silent` returns the members that do not answer;
/// `ended` is called with the name and the result of each job.
pub(crate) fn run_due(
    jobs: &Arc<Jobs>,
    ends: &AtomicBool,
    silent: impl Fn() -> Vec<(u16, Duration)>,
    ended: impl Fn(&str, &Result<JobResult>),
) {
    while !ends.load(Ordering::Relaxed) {
        let Some(job) = jobs.due(clock::now().0, &silent()) else {
            clock::sleep(POLL);
            continue;
        };
        let name = job.name.clone();
        match jobs.run(job, ends).transpose() {
            Some(Ok(result)) => ended(&name, &Ok(result)),
            Some(Err(error)) => {
                ended(&name, &Err(error));
                // The disk of the state is full, for example: another attempt comes later.
                let began = clock::monotonic();
                while clock::since(began) < ENDS_WITHIN && !ends.load(Ordering::Relaxed) {
                    clock::sleep(POLL);
                }
            }
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, every: u64, script: &str) -> JobPlan {
        let command = ["sh", "-c", script].map(OsString::from).to_vec();
        JobPlan { name: name.to_owned(), every: Duration::from_secs(every), command }
    }

    fn name(due: Option<DueJob>) -> Option<String> {
        due.map(|it| it.name)
    }

    #[test]
    fn the_job_that_is_late_longest_runs_first_and_results_last_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let timed = vec![shell("scrub", 3600, "echo '{}'"), shell("repair", 600, "exit 10")];
        let plans = JobPlans { timed, replace: None };
        let jobs = Jobs::open(dir.path(), plans.clone()).unwrap();
        let ends = AtomicBool::new(false);
        let now = clock::now().0;
        let mut ran = Vec::new();
        while let Some(job) = jobs.due(now, &[]) {
            ran.push((job.name.clone(), jobs.run(job, &ends).unwrap().unwrap().exit_code));
        }
        ran.sort();
        assert_eq!(ran, [("repair".to_owned(), Some(10)), ("scrub".to_owned(), Some(0))]);
        drop(jobs);
        let jobs = Jobs::open(dir.path(), plans).unwrap();
        assert_eq!(jobs.due(now, &[]), None);
        assert_eq!(name(jobs.due(now + 700, &[])).unwrap(), "repair");
        // The clock was years ahead when the jobs ran, and was set back.
        assert_eq!(name(jobs.due(now - 100_000_000, &[])), None);
        assert!(!jobs.status()[1].last.as_ref().unwrap().is_good());
    }

    #[test]
    fn progress_and_messages_are_taken_from_the_output() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let script = format!(
            "echo noise; echo '{{\"done_bytes\":1,\"total_bytes\":4}}'; cat {}; \
             echo '{{\"event\":\"summary\",\"lost\":2,\"repairable\":0}}'; echo sorry >&2; exit 3",
            fifo.display()
        );
        let plans = JobPlans { timed: vec![shell("scrub", 60, &script)], replace: None };
        let jobs = Jobs::open(dir.path(), plans).unwrap();
        let ends = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            let due = jobs.due(0, &[]).unwrap();
            let ran = scope.spawn(|| jobs.run(due, &ends).unwrap().unwrap());
            while jobs.running().and_then(|it| it.done) != Some(0.25) {
                assert!(!ran.is_finished());
                clock::sleep(Duration::from_millis(1));
            }
            std::fs::write(&fifo, "").unwrap();
            ran.join().unwrap()
        });
        assert_eq!((result.exit_code, result.messages.as_str()), (Some(3), "sorry"));
        assert_eq!(outcome(&result), "data is lost (exit code 3), 2 lost");
        assert_eq!(jobs.running(), None);
    }

    #[test]
    fn a_job_that_the_end_of_the_server_interrupts_runs_again() {
        let dir = tempfile::tempdir().unwrap();
        let plans = JobPlans { timed: vec![shell("scrub", 60, "exec sleep 600")], replace: None };
        let jobs = Jobs::open(dir.path(), plans).unwrap();
        let ends = AtomicBool::new(true);
        assert_eq!(jobs.run(jobs.due(0, &[]).unwrap(), &ends).unwrap(), None);
        assert_eq!(name(jobs.due(0, &[])).unwrap(), "scrub");
    }

    #[test]
    fn each_spare_is_tried_once_for_a_member_that_was_silent_long_enough() {
        let dir = tempfile::tempdir().unwrap();
        let command = ["sh", "-c", "echo $1 $3 >&2; test $3 = /good", "replace"];
        let replace = ReplacePlan {
            after: Duration::from_secs(60),
            spares: ["/bad", "/good"].map(OsString::from).to_vec(),
            command: command.map(OsString::from).to_vec(),
        };
        let plans = JobPlans { timed: Vec::new(), replace: Some(replace) };
        let jobs = Jobs::open(dir.path(), plans.clone()).unwrap();
        assert_eq!(jobs.due(0, &[(3, Duration::from_secs(59))]), None);
        let ends = AtomicBool::new(false);
        let silent = [(3, Duration::from_secs(60))];
        let first = jobs.run(jobs.due(0, &silent).unwrap(), &ends).unwrap().unwrap();
        assert_eq!((first.exit_code, first.messages.as_str()), (Some(1), "3 /bad"));
        drop(jobs);
        let jobs = Jobs::open(dir.path(), plans).unwrap();
        let second = jobs.run(jobs.due(0, &silent).unwrap(), &ends).unwrap().unwrap();
        assert_eq!((second.exit_code, second.messages.as_str()), (Some(0), "3 /good"));
        assert_eq!((jobs.due(0, &silent), jobs.spares_left()), (None, Some(0)));
    }
}
