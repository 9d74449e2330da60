//! What the tests of several crates share: tests that are skipped, seeds, content, mounts, ticks of the clock. Never
//! part of what is shipped.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "these are helpers of tests"
)]

mod browser;
mod mounts;
mod networks;
mod noise;
mod other_s3;
mod postgres;
mod proxy;
mod s3;
mod tick;

use std::io::Write;
use std::ops::Range;
use std::process::Command;

pub use browser::Browser;
pub use mounts::{in_own_mounts, mount, unmount};
pub use networks::{Network, in_own_networks};
pub use noise::noise;
pub use other_s3::{OtherS3Server, S3Program};
pub use postgres::PostgresServer;
pub use proxy::{Asked, Fate, Proxy};
pub use s3::{BUCKET, KEY_ID, KEY_SECRET, S3Server};
pub use tick::await_tick;

/// A shell that runs a script.
pub fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Reports that a test could not run: on standard error, and in the summary of the test command.
pub fn skipped(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    let Some(log) = std::env::var_os("PINSTRIPE_SKIP_LOG") else { return };
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    log.write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
}

/// Reports that a test could not run because a program or library is missing which the test command
/// installs: with `CI=true` that is a failure.
pub fn not_installed(test: &str, what: &str) {
    skipped(test, &format!("{what}{NOT_INSTALLED}"));
}

/// Whether a test that takes minutes is to run: `cargo xtask soak NAME` alone runs it, and elsewhere it
/// is skipped.
pub fn is_soaked(test: &str, name: &str) -> bool {
    let is_asked = std::env::var_os(format!("PINSTRIPE_SOAK_{}", name.to_uppercase())).is_some();
    if !is_asked {
        skipped(test, &format!("takes minutes: cargo xtask soak {name}"));
    }
    is_asked
}

/// The end of the reason of a test that an installation would cure. `xtask` looks for it.
const NOT_INSTALLED: &str = " is not installed";

/// Whether this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Set by `cargo xtask test --all`: long tests run all that their source names, and not the gate's share.
const ALL: &str = "PINSTRIPE_ALL";
/// Set by `cargo xtask soak whole`: long tests run all that they have.
const WHOLE: &str = "PINSTRIPE_WHOLE";
/// The gate plays one seed of this many, and tries one fault of this many.
const GATE_ONE_OF: u32 = 3;
/// `cargo xtask soak whole` multiplies the seeds and cases of `cargo xtask test --all` by this.
const WHOLE_TIMES: u32 = 4;

/// Whether long tests are to run more than the share of the gate (`cargo xtask test`).
pub fn is_all() -> bool {
    std::env::var_os(ALL).is_some() || is_whole()
}

/// Whether long tests are to run all that they have.
pub fn is_whole() -> bool {
    std::env::var_os(WHOLE).is_some()
}

/// The distance of the steps at which a test tries a fault: `distance` with `--all`, three times that in
/// the gate, and 1 in `cargo xtask soak whole`. Steps of two members alternate, so that an odd distance
/// meets both.
pub fn every(distance: usize) -> usize {
    match (is_whole(), is_all()) {
        (true, _) => 1,
        (false, true) => distance,
        (false, false) => distance * GATE_ONE_OF as usize,
    }
}

/// The number of drawn cases of a property, given the number with `--all`: half of them in the gate.
pub fn cases(of_all: u32) -> u32 {
    match (is_whole(), is_all()) {
        (true, _) => of_all * WHOLE_TIMES,
        (false, true) => of_all,
        (false, false) => of_all.div_ceil(2),
    }
}

/// The number of things that a test makes: `usual`, and `whole` in `cargo xtask soak whole`.
pub fn count(usual: usize, whole: usize) -> usize {
    if is_whole() { whole } else { usual }
}

/// The seeds that an environment variable names as `FROM..TO`; without it those of `--all`, or the
/// first of them in the gate.
pub fn chosen_seeds(variable: &str, of_all: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else {
        let seeds = of_all.end - of_all.start;
        let seeds = match (is_whole(), is_all()) {
            (true, _) => seeds * u64::from(WHOLE_TIMES),
            (false, true) => seeds,
            (false, false) => seeds.div_ceil(u64::from(GATE_ONE_OF)),
        };
        return of_all.start..of_all.start + seeds;
    };
    let parse = || {
        let (from, to) = text.split_once("..")?;
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from < to).then_some(from..to)
    };
    parse().unwrap_or_else(|| panic!("{variable}: expected FROM..TO, found '{text}'"))
}
