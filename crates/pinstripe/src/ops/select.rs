//! Resolves the arguments of a command: a snapshot, and a path in it.

use crate::store::tree::TreeReader;
use crate::store::{Store, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_io::beneath::shown_from_root;
use pinstripe_member::entry::Entry;
use pinstripe_member::snapshot::Snapshot;

/// A snapshot and a path in it, as given to a command.
pub(crate) struct Selected {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The path from the file system's root, without leading or trailing slashes.
    pub below: Vec<u8>,
}

/// Finds the snapshot and normalizes the path.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no such snapshot, with [`Kind::Usage`] for an
/// ambiguous name.
pub fn select(store: &Store, name: &str, path: &[u8], monitor: &Monitor) -> Result<Selected> {
    let known = snapshots::load(store, monitor)?;
    let snapshot = snapshots::find(&known, name, monitor)?.clone();
    Ok(Selected { snapshot, below: clean(path) })
}

/// Returns a path in the form of trees: without leading, trailing or double slashes.
pub fn clean(path: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}

/// Returns the first entry at or below a path given to a command; the reader is positioned after
/// it.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when the snapshot does not have the path, or with
/// [`Kind::TooManyLosses`] when pages that could have held it are lost and no part of it was found.
pub(crate) fn first_entry(tree: &mut TreeReader<'_>, below: &[u8]) -> Result<Entry> {
    let mut lost = None;
    loop {
        match tree.next_entry() {
            Ok(Some(entry)) => return Ok(entry),
            Ok(None) => break,
            Err(error) if error.kind() == Kind::TooManyLosses => lost = lost.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match lost {
        None => Err(no_such_path(below)),
        Some(error) => {
            let what = format!("no entry under this path can be read: {}", error.what());
            Err(Error::new(Kind::TooManyLosses, what).at(shown_from_root(below)).advice(
                "the snapshot may have contained this path: try an earlier snapshot; 'pinstripe \
                 check --read-data' lists everything that is lost",
            ))
        }
    }
}

/// The error for a path that a snapshot does not have.
pub(crate) fn no_such_path(path: &[u8]) -> Error {
    Error::new(Kind::NotFound, "the snapshot has no entry at this path")
        .at(shown_from_root(path))
        .advice("'pinstripe ls SNAPSHOT' lists the paths of the snapshot; they begin at the root")
}
