//! The seeds that a test plays.

use std::ops::Range;

/// The seeds that an environment variable names as `FROM..TO`; without it those of the test
/// command.
pub fn chosen(variable: &str, of_the_test_command: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else { return of_the_test_command };
    let parse = || {
        let (from, to) = text.split_once("..")?;
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from < to).then_some(from..to)
    };
    parse().unwrap_or_else(|| panic!("{variable}: expected FROM..TO, found '{text}'"))
}
