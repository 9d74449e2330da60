//! `pinstripe array scrub`.

use pinstripe_array::{Request, reach_array};
use pinstripe_base::error::Result;

use super::register::register;
use super::work::{self, FollowArgs};
use crate::run::{Ending, Run};

/// Read and verify all data of an array; with --repair, also repair damage
///
/// The scrub compares every block with its checksum, and parity with the data. Without --repair,
/// nothing is changed, and the exit code is 10 if the scrub finds damage.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array scrub pool
  pinstripe array scrub pool --repair
  pinstripe array scrub pool --repair --no-wait")]
pub struct ArrayScrubArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// Repair damaged blocks and parity that does not match the data
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    patience: FollowArgs,
}

impl ArrayScrubArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with the errors of the array.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        let mut reached =
            reach_array(&self.name, &register, &run.common.device_faults()?, &run.monitor)?;
        let before = work::ended(&mut reached)?;
        reached.ask(&Request::Scrub { repair: self.repair })?;
        work::conclude(run, reached, &self.patience, before)
    }
}
