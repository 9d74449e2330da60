//! `pinstripe lab report`.

use std::fs;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::report::page;
use pinstripe_lab::result::{self, Results};

use super::{history, last, load_all, tell};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Make a page of saved results
///
/// The page is one HTML file of less than 300 KB that needs no network: what was found and how surely, what to
/// set, every variant with its interval, stalls over time with what the kernel did then, latency, every run,
/// what was measured before, on what it was measured, and the command that measures it again. Several results
/// are held against the first of them before each is shown. It holds its results: wherever a file of results is
/// read, a page can be given. It prints on two sheets; what they have no room for, it says.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab report
  pinstripe lab report results.json --out disk.html
  pinstripe lab report before.json after.json --title 'New disk' --out disk.html")]
pub struct Args {
    /// Files of results, pages that hold them, or what fio printed [default: what was measured last]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// The page [default: the first file's name with .html at its end, in the same directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,

    /// What stands above it [default: the case, and where it measured]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// What was measured before [default: pinstripe/lab/history.jsonl in the user's state directory]
    ///
    /// Where it has the same case with the same settings in the same place, it is drawn, with the places where it
    /// changed for good.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    history: Option<PathBuf>,
}

impl Args {
    /// Writes the page.
    ///
    /// # Errors
    /// Those of [`result::load_all`] and of a history that was named; [`Kind::NotFound`] when nothing was measured yet; [`Kind::Usage`] when
    /// the page would be put in place of what it is made of.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let files = match self.files.as_slice() {
            [] => vec![last()?],
            files => files.to_vec(),
        };
        let mut all: Vec<Results> = Vec::new();
        for file in &files {
            all.extend(load_all(file)?);
        }
        let out = self.place(&files)?;
        let history = match &self.history {
            Some(file) => {
                fs::metadata(file)
                    .map_err(|error| Error::io("cannot read the history", file, error))?;
                result::read_history(file)?
            }
            None => history::usual(run),
        };
        result::put(page(&all, self.title.as_deref(), &history).as_bytes(), &out)?;
        run.screen.say(&format!("the page is {}", escape::path(&out)));
        let facts = match all.as_slice() {
            [one] => tell::facts(one),
            many => Event::default().with("results", many.len()),
        };
        Ok(Ending::done(facts.with_path("path", &out)))
    }

    /// The place of the page: never that of a file that it is made of.
    fn place(&self, files: &[PathBuf]) -> Result<PathBuf> {
        let out = self.out.clone().unwrap_or_else(|| files[0].with_extension("html"));
        let is_same = |file: &PathBuf| {
            fs::canonicalize(file)
                .ok()
                .zip(fs::canonicalize(&out).ok())
                .is_some_and(|(a, b)| a == b)
        };
        match files.iter().any(is_same) {
            true => {
                Err(Error::new(Kind::Usage, "the page would take the place of what it is made of")
                    .at(out)
                    .advice("say where it is to be put with --out"))
            }
            false => Ok(out),
        }
    }
}
