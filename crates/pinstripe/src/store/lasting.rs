//! The permanent small objects, and the members that may have an object.

use std::collections::BTreeSet;

use super::{Store, deletion, forgotten, snapshots};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_member::{ExtentKind, ExtentName, SharedMember};

impl Store {
    /// Returns the present members that have an object or an extent, or that do not report that they
    /// lack it.
    pub(crate) fn may_have(&self, name: ExtentName) -> Vec<usize> {
        let lacks = |member: &SharedMember| {
            member.len(name).is_err_and(|error| error.kind() == Kind::NotFound)
        };
        self.present().filter(|(_, member)| !lacks(member)).map(|(number, _)| number).collect()
    }

    /// Returns the small objects that every member should have: keys, snapshots, marks and
    /// tombstones. Objects that exist only while a process runs are not included.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::list`].
    pub(crate) fn lasting_objects(&self) -> Result<BTreeSet<ExtentName>> {
        let mut names: BTreeSet<_> = self.key_names()?.into_iter().collect();
        let (votes, votes_on_damage) = (self.votes(), self.votes_on_damage());
        for (id, holders) in self.list(ExtentKind::Snapshots)? {
            let id = SnapshotId(id);
            // Without the keys a forged sealed object looks like an intact one.
            let is_sound = match self.is_locked() {
                true => holders.len() >= votes,
                false => match snapshots::read(self, id) {
                    Err(error) if error.kind() == Kind::KeysChanged => return Err(error),
                    read => read.is_ok(),
                },
            };
            // A name that is damaged on this many members was a snapshot: it must be reported.
            if is_sound || holders.len() >= votes_on_damage && !snapshots::is_void(self, id) {
                names.insert(ExtentName::snapshot(id));
            }
        }
        names.extend(forgotten::names(self)?);
        names.extend(deletion::tombstone_names(self)?);
        Ok(names)
    }
}
