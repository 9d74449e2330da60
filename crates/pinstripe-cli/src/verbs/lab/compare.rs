//! `pinstripe lab compare`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{Results, compare_executions, refuse_repeated, sides_line};

use super::{history, load, tell};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Compare results with earlier results, variant by variant
///
/// The output shows each variant that occurs in both the earlier and the later results, with its
/// two medians and a verdict. If a case has several executions, each median that is shown is the
/// median of the medians of the executions.
///
/// Each execution of a case counts as one sample, however many runs it has, because all runs of one
/// execution share files, time and the state of the disk. Two copies of the same results are
/// refused, because they come from the same execution. A verdict needs at least three earlier and
/// three later executions (A... -- B...), or two of each if the history file shows the spread
/// between executions. If there are too few executions for a verdict, an estimate is shown instead.
/// An estimate has an interval if the history file contains earlier executions. If there are
/// several variants, the verdicts are corrected for the number of comparisons (Holm's method). The
/// output lists other differences between the earlier and the later results: parameters, machine,
/// disks and the settings of the disks. A verdict does not show which of several differences is the
/// cause. Results of fio are accepted as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab compare before.json after.json
  pinstripe lab compare old-1.json old-2.json old-3.json -- new-1.json new-2.json new-3.json
  pinstripe lab compare fio-before.json fio-after.json")]
pub struct LabCompareArgs {
    /// Files with earlier results; without '--', give exactly two files: one with earlier and one
    /// with later results
    #[arg(value_name = "A", required = true, value_hint = ValueHint::FilePath)]
    before: Vec<PathBuf>,

    /// Files with later results
    #[arg(value_name = "B", last = true, value_hint = ValueHint::FilePath)]
    after: Vec<PathBuf>,

    /// Also use runs that were disturbed by other load, and label the results that depend on them
    #[arg(long)]
    accept_noise: bool,
}

impl LabCompareArgs {
    /// Prints a sentence for each variant.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if it is not clear which results are the later ones, if two
    /// results are of one execution, or if the two sides have no variant in common; with the errors
    /// of reading results, and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (before_files, after_files) = self.sides()?;
        let (before, after) = (self.read(before_files)?, self.read(after_files)?);
        let files = before_files.iter().chain(after_files).map(|it| it.display().to_string());
        let named: Vec<(String, &Results)> = files.zip(before.iter().chain(&after)).collect();
        refuse_repeated(&named)?;
        let is_noisy = before.iter().chain(&after).any(Results::accepts_noise);
        let (before, after): (Vec<&Results>, Vec<&Results>) =
            (before.iter().collect(), after.iter().collect());
        let found = compare_executions(&before, &after, &history::usual(run));
        found.refuse_unrelated(&before, &after)?;
        for (letter, files) in [("A", before_files), ("B", after_files)] {
            let names: Vec<String> = files.iter().map(|it| escape::path(it)).collect();
            run.screen.row(&format!("{letter}: {}", names.join(", ")))?;
        }
        for (compared, sides) in found.verdicts.iter().zip(&found.sides) {
            run.screen.row(&escape::text(&sides_line(compared, sides)))?;
            let event = tell::of_verdict(compared)
                .with("before", sides.before)
                .with("after", sides.after)
                .with("unit", sides.metric.unit.as_str());
            run.screen.event(&event)?;
        }
        if is_noisy {
            run.screen
                .row("runs that were disturbed by other load are included in this comparison")?;
        }
        for name in &found.unmatched {
            run.screen.row(&format!(
                "{}: only one of the two sides has this variant",
                escape::text(name)
            ))?;
        }
        for (at, line) in found.differences.iter().enumerate() {
            if at == 0 {
                run.screen.row(
                    "\nother differences between the two sides (before: side A, now: side B):",
                )?;
            }
            run.screen.row(&format!("  {}", escape::text(line)))?;
        }
        let facts = Event::default()
            .with("verdicts", found.verdicts.len())
            .with("unmatched", found.unmatched)
            .with("differences", found.differences);
        Ok(Ending::done(facts))
    }

    fn read(&self, files: &[PathBuf]) -> Result<Vec<Results>> {
        let mut all = files.iter().map(|it| load(it)).collect::<Result<Vec<_>>>()?;
        if self.accept_noise {
            all.iter_mut().for_each(Results::accept_noise);
        }
        Ok(all)
    }

    /// The earlier and the later results.
    fn sides(&self) -> Result<(&[PathBuf], &[PathBuf])> {
        // Behind -- nothing is an option, and what looks like one would be missed as a file.
        let is_option = |it: &&PathBuf| it.to_string_lossy().starts_with("--") && !it.exists();
        if let Some(option) = self.after.iter().find(is_option) {
            let what = format!("everything after -- is a file name, also '{}'", option.display());
            return Err(Error::new(Kind::Usage, what).advice(
                "give options before the files, for example: lab compare --accept-noise A... -- \
                 B...",
            ));
        }
        match (self.before.as_slice(), self.after.as_slice()) {
            ([before, after], []) => {
                Ok((std::slice::from_ref(before), std::slice::from_ref(after)))
            }
            (_, []) => {
                let error = Error::new(
                    Kind::Usage,
                    "it is unclear which files have the earlier results and which files have the \
                     later results",
                );
                Err(error.advice(
                    "give two files, or write -- between the earlier and the later files: lab \
                     compare A... -- B...",
                ))
            }
            (before, after) => Ok((before, after)),
        }
    }
}
