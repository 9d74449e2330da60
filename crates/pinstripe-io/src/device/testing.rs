//! Helpers for the tests of this module and of its users.

use pinstripe_base::error::Kind;
use pinstripe_testing::skipped;

use super::ring::Ring;

/// A ring for a test; without io_uring, reports that the test is skipped.
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
