//! The output of a command as a stream that fails if the command fails.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use pinstripe_base::error::{Error, Result};

use crate::escape;

/// A running command. Dropping it ends the command.
pub struct CommandOutput {
    child: Child,
    output: ChildStdout,
    shown: String,
    has_ended: bool,
}

impl CommandOutput {
    /// Starts a command, given as a program and its arguments; its standard error is that of this
    /// process.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub fn start(words: &[OsString]) -> Result<Self> {
        let [program, arguments @ ..] = words else {
            unreachable!("the command line requires a program")
        };
        let cannot = |error| {
            Error::of_named("cannot start the command", Path::new(program), error)
                .advice("give the program and its arguments after --")
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let output = child.stdout.take().ok_or_else(|| cannot(io::ErrorKind::BrokenPipe.into()))?;
        let shown = escape::path(Path::new(program));
        Ok(CommandOutput { child, output, shown, has_ended: false })
    }
}

impl Read for CommandOutput {
    /// Reads the output; at its end, waits for the command, and fails unless its exit code is 0.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(bytes)?;
        if read == 0 && !bytes.is_empty() && !self.has_ended {
            let status = self.child.wait()?;
            self.has_ended = true;
            if !status.success() {
                let what = format!("the command '{}' failed: {status}", self.shown);
                return Err(io::Error::other(what));
            }
        }
        Ok(read)
    }
}

impl Drop for CommandOutput {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
