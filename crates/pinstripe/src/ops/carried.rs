//! Copies objects that count by the votes of members to a new member.
//!
//! In a store without MACs, marks, steps of deletion and key slots count when enough members of the
//! table have them. A new member enlarges the table, so it gets these objects first: those that
//! count by the votes of the old table. For the same reason, a member that was absent gets the
//! objects that it lacks before the table changes.
//!
//! Not in this module: labels and snapshots, and keys without votes, which count on any member
//! (`repair`).

use std::collections::BTreeSet;

use super::copies::{Copies, ReadAhead};
use crate::store::{Store, deletion, forgotten, read_small, replace_small};
use pinstripe_base::error::Result;
use pinstripe_member::gc::DeletionStep;
use pinstripe_member::label::Encryption;
use pinstripe_member::{ExtentKind, ExtentName, Member};

/// Objects that count under the present table.
pub(super) struct Carried {
    objects: Vec<(ExtentName, Vec<u8>)>,
    /// The number of members that had to agree under that table.
    votes: usize,
}

impl Carried {
    /// Reads marks, steps of deletion and keys, and writes them, except transient steps, to every
    /// present member that lacks them.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::objects`], or with the errors of the members.
    pub fn gather(store: &Store) -> Result<Self> {
        let mut lasting: BTreeSet<_> = forgotten::names(store)?.into_iter().collect();
        lasting.extend(deletion::tombstone_names(store)?);
        if store.config.encryption != Encryption::None && !store.has_macs() {
            lasting.extend(store.key_names()?);
        }
        let passing = deletion::names(store)?.into_iter().filter(|name| !lasting.contains(name));
        let names: Vec<_> = lasting.iter().copied().chain(passing).collect();
        let mut objects = Vec::new();
        for name in names {
            let copies = Copies::read(store, name)?;
            let Some(good) = copies.good else { continue };
            if lasting.contains(&name) {
                for (_, member, _) in copies.unsound {
                    replace_small(&**member, name, &good)?;
                }
            }
            objects.push((name, good));
        }
        Ok(Carried { objects, votes: store.votes() })
    }

    /// Writes all gathered objects to a member that lacks them; returns the number of objects
    /// written.
    ///
    /// # Errors
    /// Fails with the errors of the member.
    pub(crate) fn put_on(&self, member: &dyn Member) -> Result<u64> {
        let mut written = 0;
        for (name, bytes) in &self.objects {
            if !read_small(member, *name).is_ok_and(|there| there == *bytes) {
                replace_small(member, *name, bytes)?;
                written += 1;
            }
        }
        Ok(written)
    }

    /// Brings the new member up to date with changes by others between [`gather`](Self::gather) and
    /// the moment when the table named it: writes the objects that they put, and removes the marks
    /// that they removed. Returns the number of objects written. The caller calls this once all
    /// labels name the member: a process that puts a mark reads the table afterwards, so one of the
    /// two sees the other.
    ///
    /// # Errors
    /// Fails with the errors of [`Store::list`], or with the errors of the members.
    pub(crate) fn update(&self, store: &Store, new: usize) -> Result<u64> {
        let written = self.put_later(store, new)?;
        drop_marks(store, new)?;
        Ok(written)
    }

    fn put_later(&self, store: &Store, new: usize) -> Result<u64> {
        let Some(member) = store.member_slots[new].member.as_ref() else { return Ok(0) };
        let known: BTreeSet<_> = self.objects.iter().map(|(name, _)| *name).collect();
        let mut written = 0;
        for kind in [ExtentKind::Forgotten, ExtentKind::Gc] {
            for (id, holders) in store.list(kind)? {
                let name = ExtentName::In(kind, id);
                if known.contains(&name) || holders.contains(&new) {
                    continue;
                }
                let copies = Copies::read_by(store, name, self.votes, &mut ReadAhead::default())?;
                if let Some(good) = copies.good {
                    replace_small(&**member, name, &good)?;
                    written += 1;
                }
            }
        }
        Ok(written)
    }
}

/// Copies the tombstones of a member that is being replaced to its successor, also those that too few
/// members have to be believed: they hide what another member brought back. The successor has the
/// vote that its predecessor had, so a tombstone that one member made up counts no more than before.
/// Returns the number of objects written.
///
/// # Errors
/// Fails with the errors of [`Store::list`], or with the errors of the members.
pub(super) fn inherit_tombstones(store: &Store, (old, new): (usize, usize)) -> Result<u64> {
    let member = |number: usize| store.member_slots[number].member.as_ref();
    let (Some(from), Some(to)) = (member(old), member(new)) else { return Ok(0) };
    let mut written = 0;
    for (id, holders) in store.list(ExtentKind::Gc)? {
        let name = ExtentName::In(ExtentKind::Gc, id);
        if !holders.contains(&old) || holders.contains(&new) {
            continue;
        }
        let Ok(bytes) = read_small(&**from, name) else { continue };
        let read = deletion::read(store, id, &bytes);
        if read.is_ok_and(|object| matches!(object.step, DeletionStep::Tombstone(_))) {
            replace_small(&**to, name, &bytes)?;
            written += 1;
        }
    }
    Ok(written)
}

/// Removes marks from the new member that no other member has. A process that opened the store
/// before the new member joined removed such marks from the other members.
fn drop_marks(store: &Store, new: usize) -> Result<()> {
    let Some(member) = store.member_slots[new].member.as_ref() else { return Ok(()) };
    for kind in [ExtentKind::Forgotten, ExtentKind::Gc] {
        for (id, holders) in store.list(kind)? {
            if holders == [new] {
                member.delete(ExtentName::In(kind, id))?;
            }
        }
    }
    member.sync()
}
