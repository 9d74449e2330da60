//! What the tests of several crates share: tests that are skipped, seeds, content, mounts, ticks of the clock. Never
//! part of what is shipped.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "helpers of tests")]

mod mounts;
mod networks;
mod noise;
mod proxy;
pub mod s3;
mod tick;

use std::io::Write;
use std::ops::Range;
use std::process::Command;

pub use mounts::{in_own_mounts, mount, unmount};
pub use networks::{Network, in_own_networks};
pub use noise::noise;
pub use proxy::{Asked, Fate, Proxy};
pub use s3::S3Server;
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

/// The end of the reason of a test that an installation would cure. `xtask` looks for it.
const NOT_INSTALLED: &str = " is not installed";

/// Whether this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Set by `cargo xtask soak whole`: long tests run all that they have.
const WHOLE: &str = "PINSTRIPE_WHOLE";
/// `cargo xtask soak whole` multiplies the seeds and cases of the test command by this.
const WHOLE_TIMES: u32 = 4;

/// Whether long tests are to run all that they have, and not the share of the test command.
pub fn is_whole() -> bool {
    std::env::var_os(WHOLE).is_some()
}

/// The distance of the steps at which the test command tries a fault: every `distance`-th.
/// `cargo xtask soak whole` tries each of them. Steps of two members take turns, so that an odd
/// distance meets both.
pub fn every(distance: usize) -> usize {
    if is_whole() { 1 } else { distance }
}

/// The number of drawn cases of a property, given the number in the test command.
pub fn cases(of_the_test_command: u32) -> u32 {
    of_the_test_command * if is_whole() { WHOLE_TIMES } else { 1 }
}

/// The number of things that a test makes: the first in the test command, and all of them in `cargo
/// xtask soak whole`.
pub fn count(of_the_test_command: usize, whole: usize) -> usize {
    if is_whole() { whole } else { of_the_test_command }
}

/// The seeds that an environment variable names as `FROM..TO`; without it those of the test
/// command.
pub fn chosen_seeds(variable: &str, of_the_test_command: Range<u64>) -> Range<u64> {
    let Range { start, end } = of_the_test_command;
    let whole = start..start + (end - start) * u64::from(WHOLE_TIMES);
    let Ok(text) = std::env::var(variable) else {
        return if is_whole() { whole } else { start..end };
    };
    let parse = || {
        let (from, to) = text.split_once("..")?;
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from < to).then_some(from..to)
    };
    parse().unwrap_or_else(|| panic!("{variable}: expected FROM..TO, found '{text}'"))
}
