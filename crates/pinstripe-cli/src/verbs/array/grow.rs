//! `pinstripe array grow`: one member more.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::ops::register::absolute;
use pinstripe_array::ops::request::Request;
use pinstripe_base::error::Result;

use super::work::{self, FollowArgs};
use crate::run::{Ending, Run};

/// Give an array one member more
///
/// All that is stored is moved to rows that are one chunk wider, while everything goes on; it may be cut off
/// at any time and goes on when the array is opened again. What is gained can be used at the end: a FUSE file
/// gets longer, clients of a network block device see it when they connect anew. A mirror gets one copy
/// more. Level 10 grows only with near copies.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array grow pool --add /dev/sdf
  pinstripe array grow pool --raid-devices 5          by a spare that it has
  pinstripe array grow pool --add /dev/sdf --no-wait && pinstripe array wait pool")]
pub struct ArrayGrowArgs {
    /// Which
    #[arg(value_name = "NAME")]
    name: String,

    /// How many members it is to have: one more than it has
    #[arg(long, short = 'n', value_name = "N")]
    raid_devices: Option<usize>,

    /// The device that becomes a member; without it, a spare does
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    add: Option<PathBuf>,

    /// Give up whatever the device carries
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
        let request = Request::Grow { raid_devices: self.raid_devices, add, force: self.force };
        work::do_all(run, &self.name, &self.patience, [request])
    }
}
