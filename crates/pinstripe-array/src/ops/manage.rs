//! Adding, removing and replacing members by the paths of their devices.

use std::cmp::Ordering;
use std::path::Path;

use super::controller::ArrayController;
use super::request::ManageAction;
use super::{devices, register};
use crate::engine::{self, AddedAs, DeviceRole, FailedAs, SlotState, not_used};
use crate::geometry::Level;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::{SharedDevice, give_up_overdue, is_overdue};

impl ArrayController {
    /// Carries out a change of members, and registers the devices. Returns a text for people about
    /// what was done.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the array has no such device; with the errors of the
    /// engine.
    pub(super) fn manage(&self, act: &ManageAction) -> Result<String> {
        match act {
            ManageAction::Fail { device } => self.fail(device),
            ManageAction::Remove { device } => {
                let is_it = self.is_device(device);
                let removed = self.volume.with(|it| it.remove_device(&is_it));
                self.or_left_out(device, removed)?;
                self.note(Some(device), None)?;
                Ok(format!("{} is removed from the array", device.display()))
            }
            ManageAction::Add { device, force, only_again } => {
                self.add(device, *force, *only_again)
            }
            ManageAction::Replace { device, with, force } => {
                let opened = self.open(with, *force)?;
                let is_it = self.is_device(device);
                let begun = self.volume.with(|it| it.replace_device(&is_it, opened));
                if self.or_left_out(device, begun)?.is_none() {
                    return Err(not_used().at(device));
                }
                self.note(None, Some(with))?;
                Ok(format!(
                    "the data of {} is being copied to {}, which will replace it",
                    device.display(),
                    with.display()
                ))
            }
        }
    }

    fn fail(&self, device: &Path) -> Result<String> {
        let place = device.display();
        self.give_up_overdue(device);
        let is_it = self.is_device(device);
        let failed = self.volume.with(|it| it.fail_device(&is_it));
        Ok(match self.or_left_out(device, failed)? {
            Some(FailedAs::Member) => format!("{place} is marked as failed"),
            Some(FailedAs::Replacement(report)) => {
                let slot = report.slot.unwrap_or_default();
                self.volume.keep_report(report);
                format!(
                    "{place} is marked as failed, so the replacement of the member of slot {slot} \
                     is cancelled"
                )
            }
            Some(FailedAs::Already) => format!("{place} has failed already"),
            None => format!(
                "{place} is not in use, because the device has already failed or was replaced"
            ),
        })
    }

    /// The result of a change; `None` for a device that only the register knows.
    fn or_left_out<T>(&self, device: &Path, done: Result<T>) -> Result<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.kind() == Kind::NotFound && self.knows(device)? => Ok(None),
            Err(error) if error.kind() == Kind::NotFound => Err(stranger(device)),
            Err(error) if error.place().is_none() => Err(error.at(device)),
            Err(error) => Err(error),
        }
    }

    fn add(&self, device: &Path, force: bool, only_again: bool) -> Result<String> {
        let opened = self.open(device, force)?;
        if only_again {
            self.refuse_stranger(&opened)?;
        }
        let added = self.volume.with(|it| it.add(opened))?;
        self.note(None, Some(device))?;
        let place = device.display();
        Ok(match added {
            AddedAs::Recovering { slot } => {
                format!(
                    "{place} is again the member of slot {slot}, and is being brought up to date"
                )
            }
            AddedAs::Rebuilding { slot } => {
                format!("the data of slot {slot} is being rebuilt on {place}")
            }
            AddedAs::Spare => format!("{place} is now a spare"),
        })
    }

    /// Begins to grow the array by one member. Returns a text for people about what was begun.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if the number of members is not one more than now; with the
    /// errors of the engine.
    pub(super) fn grow(
        &self,
        raid_devices: Option<usize>,
        add: Option<&Path>,
        force: bool,
    ) -> Result<String> {
        let members = self.volume.array().geometry().members();
        if let Some(wanted) = raid_devices.filter(|wanted| *wanted != members + 1) {
            return Err(Error::new(Kind::Usage, "an array grows by one member at a time")
                .expected(format!("--raid-devices {}", members + 1), wanted));
        }
        match add {
            None => self.volume.with(|it| it.grow())?,
            Some(device) => {
                let opened = self.open(device, force)?;
                self.volume.with(|it| it.grow_by(opened))?;
                self.note(None, Some(device))?;
            }
        }
        Ok(format!("the array grows from {members} to {} members", members + 1))
    }

    /// Changes the level. Returns a text for people about what was done.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if the word is not a level; with the errors of the engine.
    pub(super) fn change_level(
        &self,
        level: &str,
        add: Option<&Path>,
        force: bool,
    ) -> Result<String> {
        let level: Level = level.parse()?;
        let before = self.volume.array().geometry();
        match add {
            None => self.volume.with(|it| it.change_level(level))?,
            Some(device) => {
                let opened = self.open(device, force)?;
                self.volume.with(|it| it.change_level_with(level, opened))?;
                self.note(None, Some(device))?;
            }
        }
        let after = self.volume.array().geometry();
        let change =
            format!("the level of the array changed to {level}; it was {}", before.level());
        Ok(match after.members().cmp(&before.members()) {
            Ordering::Less => format!("{change}; the former last member is now a spare"),
            Ordering::Equal => change,
            Ordering::Greater => format!("{change}; the new member is being filled with parity"),
        })
    }

    /// Makes the array use all space of its members. Returns a text for people about what was done.
    ///
    /// # Errors
    /// Fails with the errors of the engine.
    pub(super) fn grow_size(&self) -> Result<String> {
        let before = self.volume.array().capacity();
        self.volume.with(|it| it.grow_size())?;
        let after = self.volume.array().capacity();
        Ok(format!(
            "the size of the array is now {}; it was {}",
            format_size(after),
            format_size(before)
        ))
    }

    /// Opens a device that will join the array: a blank one, or one of this array.
    ///
    /// # Errors
    /// Fails with [`Kind::Exists`] for a member or a spare; with the errors of [`devices::open`]
    /// and [`devices::refuse_carrying`].
    pub(super) fn open(&self, device: &Path, force: bool) -> Result<SharedDevice> {
        self.refuse_own(device)?;
        let opened =
            devices::open(device, self.volume.array().geometry().members(), self.faults())?;
        if !self.is_ours(&opened)? {
            devices::refuse_carrying(&opened, force)?;
        }
        Ok(opened)
    }

    /// Refuses a device that this array uses: opening it would fail because this process has locked
    /// it.
    fn refuse_own(&self, device: &Path) -> Result<()> {
        let role = match self.role(device) {
            Some(
                role @ (DeviceRole::Member(_) | DeviceRole::Replacement(_) | DeviceRole::Spare),
            ) => role.word(),
            Some(DeviceRole::Failed(_)) | None => return Ok(()),
        };
        Err(Error::new(Kind::Exists, format!("this device is already a {role} of this array"))
            .at(device)
            .advice("give a device that the array does not use"))
    }

    /// Refuses a device that is not a failed member of this array.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`].
    pub(super) fn refuse_stranger(&self, opened: &SharedDevice) -> Result<()> {
        match self.was_member(opened)? {
            true => Ok(()),
            false => {
                Err(Error::new(Kind::Refused, "this device is not an absent member of this array")
                    .at(opened.place())
                    .advice("add the device as a new member with --add"))
            }
        }
    }

    fn is_ours(&self, device: &SharedDevice) -> Result<bool> {
        let own = engine::probe(device);
        Ok(own.is_some_and(|own| own.array == self.volume.array().superblock().array))
    }

    fn was_member(&self, device: &SharedDevice) -> Result<bool> {
        let Some(own) = engine::probe(device) else { return Ok(false) };
        let status = self.volume.array().status();
        Ok(own.array == status.array
            && status
                .slots
                .iter()
                .any(|slot| slot.state == SlotState::Failed && slot.member == Some(own.member)))
    }

    /// The present slot of a member's device. A later slice of work may move the device to another
    /// slot.
    ///
    /// # Errors
    /// Fails with the errors of [`part`](Self::part); with [`Kind::Usage`] if the device is not a
    /// member.
    pub(super) fn slot(&self, device: &Path) -> Result<usize> {
        let slot = self.part(device)?.map_or_else(|| Err(not_used()), DeviceRole::slot_in_use);
        slot.map_err(|error| error.at(device))
    }

    /// The present role of a device in the array. A device that has disappeared is found by its
    /// former path; returns `None` for a device that only the register knows.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] if the array has no such device.
    pub(super) fn part(&self, device: &Path) -> Result<Option<DeviceRole>> {
        match self.role(device) {
            Some(role) => Ok(Some(role)),
            None if self.knows(device)? => Ok(None),
            None => Err(stranger(device)),
        }
    }

    /// Returns the role of a device; runs between two slices of work, so that no device changes its
    /// role meanwhile, except while a member does not answer: a slice may wait for that member.
    fn role(&self, device: &Path) -> Option<DeviceRole> {
        let is_it = self.is_device(device);
        let array = self.volume.array();
        match array.status().slots.iter().flat_map(|slot| &slot.path).any(|it| is_overdue(it)) {
            true => array.role_of(&is_it),
            false => self.volume.with(|it| it.array().role_of(&is_it)),
        }
    }

    /// Says which path is this device. Where one is equal, no other device is examined: it may not
    /// answer.
    fn is_device<'a>(&self, device: &'a Path) -> impl Fn(&Path) -> bool + Sync + use<'a> {
        let is_known = self.volume.array().role_of(&|known| known == device).is_some();
        move |known: &Path| match is_known {
            true => known == device,
            false => register::is_same(known, device),
        }
    }

    /// Has a member that does not answer fail at once, if the array can do without it: the flusher
    /// may be waiting for it.
    fn give_up_overdue(&self, device: &Path) {
        let array = self.volume.array();
        let Some(DeviceRole::Member(slot)) = array.role_of(&self.is_device(device)) else { return };
        let path = array.status().slots.get(slot).and_then(|slot| slot.path.clone());
        if let Some(path) = path.filter(|_| array.check_failing(slot, array.absent()).is_ok()) {
            give_up_overdue(&path);
        }
    }
}

fn stranger(device: &Path) -> Error {
    Error::new(Kind::NotFound, "this is not a device of this array")
        .at(device)
        .advice("'pinstripe array detail' lists the devices of the array")
}
