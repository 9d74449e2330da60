//! Runs one program and reports its cost: wall time, processor time, peak memory.
//!
//! A child begins as a copy of this process, and Linux keeps that copy's size as the lower bound of
//! the child's peak. So the lab itself stays small while it measures: it reads no file completely
//! into memory.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::Result;

/// The cost of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// From start to end.
    pub wall_s: f64,
    /// Processor time of all its threads, user and system.
    pub cpu_s: f64,
    /// Most resident memory at one time.
    pub memory_bytes: u64,
}

/// Runs a command to its end with its output in `logs/NAME.out` and `logs/NAME.err`.
///
/// # Errors
/// When it cannot be started or ends with anything but exit code 0; the message has the end of
/// its standard error.
pub fn run(command: &mut Command, logs: &Path, name: &str) -> Result<Cost> {
    start(command, logs, name)?.finish()
}

/// A program that runs.
#[must_use]
pub struct Running {
    child: Child,
    start: Instant,
    program: String,
    name: String,
    stderr: PathBuf,
}

/// Starts a command as [`run`] does.
///
/// # Errors
/// When it cannot be started.
pub fn start(command: &mut Command, logs: &Path, name: &str) -> Result<Running> {
    let stdout = logs.join(format!("{name}.out"));
    let stderr = logs.join(format!("{name}.err"));
    let program = command.get_program().to_string_lossy().into_owned();
    let create = |path: &Path| {
        File::create(path).map_err(|error| format!("cannot create {}: {error}", path.display()))
    };
    command.stdin(Stdio::null()).stdout(create(&stdout)?).stderr(create(&stderr)?);
    let start = Instant::now();
    let child = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
    Ok(Running { child, start, program, name: name.to_owned(), stderr })
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// When that is anything but exit code 0; the message has the end of its standard error.
    pub fn finish(self) -> Result<Cost> {
        let Running { child, start, program, name, stderr } = self;
        let (status, usage) = wait(child).map_err(|error| format!("{program} is lost: {error}"))?;
        let wall_s = start.elapsed().as_secs_f64();
        if !status.success() {
            let told = fs::read(&stderr).unwrap_or_default();
            let told = String::from_utf8_lossy(&told[told.len().saturating_sub(2000)..]);
            return Err(format!("{program} ({name}) ended with {status}:\n{told}"));
        }
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Ok(Cost {
            wall_s,
            cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            memory_bytes: usage.ru_maxrss as u64 * 1024,
        })
    }
}

/// Waits for one child and takes its resource usage, which std does not give.
fn wait(child: Child) -> io::Result<(ExitStatus, libc::rusage)> {
    use std::os::unix::process::ExitStatusExt;
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live, writable values of the types that wait4 wants, and
        // `pid` is a child that was not waited for: we own its `Child` and never wait with it.
        let answer = unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) };
        if answer == pid {
            // SAFETY: zeroed is a valid rusage (integers only), and wait4 has filled it.
            return Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use pinstripe_testing::shell;

    use super::*;

    #[test]
    fn a_run_is_measured_and_its_output_kept() {
        let logs = tempfile::tempdir().unwrap();
        let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done";
        let cost = run(&mut shell(burn), logs.path(), "burn").unwrap();
        assert_eq!(fs::read_to_string(logs.path().join("burn.out")).unwrap(), "done\n");
        assert!(cost.cpu_s > 0.0 && cost.wall_s > 0.0);
        assert!(cost.memory_bytes > 100_000);
    }

    #[test]
    fn a_failure_carries_what_the_program_said() {
        let logs = tempfile::tempdir().unwrap();
        let error = run(&mut shell("echo no such disk >&2; exit 3"), logs.path(), "x").unwrap_err();
        assert!(error.contains("no such disk") && error.contains("3"), "{error}");
        let error = run(&mut Command::new("no-such-program-here"), logs.path(), "x").unwrap_err();
        assert!(error.contains("cannot start no-such-program-here"), "{error}");
    }
}
