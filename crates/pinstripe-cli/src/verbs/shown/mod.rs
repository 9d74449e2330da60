//! The common parts of `mount` and `overlay`: options, the start in the background, a control
//! socket, and figures for `status` and for Prometheus.

mod background;
mod control;
mod http;
mod metrics;
mod status;
mod streams;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_base::sync::{Stop, Wake, wait_readable};
use pinstripe_fuse::{Mount, TreeFileSystem, TreeOptions};
use pinstripe_io::file_tree::FileTree;

use crate::args::parsed;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};
use control::StatusSocket;
use http::MetricsServer;
use metrics::MetricsPlace;

pub use status::{
    CacheFigures, FileFigures, MemberFigures, ShownStatus, SourceFigures, StatusArgs,
};

/// The most files that a status lists with their readers.
pub const FILES_TOLD: usize = 32;

/// Options of all mounts.
#[derive(clap::Args)]
pub struct ShownArgs {
    /// Let other users access the mount, as far as the owners and modes of the files allow it
    #[arg(long)]
    allow_other: bool,

    /// Omit extended attributes and ACLs, which makes listing directories faster
    #[arg(long)]
    no_xattr: bool,

    /// Stay in the foreground until the mount ends
    ///
    /// Without --foreground, the command returns when the mount is ready, and a process in the
    /// background serves the mount.
    #[arg(long)]
    foreground: bool,

    /// Append the messages of the process in the background to this file [default: messages are
    /// discarded]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    log: Option<PathBuf>,

    /// Provide the values that 'status' shows to Prometheus, at http://ADDR/metrics or in a file
    ///
    /// ADDR is an address with a port, for example 127.0.0.1:9419; any client that can connect to
    /// ADDR can read the names of files. Any value that is not an address is a file name. A file of
    /// --metrics is written every ten seconds, for the textfile collector of the Prometheus node
    /// exporter.
    #[arg(long, value_name = "ADDR|FILE", value_parser = parsed::<MetricsPlace>)]
    metrics: Option<MetricsPlace>,
}

/// A mount with all that serving it needs.
pub struct Shown<'a, T> {
    /// The verb.
    pub verb: &'static str,
    /// The name of the source, for messages and the list of mounts.
    pub name: String,
    /// The files.
    pub tree: &'a Arc<T>,
    /// The number of threads that answer the kernel.
    pub threads: usize,
    /// Whether the kernel may read files of local disks directly.
    pub passes_through: bool,
    /// Adds the figures of readers, memory and source.
    pub figures: &'a (dyn Fn(&mut ShownStatus) + Sync),
    /// Fields to add to the event that announces the mount.
    pub ready: Event,
    /// The text to add to the line that announces the mount.
    pub ready_line: String,
    /// Periodic work, which is done in a thread of its own.
    pub chore: Option<Chore<'a>>,
}

/// Periodic work in a thread that does not answer the kernel.
#[derive(Clone, Copy)]
pub struct Chore<'a> {
    /// The interval at which the work is repeated.
    pub interval: Duration,
    /// A call of this wake starts the work at once.
    pub wake: Option<&'a Wake>,
    /// The work, which must end soon after the stop is set.
    pub work: &'a (dyn Fn(&Stop) + Sync),
}

impl Chore<'_> {
    fn repeat(&self, over: &Stop) {
        loop {
            let wake = self.wake.map(Wake::as_fd);
            let awaited: Vec<_> = [over.as_fd()].into_iter().chain(wake).collect();
            if wait_readable(&awaited, Some(self.interval)).is_err() {
                // The kernel has no memory to wait with.
                over.wait(self.interval);
            }
            if over.is_set() {
                return;
            }
            self.wake.map(Wake::take);
            (self.work)(over);
        }
    }
}

impl ShownArgs {
    /// Starts a process in the background that mounts, and returns the ending of this process.
    /// Returns `None` if this process itself is to mount.
    ///
    /// # Errors
    /// Fails when the process cannot be started. If the background process fails, it reports the
    /// reason, and this process ends with the same exit code.
    pub fn in_background(&self, run: &Run, mountpoint: &Path) -> Result<Option<Ending>> {
        if self.foreground || background::is_background() {
            return Ok(None);
        }
        let process = background::start(run)?;
        let facts = Event::default().with_path("mountpoint", mountpoint).with("process", process);
        Ok(Some(Ending::done(facts)))
    }

    /// Serves the mount until `stop` is set or it is unmounted.
    ///
    /// # Errors
    /// Fails with the errors of mounting and unmounting.
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
        // Before the mount can be accessed: a port in use ends it.
        let server = match &self.metrics {
            Some(MetricsPlace::Address(address)) => Some(MetricsServer::bind(*address)?),
            _ => None,
        };
        let ended = Arc::new(Stop::new()?);
        let mut files = TreeFileSystem::new(Arc::clone(shown.tree), &options, Arc::clone(&ended));
        if shown.passes_through {
            let monitor = Arc::clone(&run.monitor);
            files = files.with_passthrough(move |error| monitor.warning("passthrough", error));
        }
        let mount = Mount::new(files, mountpoint, &options.config(), ended)?;
        let place = mount.mountpoint().to_path_buf();
        // Without a socket, `status` does not list the mount; everything else works.
        let socket = StatusSocket::bind(shown.verb, &place)
            .inspect_err(|error| run.monitor.warning("status", error.duplicate()))
            .ok();
        let url = server.as_ref().map(MetricsServer::url).transpose()?;
        announce(run, shown, &mount, url.as_deref());
        background::leave(self.log.as_deref())?;
        let tellers = Tellers { socket: socket.as_ref(), server: server.as_ref() };
        self.serve(run, shown, mount, tellers, stop)?;
        Ok(Ending::done(Event::default().with_path("mountpoint", &place)))
    }

    fn serve<T: FileTree>(
        &self,
        run: &Run,
        shown: &Shown<'_, T>,
        mount: Mount,
        tellers: Tellers<'_>,
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
            if let Some(socket) = tellers.socket {
                scope.spawn(move || {
                    if let Err(error) = socket.serve(over, status) {
                        run.monitor.warning("status", error);
                    }
                });
            }
            if let Some(server) = tellers.server {
                scope.spawn(move || server.serve(over, &|| metrics::text(&status())));
            }
            if let Some(MetricsPlace::File(file)) = &self.metrics {
                scope.spawn(move || metrics::keep(run, file, status, over));
            }
            if let Some(chore) = shown.chore {
                scope.spawn(move || chore.repeat(over));
            }
            let served = mount.serve(stop);
            over.set();
            served
        })
    }
}

/// The status socket and the server of figures.
struct Tellers<'t> {
    socket: Option<&'t StatusSocket>,
    server: Option<&'t MetricsServer>,
}

/// Reports that the mount is ready, and its mountpoint.
fn announce<T>(run: &Run, shown: &Shown<'_, T>, mount: &Mount, metrics: Option<&str>) {
    let place = mount.mountpoint().display().to_string();
    let mut event = Event::new("serving").with("mountpoint", &*place);
    if let Some(url) = metrics {
        event = event.with("metrics", url);
    }
    let event = event.with_all(shown.ready.clone());
    // A failure is remembered and reported at the end.
    let _ = run.screen.event(&event);
    run.screen.say(&format!("{} can now be read in {}", shown.ready_line, escape::text(&place)));
    if let Some(url) = metrics {
        run.screen.say(&format!("metrics are served at {url}"));
    }
    if !mount.reads_far_ahead() {
        run.screen.say(
            "the kernel reads 128 KiB at a time from this mount; it reads 1 MiB at a time if \
             pinstripe runs as root",
        );
    }
    let end = format!("to end the mount, run 'umount {}'", escape::text(&place));
    let or_interrupt = if background::is_background() { "" } else { ", or press Ctrl-C" };
    run.screen.say(&format!("{end}{or_interrupt}"));
    run.screen.flush();
}
