//! Whether a bucket keeps versions, as its answers say.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::PutResult;

/// What answers said of versions, and whether the endpoint makes an object only once all the same.
#[derive(Debug, Default)]
pub struct Versions {
    are_kept: AtomicBool,
    /// Found out when it was first needed.
    pub makes_once: OnceLock<bool>,
}

impl Versions {
    /// Takes in the answer to a PUT.
    pub fn saw(&self, answer: &PutResult) {
        if answer.version.as_deref().is_some_and(|version| version != "null") {
            self.are_kept.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an answer told of versions.
    pub(crate) fn are_kept(&self) -> bool {
        self.are_kept.load(Ordering::Relaxed)
    }
}
