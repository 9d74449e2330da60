//! `pinstripe lab compare`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::{Results, compare_executions, refuse_repeated, sides_line};

use super::{history, load, tell};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Compare results with earlier ones, variant by variant
///
/// Each variant that occurs in the earlier and in the later results is shown with its median in
/// both (for several executions, the median of their medians) and with a verdict.
///
/// The comparison counts executions of a case, not runs, because all runs of one execution share
/// files, time and the state of the disk. Two copies of the same results are refused, because they
/// are one execution. A verdict needs three or more executions on each side (A... -- B...), or two
/// if the history shows the spread between executions. With fewer executions, an estimate is shown
/// instead of a verdict; the estimate has an interval if the history has earlier executions. If
/// there are several variants, the verdicts are corrected for the number of comparisons (Holm's
/// method). Other differences between the two sides are listed: parameters, machine, disks and
/// their settings. A verdict does not say which of several differences is the cause. Results of fio
/// are accepted as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab compare before.json after.json
  pinstripe lab compare old-1.json old-2.json old-3.json -- new-1.json new-2.json new-3.json
  pinstripe lab compare fio-before.json fio-after.json")]
pub struct LabCompareArgs {
    /// Files of earlier results; without '--', give two files: first the earlier, then the later
    /// results
    #[arg(value_name = "A", required = true, value_hint = ValueHint::FilePath)]
    before: Vec<PathBuf>,

    /// Later results
    #[arg(value_name = "B", last = true, value_hint = ValueHint::FilePath)]
    after: Vec<PathBuf>,

    /// Also count runs that were disturbed by other load, and label the results
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
            run.screen.row("runs that were disturbed by other load count too")?;
        }
        for name in &found.unmatched {
            run.screen.row(&format!(
                "{}: only one of the two sides has this variant",
                escape::text(name)
            ))?;
        }
        for (at, line) in found.differences.iter().enumerate() {
            if at == 0 {
                run.screen.row("\nother differences (before: A, now: B):")?;
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
            let what = format!("after --, '{}' is read as a file name", option.display());
            return Err(Error::new(Kind::Usage, what)
                .advice("give options before the files: lab compare --accept-noise A... -- B..."));
        }
        match (self.before.as_slice(), self.after.as_slice()) {
            ([before, after], []) => {
                Ok((std::slice::from_ref(before), std::slice::from_ref(after)))
            }
            (_, []) => {
                let error = Error::new(
                    Kind::Usage,
                    "it is unclear which of the files have the earlier results and which the later \
                     ones",
                );
                Err(error.advice(
                    "name two files, or separate earlier and later files by --: lab compare A... \
                     -- B...",
                ))
            }
            (before, after) => Ok((before, after)),
        }
    }
}
