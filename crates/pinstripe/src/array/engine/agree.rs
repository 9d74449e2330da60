//! What the members say of the array, and giving one of them up.
//!
//! Invariant: members that are there have seen the newest generation, or the one before it if the newest
//! was not written yet on all. Whoever could not take it is given up, and the others say so.

use std::sync::PoisonError;

use super::{Array, lock};
use crate::error::{Error, Kind, Result};
use crate::format::array::superblock::{Slot, Superblock, Work};

impl Array {
    /// Gives a member up, and has the others say so durably.
    ///
    /// # Errors
    /// [`Kind::TooManyLosses`] when the array cannot do without it.
    pub(super) fn fail(&self, slot: usize) -> Result<()> {
        if self.member(slot).is_none() {
            return Ok(());
        }
        self.agree(|superblock| self.give_up(slot, superblock))
    }

    /// Changes what the members say of the array, durably on all that are there.
    ///
    /// # Errors
    /// As [`fail`](Self::fail).
    pub(super) fn agree(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut superblock = lock(&self.superblock);
        change(&mut superblock);
        loop {
            // An array that cannot go on says nothing more: it is to be found as it was.
            if !self.shape().survives(self.absent()) {
                let what = "more members failed than parity or copies replace";
                return Err(Error::new(Kind::TooManyLosses, what)
                    .advice("bring members back, and assemble the array again"));
            }
            superblock.generation += 1;
            let failed = self.tell(&superblock);
            if failed.is_empty() {
                return Ok(());
            }
            failed.into_iter().for_each(|slot| self.give_up(slot, &mut superblock));
        }
    }

    /// Writes the superblocks. Returns the slots of members that could not take theirs.
    fn tell(&self, superblock: &Superblock) -> Vec<usize> {
        let could_not = |member: &super::Member| {
            member.write_superblock(superblock).and_then(|()| member.sync()).is_err()
        };
        // Nothing hangs on what a spare says of the others.
        lock(&self.spares).retain(|spare| !could_not(spare));
        let members = self.members().clone();
        let there = members.iter().enumerate();
        let there = there.filter_map(|(slot, member)| Some((slot, member.as_ref()?)));
        there.filter(|(_, member)| could_not(member)).map(|(slot, _)| slot).collect()
    }

    /// Takes a member out, and lets the one take its place that is half filled to do so. The others note from
    /// now on what it lacks.
    fn give_up(&self, slot: usize, superblock: &mut Superblock) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let twin = members[slot].take().and_then(|member| member.twin().set(None));
        superblock.slots[slot] = given_up(superblock.slots[slot], &superblock.work);
        match superblock.work {
            Work::Rebuild { slot: of, .. } if usize::from(of) == slot => {
                superblock.work = Work::None;
            }
            Work::Replace { slot: of, with, done_bytes } if usize::from(of) == slot => {
                superblock.work = Work::None;
                if let Some(twin) = twin.filter(|twin| twin.id() == with) {
                    twin.set_filled(Some(done_bytes));
                    lock(&self.live).paths[slot] = Some(twin.path().to_owned());
                    members[slot] = Some(twin);
                    superblock.slots[slot] = Slot::Rebuilding(with);
                    superblock.work = Work::Rebuild { slot: of, done_bytes, only_behind: false };
                }
            }
            _ => {}
        }
        members.iter().flatten().for_each(|member| member.note_changes(true));
    }

    /// Gives up one that was to take a member's place and did not take all that the member got.
    ///
    /// # Errors
    /// As [`fail`](Self::fail).
    pub(super) fn drop_failed_twin(&self) -> Result<()> {
        let members = self.members().clone();
        let failed = members.iter().flatten().find(|member| member.twin().has_failed());
        match failed {
            Some(member) => self.drop_twin(member),
            None => Ok(()),
        }
    }

    /// Lets a member keep its place.
    ///
    /// # Errors
    /// As [`fail`](Self::fail).
    pub(super) fn drop_twin(&self, member: &super::Member) -> Result<()> {
        member.twin().set(None);
        self.agree(|superblock| {
            if matches!(superblock.work, Work::Replace { .. }) {
                superblock.work = Work::None;
            }
        })
    }

    /// Has members note what changes while one of them is away that may come back, and forget that when
    /// nobody is.
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

/// What is said of a slot whose member went, and may come back if what it lacks can be told.
pub(super) fn given_up(slot: Slot, work: &Work) -> Slot {
    match (slot, work) {
        // What lies where changes meanwhile.
        (_, Work::Grow { .. }) => Slot::Missing,
        (Slot::Present(member) | Slot::Failed(member), _) => Slot::Failed(member),
        // What it has is neither old nor new.
        (Slot::Rebuilding(_) | Slot::Missing, _) => Slot::Missing,
    }
}
