//! Runs other programs to their end, or kills them when the run is stopped.

use std::process::{Command, ExitStatus};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::process::{self, ProgramLimits};

use crate::run::Live;

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
    fn one_that_never_ends_is_ended_when_we_are_to_stop() {
        let live = Live::new(Arc::new(AtomicBool::new(true)));
        let error = run(Command::new("sleep").arg("1000"), &live).unwrap_err();
        assert_eq!(error.kind(), Kind::Interrupted);
    }
}
