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

/// The snapshots that a name may mean, before their trees are read, and the path.
pub(crate) struct Named {
    /// The snapshot that is meant if none is known to have the path.
    first: Snapshot,
    /// For `latest` with a path: the snapshots that may have the path, the latest first, each with the
    /// number of later ones.
    candidates: Vec<(usize, Snapshot)>,
    below: Vec<u8>,
}

/// Finds the snapshots that a name may mean, and normalizes the path.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no such snapshot, with [`Kind::Usage`] for an
/// ambiguous name.
pub fn select(
    store: &Store,
    name: SnapshotName<'_>,
    path: &[u8],
    monitor: &Monitor,
) -> Result<Named> {
    let known = snapshots::load(store, monitor)?;
    let below = clean(path);
    let first = find(&known, name, monitor)?.clone();
    let mut candidates = Vec::new();
    if name.name == "latest" && !below.is_empty() {
        let ordered = name.latest_first(&known).enumerate();
        let covering = ordered.filter(|(_, snapshot)| may_cover(snapshot, &below));
        candidates = covering.map(|(later, snapshot)| (later, snapshot.clone())).collect();
    }
    Ok(Named { first, candidates, below })
}

impl Named {
    /// The snapshot that is meant: of `latest` with a path, the latest that has the path, or may have
    /// it. Notes that later snapshots lack the path.
    pub fn settle(self, packs: &PackReader<'_>, index: &Index<'_>, monitor: &Monitor) -> Selected {
        let Named { first, candidates, below } = self;
        // The caller finds out whether a single one has the path.
        if let [] | [(0, _)] = candidates[..] {
            return Selected { snapshot: first, below };
        }
        let lacks = |snapshot: &Snapshot| {
            let chunks = ChunkReader::below(packs, index, &below);
            let tree = TreeReader::new(chunks, &snapshot.root, &below);
            matches!(tree.and_then(|mut tree| tree.next_entry()), Ok(None))
        };
        // Unchanged snapshots have the same tree.
        let mut lacking = HashSet::new();
        let found = candidates.into_iter().find(|(_, snapshot)| {
            let is_without = lacking.contains(&snapshot.root.id) || lacks(snapshot);
            if is_without {
                lacking.insert(snapshot.root.id);
            }
            !is_without
        });
        if let Some((later @ 1.., snapshot)) = &found {
            let (short, path) = (snapshot.id.short(), shown_from_root(&below));
            let later = match later {
                1 => "later snapshot".to_owned(),
                more => format!("{more} later snapshots"),
            };
            let path = path.display();
            monitor.note(&format!("snapshot {short} is used: the {later} has no {path}"));
        }
        Selected { snapshot: found.map_or(first, |(_, snapshot)| snapshot), below }
    }

    /// The snapshot that is meant, if no path is.
    pub fn snapshot(self) -> Snapshot {
        debug_assert!(self.below.is_empty(), "a path may choose an earlier snapshot");
        self.first
    }
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
