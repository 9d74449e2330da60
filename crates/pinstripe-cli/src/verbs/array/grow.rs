//! `pinstripe array grow`: adds a member, changes the level, or uses larger members.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::{MadeFiles, ManageAction, Request, absolute_path};
use pinstripe_base::error::{Error, Kind, Result};

use super::work::{self, FollowArgs};
use crate::args::{Size, size};
use crate::run::{Ending, Run};

/// Grow an array by one member, change its level, or use the full size of larger members
///
/// Growing an array by one member moves all data to stripes that are one chunk wider (a reshape);
/// the array stays in use during the reshape. An interrupted reshape continues when the array is
/// opened again. The new space becomes available when the reshape has finished: the FUSE file then
/// becomes longer, and NBD clients see the new size when they reconnect. Growing a mirror (level 1)
/// adds one more copy of the data, but no space. An array of level 10 can grow only if its layout
/// is near copies.
///
/// --level changes the level of an array, but only if no data has to be moved. An array can change
/// from level 0 to 4 or 5, and from level 4 or 5 to 6; each change needs one more device, which is
/// filled with parity. The changes from level 4 or 5 to 0, and from 6 to 5, are possible as well,
/// and turn the last member into a spare. An array of level 1 with two members can change to level
/// 5, and can then grow.
///
/// --size max is for arrays whose devices have been enlarged, or replaced by larger devices. --size
/// max makes the array use as much of each member as the smallest member has.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array grow pool --add /dev/sdf
  pinstripe array grow pool --add /mnt/f/pool.img --size 10G
  pinstripe array grow pool --raid-devices 5          use a spare of the array
  pinstripe array grow pool --add /dev/sdf --no-wait && pinstripe array wait pool
  pinstripe array grow pool --level 6 --add /dev/sdf  add a second parity to level 5
  pinstripe array grow pool --level 5                 level 6 to 5: the last member becomes a spare
  pinstripe array grow pool --size max                use larger devices completely")]
pub struct ArrayGrowArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// The new number of members, which must be one more than the present number
    #[arg(long, short = 'n', value_name = "N")]
    raid_devices: Option<usize>,

    /// The device that becomes a member [default: a spare of the array]
    #[arg(long, short, value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    add: Option<PathBuf>,

    /// The new RAID level
    #[arg(long, short, value_name = "LEVEL", conflicts_with = "raid_devices")]
    level: Option<String>,

    /// With --add: create the device as a file of this size if it does not exist. Without --add,
    /// the only value is "max": use as much of each member as the smallest member has
    #[arg(long, value_name = "SIZE", value_parser = member_size)]
    size: Option<MemberSize>,

    /// Overwrite any data on the added device
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    patience: FollowArgs,
}

/// A value of `--size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberSize {
    Max,
    Bytes(Size),
}

fn member_size(text: &str) -> Result<MemberSize, String> {
    match text {
        "max" => Ok(MemberSize::Max),
        text => size(text).map(MemberSize::Bytes),
    }
}

impl ArrayGrowArgs {
    /// Begins the growth, and waits for its end.
    ///
    /// # Errors
    /// Fails with the errors of the array: members are absent, other work is running, there is no
    /// spare.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let add = self.add.as_deref().map(absolute_path).transpose()?;
        let force = self.force;
        let size = match self.size(add.is_some())? {
            Some(MemberSize::Max) => {
                let (none, requests) = (MadeFiles::default(), [Request::GrowSize]);
                return work::do_all(run, &self.name, &self.patience, none, vec![], requests);
            }
            Some(MemberSize::Bytes(size)) => Some(size),
            None => None,
        };
        let newcomers = MadeFiles::of(&add, size.map(|it| it.0))?;
        let act = |device: PathBuf| ManageAction::Add { device, force, only_again: false };
        let acts = add.clone().map(act).into_iter().collect();
        let request = match &self.level {
            Some(level) => Request::ChangeLevel { level: level.clone(), add, force },
            None => Request::Grow { raid_devices: self.raid_devices, add, force },
        };
        work::do_all(run, &self.name, &self.patience, newcomers, acts, [request])
    }

    /// The value of `--size`, if it fits the other arguments.
    fn size(&self, adds: bool) -> Result<Option<MemberSize>> {
        let changes_else = adds || self.level.is_some() || self.raid_devices.is_some();
        match self.size {
            Some(MemberSize::Max) if changes_else => Err(Error::new(
                Kind::Usage,
                "--size max cannot be combined with another change of the array",
            )
            .advice("make the other change first, then use --size max")),
            Some(MemberSize::Bytes(_)) if !adds => {
                Err(Error::new(Kind::Usage, "--size needs --add, unless the size is 'max'")
                    .advice("use --size max to use the full length of each member"))
            }
            size => Ok(size),
        }
    }
}
