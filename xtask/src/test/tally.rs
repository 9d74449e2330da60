//! The count of checks and tests, taken from their output.

use super::Scope;
use crate::workspace::Result;

/// The end of the reason of a skipped test that an installation would make run
/// (`pinstripe_testing`).
const NOT_INSTALLED: &str = " is not installed";

/// The beginning of the reason of a test that `--all` runs and the gate ignores.
const FOR_ALL: &str = "with --all: ";

/// The number of slowest tests that are listed with their times.
const SLOWEST: usize = 20;

/// The number of tests in each list.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Lists {
    /// Tests of the gate.
    pub gate: usize,
    /// Tests that only `--all` runs.
    pub all: usize,
}

/// The outcome of the checks and tests so far.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Tally {
    pub passed: usize,
    pub failed: Vec<String>,
    pub skipped: Vec<String>,
    pub lists: Lists,
    /// The seconds that each test took, and its name.
    pub took: Vec<(f64, String)>,
}

impl Tally {
    pub fn check(&mut self, name: &str, outcome: Result<bool>) {
        match outcome {
            Ok(true) => self.passed += 1,
            Ok(false) => self.failed.push(name.to_owned()),
            Err(error) => self.failed.push(format!("{name}: {error}")),
        }
    }

    /// Counts one line of libtest's output.
    pub fn count(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed");
        } else if let Some((name, fate)) = test_line(line) {
            let (fate, seconds) = fate_and_seconds(fate);
            self.took.extend(seconds.map(|seconds| (seconds, name.to_owned())));
            if fate == "FAILED" {
                self.failed.push(name.to_owned());
            } else if let Some(reason) = fate.strip_prefix("ignored") {
                let reason = reason.trim_start_matches(", ");
                let reason = if reason.is_empty() { "marked as ignored" } else { reason };
                if !reason.starts_with(FOR_ALL) {
                    self.skipped.push(format!("{name}: {reason}"));
                }
            }
        }
    }

    /// Counts tests as failed that were skipped because something is missing that the test command
    /// installs.
    pub fn refuse_not_installed(&mut self) {
        let is_curable = |it: &mut String| it.ends_with(NOT_INSTALLED);
        self.failed.extend(self.skipped.extract_if(.., is_curable));
    }

    /// Counts tests as skipped, not as passed, that have reported this themselves.
    pub fn take_skip_log(&mut self, log: &str) {
        let mut lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        lines.dedup();
        self.passed = self.passed.saturating_sub(lines.len());
        self.skipped.extend(lines.into_iter().map(str::to_owned));
    }

    pub fn print(&self, scope: Scope) {
        let mut took: Vec<_> = self.took.iter().collect();
        took.sort_by(|one, other| other.0.total_cmp(&one.0));
        println!("\nseconds of the slowest tests:");
        took.iter().take(SLOWEST).for_each(|(seconds, name)| println!("{seconds:8.1}  {name}"));
        println!();
        self.skipped.iter().for_each(|skipped| println!("skipped: {skipped}"));
        self.failed.iter().for_each(|failed| println!("failed: {failed}"));
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        let Lists { gate, all } = self.lists;
        println!("lists: {gate} tests of the gate, {all} of --all");
        let left = if scope == Scope::All { String::new() } else { format!(", {all} for --all") };
        println!("{} passed, {failed} failed, {skipped} skipped{left}", self.passed);
    }
}

/// Returns the number before ` passed` or a similar word.
fn number_before(line: &str, word: &str) -> usize {
    let before = line.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Name and fate in `test NAME ... FATE`.
fn test_line(line: &str) -> Option<(&str, &str)> {
    let (name, fate) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name, fate))
}

/// Returns the result of a test, and its time in seconds if libtest reports it: `ok <0.123s>`.
fn fate_and_seconds(fate: &str) -> (&str, Option<f64>) {
    let timed = fate.strip_suffix("s>").and_then(|fate| fate.rsplit_once(" <"));
    match timed.and_then(|(fate, seconds)| Some((fate, seconds.parse().ok()?))) {
        Some((fate, seconds)) => (fate, Some(seconds)),
        None => (fate, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_installation_would_cure_fails_where_it_is_refused() {
        let mut tally = Tally { passed: 3, ..Tally::default() };
        tally.take_skip_log("a: sox is not installed\nb: no loop device can be made\n");
        tally.refuse_not_installed();
        assert_eq!(tally.failed, ["a: sox is not installed"]);
        assert_eq!(tally.skipped, ["b: no loop device can be made"]);
    }

    #[test]
    fn output_of_several_binaries_is_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test units::tests::sizes ... ok",
            "test walk::tests::acl ... ignored, needs a file system with ACLs",
            "test slow ... ignored",
            "test browser ... ignored, with --all: it starts a browser <0.000s>",
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
    fn times_are_taken_off_the_fate() {
        let mut tally = Tally::default();
        tally.count("test a::quick ... ok <0.004s>");
        tally.count("test b::slow ... FAILED <61.250s>");
        tally.count("test c::untimed ... ok");
        assert_eq!(tally.failed, ["b::slow"]);
        assert_eq!(tally.took, [(0.004, "a::quick".to_owned()), (61.25, "b::slow".to_owned())]);
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
