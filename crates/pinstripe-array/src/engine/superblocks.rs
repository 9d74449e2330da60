//! Changing the superblocks of all members, and marking a member failed.

use std::sync::Arc;

use super::Array;
use crate::format::superblock::{Superblock, Work};
use crate::member::ArrayMember;
use pinstripe_base::error::Result;

impl Array {
    /// Marks a member as failed, durably on the other members.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`](pinstripe_base::error::Kind::TooManyLosses) when the
    /// array cannot do without the member.
    pub(super) fn fail(&self, slot: usize) -> Result<()> {
        if self.member(slot).is_none() {
            return Ok(());
        }
        self.update_superblocks(|superblock| self.members.mark_failed(slot, superblock))
    }

    /// Marks the members failed that do not answer.
    ///
    /// # Errors
    /// Fails with the errors of [`fail`](Self::fail).
    pub(super) fn fail_silent(&self) -> Result<()> {
        for (slot, member) in self.members().iter().enumerate() {
            if member.as_ref().is_some_and(|member| member.failure().is_silent()) {
                self.fail(slot)?;
            }
        }
        Ok(())
    }

    /// Whether a member that is in use does not answer.
    pub(super) fn has_silent(&self) -> bool {
        self.members().iter().flatten().any(|member| member.failure().is_silent())
    }

    /// Changes the superblock, durably on all present members.
    ///
    /// # Errors
    /// Fails with the errors of [`fail`](Self::fail).
    pub(super) fn update_superblocks(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        self.members.publish(change, || self.survives_absent())
    }

    /// Whether the array can do without the slots that are absent now.
    pub(super) fn survives_absent(&self) -> bool {
        self.shape().survives(self.absent())
    }

    /// Drops a replacement that missed a write to the member that it copies.
    ///
    /// # Errors
    /// Fails with the errors of [`fail`](Self::fail).
    pub(super) fn drop_failed_replacement(&self) -> Result<()> {
        let members = self.members();
        let failed = members.iter().flatten().find(|member| member.replacement().has_failed());
        match failed {
            Some(member) => self.drop_replacement(member),
            None => Ok(()),
        }
    }

    /// Drops the replacement of a member; the member keeps its slot.
    ///
    /// # Errors
    /// Fails with the errors of [`fail`](Self::fail).
    pub(super) fn drop_replacement(&self, member: &ArrayMember) -> Result<()> {
        member.replacement().set(None);
        self.update_superblocks(|superblock| {
            if matches!(superblock.work, Work::Replace { .. }) {
                superblock.work = Work::None;
            }
        })
    }

    /// While an absent member may return, makes all present members note which regions change;
    /// otherwise drops these notes.
    pub(super) fn note_changes(&self, superblock: &Superblock) {
        for member in self.members().iter().flatten() {
            match superblock.is_any_away() {
                true => member.note_changes(true),
                false => member.forget_changes(),
            }
        }
    }

    /// Puts a member into a slot, and resets the slot's error counts to zero.
    pub(super) fn put_member(&self, slot: usize, member: Arc<ArrayMember>) {
        self.live.lock().errors[slot] = Default::default();
        self.members.put(slot, member);
    }
}
