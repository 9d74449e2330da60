//! The beginnings of fills, and the end of a fill whose member was dropped.

use std::sync::Arc;

use super::{Fill, kind_of};
use crate::engine::Array;
use crate::engine::logged::LoggedArray;
use crate::engine::status::WorkKind;
use crate::engine::step::WorkReport;
use crate::engine::work::LongWork;
use crate::format::superblock::{Slot, Superblock};
use crate::member::ArrayMember;
use pinstripe_base::error::Result;

impl LongWork {
    /// Puts a member into an empty slot, to be filled.
    pub(crate) fn begin_fill(
        &mut self,
        logged: &mut LoggedArray,
        slot: usize,
        member: Arc<ArrayMember>,
        only_behind: bool,
    ) -> Result<()> {
        // The new member has no log, so no record may be needed from it.
        logged.checkpoint()?;
        let fill = Fill::for_member(kind_of(only_behind), slot, &member);
        member.set_filled(Some(0));
        let (id, work) = (member.id(), fill.work());
        logged.array.put_member(slot, member);
        logged.array.update_superblocks(|superblock| {
            superblock.slots[slot] = Slot::Rebuilding(id);
            superblock.work = work;
        })?;
        logged.array.note_changes(&logged.array.superblock());
        self.fill = Some(fill);
        self.publish(&logged.array);
        Ok(())
    }

    /// Begins to fill the member of a slot that was added to the array just now. The superblock
    /// that names the new slot also carries `change`.
    pub(crate) fn fill_new_slot(
        &mut self,
        logged: &LoggedArray,
        slot: usize,
        member: &ArrayMember,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let fill = Fill::for_member(WorkKind::Rebuild, slot, member);
        let (id, work) = (member.id(), fill.work());
        logged.array.update_superblocks(|superblock| {
            superblock.slots.push(Slot::Rebuilding(id));
            superblock.work = work;
            change(superblock);
        })?;
        logged.array.note_changes(&logged.array.superblock());
        self.fill = Some(fill);
        self.publish(&logged.array);
        Ok(())
    }

    /// Begins to copy a member to another one, which receives every write to the member and then
    /// replaces it.
    pub(crate) fn begin_replace(
        &mut self,
        logged: &mut LoggedArray,
        member: &ArrayMember,
        slot: usize,
        replacement: Arc<ArrayMember>,
    ) -> Result<()> {
        logged.checkpoint()?;
        let fill = Fill::for_member(WorkKind::Replace, slot, &replacement);
        replacement.set_filled(Some(0));
        member.replacement().set(Some(replacement));
        let work = fill.work();
        logged.array.update_superblocks(|superblock| superblock.work = work)?;
        logged.array.note_changes(&logged.array.superblock());
        self.fill = Some(fill);
        self.publish(&logged.array);
        Ok(())
    }
}

impl LongWork {
    /// Ends the fill of a slot, because the member that was being filled was dropped. Returns its
    /// report.
    pub(crate) fn end_fill(&mut self, array: &Array, slot: usize) -> WorkReport {
        let fill = self.fill.take_if(|fill| fill.slot == slot);
        self.publish(array);
        fill.map_or_else(|| WorkReport::new(WorkKind::Replace, Some(slot)), Fill::failed)
    }
}
