//! `pinstripe array`: a RAID on files and disks, with mdadm's words.

mod assemble;
mod create;
mod detail;
mod events;
mod examine;
mod forget;
mod grow;
mod manage;
mod monitor;
mod notify;
mod probe;
mod register;
mod scan;
mod scrub;
mod serve;
mod serve_all;
mod serving;
mod set;
mod show;
mod status;
mod stop;
mod wait;
mod work;
mod zero;

/// `join` asks it before it overwrites a disk.
pub use pinstripe_array::signature;
use pinstripe_base::error::Result;

use crate::run::{Ending, Run};

/// Create and manage RAID arrays on files and disks
///
/// The members of an array are files or disks; the level is 0, 1, 4, 5, 6 or 10. An array runs in
/// user space, without a kernel module and without root. Terms and options are those of mdadm. Data
/// is verified against checksums when it is read. With --consistency-policy log (the default), no
/// parity is stale after a power cut. A new array needs no initial sync.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe array create pool --level 5 --raid-devices 3 --size 1G a.img b.img c.img
  pinstripe array create pool -l 6 -n 4 -c 64 /dev/sdb /dev/sdc /dev/sdd /dev/sde
  pinstripe array serve pool --nbd unix:/run/user/1000/pool --fuse /mnt/pool
  pinstripe array manage pool --fail /dev/sdc --remove /dev/sdc --add /dev/sdf
  pinstripe array status
  pinstripe array detail pool
  pinstripe array examine /dev/sdb
  pinstripe array assemble pool /dev/sdb /dev/sdc /dev/sdd /dev/sde")]
pub struct ArrayArgs {
    #[command(subcommand)]
    act: ArrayVerb,
}

#[derive(clap::Subcommand)]
#[command(defer = true)]
enum ArrayVerb {
    Create(create::ArrayCreateArgs),
    Assemble(assemble::ArrayAssembleArgs),
    Serve(serve::ArrayServeArgs),
    Stop(stop::ArrayStopArgs),
    Status(status::ArrayStatusArgs),
    Detail(detail::ArrayDetailArgs),
    Examine(examine::ArrayExamineArgs),
    Forget(forget::ArrayForgetArgs),
    Manage(manage::ArrayManageArgs),
    Set(set::ArraySetArgs),
    Scrub(scrub::ArrayScrubArgs),
    Grow(grow::ArrayGrowArgs),
    Wait(wait::ArrayWaitArgs),
    Events(events::ArrayEventsArgs),
    Monitor(monitor::ArrayMonitorArgs),
    Probe(probe::ArrayProbeArgs),
    ZeroSuperblock(zero::ArrayZeroSuperblockArgs),
}

impl ArrayArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with the errors of the verb.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        pinstripe_array::set_device_timeout(run.common.member_timeout());
        match &self.act {
            ArrayVerb::Create(args) => args.run(run),
            ArrayVerb::Assemble(args) => args.run(run),
            ArrayVerb::Serve(args) => args.run(run),
            ArrayVerb::Stop(args) => args.run(run),
            ArrayVerb::Status(args) => args.run(run),
            ArrayVerb::Detail(args) => args.run(run, run.common.verbose),
            ArrayVerb::Examine(args) => args.run(run, run.common.verbose),
            ArrayVerb::Forget(args) => args.run(run),
            ArrayVerb::Manage(args) => args.run(run),
            ArrayVerb::Set(args) => args.run(run),
            ArrayVerb::Scrub(args) => args.run(run),
            ArrayVerb::Grow(args) => args.run(run),
            ArrayVerb::Wait(args) => args.run(run),
            ArrayVerb::Events(args) => args.run(run),
            ArrayVerb::Monitor(args) => args.run(run),
            ArrayVerb::Probe(args) => args.run(run),
            ArrayVerb::ZeroSuperblock(args) => args.run(run),
        }
    }
}
