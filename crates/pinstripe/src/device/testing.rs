//! Helpers for the tests of this module and of its users.

use std::io::Write;

use super::ring::Ring;
use crate::error::Kind;

/// Reports that a test could not run, to standard error and to the summary of all tests.
pub(crate) fn skipped(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    let Some(log) = std::env::var_os("PINSTRIPE_SKIP_LOG") else { return };
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    log.write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
}

/// A ring, or the word that there is none here.
pub(crate) fn ring(test: &str, depth: usize) -> Option<Ring> {
    match Ring::new(depth) {
        Ok(ring) => Some(ring),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            skipped(test, &error.to_string());
            None
        }
    }
}
