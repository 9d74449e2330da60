//! `pinstripe upgrade`: upgrades a store of an earlier format version to the newest version, in
//! place.

use pinstripe::upgrade::{self, Direction};
use pinstripe_base::error::Result;

use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};

/// Upgrade a store of an earlier version to the newest format
///
/// The upgrade is in place, one member after the other, and rewrites only small objects, no data.
/// All members must be attached, and no backup may be running. The same command continues an
/// interrupted upgrade; until its last step, an upgrade can be undone with --back. From the first
/// step of the upgrade on, programs that do not know the new format cannot open the store.
///
/// Format version 2 protects an encrypted store against malicious members: objects that delete
/// something, or say which members belong to the store, carry a MAC under the store's keys.
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
                format!("the store has format version {}, which is the newest", outcome.format)
            }
            (Direction::Forward, _) => format!(
                "the store now has format version {}; the upgrade wrote {} and {}",
                outcome.format,
                counted(outcome.labels, "label"),
                counted(outcome.objects, "small object")
            ),
            (Direction::Back, _) => format!(
                "the upgrade is undone: the store has format version {}, as before",
                outcome.format
            ),
        });
        Ok(Ending::done(Event::default().with_fields(&outcome)))
    }
}
