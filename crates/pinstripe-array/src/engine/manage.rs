//! Adds, fails, removes and replaces members.

use std::sync::Arc;

use super::assemble::{examine, went_its_own_way};
use super::create::{check_room, for_slot, fresh};
use super::devices::IsDevice;
use super::flusher::Flusher;
use super::logged::LoggedArray;
use super::step::WorkReport;
use super::work::LongWork;
use crate::format::superblock::{Consistency, SPARE, Slot, Superblock};
use crate::member::ArrayMember;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::MemberId;
use pinstripe_io::device::SharedDevice;

/// The smallest and the largest granule, in bytes.
const GRANULES: std::ops::RangeInclusive<u32> = 4 << 10..=1 << 20;

/// How an added device is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedAs {
    /// The device was a member before, and gets the blocks that were written while it was away.
    Recovering {
        /// The slot.
        slot: usize,
    },
    /// The device is filled completely from the other members.
    Rebuilding {
        /// The slot.
        slot: usize,
    },
    /// The device is a spare, which waits for a member to fail.
    Spare,
}

impl Flusher {
    /// Sets the granule: pieces of rows are widened to multiples of it. `None` takes the size of
    /// the requests instead. The superblock stores the granule.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for anything but a power of two from 4 KiB to 1 MiB.
    pub fn set_granule(&mut self, bytes: Option<u32>) -> Result<()> {
        let is_served = |bytes: u32| bytes.is_power_of_two() && GRANULES.contains(&bytes);
        if let Some(bytes) = bytes.filter(|bytes| !is_served(*bytes)) {
            return Err(Error::new(Kind::Usage, "this is not a possible value of stripe_size")
                .expected("a power of two from 4096 to 1048576", bytes));
        }
        self.rules.granule = bytes;
        self.logged.array.update_superblocks(|superblock| superblock.granule = bytes.unwrap_or(0))
    }

    /// Marks a member failed.
    ///
    /// # Errors
    /// Fails with the errors of [`Array::check_failing`](super::Array::check_failing); with
    /// [`Kind::Usage`] when there is no such slot.
    pub fn fail(&mut self, slot: usize) -> Result<()> {
        self.check_slot(slot)?;
        let array = &self.logged.array;
        array.check_failing(slot, array.absent())?;
        if let Some(member) = array.member(slot) {
            member.failure().set("the member was marked as failed by a command".to_owned());
        }
        array.fail(slot)
    }

    /// Ends a replace: the member stays in its slot, and the device that was being filled is no
    /// longer used. Returns the report.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when the member of this slot is not being replaced; with
    /// [`Kind::TooManyLosses`] as for all that writes.
    pub(crate) fn end_replace(&mut self, slot: usize) -> Result<WorkReport> {
        self.check_slot(slot)?;
        let array = &self.logged.array;
        let member = array.member(slot).filter(|member| member.replacement().member().is_some());
        let member = member.ok_or_else(|| {
            Error::new(Kind::Refused, format!("the member of slot {slot} is not being replaced"))
        })?;
        array.drop_replacement(&member)?;
        Ok(self.long.end_fill(&self.logged.array, slot))
    }

    /// Forgets the path of a failed member. The device can be added again; it is then brought up to
    /// date.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when the member is present; with [`Kind::Usage`] when there is
    /// no such slot.
    pub fn remove(&mut self, slot: usize) -> Result<()> {
        self.check_slot(slot)?;
        if self.logged.array.member(slot).is_some() {
            let what = format!("the member of slot {slot} is in use");
            return Err(Error::new(Kind::Refused, what)
                .advice("mark the member as failed (--fail) before you remove it"));
        }
        self.logged.array.members.forget_path(slot);
        Ok(())
    }

    /// Removes a spare.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] when there is no such spare; with the errors of the device.
    pub(crate) fn remove_spare(&mut self, is_it: IsDevice<'_>) -> Result<()> {
        let spare = self.logged.array.members.take_spare(|spare| is_it(spare.path()));
        let spare = spare.ok_or_else(|| Error::new(Kind::NotFound, "no spare"))?;
        super::create::erase(spare.device())
    }

    /// Adds a device. A device that was a member and left gets only what it misses, if the notes of
    /// the other members name all of that; any other device, also an older copy of a member, is
    /// filled completely, or waits as a spare. When a device is filled completely or becomes a
    /// spare, its former content is lost.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] when the device is too small; with [`Kind::Exists`] when the
    /// device is already a member; with [`Kind::Busy`] for a member that was away while another one
    /// is being filled; with the errors of the device.
    pub fn add(&mut self, device: SharedDevice) -> Result<AddedAs> {
        let superblock = self.logged.array.superblock();
        check_room(&device, &superblock)?;
        if let Some(own) = own_of(&device, &superblock) {
            self.check_stranger(&device, &own, &superblock)?;
            let is_behind_only = own.data_bytes == superblock.data_bytes
                && own.lacks_only_noted(&superblock)
                && !went_its_own_way(&own, &superblock);
            if is_behind_only {
                if self.long.is_filling() {
                    return Err(busy(&device));
                }
                // With a log, regions are written only together with superblocks, so the map is as
                // good as they are. A member whose map cannot be trusted is filled like a new one.
                let is_clean = own.is_clean || superblock.consistency == Consistency::Log;
                let (slot, own) = (usize::from(own.slot), Superblock { is_clean, ..own });
                if let Ok(member) = ArrayMember::open(Arc::clone(&device), &own, false) {
                    self.long.begin_fill(&mut self.logged, slot, Arc::new(member), true)?;
                    return Ok(AddedAs::Recovering { slot });
                }
            }
        }
        let id = self.add_fresh(Arc::clone(&device))?;
        let taken = self.long.take_spare(&mut self.logged)?;
        let array = &self.logged.array;
        let is_other = |slot| array.member(slot).is_some_and(|member| member.id() != id);
        match taken {
            _ if array.members.spares().iter().any(|spare| spare.id() == id) => Ok(AddedAs::Spare),
            Some(slot) if !is_other(slot) => Ok(AddedAs::Rebuilding { slot }),
            _ => Err(Error::new(
                Kind::Io,
                "this device failed while it was being added, and the array does not use it",
            )
            .at(device.place())
            .advice("add another device")),
        }
    }

    /// Adds a device as a spare. The former content of the device is lost.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] when the device is too small; with the errors of the device.
    pub fn add_spare(&mut self, device: SharedDevice) -> Result<()> {
        self.add_fresh(device).map(drop)
    }

    /// Returns the member id of the new spare.
    fn add_fresh(&mut self, device: SharedDevice) -> Result<MemberId> {
        let superblock = self.logged.array.superblock();
        check_room(&device, &superblock)?;
        let spare = fresh(device, &superblock, SPARE)?;
        spare.write_superblock(&superblock)?;
        spare.sync()?;
        let id = spare.id();
        self.logged.array.members.add_spare(spare);
        Ok(id)
    }

    /// Replaces a member by a device; the member stays in use until all of it is copied. The device
    /// may be a spare; the former content of any other device is lost.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when the slot has no member; with [`Kind::Busy`] while another
    /// member is being filled; with [`Kind::Usage`] when the device is too small; with
    /// [`Kind::Exists`] when the device is a member; with the errors of the device.
    pub fn replace(&mut self, slot: usize, with: SharedDevice) -> Result<()> {
        self.check_slot(slot)?;
        if self.long.is_filling() {
            return Err(busy(&with));
        }
        let Some(member) = self.logged.array.member(slot).filter(|it| it.is_filled(u64::MAX))
        else {
            let what = format!("there is no member in slot {slot}");
            return Err(Error::new(Kind::Refused, what).advice("add the device with --add instead"));
        };
        let superblock = self.logged.array.superblock();
        check_room(&with, &superblock)?;
        let own = own_of(&with, &superblock);
        let is_it = |id: MemberId| own.as_ref().is_some_and(|own| own.member == id);
        if !self.logged.array.members.spares().iter().any(|spare| is_it(spare.id())) {
            if let Some(own) = &own {
                self.check_stranger(&with, own, &superblock)?;
            }
            self.add_spare(with)?;
        }
        let members = &self.logged.array.members;
        let spare = members.take_spare(|spare| is_it(spare.id()));
        let spare = spare.or_else(|| members.take_last_spare());
        let spare = spare.ok_or_else(|| Error::new(Kind::Io, "the spare failed"))?;
        let replacement = for_slot(&spare, &superblock, slot as u16)?;
        self.long.begin_replace(&mut self.logged, &member, slot, replacement)
    }

    /// Refuses a device that is a member or a spare already.
    pub(super) fn check_unused(&self, device: &SharedDevice) -> Result<()> {
        let superblock = self.logged.array.superblock();
        own_of(device, &superblock)
            .map_or(Ok(()), |own| self.check_stranger(device, &own, &superblock))
    }

    fn check_stranger(
        &self,
        device: &SharedDevice,
        own: &Superblock,
        superblock: &Superblock,
    ) -> Result<()> {
        let is_it = |slot: &Slot| matches!(slot, Slot::Present(id) | Slot::Rebuilding(id) if *id == own.member);
        let is_spare =
            self.logged.array.members.spares().iter().any(|spare| spare.id() == own.member);
        match is_spare || superblock.slots.iter().any(is_it) {
            true => Err(Error::new(Kind::Exists, "this device is already a member of this array")
                .at(device.place())),
            false => Ok(()),
        }
    }

    fn check_slot(&self, slot: usize) -> Result<()> {
        let slots = self.logged.array.geometry().members();
        match slot < slots {
            true => Ok(()),
            false => Err(Error::new(Kind::Usage, "the array has no slot with this number")
                .expected(format!("a slot from 0 to {}", slots - 1), slot)),
        }
    }
}

impl LongWork {
    /// Moves a spare into an empty slot, if there is a spare and an empty slot, and nothing else is
    /// being filled. Returns the slot.
    pub(crate) fn take_spare(&mut self, logged: &mut LoggedArray) -> Result<Option<usize>> {
        let superblock = logged.array.superblock();
        let is_empty = |slot: &Slot| matches!(slot, Slot::Missing | Slot::Failed(_));
        let Some(slot) = superblock.slots.iter().position(is_empty) else { return Ok(None) };
        if self.is_filling() || !logged.array.members.has_spare() {
            return Ok(None);
        }
        // Before the spare leaves the list: until it is in the slot, the status shows either the
        // spare or this work.
        logged.array.announce_fill(slot);
        while let Some(spare) = logged.array.members.take_spare(|_| true) {
            // A spare that does not take its tables is dropped; there may be others.
            if let Ok(member) = for_slot(&spare, &superblock, slot as u16) {
                self.begin_fill(logged, slot, member, false)?;
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }
}

/// The superblock of a device, if the device belongs to this array.
fn own_of(device: &SharedDevice, superblock: &Superblock) -> Option<Superblock> {
    examine(device).ok().filter(|own| own.array == superblock.array)
}

fn busy(device: &SharedDevice) -> Error {
    Error::new(Kind::Busy, "another rebuild, resync or reshape is running")
        .at(device.place())
        .advice("wait until it is done")
}
