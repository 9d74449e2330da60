//! Calls verbs of the lab as a user's script does.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

use crate::workspace::{Result, Workspace, cargo, succeeds};

/// The program, built in release mode.
pub(super) struct LabProgram {
    binary: PathBuf,
}

impl LabProgram {
    /// Builds it.
    pub fn build(workspace: &Workspace) -> Result<Self> {
        if !succeeds(cargo().args(["build", "--release", "--package", "pinstripe-cli"]))? {
            return Err("pinstripe does not build".to_owned());
        }
        Ok(LabProgram { binary: workspace.target.join("release").join("pinstripe") })
    }

    /// Returns a command that calls the program.
    pub fn command(&self) -> Command {
        Command::new(&self.binary)
    }

    /// Runs a verb of the lab, with separate directories for results and history; returns its exit
    /// status and its events.
    pub fn events<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        state: &Path,
    ) -> Result<(ExitStatus, Vec<Value>)> {
        let mut command = self.command();
        command.args(["lab", "--json"]).args(args).env("XDG_STATE_HOME", state);
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot run pinstripe: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let events = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok((output.status, events))
    }
}
