//! Halves of a divided store: groups of members that were separated, and that each replaced some of
//! the other members.
//!
//! A store works without some members, as many as parity replaces. If both parts continue to work
//! (two members with parity 1, each on its own), each gets backups, and as soon as one part
//! replaces the members of the other, their tables of members differ permanently. A half that finds
//! the other one reports it and counts the snapshots that only the other has; `ops::member::merge`
//! copies them.
//!
//! Invariant: nothing is taken from another half except the fact that it exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::objects::Quorum;
use super::{Store, deletion, read_small};
use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;
use pinstripe_member::forgotten::Mark;
use pinstripe_member::gc::GcObject;
use pinstripe_member::label::MemberTable;
use pinstripe_member::{ExtentKind, ExtentName, Member};

/// Another half of the store, as far as its members were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherHalf {
    /// The directories of the members of the other half.
    pub places: Vec<PathBuf>,
    /// The snapshots on the other half's members that this half never had.
    pub snapshots: BTreeSet<SnapshotId>,
}

/// A directory whose label gives this store, but which is not in the table of members.
pub(super) struct Outsider {
    pub(super) place: PathBuf,
    /// The table of members in the directory's label.
    pub(super) table: MemberTable,
}

impl Store {
    /// Returns the other halves that were found when this one was opened, if they have snapshots
    /// that this half never had.
    ///
    /// # Errors
    /// Fails with the errors of this half's members; a directory of another half that cannot be
    /// listed is skipped.
    pub fn other_halves(&self) -> Result<Vec<OtherHalf>> {
        if self.outsiders.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.snapshots_ever()?;
        let mut halves: Vec<(&MemberTable, OtherHalf)> = Vec::new();
        for Outsider { place, table } in &self.outsiders {
            let Ok(mut there) = self.snapshots_at(place) else { continue };
            there.retain(|id| !known.contains(id));
            match halves.iter_mut().find(|(of, _)| *of == table) {
                Some((_, half)) => {
                    half.places.push(place.clone());
                    half.snapshots.extend(there);
                }
                None => {
                    let half = OtherHalf { places: vec![place.clone()], snapshots: there };
                    halves.push((table, half));
                }
            }
        }
        let halves = halves.into_iter().map(|(_, half)| half);
        Ok(halves.filter(|half| !half.snapshots.is_empty()).collect())
    }

    /// Returns the names of the snapshots that exist, and of those that were deleted.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::names`].
    pub(crate) fn snapshots_ever(&self) -> Result<BTreeSet<SnapshotId>> {
        let names = self.names(ExtentKind::Snapshots, Quorum::Backup)?;
        let mut names: BTreeSet<_> = names.into_iter().map(SnapshotId).collect();
        names.extend(deletion::load(self, Quorum::Backup)?.dead_snapshots());
        Ok(names)
    }

    /// Returns the names of the snapshots on a member of another half, without those that are
    /// forgotten there.
    fn snapshots_at(&self, place: &Path) -> Result<BTreeSet<SnapshotId>> {
        let member = self.options.open(place)?;
        let member = self.options.watch(member);
        let is_void = |id: SnapshotId| {
            let read = read_small(&*member, ExtentName::snapshot(id));
            read.and_then(|bytes| GcObject::decode(&bytes)).is_ok()
        };
        let marks: BTreeSet<_> =
            member.list(ExtentKind::Forgotten)?.into_iter().map(|it| it.0).collect();
        let is_marked = |snapshot, generation| {
            let mark = Mark { store: self.config.store, snapshot, generation };
            marks.contains(&mark.name())
        };
        let is_forgotten = |id| {
            let last = (1..u32::MAX).take_while(|generation| is_marked(id, *generation)).last();
            last.is_some_and(|generation| generation % 2 == 1)
        };
        let listed = member.list(ExtentKind::Snapshots)?.into_iter().map(|(id, _)| SnapshotId(id));
        Ok(listed.filter(|id| !is_forgotten(*id) && !is_void(*id)).collect())
    }
}
