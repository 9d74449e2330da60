//! `pinstripe lab show`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::error::Result;
use pinstripe_lab::result;
use pinstripe_lab::show::Form;

use super::{form, tell};
use crate::run::{Ending, Run};

/// Show saved results
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab show results.json
  pinstripe lab show results.json --form csv > runs.csv")]
pub struct Args {
    /// A file of results
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// How: text, markdown, csv, json or fio
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = form)]
    form: Form,
}

impl Args {
    /// Prints them.
    ///
    /// # Errors
    /// Those of [`result::load`], and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let results = result::load(&self.file)?;
        tell::results(run, &results, self.form)?;
        Ok(Ending::done(tell::facts(&results)))
    }
}
