//! `pinstripe array`: a RAID on files and disks, with mdadm's words.

mod assemble;
mod create;
mod detail;
mod events;
mod examine;
mod grow;
mod manage;
mod probe;
mod register;
mod scrub;
mod serve;
mod serving;
mod set;
mod show;
mod status;
mod stop;
mod wait;
mod work;
mod zero;

use pinstripe_base::error::Result;

use crate::run::{Ending, Run};

/// Make and look after RAID arrays on files and disks
///
/// An array of level 0, 1, 4, 5, 6 or 10 lies on files or disks, its members, and is kept in this
/// program: no kernel module, no root. Words and options are mdadm's. What is written is checked by a
/// checksum when it is read, a power cut leaves no wrong parity behind (--consistency-policy log), and
/// a new array needs no first sync.
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
pub struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(clap::Subcommand)]
enum Act {
    Create(create::Args),
    Assemble(assemble::Args),
    Serve(serve::Args),
    Stop(stop::Args),
    Status(status::Args),
    Detail(detail::Args),
    Examine(examine::Args),
    Manage(manage::Args),
    Set(set::Args),
    Scrub(scrub::Args),
    Grow(grow::Args),
    Wait(wait::Args),
    Events(events::Args),
    Probe(probe::Args),
    ZeroSuperblock(zero::Args),
}

impl Args {
    /// Does it.
    ///
    /// # Errors
    /// Those of the verb.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        match &self.act {
            Act::Create(args) => args.run(run),
            Act::Assemble(args) => args.run(run),
            Act::Serve(args) => args.run(run),
            Act::Stop(args) => args.run(run),
            Act::Status(args) => args.run(run),
            Act::Detail(args) => args.run(run),
            Act::Examine(args) => args.run(run),
            Act::Manage(args) => args.run(run),
            Act::Set(args) => args.run(run),
            Act::Scrub(args) => args.run(run),
            Act::Grow(args) => args.run(run),
            Act::Wait(args) => args.run(run),
            Act::Events(args) => args.run(run),
            Act::Probe(args) => args.run(run),
            Act::ZeroSuperblock(args) => args.run(run),
        }
    }
}
