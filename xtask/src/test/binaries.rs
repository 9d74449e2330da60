//! The test binaries of the workspace, built once.
//!
//! They are run by this program and not by `cargo test`, so that the times of the build, of each
//! binary and of each test can be told apart, and so that two can run at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::jobs::Job;
use super::scratch::Scratch;
use crate::workspace::{Result, cargo, root_folder, works};

/// libtest reports how long each test took under an option that it calls unstable.
const TIMED: [&str; 2] = ["-Zunstable-options", "--report-time"];
/// It takes such options from a stable toolchain when this is set.
const ALLOWS_UNSTABLE: &str = "RUSTC_BOOTSTRAP";

/// One test binary.
pub(super) struct Binary {
    /// Its package and target, for people.
    pub name: String,
    path: PathBuf,
    /// The folder of its package, in which its tests run.
    folder: PathBuf,
}

/// Builds all test binaries; with `is_quick` only those of libraries and programs.
pub(super) fn build(features: &[String], is_quick: bool) -> Result<Vec<Binary>> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    if is_quick {
        command.args(["--lib", "--bins"]);
    }
    for feature in features {
        command.arg("--features").arg(feature);
    }
    let output = command
        .current_dir(root_folder()?)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build (see above)".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    Ok(messages.filter_map(|message: Value| Binary::of(&message)).collect())
}

impl Binary {
    /// The binary that a message of cargo names, if it is one of tests.
    fn of(message: &Value) -> Option<Binary> {
        let is_test =
            message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let path = message["executable"].as_str().filter(|_| is_test)?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = folder.file_name()?.to_string_lossy();
        let target = message["target"]["name"].as_str()?;
        let kind = message["target"]["kind"][0].as_str()?;
        Some(Binary {
            name: format!("{package}: {kind} {target}"),
            path: path.into(),
            folder: folder.into(),
        })
    }

    /// The run of its tests.
    pub fn job(&self, scratch: &Scratch) -> Job {
        let mut command = Command::new(&self.path);
        command.env("CARGO_MANIFEST_DIR", &self.folder).current_dir(&self.folder);
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        if let Some(folder) = scratch.of(&package) {
            command.env("TMPDIR", folder);
        }
        let mut timed = Command::new(&self.path);
        if works(timed.arg("--list").args(TIMED).env(ALLOWS_UNSTABLE, "1")) {
            command.args(TIMED).env(ALLOWS_UNSTABLE, "1");
        }
        Job { name: self.name.clone(), command }
    }
}

/// The run of the examples in the documentation.
pub(super) fn examples(features: &[String]) -> Result<Job> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--doc", "--quiet"]).current_dir(root_folder()?);
    for feature in features {
        command.arg("--features").arg(feature);
    }
    Ok(Job { name: "documentation".to_owned(), command })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn test_binaries_are_found_among_the_messages() {
        let message = |reason: &str, is_test: bool, executable: Value| {
            let target = json!({"name": "it", "kind": ["test"]});
            json!({"reason": reason, "profile": {"test": is_test}, "executable": executable,
                "manifest_path": "/somewhere/crates/ours/Cargo.toml", "target": target})
        };
        let is_one = |message: Value| Binary::of(&message).is_some();
        assert!(!is_one(message("compiler-artifact", false, json!("/target/it"))));
        assert!(!is_one(message("compiler-artifact", true, Value::Null)));
        assert!(!is_one(message("build-script-executed", true, json!("/target/it"))));
        let found = Binary::of(&message("compiler-artifact", true, json!("/target/it"))).unwrap();
        assert_eq!(found.name, "ours: test it");
        assert_eq!(found.folder, Path::new("/somewhere/crates/ours"));
    }
}
