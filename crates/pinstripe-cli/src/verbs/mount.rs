//! `pinstripe mount`: all snapshots as a directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use pinstripe::ops::mount::{SnapshotTree, SnapshotTreeOptions};
use pinstripe::store::Store;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::units::counted;

use super::shown::{FILES_TOLD, FileFigures, Shown, ShownArgs, ShownStatus, StatusArgs};
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;
use crate::{system, time};

/// The interval at which new and forgotten snapshots are looked for.
const REFRESH: Duration = Duration::from_secs(2);
/// Threads that fetch ahead: they wait for members most of the time.
const FETCHERS: usize = 16;

/// Show all snapshots as a read-only directory
///
/// Below the mountpoint are hosts/HOST/TIME (the snapshots), and links to them: ids/ID,
/// tags/TAG/TIME and latest. New snapshots appear by themselves. The command returns when programs
/// can look; the snapshots are shown until 'umount' or 'fusermount3 -u' ends it.
///
/// Missing or damaged data is rebuilt from parity. What cannot be rebuilt is an input/output error
/// for the program that reads it; a member that does not answer within --member-timeout counts as
/// missing. To get a whole tree back, 'restore' is faster than a copy.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Examples:
  pinstripe mount /mnt/backups
  ls -l /mnt/backups/hosts/*/
  diff -r /mnt/backups/latest/etc /etc
  pinstripe hint /mnt/backups/latest/images/disk.img stride 4M 68M
  pinstripe mount status
  umount /mnt/backups")]
pub struct MountArgs {
    #[command(subcommand)]
    command: Option<MountCommand>,

    /// An empty directory
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath, required = true)]
    mountpoint: Option<PathBuf>,

    #[command(flatten)]
    shown: ShownArgs,
}

/// What else there is to do.
#[derive(clap::Subcommand)]
enum MountCommand {
    Status(StatusArgs),
}

impl MountArgs {
    /// Shows the snapshots until it is ended.
    ///
    /// # Errors
    /// Those of opening the store, and of mounting.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if let Some(MountCommand::Status(status)) = &self.command {
            return status.run(run, "mount");
        }
        let mountpoint = self.mountpoint.as_deref().expect("clap wants it");
        if let Some(ending) = self.shown.in_background(run, mountpoint)? {
            return Ok(ending);
        }
        let stop = signals::catch()?;
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        // The threads that answer the kernel outlive every scope when a program keeps a file open:
        // what they use stays until the process ends.
        let store: &'static Store = Box::leak(Box::new(store));
        let monitor: &'static Arc<Monitor> = Box::leak(Box::new(Arc::clone(&run.monitor)));
        let tree = Arc::new(SnapshotTree::new(store, monitor, tree_options(run))?);
        let snapshots = tree.snapshots();
        let refresh = || {
            if let Err(error) = tree.refresh() {
                run.monitor.warning("snapshots", error);
            }
        };
        let shown = Shown {
            verb: "mount",
            name: "pinstripe".to_owned(),
            tree: &tree,
            threads: run.common.threads.map_or_else(system::cores, |threads| threads as usize),
            figures: &|status| add_figures(&tree, status),
            ready: Event::default().with("snapshots", snapshots),
            ready_line: counted(snapshots as u64, "snapshot", "snapshots"),
            chore: Some((REFRESH, &refresh)),
        };
        self.shown.show(run, &shown, mountpoint, stop)
    }
}

fn tree_options(run: &Run) -> SnapshotTreeOptions {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    SnapshotTreeOptions {
        budget: run.common.memory.0,
        threads: FETCHERS,
        owner,
        name_of_time: time::name,
    }
}

fn add_figures(tree: &SnapshotTree, status: &mut ShownStatus) {
    status.snapshots = Some(tree.snapshots() as u64);
    status.memory = tree.memory().into();
    let readers = tree.readers(FILES_TOLD);
    let figures = readers.iter().map(|(path, bytes, it)| {
        FileFigures::new(path, *bytes, &it.streams, it.counts, it.outstanding)
    });
    status.files = figures.collect();
}
