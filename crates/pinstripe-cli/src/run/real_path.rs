//! Paths without symlinks. Resolves paths within the time limit of a member, so that a place that
//! does not answer does not block the run for longer.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pinstripe_base::error::{Error, Result};
use pinstripe_member::Deadlines;

/// The time limit for resolving a path, once the run has set it.
static PATIENCE: OnceLock<Deadlines> = OnceLock::new();

/// Sets the time limit of every later [`real_path`]; only the first call has an effect.
pub fn set_patience(patience: &Deadlines) {
    let _ = PATIENCE.set(patience.clone());
}

/// Returns a path without symlinks, if its place answers in time.
///
/// # Errors
/// Fails with the errors of the system; with
/// [`Kind::Unanswered`](pinstripe_base::error::Kind::Unanswered).
pub fn real_path(path: &Path) -> Result<PathBuf> {
    let own = path.to_path_buf();
    let look = move || {
        std::fs::canonicalize(&own).map_err(|error| Error::io("cannot examine", &own, error))
    };
    match PATIENCE.get() {
        Some(patience) => patience.ask(path, look),
        None => look(),
    }
}
