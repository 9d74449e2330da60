//! `pinstripe array manage`: fails, removes, adds and replaces members.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::{
    MadeFiles, ManageAction, Request, SlotDetail, SlotStateDetail, absolute_path, look_at_array,
};
use pinstripe_base::error::{Error, Kind, Result};

use super::register::register;
use super::status;
use super::work::{self, FollowArgs};
use crate::args::{Size, size};
use crate::run::{Ending, Run};

/// Add, remove and replace members of an array
///
/// If a process serves the array, that process makes the changes, and the array stays in use. If no
/// process serves the array, this command opens the array, makes the changes, and shows the
/// progress of a rebuild. Several options are applied in this order: --fail, --remove, --re-add,
/// --add, --replace. Before the first change, all devices are examined; if a device cannot be used,
/// nothing is changed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array manage pool --fail /dev/sdc --remove /dev/sdc --add /dev/sdf
  pinstripe array manage pool --re-add /dev/sdc
  pinstripe array manage pool --fail detached --remove detached --add /dev/sdf
  pinstripe array manage pool --add /mnt/e/pool.img --size 10G
  pinstripe array manage pool --replace /dev/sdc --with /dev/sdf")]
pub struct ArrayManageArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// Mark a member as failed, so that it receives no more writes; the word 'detached' means all
    /// members whose device no longer exists
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    fail: Vec<PathBuf>,

    /// Remove a failed member, or a spare; the word 'failed' means all failed members, and
    /// 'detached' all members whose device no longer exists
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    remove: Vec<PathBuf>,

    /// Add a device: a member that was absent is brought up to date; any other device is rebuilt as
    /// the replacement of a missing member, or becomes a spare
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    add: Vec<PathBuf>,

    /// Add a device, but only if it is a member that was absent
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    re_add: Vec<PathBuf>,

    /// Copy a member to another device, which then replaces the member
    #[arg(long, value_name = "DEVICE", requires = "with", value_hint = ValueHint::FilePath)]
    replace: Option<PathBuf>,

    /// The device that replaces the member named by --replace
    #[arg(long, value_name = "DEVICE", requires = "replace", value_hint = ValueHint::FilePath)]
    with: Option<PathBuf>,

    /// If an added device does not exist, create it as a file of this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<Size>,

    /// Overwrite any data on an added device
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    patience: FollowArgs,
}

impl ArrayManageArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// If a device cannot be used, nothing is changed. If an action fails, the actions before it
    /// are done.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let acts = self.acts()?;
        if acts.is_empty() {
            return self.nothing(run);
        }
        let newcomers = self.add.iter().chain(&self.with).map(|it| absolute_path(it));
        let newcomers = newcomers.collect::<Result<Vec<_>>>()?;
        let newcomers = MadeFiles::of(&newcomers, self.size.map(|it| it.0))?;
        let requests = acts.clone().into_iter().map(|act| Request::Manage { act });
        work::do_all(run, &self.name, &self.patience, newcomers, acts, requests)
    }

    /// Handles a call without actions: an error, unless words like 'detached' were given that match
    /// no device.
    fn nothing(&self, run: &Run) -> Result<Ending> {
        if self.fail.is_empty() && self.remove.is_empty() {
            return Err(Error::new(Kind::Usage, "no change of the array was requested")
                .advice("see 'pinstripe array manage --help'"));
        }
        run.screen.say("no member of the array matches, so nothing was changed");
        Ok(status::ending(run, &look_at_array(&self.name, &register()?)?))
    }

    /// The actions, in the order in which they are applied.
    fn acts(&self) -> Result<Vec<ManageAction>> {
        let force = self.force;
        let mut acts = Vec::new();
        for device in self.expanded(&self.fail)? {
            acts.push(ManageAction::Fail { device });
        }
        for device in self.expanded(&self.remove)? {
            acts.push(ManageAction::Remove { device });
        }
        for (list, only_again) in [(&self.re_add, true), (&self.add, false)] {
            for device in list {
                let device = absolute_path(device)?;
                acts.push(ManageAction::Add { device, force, only_again });
            }
        }
        if let (Some(device), Some(with)) = (&self.replace, &self.with) {
            let (device, with) = (absolute_path(device)?, absolute_path(with)?);
            acts.push(ManageAction::Replace { device, with, force });
        }
        Ok(acts)
    }

    /// The devices of a list, in which mdadm's words are replaced by the members that they match.
    fn expanded(&self, list: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut devices = Vec::with_capacity(list.len());
        for device in list {
            match device.to_str() {
                Some(word @ ("detached" | "failed" | "faulty")) => {
                    let array = look_at_array(&self.name, &register()?)?;
                    devices.extend(array.slots.iter().filter_map(|slot| meant(word, slot)));
                }
                _ => devices.push(absolute_path(device)?),
            }
        }
        Ok(devices)
    }
}

/// The device of a member, if the given word of mdadm matches the member.
fn meant(word: &str, slot: &SlotDetail) -> Option<PathBuf> {
    let device = slot.device.clone()?;
    let is_meant = match word {
        "detached" => !device.exists(),
        _ => slot.state == SlotStateDetail::Failed,
    };
    is_meant.then_some(device)
}
