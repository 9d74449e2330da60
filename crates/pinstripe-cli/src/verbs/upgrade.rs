//! `pinstripe upgrade`: upgrades a store of an earlier format version to the newest version, in
//! place.

use pinstripe::upgrade::{self, Direction};
use pinstripe_base::error::Result;

use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};

/// Upgrade a store of an earlier version to the newest format
///
/// The members are upgraded in place, one after the other. Only small objects (for example labels,
/// snapshots and keys) are rewritten, but no file data. All members must be attached, and no backup
/// may be running. To continue an interrupted upgrade, run the same command again; until the last
/// step of an upgrade, --back can undo it. After the first step of an upgrade, programs that do not
/// know the new format cannot open the store.
///
/// Format version 2 protects an encrypted store against malicious members. Objects that delete
/// data, or that list the members of the store, have a MAC (message authentication code) that only
/// the keys of the store can create.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe upgrade --store /mnt/a/store
  pinstripe upgrade --back")]
pub struct UpgradeArgs {
    /// Undo an interrupted upgrade
    #[arg(long)]
    back: bool,
}

impl UpgradeArgs {
    /// Upgrades the store.
    ///
    /// # Errors
    /// Fails with the errors of [`upgrade::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let mut store = run.open_store()?;
        let direction = if self.back { Direction::Back } else { Direction::Forward };
        let before = store.format as u8;
        let outcome = upgrade::run(&mut store, direction)?;
        run.screen.say(&match (direction, before == outcome.format) {
            (Direction::Forward, true) if outcome.labels + outcome.objects == 0 => {
                format!(
                    "the store already has format version {}, which is the newest version",
                    outcome.format
                )
            }
            (Direction::Forward, _) => format!(
                "the store now has format version {}; the upgrade wrote {} and {}",
                outcome.format,
                counted(outcome.labels, "label"),
                counted(outcome.objects, "small object")
            ),
            (Direction::Back, _) => format!(
                "the upgrade was undone: the store has format version {} again",
                outcome.format
            ),
        });
        Ok(Ending::done(Event::default().with_fields(&outcome)))
    }
}
