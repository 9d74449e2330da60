//! Paths without symlinks. A place that does not answer holds nothing up for longer than a member may.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pinstripe_base::error::{Error, Result};
use pinstripe_member::Patience;

/// The deadline of a look-up of a path, once the run has one.
static PATIENCE: OnceLock<Patience> = OnceLock::new();

/// Sets the deadline of every later [`real_path`]; the first one that is set stays.
pub fn set_patience(patience: &Patience) {
    let _ = PATIENCE.set(patience.clone());
}

/// A path without symlinks, where the place answers.
///
/// # Errors
/// The errors of the system; [`Kind::Unanswered`](pinstripe_base::error::Kind::Unanswered).
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
