//! `pinstripe lab report`.

use std::fs;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{Results, put_file, read_history, refuse_repeated, report_page_of_files};

use super::{history, last, load_all, tell};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Create an HTML page from saved results
///
/// The HTML page is one file of less than 300 KB that needs no network. The HTML page shows the
/// verdicts and their confidence, the advised settings, every variant with its confidence interval,
/// latency, every run, earlier results, the machine, and the command that repeats the measurement.
/// Its charts show stalls over time, and what the kernel did during each stall. If several result
/// files are given, each file is compared with the first file. A comparison of files is an estimate
/// without a verdict, because each file contains only one execution of a case; 'lab compare A... --
/// B...' compares several executions. Two files with results of the same execution are refused. The
/// HTML page also contains the results as data, so every lab verb that reads a result file can also
/// read the HTML page. A printed HTML page fills at most two sheets of paper; a note on the paper
/// lists the parts that were omitted.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab report
  pinstripe lab report results.json --out disk.html
  pinstripe lab report before.json after.json --title 'New disk' --out disk.html")]
pub struct LabReportArgs {
    /// Result files, HTML pages of 'lab report', or output of fio [default: the latest results]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// The HTML file to write [default: the name of the first file with the extension .html, in the
    /// same directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,

    /// Title of the HTML page [default: the case and the measured directory or device]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// The history file [default: pinstripe/lab/history.jsonl in the user's state directory]
    ///
    /// The HTML page plots earlier results of the same case with the same settings and the same
    /// directory or device, and marks permanent changes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    history: Option<PathBuf>,

    /// Also use runs that were disturbed by other load, and label the results that depend on them
    #[arg(long)]
    accept_noise: bool,
}

impl LabReportArgs {
    /// Writes the page.
    ///
    /// # Errors
    /// Fails with the errors of [`load_all_results`] and of a named history; with
    /// [`Kind::NotFound`] when nothing was measured yet; with [`Kind::Usage`] if two results are of
    /// one execution, or if the page would replace one of its inputs.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let files = match self.files.as_slice() {
            [] => vec![last()?],
            files => files.to_vec(),
        };
        let (mut all, mut names): (Vec<Results>, Vec<String>) = Default::default();
        let mut given = Vec::new();
        for file in &files {
            let found = load_all(file)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            names.extend(found.iter().map(|_| name.clone().into_owned()));
            given.extend(found.iter().map(|_| file.display().to_string()));
            all.extend(found);
        }
        let given: Vec<(String, &Results)> = given.into_iter().zip(&all).collect();
        refuse_repeated(&given)?;
        if self.accept_noise {
            all.iter_mut().for_each(Results::accept_noise);
        }
        let out = self.place(&files)?;
        let history = match &self.history {
            Some(file) => {
                fs::metadata(file)
                    .map_err(|error| Error::of_named("cannot read the history", file, error))?;
                read_history(file)?
            }
            None => history::usual(run),
        };
        let page = report_page_of_files(&all, &names, self.title.as_deref(), &history);
        put_file(page.as_bytes(), &out)?;
        run.screen.say(&format!("the report page was written to {}", escape::path(&out)));
        let facts = match all.as_slice() {
            [one] => tell::facts(one),
            many => Event::default().with("results", many.len()),
        };
        Ok(Ending::done(facts.with_path("path", &out)))
    }

    /// The path of the page, which is never that of one of its inputs.
    fn place(&self, files: &[PathBuf]) -> Result<PathBuf> {
        let out = self.out.clone().unwrap_or_else(|| files[0].with_extension("html"));
        let is_same = |file: &PathBuf| {
            fs::canonicalize(file)
                .ok()
                .zip(fs::canonicalize(&out).ok())
                .is_some_and(|(a, b)| a == b)
        };
        match files.iter().any(is_same) {
            true => Err(Error::new(
                Kind::Usage,
                "the report page would overwrite one of the given result files",
            )
            .at(out)
            .advice("give another file with --out")),
            false => Ok(out),
        }
    }
}
