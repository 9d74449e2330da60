//! `cargo xtask test`: runs the checks and tests that must pass before a merge (the gate), and
//! prints one summary that includes every skipped test. `cargo xtask test --all` also runs the
//! tests that take long or need large programs, and plays more seeds.
//!
//! Each test is in exactly one list: `#[ignore = "with --all: REASON"]` puts it in the list of
//! `--all` (`tidy` refuses other reasons), and all other tests are in the list of the gate. The
//! tests of the benches are in the list of `--all`; the gate does not build them.
//!
//! A test that cannot run on this machine (no root, no xattrs, no liblzo2) reports this and
//! returns. Such a test prints `skipped: NAME: REASON`, for a user who runs it alone, and appends
//! `NAME: REASON` to the file named by `PINSTRIPE_SKIP_LOG`, from which the summary is made
//! (`pinstripe_testing::skipped`).
//!
//! libtest counts such a test as passed; the summary counts it as skipped. Before the summary, the
//! output contains the times of the build, of all tests, of each test binary (two run at the same
//! time), and of the slowest tests, and the sizes of both lists. The last line always begins with
//! `N passed, N failed, N skipped`; the gate adds `, N for --all`.

mod binaries;
mod jobs;
mod scratch;
mod tally;
mod times;

use std::fs;
use std::path::Path;
use std::process::Command;

use self::jobs::Job;
use self::scratch::Scratch;
use self::tally::Tally;
use self::times::Times;
use crate::licence;
use crate::packages;
use crate::tidy;
use crate::workspace::{Result, Workspace, cargo, succeeds, works};

/// The environment variable with the file in which tests report that they could not run.
const SKIP_LOG: &str = "PINSTRIPE_SKIP_LOG";

/// Tests that compare a codec with its C library.
struct Oracle {
    /// The library that the tests link.
    library: &'static str,
    /// The Debian package that contains the library.
    package: &'static str,
    /// The feature of `ORACLE_CRATE` that enables the tests.
    feature: &'static str,
}

/// The codecs that are tested against their C libraries.
const ORACLES: [Oracle; 2] = [
    Oracle { library: "lzo2", package: "liblzo2-dev", feature: "lzo-oracle" },
    Oracle { library: "snappy", package: "libsnappy-dev", feature: "snappy-oracle" },
];
/// The feature that enables the developers' benches; `--all` runs their tests.
const BENCHES: &str = "pinstripe-lab/bench";
/// The directory of the benches.
const BENCHES_FOLDER: &str = "crates/pinstripe-lab/bench";
/// The crate that contains these tests.
const ORACLE_CRATE: &str = "pinstripe-split";
/// Debian packages whose programs are used by tests of the gate.
const PROGRAMS: &[&str] = &[
    "acl",
    "attr",
    "bindfs",
    "curl",
    "e2fsprogs",
    "ffmpeg",
    "fio",
    "flac",
    "libfaketime",
    "libnbd-bin",
    "librados2",
    "openssl",
    "postgresql",
    "rsync",
    "sox",
];
/// Debian packages whose programs are used only by tests of `--all`; installing them takes minutes.
const PROGRAMS_OF_ALL: &[&str] = &[
    "btrfs-progs",
    "chromium",
    "dbench",
    "dosfstools",
    "gdb",
    "gstreamer1.0-plugins-base",
    "gstreamer1.0-plugins-good",
    "gstreamer1.0-tools",
    "jackd2",
    "libasound2-plugins",
    "prometheus",
    "qemu-utils",
    "xfsprogs",
];

/// How many checks and tests are run.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    /// Only the quick checks during development: formatting, lints, tidy and unit tests.
    Quick,
    /// Checks and tests that must pass before a merge.
    Gate,
    /// The gate, the tests that the gate ignores, and more seeds.
    All,
}

/// Runs the gate, or the scope that an option selects. Returns false if something failed.
pub fn run(args: &[String]) -> Result<bool> {
    let scope = match args {
        [] => Scope::Gate,
        [word] if word == "--quick" => Scope::Quick,
        [word] if word == "--all" => Scope::All,
        _ => return Err(format!("--quick and --all are known here, not '{}'", args.join(" "))),
    };
    let workspace = Workspace::load()?;
    let (mut tally, mut times) = (Tally::default(), Times::default());
    times.of("formatting", || formatting(&mut tally));
    step("tidy");
    tally.check("tidy", tidy::run());
    let oracles = if scope == Scope::Quick {
        ORACLES.iter().filter(|it| links(it.library)).collect()
    } else {
        step("licences");
        let refused = licence::refused(&workspace);
        refused.iter().for_each(|crate_| println!("error: {crate_}"));
        tally.check("licences", Ok(refused.is_empty()));
        step("packages");
        times.of("packages of libraries", || install_libraries(&mut tally))
    };
    let mut features = oracle_features(&workspace, &oracles, &mut tally);
    match scope {
        Scope::Quick => {}
        Scope::Gate => tally.lists.all += tests_in(&workspace.root.join(BENCHES_FOLDER))?,
        Scope::All => features.push(BENCHES.to_owned()),
    }
    if let Err(error) = run_tests(&workspace, &features, scope, &mut times, &mut tally) {
        tally.failed.push(error);
    }
    if std::env::var_os("CI").is_some_and(|it| it == "true") {
        tally.refuse_not_installed();
    }
    times.print();
    tally.print(scope);
    Ok(tally.failed.is_empty())
}

fn step(name: &str) {
    println!("== {name}");
}

fn formatting(tally: &mut Tally) {
    step("format");
    if has_component("rustfmt", || works(cargo().args(["fmt", "--version"]))) {
        tally.check("format", succeeds(cargo().args(["fmt", "--all", "--check"])));
    } else {
        tally.skipped.push("format: rustfmt is not installed".to_owned());
    }
}

/// Whether a component of the toolchain is installed or can be installed. A minimal toolchain lacks
/// it; if rustup is missing too, the check is skipped with a message.
fn has_component(name: &str, is_there: impl Fn() -> bool) -> bool {
    is_there() || {
        works(Command::new("rustup").args(["component", "add", name]));
        is_there()
    }
}

/// Installs the libraries that tests link, if possible; returns the ones that are available. Only
/// libraries determine what is built. Programs are checked by the tests that use them, and may come
/// from elsewhere; they are installed while the tests are built.
fn install_libraries(tally: &mut Tally) -> Vec<&'static Oracle> {
    let why = packages::install(&ORACLES.map(|it| it.package));
    let (there, absent): (Vec<_>, Vec<_>) = ORACLES.iter().partition(|it| links(it.library));
    for Oracle { library, package, .. } in absent {
        tally.skipped.push(format!("tests against lib{library}: no {package} ({why})"));
    }
    there
}

/// Whether the C compiler can link a library, whatever package it came from.
fn links(library: &str) -> bool {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let library = format!("-l{library}");
    works(Command::new(compiler).args(["-shared", "-o", "/dev/null", &library]))
}

/// Returns the features that need an available C library; tests of missing libraries are counted as
/// skipped.
fn oracle_features(workspace: &Workspace, oracles: &[&Oracle], tally: &mut Tally) -> Vec<String> {
    let crate_ = workspace.member(ORACLE_CRATE);
    let mut features = Vec::new();
    for Oracle { library, feature, .. } in oracles {
        if crate_.is_some_and(|(_, crate_)| crate_.features.contains(*feature)) {
            features.push(format!("{ORACLE_CRATE}/{feature}"));
        } else {
            let why = format!("{ORACLE_CRATE} has no feature {feature}");
            tally.skipped.push(format!("tests against lib{library}: {why}"));
        }
    }
    features
}

/// The number of tests in the Rust files of a directory that is not built.
fn tests_in(folder: &Path) -> Result<usize> {
    let told = |error| format!("cannot read {}: {error}", folder.display());
    let mut count = 0;
    for entry in fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        if path.is_dir() {
            count += tests_in(&path)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).map_err(told)?;
            count += text.lines().filter(|line| line.trim() == "#[test]").count();
        }
    }
    Ok(count)
}

/// Installs the programs that the tests of a scope start, if possible.
fn install_programs(workspace: &Workspace, scope: Scope) {
    let programs = match scope {
        Scope::Quick => return,
        Scope::Gate => PROGRAMS.to_vec(),
        Scope::All => [PROGRAMS, PROGRAMS_OF_ALL].concat(),
    };
    packages::install(&programs);
    packages::install_s3_server();
    if scope == Scope::All {
        packages::install_other_s3_servers(&workspace.target.join("xtask").join("servers"));
    }
}

/// Builds the tests and runs the binaries. Documentation contains no examples that must be run,
/// because its code blocks are text (a rule of `tidy`).
fn run_tests(
    workspace: &Workspace,
    features: &[String],
    scope: Scope,
    times: &mut Times,
    tally: &mut Tally,
) -> Result<()> {
    let folder = workspace.target.join("xtask");
    let log = folder.join("skipped.log");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&log, ""))
        .map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    step("tests");
    let linter =
        has_component("clippy", || binaries::linter().is_some()).then(binaries::linter).flatten();
    let linter = linter.as_deref();
    let built = times.of("build of the tests, and lints", || {
        std::thread::scope(|threads| {
            threads.spawn(|| install_programs(workspace, scope));
            binaries::build(features, linter, scope)
        })
    })?;
    match linter {
        Some(_) => tally.check("clippy", Ok(built.warnings == 0)),
        None => tally.skipped.push("clippy: it is not installed".to_owned()),
    }
    let scratch = Scratch::new();
    println!("{}", scratch.told());
    let jobs: Vec<Job> = built.binaries.iter().map(|it| it.job(&scratch, scope)).collect();
    built.binaries.iter().for_each(|it| it.count(&mut tally.lists));
    times
        .of("all tests", || jobs::run(jobs, &log, &folder, tally))
        .into_iter()
        .for_each(|(name, seconds)| times.note(&name, seconds));
    let log = fs::read(&log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    tally.take_skip_log(&String::from_utf8_lossy(&log));
    Ok(())
}
