//! Foreign programs, run to their end, or killed when the run is stopped.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use pinstripe_base::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, set_parent_process_death_signal,
};

use crate::run::Live;

/// The interval at which the program's end and our own stop are checked.
const PERIOD: Duration = Duration::from_millis(20);

/// The outcome of a program.
#[derive(Debug)]
pub struct Ran {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// Runs a program without input. It ends with us at the latest, whatever we end by.
///
/// # Errors
/// [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when it is not there,
/// [`Kind::Interrupted`](pinstripe_base::error::Kind::Interrupted) after a stop, with the program ended;
/// a program that fails is none.
pub fn run(command: &mut Command, live: &Live) -> Result<Ran> {
    let name = command.get_program().to_owned();
    let failed = |error: io::Error| Error::io("cannot run", &name, error);
    // Files in memory take whatever it prints; a pipe would want a reader beside us.
    let (mut out, mut err) = (in_memory().map_err(failed)?, in_memory().map_err(failed)?);
    command.stdin(Stdio::null());
    command.stdout(out.try_clone().map_err(failed)?).stderr(err.try_clone().map_err(failed)?);
    // A group of its own, so that it is ended with all that it has started itself.
    command.process_group(0);
    // SAFETY: between fork and exec there is one system call, and nothing is allocated.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let status = wait(command.spawn().map_err(failed)?, live).map_err(failed)?;
    // What it says of an end that was ours, or that a ^C brought it beside us, is no news.
    live.check()?;
    Ok(Ran { status, out: read(&mut out).map_err(failed)?, err: read(&mut err).map_err(failed)? })
}

fn in_memory() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("printed", MemfdFlags::CLOEXEC)?))
}

fn read(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits for it, and ends it when we are to stop.
fn wait(mut child: Child, live: &Live) -> io::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    // Its end is seen at once, where the kernel tells (Linux 5.3).
    let end = pidfd_open(pid, PidfdFlags::empty()).ok();
    let period = Timespec { tv_sec: 0, tv_nsec: PERIOD.as_nanos() as _ };
    loop {
        if live.is_stopped() {
            // It may have ended by itself just now.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        match (child.try_wait()?, &end) {
            (Some(status), _) => return Ok(status),
            (None, Some(end)) => {
                // A signal that wakes us up is as good as the end of the period.
                let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&period));
            }
            (None, None) => thread::sleep(PERIOD),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use pinstripe_base::error::Kind;

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
