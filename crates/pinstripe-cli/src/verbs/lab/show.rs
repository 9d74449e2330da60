//! `pinstripe lab show`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{
    OutputFormat, Results, command_again, command_alone, command_line, load_results,
};

use super::{form, last, tell};
use crate::escape;
use crate::run::{Ending, Run};

/// Show saved results
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab show
  pinstripe lab show results.json
  pinstripe lab show results.json --form csv > runs.csv
  pinstripe lab show results.json --host hosta:7411")]
pub struct LabShowArgs {
    /// A result file, or an HTML page of 'lab report' [default: the latest results]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// Show only the results of this host, if the file contains results of several hosts
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// Output format: text, markdown, csv, table-csv, json or fio
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = form)]
    form: OutputFormat,

    /// Also use runs that were disturbed by other load, and label the results that depend on them
    #[arg(long)]
    accept_noise: bool,
}

impl LabShowArgs {
    /// Prints them.
    ///
    /// # Errors
    /// Fails with the errors of [`load_results`], and of standard output; with [`Kind::NotFound`]
    /// when nothing was measured yet.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let file = self.file.as_ref().map_or_else(last, |file| Ok(file.clone()))?;
        let mut results = load_results(&file)?;
        if self.accept_noise {
            results.accept_noise();
        }
        if let Some(host) = &self.host {
            results = of_host(&results, host)?;
        }
        tell::results(run, &results, self.form)?;
        if self.form == OutputFormat::Text {
            report_again(run, &results)?;
        }
        Ok(Ending::done(tell::facts(&results)))
    }
}

/// The results of one of several hosts, selected by address or name.
///
/// # Errors
/// Fails with [`Kind::NotFound`] with the known hosts.
fn of_host(results: &Results, host: &str) -> Result<Results> {
    let at = results.hosts.iter().position(|it| it.address == host || it.name == host);
    at.and_then(|at| results.of_host(at)).ok_or_else(|| {
        let error =
            Error::new(Kind::NotFound, format!("there is no host '{host}' in these results"));
        let hosts: Vec<&str> = results.hosts.iter().map(|it| it.address.as_str()).collect();
        match hosts.is_empty() {
            true => error.advice("these results were measured on only one machine"),
            false => error.advice(format!("give one of these hosts: {}", hosts.join(", "))),
        }
    })
}

/// Prints the command lines that repeat the entire measurement, and each variant alone.
fn report_again(run: &Run, results: &Results) -> Result<()> {
    let row =
        |words: Vec<String>| run.screen.row(&escape::text(&format!("  {}", command_line(&words))));
    if let Some(words) = command_again(results) {
        run.screen.row("\nto repeat the measurement, run:")?;
        row(words)?;
    }
    let lines: Vec<_> =
        results.variants.iter().filter_map(|it| command_alone(results, it)).collect();
    if results.variants.len() > 1 && !lines.is_empty() {
        run.screen.row("to measure only one variant, run one of:")?;
        lines.into_iter().try_for_each(row)?;
    }
    Ok(())
}
