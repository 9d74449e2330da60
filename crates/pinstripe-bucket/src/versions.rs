//! Whether a bucket keeps versions, according to its answers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::PutResult;

/// Whether answers had version ids, and whether the endpoint still creates an object only once.
#[derive(Debug, Default)]
pub struct Versions {
    are_kept: AtomicBool,
    /// Whether the endpoint creates an object only once; determined when it is first needed.
    pub makes_once: OnceLock<bool>,
}

impl Versions {
    /// Records the answer to a PUT.
    pub fn saw(&self, answer: &PutResult) {
        if answer.version.as_deref().is_some_and(|version| version != "null") {
            self.are_kept.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an answer had a version id.
    pub(crate) fn are_kept(&self) -> bool {
        self.are_kept.load(Ordering::Relaxed)
    }
}
