//! Changing the superblocks of all members, and marking a member failed.
//!
//! Invariant: every member that is present has seen the newest generation, or the one before it
//! while the newest is being written. A member that could not take it is marked failed, and the
//! superblocks of the others say so.

use std::sync::PoisonError;

use super::{Array, lock};
use crate::format::superblock::{Slot, Superblock, Work};
use pinstripe_base::error::{Error, Kind, Result};

impl Array {
    /// Marks a member failed, durably on the others.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`] when the array cannot do without it.
    pub(super) fn fail(&self, slot: usize) -> Result<()> {
        if self.member(slot).is_none() {
            return Ok(());
        }
        self.update_superblocks(|superblock| self.mark_failed(slot, superblock))
    }

    /// Changes the superblock, durably on all members that are present.
    ///
    /// # Errors
    /// As [`fail`](Self::fail).
    pub(super) fn update_superblocks(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        // Held until the last member has it: generations reach the disks in the order of their
        // numbers.
        let mut superblock = lock(&self.superblock);
        change(&mut superblock);
        loop {
            // An array that cannot go on writes nothing more, so that it can be assembled as it
            // was.
            if !self.shape().survives(self.absent()) {
                let what = "more members failed than parity or copies replace";
                return Err(Error::new(Kind::TooManyLosses, what)
                    .advice("bring members back, and assemble the array again"));
            }
            // A number of its own for each attempt: members with one generation and different
            // content would be taken for two histories, and refused (`newest` in `assemble`).
            superblock.generation += 1;
            let failed = self.write_superblocks(&superblock);
            if failed.is_empty() {
                return Ok(());
            }
            failed.into_iter().for_each(|slot| self.mark_failed(slot, &mut superblock));
        }
    }

    /// Writes the superblocks. Returns the slots of members that could not take theirs.
    fn write_superblocks(&self, superblock: &Superblock) -> Vec<usize> {
        let could_not = |member: &super::ArrayMember| {
            member.write_superblock(superblock).and_then(|()| member.sync()).is_err()
        };
        // A spare that fails is dropped: nothing depends on its view of the others.
        lock(&self.spares).retain(|spare| !could_not(spare));
        let members = self.members().clone();
        let there = members.iter().enumerate();
        let there = there.filter_map(|(slot, member)| Some((slot, member.as_ref()?)));
        there.filter(|(_, member)| could_not(member)).map(|(slot, _)| slot).collect()
    }

    /// Takes a member out of its slot; a replacement that was being filled takes over. From now on
    /// the others note the regions that the failed member misses.
    fn mark_failed(&self, slot: usize, superblock: &mut Superblock) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let replacement = members[slot].take().and_then(|member| member.replacement().set(None));
        superblock.slots[slot] = failed_slot(superblock.slots[slot], &superblock.work);
        match superblock.work {
            Work::Rebuild { slot: of, .. } if usize::from(of) == slot => {
                superblock.work = Work::None;
            }
            Work::Replace { slot: of, with, done_bytes } if usize::from(of) == slot => {
                superblock.work = Work::None;
                if let Some(replacement) =
                    replacement.filter(|replacement| replacement.id() == with)
                {
                    replacement.set_filled(Some(done_bytes));
                    lock(&self.live).paths[slot] = Some(replacement.path().to_owned());
                    members[slot] = Some(replacement);
                    superblock.slots[slot] = Slot::Rebuilding(with);
                    superblock.work = Work::Rebuild { slot: of, done_bytes, only_behind: false };
                }
            }
            _ => {}
        }
        members.iter().flatten().for_each(|member| member.note_changes(true));
    }

    /// Drops a replacement that missed a write to the member it copies.
    ///
    /// # Errors
    /// As [`fail`](Self::fail).
    pub(super) fn drop_failed_replacement(&self) -> Result<()> {
        let members = self.members().clone();
        let failed = members.iter().flatten().find(|member| member.replacement().has_failed());
        match failed {
            Some(member) => self.drop_replacement(member),
            None => Ok(()),
        }
    }

    /// Drops the replacement of a member, which keeps its slot.
    ///
    /// # Errors
    /// As [`fail`](Self::fail).
    pub(super) fn drop_replacement(&self, member: &super::ArrayMember) -> Result<()> {
        member.replacement().set(None);
        self.update_superblocks(|superblock| {
            if matches!(superblock.work, Work::Replace { .. }) {
                superblock.work = Work::None;
            }
        })
    }

    /// Has members note which regions change while a member is away that may come back, and drop
    /// those notes when none is.
    pub(super) fn note_changes(&self, superblock: &Superblock) {
        let is_away = |slot: &Slot| matches!(slot, Slot::Failed(_) | Slot::Rebuilding(_));
        let is_any_away = superblock.slots.iter().any(is_away);
        for member in self.members().iter().flatten() {
            match is_any_away {
                true => member.note_changes(true),
                false => member.forget_changes(),
            }
        }
    }
}

/// The slot of a member that is gone; `Failed` if it may return and be brought up to date.
pub(super) fn failed_slot(slot: Slot, work: &Work) -> Slot {
    match (slot, work) {
        // Growing moves what lies at an offset, so the noted regions would not name what it lacks.
        (_, Work::Grow { .. }) => Slot::Missing,
        (Slot::Present(member) | Slot::Failed(member), _) => Slot::Failed(member),
        // Half filled, it holds neither an old state of the array nor the present one.
        (Slot::Rebuilding(_) | Slot::Missing, _) => Slot::Missing,
    }
}
