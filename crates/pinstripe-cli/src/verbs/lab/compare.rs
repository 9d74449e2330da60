//! `pinstripe lab compare`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_lab::result::{Results, compare_executions};
use pinstripe_lab::show::sentence;

use super::{history, load, tell};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Compare results with earlier ones, variant by variant
///
/// Executions are compared, not their runs: all runs of one execution share its files, its hour and
/// the state of the disk in it. A verdict needs three executions a side or more (A... -- B...), or two
/// a side where the history knows how far executions of the same lie apart. Of fewer, what is shown
/// is an estimate and no verdict, with its interval if the history has earlier executions. Several
/// variants are corrected for how many they are (Holm). Other differences are listed: parameters,
/// machine, disks and their settings. A verdict is about all of these together. Results of fio are
/// accepted as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab compare before.json after.json
  pinstripe lab compare old-1.json old-2.json old-3.json -- new-1.json new-2.json new-3.json
  pinstripe lab compare fio-before.json fio-after.json")]
pub struct LabCompareArgs {
    /// Earlier results; without --, one earlier and one later
    #[arg(value_name = "A", required = true, value_hint = ValueHint::FilePath)]
    before: Vec<PathBuf>,

    /// Later results
    #[arg(value_name = "B", last = true, value_hint = ValueHint::FilePath)]
    after: Vec<PathBuf>,

    /// Let runs count that were disturbed by other load, with a label
    #[arg(long)]
    accept_noise: bool,
}

impl LabCompareArgs {
    /// Prints a sentence for each variant.
    ///
    /// # Errors
    /// [`Kind::Usage`] where it is not said which results are the later ones; those of reading
    /// results, and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (before, after) = self.sides()?;
        let (before, after) = (self.read(before)?, self.read(after)?);
        let is_noisy = before.iter().chain(&after).any(Results::accepts_noise);
        let (before, after): (Vec<&Results>, Vec<&Results>) =
            (before.iter().collect(), after.iter().collect());
        let found = compare_executions(&before, &after, &history::usual(run));
        for compared in &found.verdicts {
            run.screen.row(&escape::text(&sentence(compared)))?;
            run.screen.event(&tell::of_verdict(compared))?;
        }
        if is_noisy {
            run.screen.row("runs count that were disturbed by other load")?;
        }
        for name in &found.unmatched {
            run.screen.row(&format!("{}: only one side has it", escape::text(name)))?;
        }
        for (at, line) in found.differences.iter().enumerate() {
            if at == 0 {
                run.screen.row("\nother differences:")?;
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

    /// The earlier results and the later ones.
    fn sides(&self) -> Result<(&[PathBuf], &[PathBuf])> {
        match (self.before.as_slice(), self.after.as_slice()) {
            ([before, after], []) => {
                Ok((std::slice::from_ref(before), std::slice::from_ref(after)))
            }
            (_, []) => {
                let error =
                    Error::new(Kind::Usage, "it is not said which results are the later ones");
                Err(error.advice("two files, or several of each: lab compare A... -- B..."))
            }
            (before, after) => Ok((before, after)),
        }
    }
}
