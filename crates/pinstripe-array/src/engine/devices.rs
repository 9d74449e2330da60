//! Which part of an array a device is, and changes of members that name a device.
//!
//! Invariant: a device is looked up and acted on in one call of the flusher, so no slice of work
//! moves it to another slot in between.
//!
//! Not in this module: paths compared. The caller says whether a path is the device.

use std::path::Path;

use super::Array;
use super::flusher::Flusher;
use super::step::WorkReport;
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;

/// The part of an array that a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRole {
    /// The member of this slot, complete or being filled.
    Member(usize),
    /// It is being filled to replace the member of this slot.
    Replacement(usize),
    /// It waits for a member to fail.
    Spare,
    /// The last member of this slot, which failed or is absent.
    Failed(usize),
}

/// The outcome of failing a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailedAs {
    /// A member, which is marked as failed.
    Member,
    /// A replacement: the replace has ended, with this report, and the member stays in its slot.
    Replacement(WorkReport),
    /// Nothing: it had failed before.
    Already,
}

/// Whether a path is the device that is meant.
pub(crate) type IsDevice<'a> = &'a (dyn Fn(&Path) -> bool + Sync);

impl Array {
    /// Returns the part of the array that a device has, or `None` if it has no part.
    pub fn role_of(&self, is_it: IsDevice<'_>) -> Option<DeviceRole> {
        let members = self.members();
        for (slot, member) in members.iter().enumerate() {
            let Some(member) = member else { continue };
            if is_it(member.path()) {
                return Some(DeviceRole::Member(slot));
            }
            if member.replacement().member().is_some_and(|it| is_it(it.path())) {
                return Some(DeviceRole::Replacement(slot));
            }
        }
        if self.members.spares().iter().any(|spare| is_it(spare.path())) {
            return Some(DeviceRole::Spare);
        }
        let paths = self.members.paths();
        let was_there = |slot: &usize| {
            members.get(*slot).is_some_and(Option::is_none)
                && paths[*slot].as_ref().is_some_and(|path| is_it(path))
        };
        (0..paths.len()).find(was_there).map(DeviceRole::Failed)
    }

    /// Refuses to do without the member of a slot, when these are absent.
    ///
    /// # Errors
    /// [`Kind::Refused`] when too few members are left, or a resync has not made sure yet that what
    /// is left gives the member's content.
    pub(crate) fn check_failing(&self, slot: usize, absent: MemberSet) -> Result<()> {
        if absent.has(slot) {
            return Ok(());
        }
        if !self.survives(absent.with(slot)) {
            let what = format!("the array cannot do without the member of slot {slot}");
            return Err(Error::new(Kind::Refused, what).advice("add another member first"));
        }
        if self.has_unsure() {
            let what = format!(
                "the array cannot do without the member of slot {slot} until the resync is done"
            );
            return Err(Error::new(Kind::Refused, what).advice("wait until the resync is done"));
        }
        Ok(())
    }

    /// Refuses to remove a device that is in use.
    ///
    /// # Errors
    /// [`Kind::Refused`] for a member, and for one that is to replace it.
    pub(crate) fn check_removal(role: DeviceRole) -> Result<()> {
        let what = match role {
            DeviceRole::Member(slot) => format!("the member of slot {slot} is in use"),
            DeviceRole::Replacement(slot) => {
                format!("this device is being filled to replace the member of slot {slot}")
            }
            DeviceRole::Spare | DeviceRole::Failed(_) => return Ok(()),
        };
        Err(Error::new(Kind::Refused, what).advice("fail it first"))
    }
}

impl Flusher {
    /// Marks the member failed that is a device. If it is to replace a member, the replace ends.
    ///
    /// # Errors
    /// The errors of [`fail`](Self::fail); [`Kind::NotFound`] for no device of the array;
    /// [`Kind::Usage`] for a spare.
    pub fn fail_device(&mut self, is_it: IsDevice<'_>) -> Result<FailedAs> {
        match self.role(is_it)? {
            DeviceRole::Member(slot) => self.fail(slot).map(|()| FailedAs::Member),
            DeviceRole::Replacement(slot) => self.end_replace(slot).map(FailedAs::Replacement),
            DeviceRole::Failed(_) => Ok(FailedAs::Already),
            DeviceRole::Spare => {
                Err(Error::new(Kind::Usage, "this device is a spare and has no slot"))
            }
        }
    }

    /// Forgets the path of a failed member, or removes a spare.
    ///
    /// # Errors
    /// The errors of [`Array::check_removal`]; [`Kind::NotFound`] for no device of the array; the
    /// errors of the spare's device.
    pub fn remove_device(&mut self, is_it: IsDevice<'_>) -> Result<()> {
        let role = self.role(is_it)?;
        Array::check_removal(role)?;
        match role {
            DeviceRole::Spare => self.remove_spare(is_it),
            DeviceRole::Member(slot) | DeviceRole::Replacement(slot) | DeviceRole::Failed(slot) => {
                self.remove(slot)
            }
        }
    }

    /// Replaces the member on one device by another device.
    ///
    /// # Errors
    /// The errors of [`replace`](Self::replace); [`Kind::NotFound`] if the array has no such
    /// device; [`Kind::Usage`] if it is not a member.
    pub(crate) fn replace_device(&mut self, is_it: IsDevice<'_>, with: SharedDevice) -> Result<()> {
        let role = self.role(is_it)?;
        match role.slot_in_use() {
            Ok(slot) => self.replace(slot, with),
            Err(error) => Err(error),
        }
    }

    fn role(&self, is_it: IsDevice<'_>) -> Result<DeviceRole> {
        let role = self.array().role_of(is_it);
        role.ok_or_else(|| Error::new(Kind::NotFound, "this is not a device of this array"))
    }
}

impl DeviceRole {
    /// The slot of a member.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the device is not a member.
    pub(crate) fn slot_in_use(self) -> Result<usize> {
        match self {
            DeviceRole::Member(slot) => Ok(slot),
            DeviceRole::Spare => {
                Err(Error::new(Kind::Usage, "this device is a spare and has no slot"))
            }
            DeviceRole::Replacement(slot) => {
                let what =
                    format!("this device is being filled to replace the member of slot {slot}");
                Err(Error::new(Kind::Usage, what))
            }
            DeviceRole::Failed(_) => Err(not_used()),
        }
    }

    /// The word for messages.
    pub fn word(self) -> &'static str {
        match self {
            DeviceRole::Member(_) => "member",
            DeviceRole::Replacement(_) => "replacement",
            DeviceRole::Spare => "spare",
            DeviceRole::Failed(_) => "failed member",
        }
    }
}

/// The error for a member that failed.
pub(crate) fn not_used() -> Error {
    Error::new(Kind::Usage, "this device has failed, and is no longer used")
        .advice("nothing can be copied from the failed device: add the new device with --add")
}
