//! `pinstripe undelete`: makes a forgotten snapshot available again.

use pinstripe::{SnapshotName, forget};
use pinstripe_base::error::Result;

use super::snapshots;
use crate::choice_args::HostChoiceArgs;
use crate::run::{Ending, Run};

/// Bring back a forgotten snapshot
///
/// A forgotten snapshot can be brought back as long as 'pinstripe gc' has not deleted its data.
/// 'pinstripe snapshots --all' lists forgotten snapshots.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe undelete 3f2a9c10
  pinstripe undelete latest")]
pub struct UndeleteArgs {
    /// Snapshots to bring back, each given by the beginning of its id; 'latest' is the newest of
    /// all forgotten snapshots
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<String>,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

impl UndeleteArgs {
    /// Removes the marks that forgot the snapshots.
    ///
    /// # Errors
    /// Fails with the errors of [`forget::undelete`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let choice = &self.choice.choice(run)?;
        let store = run.open_store()?;
        let mut back = 0;
        for name in &self.snapshots {
            let snapshot = forget::undelete(&store, SnapshotName { name, choice }, &run.monitor)?;
            back += 1;
            run.screen.event(&snapshots::event(&snapshot))?;
            run.screen.say(&format!("snapshot {} is no longer forgotten", snapshot.id.short()));
        }
        // An absent member is not updated: the other members decide, and 'repair' updates it.
        run.degraded_by_absent(&store);
        Ok(Ending::done(crate::event::Event::default().with("snapshots", back)))
    }
}
