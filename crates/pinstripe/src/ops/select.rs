//! Resolves the arguments of a command: a snapshot, and a path in it.

use std::collections::HashSet;

use crate::store::choice::{SnapshotName, find, trimmed};
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
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

/// Finds the snapshot and normalizes the path. `latest` with a path means the latest snapshot that
/// has the path.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no such snapshot, with [`Kind::Usage`] for an
/// ambiguous name.
pub fn select(
    store: &Store,
    name: SnapshotName<'_>,
    path: &[u8],
    monitor: &Monitor,
) -> Result<Selected> {
    let known = snapshots::load(store, monitor)?;
    let below = clean(path);
    let latest = find(&known, name, monitor)?;
    let snapshot = match name.name == "latest" && !below.is_empty() {
        true => with_path(store, (&known, name), &below, monitor)?,
        false => None,
    };
    Ok(Selected { snapshot: snapshot.unwrap_or(latest).clone(), below })
}

/// The latest snapshot that has a path, or may have it; `None` if no snapshot has it. Notes that
/// later snapshots lack the path.
fn with_path<'s>(
    store: &Store,
    (known, name): (&'s [Snapshot], SnapshotName<'_>),
    below: &[u8],
    monitor: &Monitor,
) -> Result<Option<&'s Snapshot>> {
    let covers = |(_, snapshot): &(usize, &Snapshot)| may_cover(snapshot, below);
    let candidates: Vec<_> = name.latest_first(known).enumerate().filter(covers).collect();
    // The caller finds out whether a single one has the path.
    if let [] | [(0, _)] = candidates[..] {
        return Ok(None);
    }
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    // Unchanged snapshots have the same tree.
    let mut lacking = HashSet::new();
    for (later, snapshot) in candidates {
        if lacking.contains(&snapshot.root.id) {
            continue;
        }
        let chunks = ChunkReader::below(&packs, &index, below);
        let entry =
            TreeReader::new(chunks, &snapshot.root, below).and_then(|mut tree| tree.next_entry());
        if let Ok(None) = entry {
            lacking.insert(snapshot.root.id);
            continue;
        }
        if later > 0 {
            let (short, path) = (snapshot.id.short(), shown_from_root(below));
            monitor.note(&format!(
                "snapshot {short} is used: the {} has no {}",
                if later == 1 {
                    "later snapshot".to_owned()
                } else {
                    format!("{later} later snapshots")
                },
                path.display()
            ));
        }
        return Ok(Some(snapshot));
    }
    Ok(None)
}

/// Whether a path is in one of the paths of a snapshot, or above one.
fn may_cover(snapshot: &Snapshot, below: &[u8]) -> bool {
    let is_at = |one: &[u8], other: &[u8]| {
        one.is_empty() || one == other || other.starts_with(&[one, b"/"].concat())
    };
    snapshot.sources.iter().map(|it| trimmed(it)).any(|it| is_at(it, below) || is_at(below, it))
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
