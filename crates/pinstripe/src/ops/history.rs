//! `history`: every version of one path over all snapshots.

use std::path::Path;

use super::catalog::searched;
use super::select::clean;
use crate::store::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::Version;

/// Brings the catalog at `place` up to date and returns the versions of `path`: one list for each
/// host with its sources, oldest first.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no snapshot has the path.
pub fn run(
    store: &Store,
    place: &Path,
    path: &[u8],
    monitor: &Monitor,
) -> Result<Vec<Vec<Version>>> {
    let path = clean(path);
    let history = searched(store, place, monitor, &mut |catalog| (catalog.history(&path), false))?;
    if history.is_empty() {
        return Err(no_such_path(&path));
    }
    Ok(history)
}

/// The error for a path that no snapshot has.
pub(super) fn no_such_path(path: &[u8]) -> Error {
    Error::new(Kind::NotFound, "no snapshot has this path")
        .at(shown_from_root(path))
        .advice("give an absolute path, or search for the name with 'pinstripe find NAME'")
}
