//! `pinstripe lab`: experiments on the user's own disks.

mod list;
mod run;
mod show;
mod tell;
mod watch;

use std::path::PathBuf;

use pinstripe::error::Result;

use crate::place;
use crate::run::{Ending, Run};

/// Measure disks, file systems and settings, with verdicts that can be trusted
///
/// A case is run several times, its variants in turns, until the answer is known to 5 % or the time is
/// over. Runs that others disturbed are marked and do not count; a difference that chance could have
/// made is called none. Results are kept with all that is needed to measure them again.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab list
  pinstripe lab run fileio --dir /srv
  pinstripe lab run fileio --dir /mnt/a --dir /mnt/b --time 120
  pinstripe lab run fileio --help")]
pub struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(clap::Subcommand)]
enum Act {
    List(list::Args),
    Run(Box<run::Args>),
    Show(show::Args),
}

impl Args {
    /// Does it.
    ///
    /// # Errors
    /// Those of the verb.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        match &self.act {
            Act::List(args) => args.run(run),
            Act::Run(args) => args.run(run),
            Act::Show(args) => args.run(run),
        }
    }
}

/// Where results and history are kept.
///
/// # Errors
/// Without a home.
fn state() -> Result<PathBuf> {
    Ok(place::state()?.join("lab"))
}

/// Reads how results are shown.
fn form(text: &str) -> std::result::Result<pinstripe_lab::show::Form, String> {
    crate::args::parsed(text)
}
