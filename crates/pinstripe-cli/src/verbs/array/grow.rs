//! `pinstripe array grow`: one member more.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::ops::register::absolute;
use pinstripe_array::ops::request::{ManageAction, Request};
use pinstripe_base::error::Result;

use super::newcomers::Newcomers;
use super::work::{self, FollowArgs};
use crate::args::{Size, size};
use crate::run::{Ending, Run};

/// Grow an array by one member
///
/// All data is moved to rows that are one chunk wider (a reshape), while the array stays in use. An
/// interrupted reshape continues when the array is opened again. The new space is available at the
/// end: a FUSE file gets longer, NBD clients see the new size when they reconnect. A mirror gets
/// one more copy. Level 10 can grow only with near copies.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array grow pool --add /dev/sdf
  pinstripe array grow pool --add /mnt/f/pool.img --size 10G
  pinstripe array grow pool --raid-devices 5          by a spare that it has
  pinstripe array grow pool --add /dev/sdf --no-wait && pinstripe array wait pool")]
pub struct ArrayGrowArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// New number of members: one more than now
    #[arg(long, short = 'n', value_name = "N")]
    raid_devices: Option<usize>,

    /// The device that becomes a member [default: a spare]
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    add: Option<PathBuf>,

    /// Create the device as a file of this size if it does not exist
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "add")]
    size: Option<Size>,

    /// Overwrite whatever the device carries
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    patience: FollowArgs,
}

impl ArrayGrowArgs {
    /// Begins it, and waits for its end.
    ///
    /// # Errors
    /// Those of the array: members are absent, something else goes on, there is no spare.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let add = self.add.as_deref().map(absolute).transpose()?;
        let force = self.force;
        let newcomers = Newcomers::make(&add, self.size)?;
        let act = |device: PathBuf| ManageAction::Add { device, force, only_again: false };
        let acts = add.clone().map(act).into_iter().collect();
        let request = Request::Grow { raid_devices: self.raid_devices, add, force };
        work::do_all(run, &self.name, &self.patience, newcomers, acts, [request])
    }
}
