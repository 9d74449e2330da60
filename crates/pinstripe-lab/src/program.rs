//! Runs other programs to their end, or kills them when the run is stopped: programs of the lab,
//! and commands that the user typed.

mod timed;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::process::{self, ProgramLimits};

use crate::run::Live;

pub(crate) use timed::{Output, ProcessUsage, TimedRun, run as run_timed};

/// The time after which a command that puts something back is killed.
const PUT_BACK_LIMIT: Duration = Duration::from_secs(600);
/// The longest part of the last line on standard error that an error message repeats.
const SHOWN_CHARS: usize = 300;

/// The outcome of a program that was run.
#[derive(Debug)]
pub struct Ran {
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub out: String,
    /// The standard error.
    pub err: String,
}

/// Runs a program without input. The program ends at the latest with this process, however this
/// process ends.
///
/// # Errors
/// [`Kind::NotFound`] if the program is missing; [`Kind::Interrupted`] after a stop request, when
/// the program has been ended. A failing exit code of the program is not an error.
pub fn run(command: &mut Command, live: &Live) -> Result<Ran> {
    let is_stopped = || live.is_stopped();
    let limits =
        ProgramLimits { deadline: None, is_stopped: Some(&is_stopped), ends_with_caller: true };
    let ran = process::run(command, b"", &limits)?;
    // After a stop or a ^C, which reaches the program as well, its messages about its end are
    // irrelevant.
    live.check()?;
    let stopped = || {
        Error::new(
            Kind::Interrupted,
            "the program was killed because of a request to stop that was later withdrawn",
        )
    };
    Ok(Ran { status: ran.status.ok_or_else(stopped)?, out: ran.out, err: ran.err })
}

/// Runs a command that the user typed, without input. `what` is its role, for messages.
///
/// # Errors
/// [`Kind::Io`] if the command fails, with the last line that it wrote to standard error; the
/// errors of [`run`].
pub(crate) fn run_step(command: &mut Command, what: &str, live: &Live) -> Result<()> {
    let ran = run(command, live)?;
    check_status(ran.status, &ran.err, what)
}

/// Runs a command that puts something back: it is not killed when the run is stopped, but after ten
/// minutes.
///
/// # Errors
/// [`Kind::Io`] if the command fails; [`Kind::Unanswered`] if it was killed.
pub(crate) fn put_back(command: &mut Command, what: &str) -> Result<()> {
    let limits =
        ProgramLimits { deadline: Some(PUT_BACK_LIMIT), is_stopped: None, ends_with_caller: true };
    let ran = process::run(command, b"", &limits)?;
    match ran.status {
        Some(status) => check_status(status, &ran.err, what),
        None => {
            let seconds = PUT_BACK_LIMIT.as_secs();
            let text = format!("{what} was killed because it did not end within {seconds} s");
            Err(Error::new(Kind::Unanswered, text))
        }
    }
}

/// Returns an error if a command failed. `what` is the command, for the message.
///
/// # Errors
/// [`Kind::Io`], with the last line on standard error.
pub(crate) fn check_status(status: ExitStatus, err: &str, what: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let last = err.lines().rev().map(str::trim).find(|it| !it.is_empty());
    let last: String = last.unwrap_or_default().chars().take(SHOWN_CHARS).collect();
    let last = if last.is_empty() { last } else { format!(": {last}") };
    Err(Error::new(Kind::Io, format!("{what} failed with {}{last}", status_text(status))))
}

fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn what_a_program_prints_and_how_it_ends_is_told() {
        let live = Live::new(Arc::default());
        let ran = run(Command::new("sh").args(["-c", "echo a; echo b >&2; exit 3"]), &live);
        let ran = ran.unwrap();
        assert_eq!((ran.status.code(), &*ran.out, &*ran.err), (Some(3), "a\n", "b\n"));
        let error = run(&mut Command::new("/no/such/program"), &live).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }

    #[test]
    fn a_step_that_fails_says_how_and_one_that_puts_back_is_not_stopped() {
        let live = Live::new(Arc::default());
        let shell = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        run_step(&mut shell("true"), "the step", &live).unwrap();
        let error = run_step(&mut shell("echo bad >&2; exit 3"), "the step", &live).unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        assert_eq!(error.what(), "the step failed with exit code 3: bad");
        let error = put_back(&mut shell("kill -9 $$"), "the step").unwrap_err();
        assert_eq!(error.what(), "the step failed with signal 9");
        live.stop().store(true, std::sync::atomic::Ordering::Relaxed);
        put_back(&mut shell("true"), "the step").unwrap();
    }

    #[test]
    fn one_that_never_ends_is_ended_when_we_are_to_stop() {
        let live = Live::new(Arc::new(AtomicBool::new(true)));
        let error = run(Command::new("sleep").arg("1000"), &live).unwrap_err();
        assert_eq!(error.kind(), Kind::Interrupted);
    }
}
