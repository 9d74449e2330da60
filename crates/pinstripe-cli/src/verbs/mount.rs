//! `pinstripe mount`: shows all snapshots as a directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use pinstripe::Store;
use pinstripe::mount::{MemberMeters, SnapshotTree, SnapshotTreeOptions};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::counted;
use pinstripe_member::MemberReads;

use super::catalog::catalog_file;
use super::shown::{
    Chore, FILES_TOLD, FileFigures, MemberFigures, Shown, ShownArgs, ShownStatus, StatusArgs,
};
use crate::args::{Time, duration};
use crate::event::Event;
use crate::run::{Ending, Run};
use crate::signals;
use crate::{system, time};

/// The interval at which the mount checks for new and forgotten snapshots.
const REFRESH: Duration = Duration::from_secs(2);
/// The number of threads that prefetch; they wait for members most of the time.
const FETCHERS: usize = 16;

/// Mount all snapshots as a read-only directory
///
/// The mountpoint contains each snapshot as hosts/HOST/TIME. The links ids/ID, tags/TAG/TIME and
/// latest lead to snapshots. The directory versions/ contains every version of every file as
/// PATH/NAME@TIME. The directory versions/ needs the catalog, an index file outside the store,
/// which is created at the first access. New snapshots appear in the mount automatically. The
/// command returns when the mount is ready. The mount lasts until 'umount' or 'fusermount3 -u' ends
/// it.
///
/// Missing or damaged data is rebuilt from parity. If data cannot be rebuilt, reading it fails with
/// an input/output error. A member that does not answer within --timeout counts as missing. To
/// restore a complete tree, 'pinstripe restore' is faster than copying the tree from the mount.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Examples:
  pinstripe mount /mnt/backups
  ls -l /mnt/backups/hosts/*/
  diff -r /mnt/backups/latest/etc /etc
  ls -l /mnt/backups/versions/home/me/thesis.odt@*
  pinstripe hint /mnt/backups/latest/images/disk.img stride 4M 68M
  pinstripe mount status
  umount /mnt/backups")]
pub struct MountArgs {
    #[command(subcommand)]
    command: Option<MountCommand>,

    /// An empty directory, which becomes the mountpoint
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath, required = true)]
    mountpoint: Option<PathBuf>,

    /// Time limit for the answer of a member, for example 30s or 2m [default: the value of
    /// --member-timeout]
    ///
    /// A member that exceeds the time limit counts as missing until it answers. If more members are
    /// missing than parity can replace, reads that need data of the missing members fail with an
    /// input/output error.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Time>,

    /// Path of the catalog file, which the directory versions/ needs [default: the same as for
    /// 'pinstripe catalog']
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    catalog: Option<PathBuf>,

    #[command(flatten)]
    shown: ShownArgs,
}

/// The subcommands.
#[derive(clap::Subcommand)]
enum MountCommand {
    Status(StatusArgs),
}

impl MountArgs {
    /// Serves the snapshots until they are unmounted.
    ///
    /// # Errors
    /// Fails with the errors of opening the store, and of mounting it.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if let Some(MountCommand::Status(status)) = &self.command {
            return status.run(run, "mount");
        }
        let mountpoint = self.mountpoint.as_deref().expect("clap wants it");
        if let Some(ending) = self.shown.in_background(run, mountpoint)? {
            return Ok(ending);
        }
        let stop = signals::catch()?;
        run.wait_as_reader(self.timeout.map(|it| it.0));
        let mut store = run.open_store()?;
        run.warn_of_absent(&store);
        let meters = MemberMeters::put_before(&mut store);
        // The threads that answer the kernel outlive every scope when a program keeps a file open:
        // what they use stays until the process ends.
        let store: &'static Store = Box::leak(Box::new(store));
        let monitor: &'static Arc<Monitor> = Box::leak(Box::new(Arc::clone(&run.monitor)));
        let catalog = catalog_file(self.catalog.as_deref(), run, store)
            .inspect_err(|error| run.monitor.warning("versions", error.duplicate()))
            .ok();
        let tree = Arc::new(SnapshotTree::new(store, monitor, tree_options(run, catalog))?);
        let snapshots = tree.snapshots();
        let work = |stop: &Stop| {
            if let Err(error) = tree.refresh() {
                run.monitor.warning("snapshots", error);
            }
            tree.work(stop.as_flag());
        };
        let shown = Shown {
            verb: "mount",
            name: "pinstripe".to_owned(),
            tree: &tree,
            threads: run.common.threads.map_or_else(system::cores, |threads| threads as usize),
            passes_through: false,
            figures: &|status| add_figures(&tree, &meters, status),
            ready: Event::default().with("snapshots", snapshots),
            ready_line: counted(snapshots as u64, "snapshot", "snapshots"),
            chore: Some(Chore { interval: REFRESH, wake: Some(tree.wake()), work: &work }),
        };
        self.shown.show(run, &shown, mountpoint, stop)
    }
}

fn tree_options(run: &Run, catalog: Option<PathBuf>) -> SnapshotTreeOptions {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    SnapshotTreeOptions {
        budget: run.common.memory.0,
        threads: FETCHERS,
        owner,
        name_of_time: time::name,
        catalog,
    }
}

fn add_figures(tree: &SnapshotTree, meters: &MemberMeters, status: &mut ShownStatus) {
    status.snapshots = Some(tree.snapshots() as u64);
    status.memory = tree.memory().into();
    let readers = tree.readers(FILES_TOLD);
    let figures = readers.iter().map(|(path, bytes, it)| FileFigures::new(path, *bytes, it));
    status.files = figures.collect();
    let member = |(number, place, reads): (u32, &PathBuf, MemberReads)| MemberFigures {
        number,
        place: place.display().to_string(),
        in_flight: reads.in_flight,
        reads: reads.reads,
        read_bytes: reads.bytes,
        failed: reads.failed,
        median_seconds: reads.median.as_secs_f64(),
        p99_seconds: reads.percentile_99.as_secs_f64(),
    };
    status.members = meters.reads().map(member).collect();
}
