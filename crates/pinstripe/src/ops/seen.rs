//! The newest state of a store that this host has seen, compared with the present one: a member, or
//! a complete store, that was reset to an earlier state looks intact by itself. Only a host that
//! saw a later state can detect this.
//!
//! Not in this module: where a host stores what it has seen (the callers know).

use crate::store::snapshots::{Known, load_all};
use crate::store::{Store, deletion};
use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName};

/// Identifies the group of backups of the same host and sources.
const GROUP_CONTEXT: &str = "pinstripe 2026 group of a snapshot that a host has seen";

/// The newest snapshot that a host has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenSnapshot {
    /// The snapshot.
    pub id: SnapshotId,
    /// When the snapshot was made: seconds since 1970 and nanoseconds.
    pub created: (i64, u32),
    /// A hash of host and sources, which does not reveal them.
    pub group: [u8; 32],
    /// Whether the snapshot had a parent.
    pub has_parent: bool,
}

impl SeenSnapshot {
    /// Returns the part of a snapshot that a host remembers.
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(GROUP_CONTEXT);
        for part in std::iter::once(&snapshot.host).chain(&snapshot.sources) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        SeenSnapshot {
            id: snapshot.id,
            created: (snapshot.created_seconds, snapshot.created_nanos),
            group: *hasher.finalize().as_bytes(),
            has_parent: snapshot.parent.is_some(),
        }
    }

    /// Returns the newest snapshot that is not forgotten.
    pub fn newest(known: &[Known]) -> Option<Self> {
        let wanted =
            known.iter().filter(|it| !it.is_forgotten).map(|it| Self::from_snapshot(&it.snapshot));
        wanted.max_by_key(|seen| (seen.created, seen.id))
    }
}

/// How a store compares with what this host has seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The snapshot exists, or the host has not seen any snapshot yet.
    There,
    /// The snapshot was removed: later snapshots show that it existed when they were made.
    Removed,
    /// The snapshot is missing for an unknown reason; the newest existing snapshot is given
    /// instead.
    Older(Option<SeenSnapshot>),
    /// The snapshot is missing, and without the key the reason is unknown.
    Unknown,
}

/// Whether the newest snapshot that this host has seen still exists, and if not, whether it was
/// removed regularly. Other snapshots are read only when the newest seen snapshot is missing.
///
/// # Errors
/// Fails with the errors of listing and reading snapshots.
pub fn compare(store: &Store, seen: Option<&SeenSnapshot>) -> Result<Standing> {
    let Some(seen) = seen else { return Ok(Standing::There) };
    // One name is queried instead of listing all: there may be thousands.
    let name = ExtentName::snapshot(seen.id);
    let is_on_a_member = store.present().any(|(_, member)| member.len(name).is_ok());
    if is_on_a_member && !deletion::dead(store, ExtentKind::Snapshots)?.contains(&seen.id.0) {
        return Ok(Standing::There);
    }
    if store.is_locked() {
        return Ok(Standing::Unknown);
    }
    // Damaged snapshots are reported by verbs that are about snapshots.
    Ok(judge(seen, &load_all(store, &Monitor::default())?))
}

/// Decides whether later snapshots show that the snapshot was removed after they were made.
fn judge(seen: &SeenSnapshot, known: &[Known]) -> Standing {
    let is_child = |it: &Known| it.snapshot.parent == Some(seen.id);
    if known.iter().any(is_child) {
        return Standing::Removed;
    }
    let later = known.iter().filter(|it| {
        let it = SeenSnapshot::from_snapshot(&it.snapshot);
        it.group == seen.group && it.created > seen.created
    });
    // The first one after it took the newest of the same sources for its parent.
    let first = later.min_by_key(|it| (it.snapshot.created_seconds, it.snapshot.created_nanos));
    let is_removed = first.is_some_and(|first| match first.snapshot.parent {
        // The parent went too, so that snapshots between the two may have.
        Some(parent) => known.iter().all(|it| it.snapshot.id != parent),
        // Streams have none.
        None => !seen.has_parent,
    });
    if is_removed { Standing::Removed } else { Standing::Older(SeenSnapshot::newest(known)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::id::{ChunkId, StoreId};
    use pinstripe_member::snapshot::TreeRoot;

    /// A snapshot of these sources with a parent, both by their times; time 0 is no parent.
    fn known(source: &str, time: u8, parent: u8) -> Known {
        let snapshot = Snapshot {
            store: StoreId([1; 16]),
            id: SnapshotId([time; 16]),
            created_seconds: time.into(),
            created_nanos: 0,
            host: b"host".to_vec(),
            program: String::new(),
            sources: vec![source.as_bytes().to_vec()],
            parent: (parent > 0).then_some(SnapshotId([parent; 16])),
            root: TreeRoot { id: ChunkId([0; 32]), height: 0, entries: 0 },
            counts: Vec::new(),
            tags: Vec::new(),
            comment: String::new(),
        };
        Known { snapshot, is_forgotten: false }
    }

    #[test]
    fn what_was_removed_in_order_is_told_from_what_never_was() {
        let seen = SeenSnapshot::from_snapshot(&known("/a", 5, 4).snapshot);
        let judged = |there: &[(&str, u8, u8)]| {
            let there: Vec<_> =
                there.iter().map(|&(it, time, parent)| known(it, time, parent)).collect();
            judge(&seen, &there)
        };
        let older = |newest: (&str, u8, u8)| {
            Standing::Older(Some(SeenSnapshot::from_snapshot(
                &known(newest.0, newest.1, newest.2).snapshot,
            )))
        };
        // Put back to an earlier state, to an empty store, and backed up into since.
        assert_eq!(judged(&[("/a", 3, 0), ("/a", 4, 3)]), older(("/a", 4, 3)));
        assert_eq!(judged(&[]), Standing::Older(None));
        assert_eq!(judged(&[("/a", 4, 3), ("/a", 6, 4)]), older(("/a", 6, 4)));
        assert_eq!(judged(&[("/a", 4, 3), ("/a", 6, 4), ("/a", 7, 6)]), older(("/a", 7, 6)));
        assert_eq!(judged(&[("/a", 6, 0)]), older(("/a", 6, 0)), "begun anew");
        // Other sources say nothing about these.
        assert_eq!(judged(&[("/a", 4, 3), ("/b", 9, 8)]), older(("/b", 9, 8)));
        // Removed by its rules: its child is present, or those between went too.
        assert_eq!(judged(&[("/a", 6, 5)]), Standing::Removed);
        assert_eq!(judged(&[("/a", 4, 3), ("/a", 9, 8)]), Standing::Removed);
        let stream = SeenSnapshot::from_snapshot(&known("/s", 5, 0).snapshot);
        assert_eq!(judge(&stream, &[known("/s", 6, 0)]), Standing::Removed);
    }
}
