//! `pinstripe lab compare`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_lab::result::compare;
use pinstripe_lab::show::sentence;

use super::{load, tell};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Compare results with earlier ones, variant by variant
///
/// Other differences are listed: parameters, machine, disks and their settings. A verdict is about
/// all of these together. Results of fio are accepted as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab compare before.json after.json
  pinstripe lab compare fio-before.json fio-after.json")]
pub struct LabCompareArgs {
    /// Earlier results
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    before: PathBuf,

    /// Later results
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    after: PathBuf,
}

impl LabCompareArgs {
    /// Prints a sentence for each variant.
    ///
    /// # Errors
    /// Those of reading results, and of standard output.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let found = compare(&load(&self.before)?, &load(&self.after)?);
        for compared in &found.verdicts {
            run.screen.row(&escape::text(&sentence(compared)))?;
            run.screen.event(&tell::of_verdict(compared))?;
        }
        for name in &found.unmatched {
            run.screen.row(&format!("{}: only one of them has it", escape::text(name)))?;
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
}
