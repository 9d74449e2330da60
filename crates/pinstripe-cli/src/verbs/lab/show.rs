//! `pinstripe lab show`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_lab::cases::{again, alone, command_line};
use pinstripe_lab::result::{self, Results};
use pinstripe_lab::show::Form;

use super::{form, last, tell};
use crate::escape;
use crate::run::{Ending, Run};

/// Show saved results
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab show
  pinstripe lab show results.json
  pinstripe lab show results.json --form csv > runs.csv")]
pub struct LabShowArgs {
    /// A file of results, or a page that holds them [default: the latest results]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// Output format: text, markdown, csv, table-csv, json or fio
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = form)]
    form: Form,

    /// Let runs count that were disturbed by other load, with a label
    #[arg(long)]
    accept_noise: bool,
}

impl LabShowArgs {
    /// Prints them.
    ///
    /// # Errors
    /// Those of [`result::load`], and of standard output; [`Kind::NotFound`](pinstripe_base::error::Kind::NotFound) when
    /// nothing was measured yet.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let file = self.file.as_ref().map_or_else(last, |file| Ok(file.clone()))?;
        let mut results = result::load(&file)?;
        if self.accept_noise {
            results.accept_noise();
        }
        tell::results(run, &results, self.form)?;
        if self.form == Form::Text {
            tell_again(run, &results)?;
        }
        Ok(Ending::done(tell::facts(&results)))
    }
}

/// The command lines that measure all of it again, and each variant alone.
fn tell_again(run: &Run, results: &Results) -> Result<()> {
    let row =
        |words: Vec<String>| run.screen.row(&escape::text(&format!("  {}", command_line(&words))));
    if let Some(words) = again(results) {
        run.screen.row("\nto measure it again:")?;
        row(words)?;
    }
    let lines: Vec<_> = results.variants.iter().filter_map(|it| alone(results, it)).collect();
    if results.variants.len() > 1 && !lines.is_empty() {
        run.screen.row("one variant alone:")?;
        lines.into_iter().try_for_each(row)?;
    }
    Ok(())
}
