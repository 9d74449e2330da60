//! What `mount` and `overlay` have in common: options, the way into the background, a control
//! socket, and figures for `status` and for Prometheus.

mod background;
mod control;
mod metrics;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_base::sync::Stop;
use pinstripe_fuse::{Mount, TreeFileSystem, TreeOptions};
use pinstripe_io::file_tree::FileTree;

use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use control::StatusSocket;

pub use status::{CacheFigures, FileFigures, ShownStatus, SourceFigures, StatusArgs};

/// Files that are told with their readers.
pub const FILES_TOLD: usize = 32;

/// Options of what is shown in a directory.
#[derive(clap::Args)]
pub struct ShownArgs {
    /// Let other users look, as far as owners and modes allow it
    #[arg(long)]
    allow_other: bool,

    /// Leave out extended attributes and ACLs: lists directories faster
    #[arg(long)]
    no_xattr: bool,

    /// Stay in the foreground until it ends
    ///
    /// Without it the command returns when programs can look, and goes on in the background.
    #[arg(long)]
    foreground: bool,

    /// Append messages to this file while in the background [default: they are dropped]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    log: Option<PathBuf>,

    /// Write figures to this file every ten seconds, in the text format of Prometheus
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    metrics: Option<PathBuf>,
}

/// Something that is shown in a directory until it ends.
pub struct Shown<'a, T> {
    /// The verb.
    pub verb: &'static str,
    /// What is shown, for people and in the list of mounts.
    pub name: String,
    /// The files.
    pub tree: &'a Arc<T>,
    /// Threads that answer the kernel.
    pub threads: usize,
    /// Adds what is known of readers, memory and source.
    pub figures: &'a (dyn Fn(&mut ShownStatus) + Sync),
    /// Adds to the event and the line for people that tell that programs can look.
    pub ready: Event,
    /// The same for people.
    pub ready_line: String,
    /// What is done beside, again and again after this time.
    pub chore: Option<(Duration, &'a (dyn Fn() + Sync))>,
}

impl ShownArgs {
    /// Has a process in the background do all that, unless this one is to; its outcome then.
    ///
    /// # Errors
    /// When it cannot be started. One that fails has told why, and this process ends as it did.
    pub fn in_background(&self, run: &Run, mountpoint: &Path) -> Result<Option<Ending>> {
        if self.foreground || background::is_background() {
            return Ok(None);
        }
        let process = background::start(run)?;
        let facts = Event::default().with_path("mountpoint", mountpoint).with("process", process);
        Ok(Some(Ending::done(facts)))
    }

    /// Shows it until `stop` is set or it is unmounted.
    ///
    /// # Errors
    /// Those of mounting and unmounting.
    pub fn show<T: FileTree>(
        &self,
        run: &Run,
        shown: &Shown<'_, T>,
        mountpoint: &Path,
        stop: &Stop,
    ) -> Result<Ending> {
        let options = TreeOptions {
            name: shown.name.clone(),
            threads: shown.threads,
            allow_other: self.allow_other,
            leaves_out_xattrs: self.no_xattr,
        };
        let ended = Arc::new(Stop::new()?);
        let files = TreeFileSystem::new(Arc::clone(shown.tree), &options, Arc::clone(&ended));
        let mount = Mount::new(files, mountpoint, &options.config(), ended)?;
        let place = mount.mountpoint().to_path_buf();
        // Without a place for it nothing is told by `status`; everything else goes on.
        let socket = StatusSocket::bind(shown.verb, &place)
            .inspect_err(|error| run.monitor.warning("status", error.duplicate()))
            .ok();
        announce(run, shown, &mount);
        background::leave(self.log.as_deref())?;
        self.serve(run, shown, mount, socket.as_ref(), stop)?;
        Ok(Ending::done(Event::default().with_path("mountpoint", &place)))
    }

    fn serve<T: FileTree>(
        &self,
        run: &Run,
        shown: &Shown<'_, T>,
        mount: Mount,
        socket: Option<&StatusSocket>,
        stop: &Stop,
    ) -> Result<()> {
        let place = mount.mountpoint().to_path_buf();
        let status = || {
            let mut status = ShownStatus::new(shown.verb, &place, &shown.name, run.elapsed());
            (shown.figures)(&mut status);
            status
        };
        let (status, over) = (&status, &Stop::new()?);
        std::thread::scope(|scope| {
            if let Some(socket) = socket {
                scope.spawn(move || {
                    if let Err(error) = socket.serve(over, status) {
                        run.monitor.warning("status", error);
                    }
                });
            }
            if let Some(file) = &self.metrics {
                scope.spawn(move || metrics::keep(run, file, status, over));
            }
            if let Some((interval, chore)) = shown.chore {
                scope.spawn(move || {
                    while !over.wait(interval) {
                        chore();
                    }
                });
            }
            let served = mount.serve(stop);
            over.set();
            served
        })
    }
}

/// Tells that programs can look, and where.
fn announce<T>(run: &Run, shown: &Shown<'_, T>, mount: &Mount) {
    let place = mount.mountpoint().display().to_string();
    let event = Event::new("serving").with("mountpoint", &*place).with_all(shown.ready.clone());
    // A failure is remembered and told at the end.
    let _ = run.screen.event(&event);
    run.screen.say(&format!("{} shown in {}", shown.ready_line, escape::text(&place)));
    if !mount.reads_far_ahead() {
        run.screen.say("the kernel asks for 128 KiB at a time; as root it asks for 1 MiB");
    }
    let end = format!("until 'umount {}'", escape::text(&place));
    let or_interrupt = if background::is_background() { "" } else { " or an interrupt" };
    run.screen.say(&format!("{end}{or_interrupt}"));
    run.screen.flush();
}
