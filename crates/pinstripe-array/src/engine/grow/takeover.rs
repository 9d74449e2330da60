//! Changes the level where no data moves (see `geometry/takeover.rs`): one superblock names the new
//! level, and an added member is filled with parity in the same way as a replacement of a failed
//! member.
//!
//! Invariants:
//! - no log record that may be replayed names rows of the old level;
//! - the superblock that names the new level also records how far an added member is filled, so
//!   that parity that was never computed is never used;
//! - a dropped member becomes a spare only when the others no longer need it.

use std::sync::Arc;

use super::no_spare;
use crate::engine::create::for_slot;
use crate::engine::flusher::Flusher;
use crate::engine::logged::LoggedArray;
use crate::engine::work::LongWork;
use crate::format::superblock::{SPARE, Slot, Superblock};
use crate::geometry::{ArrayGeometry, LastSlot, Level, Shape};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;

impl Flusher {
    /// Changes the level. If the new level needs one more member, the spare that was added last
    /// becomes that member and is filled; a member that is no longer needed becomes a spare.
    ///
    /// # Errors
    /// Fails with the errors of [`ArrayGeometry::taken_over`]; with [`Kind::Busy`] while other work
    /// is running; with [`Kind::Refused`] when members are absent, or there is no spare; with the
    /// errors of the devices.
    pub fn change_level(&mut self, level: Level) -> Result<()> {
        self.long.begin_takeover(&mut self.logged, level)
    }

    /// Like [`change_level`](Self::change_level), with a device that first becomes a spare.
    ///
    /// # Errors
    /// Fails with the errors of [`change_level`](Self::change_level) and of [`add`](Self::add);
    /// with [`Kind::Usage`] when the change needs no device. If the change needs no device, the
    /// given device is not written to.
    pub fn change_level_with(&mut self, level: Level, device: SharedDevice) -> Result<()> {
        let (_, last) = self.long.takeover(&self.logged, level)?;
        if last != LastSlot::IsAdded {
            let what = format!("the change to level {level} needs no additional device");
            return Err(Error::new(Kind::Usage, what).at(device.place()).advice("leave out --add"));
        }
        self.check_unused(&device)?;
        self.add_spare(device)?;
        self.change_level(level)
    }
}

impl LongWork {
    fn takeover(&self, logged: &LoggedArray, level: Level) -> Result<(ArrayGeometry, LastSlot)> {
        self.check_whole(logged, "change its level")?;
        logged.array.geometry().taken_over(level)
    }

    fn begin_takeover(&mut self, logged: &mut LoggedArray, level: Level) -> Result<()> {
        let (geometry, last) = self.takeover(logged, level)?;
        if last == LastSlot::IsAdded && !logged.array.members.has_spare() {
            return Err(no_spare());
        }
        logged.checkpoint()?;
        let is_now = move |superblock: &mut Superblock| {
            superblock.level = geometry.level().number() as u8;
            superblock.layout = geometry.layout().number();
        };
        match last {
            LastSlot::Stays => {
                logged.array.reshape(Shape::from_geometry(geometry));
                logged.array.update_superblocks(is_now)
            }
            LastSlot::IsAdded => self.add_parity(logged, geometry, is_now),
            LastSlot::IsDropped => drop_parity(logged, geometry, is_now),
        }
    }

    /// Adds a slot whose member, a spare until now, is to be filled with parity.
    fn add_parity(
        &mut self,
        logged: &mut LoggedArray,
        geometry: ArrayGeometry,
        is_now: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let spare = logged.array.members.take_last_spare().ok_or_else(no_spare)?;
        let superblock = logged.array.superblock();
        let slot = superblock.slots.len();
        let member = for_slot(&spare, &superblock, slot as u16)?;
        member.set_filled(Some(0));
        logged.array.widen(Some(Arc::clone(&member)), Shape::from_geometry(geometry));
        self.fill_new_slot(logged, slot, &member, is_now)
    }
}

/// Drops the last slot, whose member becomes a spare.
fn drop_parity(
    logged: &LoggedArray,
    geometry: ArrayGeometry,
    is_now: impl FnOnce(&mut Superblock),
) -> Result<()> {
    let array = &logged.array;
    array.reshape(Shape::from_geometry(geometry));
    let dropped = array.members.pop();
    array.update_superblocks(|superblock| {
        superblock.slots.pop();
        is_now(superblock);
    })?;
    let Some(dropped) = dropped else { return Ok(()) };
    let superblock = array.superblock();
    // A member that does not take this is not a spare: its superblock names a slot that no longer
    // exists.
    let spare = for_slot(&dropped, &superblock, SPARE);
    if let Ok(spare) = spare
        && spare.write_superblock(&superblock).and_then(|()| spare.sync()).is_ok()
    {
        array.members.add_spare(spare);
    }
    Ok(())
}

impl LongWork {
    /// Refuses a change of the entire array while other work is running, or members are absent.
    pub(super) fn check_whole(&self, logged: &LoggedArray, what: &str) -> Result<()> {
        if self.is_filling() || self.scrub.is_some() {
            return Err(Error::new(
                Kind::Busy,
                "a rebuild, resync, reshape or scrub of the array is running",
            )
            .advice("wait until it is done"));
        }
        let is_present = |slot: &Slot| matches!(slot, Slot::Present(_));
        match logged.array.superblock().slots.iter().all(is_present) {
            true => Ok(()),
            false => {
                let what = format!("the array can {what} only while all its members are present");
                Err(Error::new(Kind::Refused, what).advice("replace the failed members first"))
            }
        }
    }
}
