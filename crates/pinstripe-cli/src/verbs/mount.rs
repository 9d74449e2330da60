//! `pinstripe mount`: all snapshots as a directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use pinstripe::ops::mount::{SnapshotTree, SnapshotTreeOptions};
use pinstripe::store::Store;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_base::units::counted;
use pinstripe_fuse::{Mount, TreeFileSystem, TreeOptions};

use crate::escape;
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
/// tags/TAG/TIME and latest. New snapshots appear by themselves. The command runs until it is
/// interrupted, or until 'umount' or 'fusermount3 -u' ends it.
///
/// Missing or damaged data is rebuilt from parity. What cannot be rebuilt is an input/output error
/// for the program that reads it. To get a whole tree back, 'restore' is faster than a copy.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe mount /mnt/backups
  ls -l /mnt/backups/hosts/*/
  diff -r /mnt/backups/latest/etc /etc
  setfattr -n user.pinstripe.read -v 'stride 4M 68M' /mnt/backups/latest/images/disk.img")]
pub struct MountArgs {
    /// An empty directory
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    mountpoint: PathBuf,

    /// Let other users look, as far as owners and modes allow it
    #[arg(long)]
    allow_other: bool,

    /// Leave out extended attributes and ACLs: lists directories faster
    #[arg(long)]
    no_xattr: bool,
}

impl MountArgs {
    /// Shows the snapshots until it is ended.
    ///
    /// # Errors
    /// Those of opening the store, and of mounting.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let stop = signals::catch()?;
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        // The threads that answer the kernel outlive every scope when a program keeps a file open:
        // what they use stays until the process ends.
        let store: &'static Store = Box::leak(Box::new(store));
        let monitor: &'static Arc<Monitor> = Box::leak(Box::new(Arc::clone(&run.monitor)));
        let tree = Arc::new(SnapshotTree::new(store, monitor, self.tree_options(run))?);
        let options = TreeOptions {
            name: "pinstripe".to_owned(),
            threads: run.common.threads.map_or_else(system::cores, |threads| threads as usize),
            allow_other: self.allow_other,
            leaves_out_xattrs: self.no_xattr,
        };
        let ended = Arc::new(Stop::new()?);
        let file_system = TreeFileSystem::new(Arc::clone(&tree), &options, Arc::clone(&ended));
        let mount = Mount::new(file_system, &self.mountpoint, &options.config(), ended)?;
        announce(run, &mount, tree.snapshots());
        serve(run, mount, &tree, stop)?;
        let facts = Event::default().with("mountpoint", self.mountpoint.display().to_string());
        Ok(Ending::done(facts))
    }

    fn tree_options(&self, run: &Run) -> SnapshotTreeOptions {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        SnapshotTreeOptions {
            budget: run.common.memory.0,
            threads: FETCHERS,
            owner,
            name_of_time: time::name,
        }
    }
}

/// Serves the mount, and looks for new snapshots meanwhile.
fn serve(run: &Run, mount: Mount, tree: &SnapshotTree, stop: &Stop) -> Result<()> {
    let over = Stop::new()?;
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            while !over.wait(REFRESH) {
                if let Err(error) = tree.refresh() {
                    run.monitor.warning("snapshots", error);
                }
            }
        });
        let served = mount.serve(stop);
        over.set();
        served
    })
}

/// Tells that programs can look, and where.
fn announce(run: &Run, mount: &Mount, snapshots: usize) {
    let place = mount.mountpoint().display().to_string();
    let event = Event::new("serving").with("mountpoint", &*place).with("snapshots", snapshots);
    // A failure is remembered and told at the end.
    let _ = run.screen.event(&event);
    let shown = counted(snapshots as u64, "snapshot", "snapshots");
    run.screen.say(&format!("{shown} shown in {}", escape::text(&place)));
    if !mount.reads_far_ahead() {
        run.screen.say("the kernel asks for 128 KiB at a time; as root it asks for 1 MiB");
    }
    run.screen.say("until an interrupt, or 'umount'");
    run.screen.flush();
}
