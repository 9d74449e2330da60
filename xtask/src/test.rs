//! `cargo xtask test`: every check and every test, one summary, nothing skipped in silence.
//!
//! A test that cannot run where it is (no root, no xattrs, no liblzo2) says so and returns. It
//! prints `skipped: NAME: REASON`, to be seen when it is run alone, and appends `NAME: REASON` to
//! the file named by `PINSTRIPE_SKIP_LOG`, from which the summary here is made. The helper to copy:
//!
//! ```ignore
//! fn skipped(test: &str, reason: &str) {
//!     eprintln!("skipped: {test}: {reason}");
//!     let Some(log) = std::env::var_os("PINSTRIPE_SKIP_LOG") else { return };
//!     let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
//!     std::io::Write::write_all(&mut log, format!("{test}: {reason}\n").as_bytes()).unwrap();
//! }
//! ```
//!
//! libtest counts such a test as passed; the summary moves it to the skipped ones. The last line
//! is always `N passed, N failed, N skipped`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::licence;
use crate::packages;
use crate::tidy;
use crate::workspace::{Result, Workspace, cargo, succeeds, works};

/// The file in which tests report that they could not run.
const SKIP_LOG: &str = "PINSTRIPE_SKIP_LOG";

/// Tests against the C library of a codec.
struct Oracle {
    /// The library that they link.
    library: &'static str,
    /// The Debian package that has it.
    package: &'static str,
    /// The feature of `ORACLE_CRATE` that they are behind.
    feature: &'static str,
}

/// Which codecs are tested so.
const ORACLES: [Oracle; 2] = [
    Oracle { library: "lzo2", package: "liblzo2-dev", feature: "lzo-oracle" },
    Oracle { library: "snappy", package: "libsnappy-dev", feature: "snappy-oracle" },
];
/// The crate that has these tests.
const ORACLE_CRATE: &str = "pinstripe";
/// Debian packages whose programs and libraries tests use.
const PACKAGES: &[&str] = &[
    ORACLES[0].package,
    ORACLES[1].package,
    "attr",
    "acl",
    "bindfs",
    "btrfs-progs",
    "chromium",
    "dbench",
    "dosfstools",
    "e2fsprogs",
    "fio",
    "libnbd-bin",
    "qemu-utils",
    "rsync",
    "xfsprogs",
];

/// The outcome of the checks and tests so far.
#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Tally {
    fn check(&mut self, name: &str, outcome: Result<bool>) {
        match outcome {
            Ok(true) => self.passed += 1,
            Ok(false) => self.failed.push(name.to_owned()),
            Err(error) => self.failed.push(format!("{name}: {error}")),
        }
    }

    /// Counts one line of libtest's output.
    fn count(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed");
        } else if let Some((name, fate)) = test_line(line) {
            if fate == "FAILED" {
                self.failed.push(name.to_owned());
            } else if let Some(reason) = fate.strip_prefix("ignored") {
                let reason = reason.trim_start_matches(", ");
                let reason = if reason.is_empty() { "marked as ignored" } else { reason };
                self.skipped.push(format!("{name}: {reason}"));
            }
        }
    }

    /// Moves the tests that said so themselves from the passed to the skipped ones.
    fn take_skip_log(&mut self, log: &str) {
        let mut lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        lines.dedup();
        self.passed = self.passed.saturating_sub(lines.len());
        self.skipped.extend(lines.into_iter().map(str::to_owned));
    }

    fn print(&self) {
        println!();
        self.skipped.iter().for_each(|skipped| println!("skipped: {skipped}"));
        self.failed.iter().for_each(|failed| println!("failed: {failed}"));
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        println!("{} passed, {failed} failed, {skipped} skipped", self.passed);
    }
}

/// Runs everything; false when something failed.
pub fn run() -> Result<bool> {
    let workspace = Workspace::load()?;
    let mut tally = Tally::default();
    formatting_and_lints(&mut tally);
    step("tidy");
    tally.check("tidy", tidy::run());
    step("licences");
    let refused = licence::refused(&workspace);
    refused.iter().for_each(|crate_| println!("error: {crate_}"));
    tally.check("licences", Ok(refused.is_empty()));
    step("packages");
    let oracles = install_packages(&mut tally);
    step("tests");
    run_tests(&workspace, &oracles, &mut tally);
    tally.print();
    Ok(tally.failed.is_empty())
}

fn step(name: &str) {
    println!("== {name}");
}

fn formatting_and_lints(tally: &mut Tally) {
    let format: &[&str] = &["fmt", "--all", "--check"];
    let clippy: &[&str] = &[
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    for (name, component, args) in [("format", "rustfmt", format), ("clippy", "clippy", clippy)] {
        step(name);
        let there = || works(cargo().arg(args[0]).arg("--version"));
        if !there() {
            // A minimal toolchain; where rustup is absent the check is left out, and says so.
            works(Command::new("rustup").args(["component", "add", component]));
        }
        if there() {
            tally.check(name, succeeds(cargo().args(args)));
        } else {
            tally.skipped.push(format!("{name}: {component} is not installed"));
        }
    }
}

/// Installs what tests use, where that is possible, and says which libraries are there.
fn install_packages(tally: &mut Tally) -> Vec<&'static Oracle> {
    // Only the libraries decide here what is run; the programs are judged by the tests that use
    // them, which may find them from elsewhere.
    let why = packages::install(PACKAGES);
    let (there, absent): (Vec<_>, Vec<_>) = ORACLES.iter().partition(|it| links(it.library));
    for Oracle { library, package, .. } in absent {
        tally.skipped.push(format!("tests against lib{library}: no {package} ({why})"));
    }
    there
}

/// Whether the C compiler links a library, from whichever package it came.
fn links(library: &str) -> bool {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let library = format!("-l{library}");
    works(Command::new(compiler).args(["-shared", "-o", "/dev/null", &library]))
}

fn run_tests(workspace: &Workspace, oracles: &[&Oracle], tally: &mut Tally) {
    let crate_ = workspace.member(ORACLE_CRATE);
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    for Oracle { library, feature, .. } in oracles {
        if crate_.is_some_and(|(_, crate_)| crate_.features.contains(*feature)) {
            command.arg("--features").arg(format!("{ORACLE_CRATE}/{feature}"));
        } else {
            let why = format!("{ORACLE_CRATE} has no feature {feature}");
            tally.skipped.push(format!("tests against lib{library}: {why}"));
        }
    }
    if let Err(error) = stream_tests(&mut command, &workspace.target, tally) {
        tally.failed.push(error);
    }
}

/// Runs `cargo test`, passing its output on while counting it.
fn stream_tests(command: &mut Command, target: &Path, tally: &mut Tally) -> Result<()> {
    let folder = target.join("xtask");
    let log = folder.join("skipped.log");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&log, ""))
        .map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let mut child = command
        .env(SKIP_LOG, &log)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run cargo test: {error}"))?;
    let failed_before = tally.failed.len();
    for line in BufReader::new(child.stdout.take().expect("stdout was asked for")).split(b'\n') {
        let line = line.map_err(|error| format!("cannot read from cargo test: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.count(&line);
    }
    let status = child.wait().map_err(|error| format!("cargo test is lost: {error}"))?;
    let log = fs::read(&log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    tally.take_skip_log(&String::from_utf8_lossy(&log));
    if !status.success() && tally.failed.len() == failed_before {
        return Err("cargo test: a build failed or a test binary crashed (see above)".to_owned());
    }
    Ok(())
}

/// The number that stands before ` passed` and its like.
fn number_before(line: &str, word: &str) -> usize {
    let before = line.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Name and fate in `test NAME ... FATE`.
fn test_line(line: &str) -> Option<(&str, &str)> {
    let (name, fate) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name, fate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_several_binaries_is_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test units::tests::sizes ... ok",
            "test walk::tests::acl ... ignored, needs a file system with ACLs",
            "test slow ... ignored",
            "test codec::tests::lzo ... FAILED",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; \
             finished in 0.01s",
            "test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            tally.count(line);
        }
        tally.take_skip_log("xattrs: not root\nxattrs: not root\n\n");
        assert_eq!(tally.passed, 41);
        assert_eq!(tally.failed, ["codec::tests::lzo"]);
        assert_eq!(
            tally.skipped,
            [
                "walk::tests::acl: needs a file system with ACLs",
                "slow: marked as ignored",
                "xattrs: not root"
            ]
        );
    }

    #[test]
    fn checks_count_like_tests() {
        let mut tally = Tally::default();
        tally.check("format", Ok(true));
        tally.check("clippy", Ok(false));
        tally.check("tidy", Err("no such file".to_owned()));
        assert_eq!(tally.passed, 1);
        assert_eq!(tally.failed, ["clippy", "tidy: no such file"]);
    }
}
