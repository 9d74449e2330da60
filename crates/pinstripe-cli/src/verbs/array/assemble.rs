//! `pinstripe array assemble`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_array::ops::assemble::{assemble, assemble_md};
use pinstripe_array::ops::{Register, detail};
use pinstripe_base::error::Result;

use super::register::register;
use super::status;
use crate::run::{Ending, Run};

/// Assemble an array from its devices, and register it under a name
///
/// Devices may be named in any order; they may belong to an array made by md (metadata 1.2). After
/// a power cut, the log is replayed. Without devices, those registered under the name are used.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array assemble pool /dev/sdb /dev/sdc /dev/sdd
  pinstripe array assemble pool")]
pub struct ArrayAssembleArgs {
    /// Name of the array
    #[arg(value_name = "NAME")]
    name: String,

    /// Files or disks of the array
    #[arg(value_name = "DEVICE", value_hint = ValueHint::FilePath)]
    devices: Vec<PathBuf>,

    /// Leave out unusable devices, and trust parity that may be stale: data that was being written
    /// during a power cut may be wrong
    #[arg(long)]
    force: bool,
}

impl ArrayAssembleArgs {
    /// Assembles it, and closes it again.
    ///
    /// # Errors
    /// Those of [`assemble`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let register = register()?;
        if !assemble_md(&self.name, &self.devices, &register)? {
            self.open_once(run, &register)?;
        }
        let found = detail::of_devices(&self.name, &register)?;
        Ok(status::ending(run, &found))
    }

    /// Replays the log of an array of ours, and closes it in order.
    fn open_once(&self, run: &Run, register: &Register) -> Result<()> {
        let plan = run.common.fault_plan();
        assemble(&self.name, &self.devices, self.force, register, &plan, &run.monitor)?.stop()
    }
}
