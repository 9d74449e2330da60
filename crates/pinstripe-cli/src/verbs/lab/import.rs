//! `pinstripe lab import`.

use std::fs;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Result};
use pinstripe_lab::{OutputFormat, import_fio, save_results};

use super::{form, tell};
use crate::escape;
use crate::run::{Ending, Run};

/// Read results of fio, to show them or to save them in the format of the lab
///
/// FILE is the output of 'fio --output-format=json' or 'json+'; lines of FILE that are not JSON are
/// skipped. Jobs with the same name in several files count as runs of one variant, so that variants
/// can be compared.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab import fio.json
  pinstripe lab import before-*.json --out before.json
  pinstripe lab import fio.json --form csv > fio.csv")]
pub struct LabImportArgs {
    /// Files that contain the output of fio
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Save the results in this file, in the format of the lab
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,

    /// Output format: text, markdown, csv, table-csv, json or fio
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = form)]
    form: OutputFormat,
}

impl LabImportArgs {
    /// Reads and shows the results of fio.
    ///
    /// # Errors
    /// Fails with the errors of [`import_fio`], and of the system.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let mut texts = Vec::new();
        for file in &self.files {
            let bytes =
                fs::read(file).map_err(|error| Error::of_named("cannot read", file, error))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            // Each by itself first, so that a bad one is named.
            import_fio(&[&text]).map_err(|error| error.at(file))?;
            texts.push(text);
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let results = import_fio(&texts)?;
        tell::results(run, &results, self.form)?;
        let mut facts = tell::facts(&results);
        if let Some(out) = &self.out {
            save_results(&results, out)?;
            let saved = format!("\nthe results are saved in {}", escape::path(out));
            tell::remark(run, self.form, &saved);
            facts = facts.with_path("path", out);
        }
        Ok(Ending::done(facts))
    }
}
