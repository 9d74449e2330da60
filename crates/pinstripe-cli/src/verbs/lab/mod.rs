//! `pinstripe lab`: experiments on the user's own disks.

mod agent;
mod carry;
mod clean;
mod compare;
mod consent;
mod history;
mod import;
mod list;
mod quick;
mod report;
mod run;
mod show;
mod tell;
mod tune;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{Results, import_fio, load_all_results, load_results};

use crate::run::{Ending, Run};
use crate::xdg;

/// Measure disks, file systems and settings, with statistical verdicts
///
/// A case (an experiment) measures several variants, for example several block sizes. The lab runs
/// the variants in turn, until the result of each variant is known within 5 % or the time limit is
/// reached. Runs that are disturbed by other load are marked and do not count. The verdict about a
/// variant is that it is faster or slower than the baseline, that it is as good as the baseline
/// within 3 %, or that the runs cannot decide. Results are saved with all information that is
/// needed to repeat the measurement.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab list
  pinstripe lab quick /srv
  pinstripe lab run fileio --dir /srv
  pinstripe lab run fileio --dir /mnt/a --dir /mnt/b --time 120
  pinstripe lab run fileio --help
  pinstripe lab compare before.json after.json
  pinstripe lab history
  pinstripe lab import fio.json
  pinstripe lab report
  pinstripe lab clean /srv
  pinstripe lab agent --listen 0.0.0.0:7411 --token-file token --dir /mnt/ssd")]
pub struct LabArgs {
    #[command(subcommand)]
    act: LabCommand,
}

#[derive(clap::Subcommand)]
#[command(defer = true)]
enum LabCommand {
    List(list::LabListArgs),
    Run(Box<run::LabRunArgs>),
    Quick(quick::LabQuickArgs),
    Tune(tune::LabTuneArgs),
    Show(show::LabShowArgs),
    Compare(compare::LabCompareArgs),
    History(history::LabHistoryArgs),
    Import(import::LabImportArgs),
    Report(report::LabReportArgs),
    Clean(clean::LabCleanArgs),
    Agent(agent::LabAgentArgs),
}

impl LabArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with the errors of the verb.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        match &self.act {
            LabCommand::List(args) => args.run(run),
            LabCommand::Run(args) => args.run(run),
            LabCommand::Quick(args) => args.run(run),
            LabCommand::Tune(args) => args.run(run),
            LabCommand::Show(args) => args.run(run),
            LabCommand::Compare(args) => args.run(run),
            LabCommand::History(args) => args.run(run),
            LabCommand::Import(args) => args.run(run),
            LabCommand::Report(args) => args.run(run),
            LabCommand::Clean(args) => args.run(run),
            LabCommand::Agent(args) => args.run(run),
        }
    }
}

/// The directory of results and history.
///
/// # Errors
/// Fails without a home.
fn state() -> Result<PathBuf> {
    Ok(xdg::state()?.join("lab"))
}

/// The file of results that was saved most recently.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when nothing was measured yet.
fn last() -> Result<PathBuf> {
    let folder = state()?.join("results");
    let saved = |entry: fs::DirEntry| -> Option<(SystemTime, PathBuf)> {
        let path = entry.path();
        let is_results = path.extension().is_some_and(|it| it == "json");
        is_results.then(|| Some((entry.metadata().ok()?.modified().ok()?, path)))?
    };
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let last = entries.filter_map(saved).max();
    last.map(|(_, path)| path).ok_or_else(|| {
        Error::new(Kind::NotFound, "nothing was measured yet")
            .at(folder)
            .advice("measure something with 'pinstripe lab run'")
    })
}

/// Parses the form in which results are shown.
fn form(text: &str) -> std::result::Result<pinstripe_lab::OutputFormat, String> {
    crate::args::parsed(text)
}

/// Reads results: in pinstripe's format, from a file or a page, or fio's output.
///
/// # Errors
/// Fails with the errors of [`load_results`] and [`import_fio`].
fn load(file: &Path) -> Result<Results> {
    load_results(file).or_else(|error| of_fio(file, error))
}

/// Reads all results that a page holds.
///
/// # Errors
/// Fails with the errors of [`load_all_results`] and [`import_fio`].
fn load_all(file: &Path) -> Result<Vec<Results>> {
    load_all_results(file).or_else(|error| Ok(vec![of_fio(file, error)?]))
}

/// Reads a file that is not in pinstripe's format as the output of fio.
fn of_fio(file: &Path, error: Error) -> Result<Results> {
    if error.kind() != Kind::Corrupt {
        return Err(error);
    }
    let bytes = fs::read(file).map_err(|error| Error::of_named("cannot read", file, error))?;
    // If it is neither, the error about our own format helps more.
    import_fio(&[&String::from_utf8_lossy(&bytes)]).map_err(|_| error)
}
