//! `pinstripe dump`: writes a snapshot as an archive to standard output.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use pinstripe::{SnapshotName, dump};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;

use super::cat::GAUGE;
use super::snapshots;
use crate::args::refuse_option;
use crate::choice_args::HostChoiceArgs;
use crate::run::screen::Priority;
use crate::run::{Ending, Run};
use crate::snapshot_path;
use crate::time;

/// Write a snapshot, or a part of it, to standard output as a tar archive
///
/// The archive uses pax headers, so it can contain any file name, times with nanoseconds, extended
/// attributes (including ACLs and capabilities), sparse files, hard links and devices. Owners are
/// stored as numbers. To unpack everything with GNU tar, run: tar --xattrs --xattrs-include='*'
/// --numeric-owner -xpf. The archive contains full paths or, if :PATH is given, paths relative to
/// PATH. The paths in the archive are the paths that 'pinstripe restore' creates below its target.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe dump latest > everything.tar
  pinstripe dump latest:/home/me | zstd > me.tar.zst
  pinstripe dump 1a2b3c4d:/srv | ssh other tar -xpf - -C /srv")]
pub struct DumpArgs {
    /// The snapshot: 'latest', 'latest~N' (N before the latest) or the beginning of its id; with :PATH, only PATH and everything
    /// below it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    what: OsString,

    /// Format of the archive
    #[arg(long, value_enum, default_value_t = DumpFormat::Tar)]
    format: DumpFormat,

    /// Write holes as zeros, for readers without support for GNU sparse files
    #[arg(long)]
    fill_holes: bool,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum DumpFormat {
    /// The format POSIX pax, which GNU tar, bsdtar and Python can read
    Tar,
}

impl DumpArgs {
    /// Writes the archive.
    ///
    /// # Errors
    /// Fails with the errors of [`dump::run`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let instead = "standard output is used for the archive: leave out --json";
        refuse_option(run.common.json, "--json", instead)?;
        if std::io::stdout().is_terminal() {
            let error = Error::new(Kind::Usage, "an archive is not written to a terminal");
            return Err(
                error.advice("redirect the archive to a file (> FILE) or to a program (| PROGRAM)")
            );
        }
        let DumpFormat::Tar = self.format;
        let (snapshot, path) = snapshot_path::parse(&self.what)?;
        let choice = self.choice.choice(run)?;
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        let options = dump::DumpOptions {
            snapshot: SnapshotName { name: &snapshot, choice: &choice },
            path: path.as_bytes(),
            fill_holes: self.fill_holes,
            limits: run.limits(&store),
        };
        let ticker = run.ticker(GAUGE);
        let dumped =
            dump::run(&store, &options, &run.monitor, &mut |bytes| run.screen.content(bytes))?;
        drop(ticker);
        if !run.common.quiet {
            let bytes = run.count(Counter::RestoredBytes);
            run.screen.complain(
                Priority::Info,
                &format!(
                    "dumped {} ({}) of snapshot {} in {}, {}",
                    pinstripe_base::units::counted(
                        run.count(Counter::RestoredEntries),
                        "entry",
                        "entries"
                    ),
                    format_size(bytes),
                    dumped.id.short(),
                    time::span(run.elapsed()),
                    time::rate(bytes, run.elapsed()),
                ),
            );
        }
        Ok(Ending::done(snapshots::facts(&dumped)))
    }
}
