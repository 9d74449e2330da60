//! Runs other programs to their end, or kills them together with all processes that they started.
//!
//! Invariants: a program runs in a process group of its own; its input and its output are files in
//! memory, so that neither a program that reads nothing nor one that prints much can block; when
//! [`run`] returns, the program has ended.
//!
//! This module does not know what a program is run for, or what its failure means.

#![allow(clippy::disallowed_methods, reason = "this module waits for programs")]

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, set_parent_process_death_signal,
};

/// The interval at which the stop flag is polled, which wakes no thread, and at which the end of
/// the program is polled on kernels that do not report it (before Linux 5.3).
const PERIOD: Duration = Duration::from_millis(20);

/// The limits that end a program early.
#[derive(Default)]
pub struct ProgramLimits<'a> {
    /// The program is killed after this time.
    pub deadline: Option<Duration>,
    /// The program is killed soon after this returns true.
    pub is_stopped: Option<&'a dyn Fn() -> bool>,
    /// Whether the program is killed when the calling thread ends, for any reason.
    pub ends_with_caller: bool,
}

/// The exit status and the output of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The exit status; `None` if the program was killed because of a limit.
    pub status: Option<ExitStatus>,
    /// The standard output.
    pub out: String,
    /// The standard error.
    pub err: String,
}

/// Runs a program with `input` on its standard input.
///
/// # Errors
/// Fails with [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) if the program does not
/// exist; with [`Kind::Io`](pinstripe_base::error::Kind::Io) if the program cannot be started. A
/// program that fails or is killed is not an error.
pub fn run(
    command: &mut Command,
    input: &[u8],
    limits: &ProgramLimits<'_>,
) -> Result<ProgramOutput> {
    let name = command.get_program().to_owned();
    let failed = |error: io::Error| Error::io("cannot run", &name, error);
    let mut given = in_memory().map_err(failed)?;
    given.write_all(input).and_then(|()| given.rewind()).map_err(failed)?;
    let (mut out, mut err) = (in_memory().map_err(failed)?, in_memory().map_err(failed)?);
    command.stdin(given).process_group(0);
    command.stdout(out.try_clone().map_err(failed)?).stderr(err.try_clone().map_err(failed)?);
    if limits.ends_with_caller {
        // SAFETY: between fork and exec there is one system call, and nothing is allocated.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
    }
    let status = wait(command.spawn().map_err(failed)?, limits).map_err(failed)?;
    let out = read(&mut out).map_err(failed)?;
    Ok(ProgramOutput { status, out, err: read(&mut err).map_err(failed)? })
}

fn in_memory() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("program", MemfdFlags::CLOEXEC)?))
}

fn read(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits for the end of the program; returns `None` if it was killed.
fn wait(mut child: Child, limits: &ProgramLimits<'_>) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(&child);
    let end = pidfd_open(pid, PidfdFlags::empty()).ok();
    let began = clock::monotonic();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = limits.deadline.map(|it| it.saturating_sub(clock::since(began)));
        if left.is_some_and(|it| it.is_zero()) || limits.is_stopped.is_some_and(|it| it()) {
            // The group is named by a child that was not waited for yet, so it is still its own.
            let _ = kill_process_group(pid, Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        let looks = (end.is_none() || limits.is_stopped.is_some()).then_some(PERIOD);
        let time = [looks, left].into_iter().flatten().min();
        match &end {
            Some(end) => {
                // A signal that interrupts the wait is as good as the end of the period.
                let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], timespec(time).as_ref());
            }
            None => clock::sleep(time.unwrap_or(PERIOD)),
        }
    }
}

fn timespec(time: Option<Duration>) -> Option<Timespec> {
    let timespec = |it: Duration| Timespec {
        tv_sec: it.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: it.subsec_nanos().into(),
    };
    time.map(timespec)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use pinstripe_base::error::Kind;

    use pinstripe_testing::shell;

    use super::*;

    #[test]
    fn what_a_program_reads_prints_and_how_it_ends_is_told() {
        let mut command = shell("read word; echo $word; echo b >&2; exit 3");
        let ran = run(&mut command, b"a\n", &ProgramLimits::default()).unwrap();
        let code = ran.status.and_then(|it| it.code());
        assert_eq!((code, &*ran.out, &*ran.err), (Some(3), "a\n", "b\n"));
        let absent = &mut Command::new("/no/such/program");
        let error = run(absent, b"", &ProgramLimits::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }

    #[test]
    fn one_that_never_ends_is_killed_with_its_children() {
        let limits =
            ProgramLimits { deadline: Some(Duration::from_millis(50)), ..Default::default() };
        let ran = run(&mut shell("echo a; sleep 1000 & wait"), b"", &limits).unwrap();
        assert!(ran.status.is_none() && ran.out.len() <= 2, "{ran:?}");
        let stop = AtomicBool::new(true);
        let is_stopped = || stop.load(Ordering::Relaxed);
        let limits = ProgramLimits {
            is_stopped: Some(&is_stopped),
            ends_with_caller: true,
            ..Default::default()
        };
        assert!(run(&mut shell("sleep 1000"), b"", &limits).unwrap().status.is_none());
    }
}
