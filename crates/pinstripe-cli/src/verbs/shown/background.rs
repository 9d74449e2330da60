//! How a command goes into the background.
//!
//! The command starts itself a second time and prints what that process prints, until that process
//! reports that it is ready or ends. Passwords can be asked for during this time, since both
//! processes have the terminal. When the second process is ready, it leaves the terminal and the
//! session.

use std::env;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use pinstripe_base::error::{Error, Result};

use crate::run::Run;

/// The environment variable that marks the process in the background.
const MARK: &str = "PINSTRIPE_BACKGROUND";
/// The last byte that the background process prints when it is ready.
const READY: u8 = 0;
/// The path of the running program, which works even if the program's file was replaced.
const ITSELF: &str = "/proc/self/exe";

/// Whether this process is the one in the background.
pub(super) fn is_background() -> bool {
    env::var_os(MARK).is_some()
}

/// Starts this command in the background, and returns the process id when that process is ready. If
/// the background process ends before, this process ends with the same exit code.
///
/// # Errors
/// Fails when the process cannot be started.
pub(super) fn start(run: &Run) -> Result<u32> {
    let told = |error| Error::io("cannot start this program in the background", ITSELF, error);
    let mut command = Command::new(ITSELF);
    let mut args = env::args_os();
    command.arg0(args.next().unwrap_or_default()).args(args);
    command.env(MARK, "1").stdout(Stdio::piped());
    let mut child = command.spawn().map_err(told)?;
    let mut out = child.stdout.take().expect("it is a pipe");
    let (mut buffer, mut is_ready) = (vec![0; 4096], false);
    loop {
        let length = match out.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(told(error)),
        };
        is_ready = buffer[length - 1] == READY;
        // A closed standard output is not a reason to end the mount.
        let _ = run.screen.content(&buffer[..length - usize::from(is_ready)]);
        if is_ready {
            break;
        }
    }
    run.screen.flush();
    if is_ready {
        return Ok(child.id());
    }
    let status = child.wait().map_err(told)?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    // It has printed everything, including its summary.
    std::process::exit(code);
}

/// In the background process, reports that all is ready, and leaves the terminal. From then on,
/// messages of the process go to `log`.
///
/// # Errors
/// Fails when the log file cannot be opened.
pub(super) fn leave(log: Option<&Path>) -> Result<()> {
    if !is_background() {
        return Ok(());
    }
    let null = Path::new("/dev/null");
    let open = |path: &Path| {
        let mut options = OpenOptions::new();
        let options = options.read(path == null).append(true).create(path != null).mode(0o600);
        options.open(path).map_err(|error| Error::io("cannot be opened", path, error))
    };
    let (nothing, messages) = (open(null)?, open(log.unwrap_or(null))?);
    let told = |errno: rustix::io::Errno| Error::io("cannot leave the terminal", "/", errno);
    // It fails for the leader of a group, which this process is not where it was started as above.
    let _ = rustix::process::setsid();
    rustix::stdio::dup2_stdin(nothing.as_fd()).map_err(told)?;
    rustix::stdio::dup2_stderr(messages.as_fd()).map_err(told)?;
    let mut out = std::io::stdout().lock();
    // A parent that was killed meanwhile does not need it.
    let _ = out.write_all(&[READY]).and_then(|()| out.flush());
    rustix::stdio::dup2_stdout(nothing.as_fd()).map_err(told)
}
