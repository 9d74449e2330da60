//! `pinstripe cat`: writes the content of files of a snapshot to standard output.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pinstripe::cat;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_split::{JoinOptions, open_outputs};

use crate::args::refuse_option;
use crate::args::{ByteRange, Size, range, size};
use crate::choice_args::HostChoiceArgs;
use crate::event::Event;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::snapshot_path;
use crate::system;

/// Write files of a snapshot, or a part of the source of a split, to standard output
///
/// With --range, the arguments are the outputs of one 'pinstripe split', in any order. With
/// --range, only the blocks that contain the range are read.
///
/// Several files are written one after the other; holes are written as zeros. Missing or damaged
/// data is rebuilt from parity. If data cannot be rebuilt, the command fails; it never writes wrong
/// data.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe cat latest:/etc/fstab
  pinstripe cat 1a2b3c4d:/var/log/syslog latest:/var/log/syslog | less
  pinstripe cat latest:/images/disk.img --offset 1G --length 512 | xxd
  pinstripe cat /mnt/?/disk.img.split-* --range 1G..1025M | xxd")]
pub struct CatArgs {
    /// A file of a snapshot, as 'latest' or the beginning of the id of a snapshot, a colon, and the
    /// path of the file; or, with --range, an output of a split
    #[arg(value_name = "SNAPSHOT:PATH|OUT", required = true)]
    files: Vec<OsString>,

    /// Write only the bytes from A to B (B excluded) of the source of the split, for example 1G..2G
    /// or 4096..
    #[arg(long, value_name = "A..B", value_parser = range, conflicts_with_all = ["offset", "length"])]
    range: Option<ByteRange>,

    /// Skip this many bytes at the beginning of each file, for example 512 or 1G
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = Size(0))]
    offset: Size,

    /// Write at most this many bytes of each file
    #[arg(long, value_name = "SIZE", value_parser = size)]
    length: Option<Size>,

    #[command(flatten)]
    choice: HostChoiceArgs,
}

impl CatArgs {
    /// Writes the files.
    ///
    /// # Errors
    /// Fails with the errors of [`cat::run`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if let Some(range) = self.range {
            return self.split(run, range);
        }
        let instead = "standard output is used for the file's content: leave out --json";
        refuse_option(run.common.json, "--json", instead)?;
        let parse = |what: &OsString| {
            let (snapshot, path) = snapshot_path::parse(what)?;
            if path.is_empty() {
                return Err(Error::new(Kind::Usage, "no file of the snapshot was given")
                    .at(what)
                    .advice(
                        "write 'latest' or the beginning of a snapshot id, then ':' and a path",
                    ));
            }
            Ok((snapshot, path.as_bytes().to_vec()))
        };
        let files = self.files.iter().map(parse).collect::<Result<Vec<_>>>()?;
        let choice = self.choice.choice(run)?;
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        let options = cat::CatOptions {
            files: &files,
            choice: &choice,
            offset: self.offset.0,
            length: self.length.map(|length| length.0),
            limits: run.limits(&store),
        };
        // On a terminal the content itself is what is seen.
        let ticker = (!std::io::stdout().is_terminal()).then(|| run.ticker(GAUGE));
        cat::run(&store, &options, &run.monitor, &mut |bytes| run.screen.content(bytes))?;
        drop(ticker);
        Ok(Ending::done(Event::default()))
    }
}

impl CatArgs {
    /// Writes a part of the source of a split.
    fn split(&self, run: &Run, range: ByteRange) -> Result<Ending> {
        let outputs: Vec<PathBuf> = self.files.iter().map(PathBuf::from).collect();
        let (outputs, remote) = (run.each_place(&outputs)?, run.remote_outputs());
        let faults = run.common.device_faults()?;
        let reader = open_outputs(&outputs, remote.as_deref(), &faults, &run.monitor)?;
        let options = JoinOptions {
            range: Some(range.resolve(reader.source_bytes())),
            best_effort: false,
            workers: run.common.threads.map_or_else(system::cores, |threads| threads as usize),
        };
        let joined = super::join::to_stdout(run, &reader, &options)?;
        Ok(Ending::done(super::join::facts(&reader, &joined)))
    }
}

/// The progress of writing content.
pub const GAUGE: Gauge = Gauge {
    label: "writing",
    done_bytes: |monitor| monitor.get(Counter::RestoredBytes),
    passes: 1,
};
