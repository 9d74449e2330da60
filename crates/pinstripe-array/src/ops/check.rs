//! Checks whether several changes of members can be made one after the other, before the first is
//! made: an unusable second device, or one that the array cannot do without, must not leave the
//! array degraded by the first change.

use std::path::Path;

use super::controller::ArrayController;
use super::register;
use super::request::ManageAction;
use crate::engine::{Array, DeviceRole, check_room};
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};

/// The effect of the changes that precede the one being checked.
#[derive(Default)]
struct EarlierActs<'a> {
    /// Devices that will have failed.
    failed: Vec<&'a Path>,
    /// Devices that will have been added.
    taken: Vec<&'a Path>,
}

impl ArrayController {
    /// Checks all devices that the changes name. Nothing is changed.
    ///
    /// # Errors
    /// Fails with the errors that the changes would have, as far as devices show them; with
    /// [`Kind::Usage`] for a device that is added twice.
    pub(super) fn check(&self, acts: &[ManageAction]) -> Result<()> {
        let mut ahead = EarlierActs::default();
        let mut absent = self.volume.array().absent();
        for act in acts {
            match act {
                ManageAction::Fail { device } => {
                    self.check_failing(device, &mut absent)?;
                    ahead.failed.push(device);
                }
                ManageAction::Remove { device } => self.check_removal(device, &ahead)?,
                ManageAction::Add { device, force, only_again } => {
                    self.check_newcomer(device, *force, *only_again, &mut ahead)?;
                }
                ManageAction::Replace { device, with, force } => {
                    self.slot(device)?;
                    self.check_newcomer(with, *force, false, &mut ahead)?;
                }
            }
        }
        Ok(())
    }

    /// `absent` are the members that will be absent at that time.
    fn check_failing(&self, device: &Path, absent: &mut MemberSet) -> Result<()> {
        let slot = match self.part(device)? {
            None | Some(DeviceRole::Failed(_) | DeviceRole::Replacement(_)) => return Ok(()),
            Some(role) => role.slot_in_use().map_err(|error| error.at(device))?,
        };
        let checked = self.volume.array().check_failing(slot, *absent);
        checked.map_err(|error| match error.advice_text() {
            Some(advice) => {
                let advice = format!("nothing was changed; {advice}");
                error.at(device).advice(advice)
            }
            None => error.at(device),
        })?;
        *absent = absent.with(slot);
        Ok(())
    }

    fn check_removal(&self, device: &Path, ahead: &EarlierActs<'_>) -> Result<()> {
        let Some(role) = self.part(device)? else { return Ok(()) };
        match ahead.failed.iter().any(|it| register::is_same(it, device)) {
            true => Ok(()),
            false => Array::check_removal(role).map_err(|error| error.at(device)),
        }
    }

    fn check_newcomer<'a>(
        &self,
        device: &'a Path,
        force: bool,
        only_again: bool,
        ahead: &mut EarlierActs<'a>,
    ) -> Result<()> {
        let is_it = |it: &&Path| register::is_same(it, device);
        if ahead.taken.iter().any(is_it) {
            let error = Error::new(Kind::Usage, "this device is given twice").at(device);
            return Err(error.advice("give each device only once"));
        }
        ahead.taken.push(device);
        // A device that is failed first is still open here, and was large enough.
        if ahead.failed.iter().any(is_it) {
            return Ok(());
        }
        let opened = self.open(device, force).map_err(|error| match error.kind() {
            Kind::NotFound => error.advice(
                "give a device that exists, or create a file as the device with --size SIZE",
            ),
            _ => error,
        })?;
        if only_again {
            self.refuse_stranger(&opened)?;
        }
        check_room(&opened, &self.volume.array().superblock())
    }
}
