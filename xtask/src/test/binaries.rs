//! Builds the test binaries of the workspace once; the same compiler run also lints them.
//!
//! The binaries are run by this program and not by `cargo test`, so that the times of the build, of
//! each binary and of each test can be measured separately, and so that two binaries can run at the
//! same time.
//!
//! clippy is a compiler that also lints. `cargo clippy` only checks with it and then stops; here it
//! compiles the workspace's crates, so that no crate is compiled twice. Cargo stores the warnings,
//! and repeats them for crates that it does not build again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Scope;
use super::jobs::Job;
use super::scratch::Scratch;
use super::tally::Lists;
use crate::workspace::{Result, cargo, root_folder, works};

/// The options that make libtest report the time of each test; libtest calls this feature unstable.
const TIMED: [&str; 2] = ["-Zunstable-options", "--report-time"];
/// The environment variable with which a stable toolchain accepts unstable options.
const ALLOWS_UNSTABLE: &str = "RUSTC_BOOTSTRAP";

/// The binaries whose tests mostly wait for processes, servers and clocks: twice as many of their
/// tests run at the same time as there are processors.
const MOSTLY_WAIT: &[&str] = &[
    "pinstripe: test it",
    "pinstripe-bucket: test bucket",
    "pinstripe-cli: test cli",
    "pinstripe-record: lib pinstripe_record",
];

/// The tests of the benches; all of them are in the list of `--all`.
const BENCHES: &str = "pinstripe-lab: bin pinstripe-bench";
/// The environment variable that makes simulators play more seeds (`pinstripe_testing`).
const MORE_SEEDS: &str = "PINSTRIPE_ALL";

/// The tests that boot a kernel, which `cargo xtask md-oracle` runs. This program only lints them.
const BOOTS: &str = "md_oracle";
/// The feature that enables these tests.
const BOOTS_FEATURE: &str = "pinstripe-array/md-oracle";
/// The environment variable that tells cargo which compiler to use for the crates of the workspace.
const COMPILER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// What cargo made.
pub(super) struct Built {
    /// All test binaries.
    pub binaries: Vec<Binary>,
    /// The number of warnings of compiler and linter that were shown.
    pub warnings: usize,
}

/// One test binary.
pub(super) struct Binary {
    /// The package and target of the binary, for people.
    pub name: String,
    path: PathBuf,
    /// The directory of the binary's package, in which its tests run.
    folder: PathBuf,
}

/// The linting compiler in the same directory as this cargo, if it is installed.
pub(super) fn linter() -> Option<PathBuf> {
    let linter = Path::new(cargo().get_program()).with_file_name("clippy-driver");
    [linter, PathBuf::from("clippy-driver")]
        .into_iter()
        .find(|it| works(Command::new(it).arg("--version")))
}

/// Builds all test binaries of a scope; for the quick scope, only those of libraries and programs.
pub(super) fn build(features: &[String], linter: Option<&Path>, scope: Scope) -> Result<Built> {
    let mut command = tests(features, linter)?;
    command.args(["--no-run", "--message-format=json"]);
    command.args(["--lib", "--bins"]);
    if scope != Scope::Quick {
        command.args(["--tests", "--features", BOOTS_FEATURE]);
    }
    if scope == Scope::All {
        // No test needs them: they have to compile.
        command.arg("--examples");
    }
    let mut running = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let mut built = Built { binaries: Vec::new(), warnings: 0 };
    let lines = running.stdout.take().into_iter().flat_map(|it| BufReader::new(it).lines());
    for line in lines.map_while(std::io::Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(warning) = warning(&message["message"]) {
            eprint!("{warning}");
            built.warnings += 1;
        }
        built.binaries.extend(Binary::of(&message));
    }
    match running.wait() {
        Ok(status) if status.success() => Ok(built),
        Ok(_) => Err("the tests do not build (see above)".to_owned()),
        Err(error) => Err(format!("cannot wait for cargo: {error}")),
    }
}

/// Returns the text of a compiler warning about code, as it is to be shown. A message without a
/// code is a summary of such messages, or says that `clippy.toml` names something that this crate
/// does not have.
fn warning(message: &Value) -> Option<&str> {
    let is_about_code = !message["code"].is_null() || message["level"] == "error";
    message["rendered"].as_str().filter(|_| is_about_code)
}

/// Returns the command `cargo test` for the workspace with features, compiled by the linter if
/// there is one.
fn tests(features: &[String], linter: Option<&Path>) -> Result<Command> {
    let mut command = cargo();
    command.args(["test", "--workspace"]).current_dir(root_folder()?);
    for feature in features {
        command.arg("--features").arg(feature);
    }
    if let Some(linter) = linter {
        command.env(COMPILER, linter);
    }
    Ok(command)
}

impl Binary {
    /// Returns the binary that a message of cargo names, if it is a test binary.
    fn of(message: &Value) -> Option<Binary> {
        let is_test =
            message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let path = message["executable"].as_str().filter(|_| is_test)?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = folder.file_name()?.to_string_lossy();
        let target = message["target"]["name"].as_str().filter(|it| *it != BOOTS)?;
        let kind = message["target"]["kind"][0].as_str()?;
        Some(Binary {
            name: format!("{package}: {kind} {target}"),
            path: path.into(),
            folder: folder.into(),
        })
    }

    /// Counts its tests.
    pub fn count(&self, lists: &mut Lists) {
        let count = |args: &[&str]| {
            let output = Command::new(&self.path).arg("--list").args(args).output();
            let text = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
            text.map_or(0, |it| it.lines().filter(|line| line.ends_with(": test")).count())
        };
        let tests = count(&[]);
        let ignored = if self.name == BENCHES { tests } else { count(&["--ignored"]) };
        lists.gate += tests - ignored;
        lists.all += ignored;
    }

    /// Returns the job that runs the binary's tests.
    pub fn job(&self, scratch: &Scratch, scope: Scope) -> Job {
        let mut command = Command::new(&self.path);
        command.env("CARGO_MANIFEST_DIR", &self.folder).current_dir(&self.folder);
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        if let Some(folder) = scratch.of(&package) {
            command.env("TMPDIR", folder);
        }
        if MOSTLY_WAIT.contains(&&*self.name) {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            command.arg(format!("--test-threads={}", 2 * processors));
        }
        if scope == Scope::All {
            command.arg("--include-ignored").env(MORE_SEEDS, "1");
        }
        let mut timed = Command::new(&self.path);
        if works(timed.arg("--list").args(TIMED).env(ALLOWS_UNSTABLE, "1")) {
            command.args(TIMED).env(ALLOWS_UNSTABLE, "1");
        }
        Job { name: self.name.clone(), command }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_said_about_code_is_a_warning() {
        let of = |level: &str, code: Value| {
            let message = json!({"level": level, "code": code, "rendered": "text"});
            warning(&message).is_some()
        };
        assert!(of("warning", json!({"code": "clippy::disallowed_methods"})));
        assert!(of("error", Value::Null));
        assert!(!of("warning", Value::Null));
        assert!(warning(&Value::Null).is_none());
    }

    #[test]
    fn test_binaries_are_found_among_the_messages() {
        let of = |name: &str, reason: &str, is_test: bool, executable: Value| {
            let target = json!({"name": name, "kind": ["test"]});
            json!({"reason": reason, "profile": {"test": is_test}, "executable": executable,
                "manifest_path": "/somewhere/crates/ours/Cargo.toml", "target": target})
        };
        let message =
            |reason: &str, is_test: bool, executable: Value| of("it", reason, is_test, executable);
        let is_one = |message: Value| Binary::of(&message).is_some();
        assert!(!is_one(message("compiler-artifact", false, json!("/target/it"))));
        assert!(!is_one(message("compiler-artifact", true, Value::Null)));
        assert!(!is_one(of(BOOTS, "compiler-artifact", true, json!("/target/it"))));
        assert!(!is_one(message("build-script-executed", true, json!("/target/it"))));
        let found = Binary::of(&message("compiler-artifact", true, json!("/target/it"))).unwrap();
        assert_eq!(found.name, "ours: test it");
        assert_eq!(found.folder, Path::new("/somewhere/crates/ours"));
    }
}
