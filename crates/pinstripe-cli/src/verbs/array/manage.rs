//! `pinstripe array manage`: members fail, go and come.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use pinstripe_array::ops::register::absolute;
use pinstripe_array::ops::request::{ManageAction, Request};
use pinstripe_base::error::{Error, Kind, Result};

use super::work::{self, FollowArgs};
use crate::run::{Ending, Run};

/// Remove members from an array, and add others
///
/// A served array is changed by the serving process while it stays in use. Any other array is
/// opened here, and members are rebuilt with progress shown. Several options are applied in this
/// order: fail, remove, re-add, add, replace.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array manage pool --fail /dev/sdc --remove /dev/sdc --add /dev/sdf
  pinstripe array manage pool --re-add /dev/sdc
  pinstripe array manage pool --replace /dev/sdc --with /dev/sdf")]
pub struct ArrayManageArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// Mark a member as failed: it does not receive later writes
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    fail: Vec<PathBuf>,

    /// Remove a failed member, or a spare
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    remove: Vec<PathBuf>,

    /// Add a device: a member that was away is brought up to date; any other device is rebuilt, or
    /// becomes a spare
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    add: Vec<PathBuf>,

    /// Add a device only if it is a member that was away
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    re_add: Vec<PathBuf>,

    /// Copy a member to another device, which then takes its place
    #[arg(long, value_name = "DEVICE", requires = "with", value_hint = ValueHint::FilePath)]
    replace: Option<PathBuf>,

    /// The device that replaces the member named by --replace
    #[arg(long, value_name = "DEVICE", requires = "replace", value_hint = ValueHint::FilePath)]
    with: Option<PathBuf>,

    /// Overwrite whatever an added device carries
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    patience: FollowArgs,
}

impl ArrayManageArgs {
    /// Does it.
    ///
    /// # Errors
    /// Why the first thing that could not be done could not be; what was named before is done.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let acts = self.acts()?;
        if acts.is_empty() {
            return Err(Error::new(Kind::Usage, "no change was named")
                .advice("see 'pinstripe array manage --help'"));
        }
        let requests = acts.into_iter().map(|act| Request::Manage { act });
        work::do_all(run, &self.name, &self.patience, requests)
    }

    /// In the order in which they make sense together.
    fn acts(&self) -> Result<Vec<ManageAction>> {
        let force = self.force;
        let mut acts = Vec::new();
        for device in absolutes(&self.fail)? {
            acts.push(ManageAction::Fail { device });
        }
        for device in absolutes(&self.remove)? {
            acts.push(ManageAction::Remove { device });
        }
        for (list, only_again) in [(&self.re_add, true), (&self.add, false)] {
            for device in absolutes(list)? {
                acts.push(ManageAction::Add { device, force, only_again });
            }
        }
        if let (Some(device), Some(with)) = (&self.replace, &self.with) {
            let (device, with) = (absolute(device)?, absolute(with)?);
            acts.push(ManageAction::Replace { device, with, force });
        }
        Ok(acts)
    }
}

fn absolutes(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path: &PathBuf| absolute(Path::new(path))).collect()
}
