//! The beginning of a growth.

use std::sync::Arc;

use super::{Grow, journal_width, no_spare};
use crate::engine::create;
use crate::engine::logged::LoggedArray;
use crate::engine::work::LongWork;
use crate::format::superblock::{Slot, Superblock, Work};
use crate::geometry::{ArrayGeometry, Level, Shape};
use pinstripe_base::error::Result;

impl LongWork {
    /// Like [`Flusher::grow`](crate::engine::Flusher::grow).
    pub(crate) fn begin_grow(&mut self, logged: &mut LoggedArray) -> Result<()> {
        let shape = self.wider(logged)?;
        if !logged.array.members.has_spare() {
            return Err(no_spare());
        }
        if shape.before().is_none() {
            return self.add_copy(logged, shape);
        }
        let superblock = logged.array.superblock();
        let spare = logged.array.members.take_last_spare().ok_or_else(no_spare)?;
        let slot = superblock.slots.len();
        // The new member has no log, so no record may be needed from it.
        logged.checkpoint()?;
        let member = create::for_slot(&spare, &superblock, slot as u16)?;
        let begun = |superblock: &mut Superblock| {
            superblock.slots.push(Slot::Present(member.id()));
            superblock.work = Work::Grow { stretches: 0, columns: 0, journal: 0 };
        };
        // The new member is asked first: if it cannot take the superblock, no other one has
        // changed.
        let mut first = logged.array.superblock();
        begun(&mut first);
        first.generation += 1;
        member.write_superblock(&first)?;
        member.sync()?;
        logged.array.widen(Some(Arc::clone(&member)), shape);
        logged.array.update_superblocks(begun)?;
        self.grow = Some(Grow::new());
        self.publish(&logged.array);
        Ok(())
    }

    /// The shape to grow to, if the array can grow. A mirror's copies keep their places.
    pub fn wider(&self, logged: &LoggedArray) -> Result<Shape> {
        self.check_whole(logged, "grow")?;
        let before = logged.array.geometry();
        let wider = ArrayGeometry::new(
            before.level(),
            before.members() + 1,
            before.chunk_bytes().into(),
            before.layout(),
            before.member_bytes(),
        )?;
        if before.level() == Level::Raid1 {
            return Ok(Shape::from_geometry(wider));
        }
        let shape = Shape::growing(before, wider)?;
        journal_width(&logged.log, &shape)?;
        Ok(shape)
    }

    /// Gives a mirror another slot, for which a spare is filled.
    fn add_copy(&mut self, logged: &mut LoggedArray, wider: Shape) -> Result<()> {
        logged.checkpoint()?;
        logged.array.widen(None, wider);
        logged.array.update_superblocks(|superblock| superblock.slots.push(Slot::Missing))?;
        self.take_spare(logged).map(drop)
    }
}
