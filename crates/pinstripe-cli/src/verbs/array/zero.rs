//! `pinstripe array zero-superblock`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::{FoundSuperblock, zero_superblock};
use pinstripe_base::error::Result;

use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Overwrite the superblocks of pinstripe and md on devices
///
/// Data other than superblocks is not overwritten, but the devices are no longer recognized as
/// members of an array.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array zero-superblock /dev/sdb /dev/sdc")]
pub struct ArrayZeroSuperblockArgs {
    /// Files or disks
    #[arg(value_name = "DEVICE", required = true, value_hint = ValueHint::FilePath)]
    devices: Vec<PathBuf>,

    /// Also overwrite superblocks that cannot be read
    #[arg(long)]
    force: bool,
}

impl ArrayZeroSuperblockArgs {
    /// Overwrites the superblocks, one device after the other.
    ///
    /// # Errors
    /// Fails with the errors of [`zero_superblock`]; devices before the failed one are already
    /// overwritten.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        for device in &self.devices {
            let was = match zero_superblock(device, self.force)? {
                Some(FoundSuperblock::Ours(superblock, _)) => {
                    format!("of the array {}", superblock.name)
                }
                Some(FoundSuperblock::Md(superblock)) => {
                    format!("of the md array {}", escape::text(&superblock.name()))
                }
                None => "that could not be read".to_owned(),
            };
            run.screen.event(&Event::new("zeroed").with_path("path", device))?;
            run.screen
                .say(&format!("{}: the superblock {was} was overwritten", escape::path(device)));
        }
        Ok(Ending::done(Event::default().with("devices", self.devices.len())))
    }
}
