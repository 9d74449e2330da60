//! The role of a device in an array, and changes of members that are named by their device.
//!
//! Invariant: a device is looked up and used in one call of the flusher, so that no slice of work
//! moves it to another slot in between.
//!
//! This module does not compare paths. The caller decides whether a path is the device.

use std::path::Path;

use super::Array;
use super::flusher::Flusher;
use super::step::WorkReport;
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::SharedDevice;

/// The role of a device in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRole {
    /// The member of this slot, complete or being filled.
    Member(usize),
    /// A device that is being filled to replace the member of this slot.
    Replacement(usize),
    /// A spare, which waits for a member to fail.
    Spare,
    /// The last member of this slot, which failed or is absent.
    Failed(usize),
}

/// The outcome of failing a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailedAs {
    /// A member, which is marked as failed.
    Member,
    /// The device was a replacement: the replace has ended, with this report, and the member stays
    /// in its slot.
    Replacement(WorkReport),
    /// The device had failed before, so nothing changed.
    Already,
}

/// Tells whether a path is the device that is meant.
pub(crate) type IsDevice<'a> = &'a (dyn Fn(&Path) -> bool + Sync);

impl Array {
    /// Returns the role of the device in the array, or `None` if the array does not use it.
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

    /// Checks that the array can do without the member of a slot when the members in `absent` are
    /// also missing.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] when too few members would be left, or when the content of this
    /// member cannot be rebuilt because a resync has not finished.
    pub(crate) fn check_failing(&self, slot: usize, absent: MemberSet) -> Result<()> {
        if absent.has(slot) {
            return Ok(());
        }
        if !self.survives(absent.with(slot)) {
            let what = format!("the array would lose data without the member of slot {slot}");
            return Err(Error::new(Kind::Refused, what)
                .advice("add another member before you remove this one"));
        }
        if self.has_unsure() {
            let what = format!(
                "until the resync is done, the array may lose data without the member of slot \
                 {slot}"
            );
            return Err(Error::new(Kind::Refused, what).advice("wait until the resync is done"));
        }
        Ok(())
    }

    /// Refuses to remove a device that is in use.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] for a member, and for a device that is being filled to replace
    /// a member.
    pub(crate) fn check_removal(role: DeviceRole) -> Result<()> {
        let what = match role {
            DeviceRole::Member(slot) => format!("the member of slot {slot} is in use"),
            DeviceRole::Replacement(slot) => {
                format!("this device is being filled to replace the member of slot {slot}")
            }
            DeviceRole::Spare | DeviceRole::Failed(_) => return Ok(()),
        };
        Err(Error::new(Kind::Refused, what)
            .advice("mark the device as failed (--fail) before you remove it"))
    }
}

impl Flusher {
    /// Marks the member on a device as failed. If the device is being filled to replace a member,
    /// the replace ends.
    ///
    /// # Errors
    /// Fails with the errors of [`fail`](Self::fail); with [`Kind::NotFound`] for no device of the
    /// array; with [`Kind::Usage`] for a spare.
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

    /// Forgets the path of a failed member, or removes a spare from the array.
    ///
    /// # Errors
    /// Fails with the errors of [`Array::check_removal`]; with [`Kind::NotFound`] for no device of
    /// the array; with the errors of the spare's device.
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
    /// Fails with the errors of [`replace`](Self::replace); with [`Kind::NotFound`] if the array
    /// has no such device; with [`Kind::Usage`] if the device is not a member.
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
    /// Fails with [`Kind::Usage`] if the device is not a member.
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

    /// The word that messages use for this role.
    pub fn word(self) -> &'static str {
        match self {
            DeviceRole::Member(_) => "member",
            DeviceRole::Replacement(_) => "replacement",
            DeviceRole::Spare => "spare",
            DeviceRole::Failed(_) => "failed member",
        }
    }
}

/// The error for naming a member that has failed.
pub(crate) fn not_used() -> Error {
    Error::new(Kind::Usage, "this device has failed, and the array no longer uses it")
        .advice("nothing can be copied from the failed device: add the new device with --add")
}
