//! `pinstripe verify`: every byte of a split, held against its checksums.

use std::path::PathBuf;

use pinstripe::ops::join;
use pinstripe_base::error::Result;
use pinstripe_base::units::format_size;

use super::join::{GAUGE, facts};
use crate::args::refuse_option;
use crate::exit;
use crate::run::{Ending, Run};
use crate::system;
use crate::time;

/// Verify the outputs of 'pinstripe split' against their checksums
///
/// Reports what is damaged, and which bytes of the source are lost, if any. Needs no disk space.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe verify /mnt/?/disk.img.split-*
  pinstripe verify a b c d --json")]
pub struct VerifyArgs {
    /// Outputs of one split, in any order
    #[arg(value_name = "OUT", required = true, value_hint = clap::ValueHint::FilePath)]
    outputs: Vec<PathBuf>,
}

impl VerifyArgs {
    /// Verifies.
    ///
    /// # Errors
    /// Those of [`join::verify`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(!run.common.store.is_empty(), "--store", "name the outputs of a split")?;
        let reader = join::open(&self.outputs, &run.common.device_faults()?, &run.monitor)?;
        join::require_complete(&reader, false)?;
        let workers = run.common.threads.map_or_else(system::cores, |threads| threads as usize);
        let ticker = run.ticker(GAUGE);
        let verified = join::verify(&reader, workers, &run.monitor)?;
        drop(ticker);
        let missing = reader.missing().len() as u64;
        let troubles = reader.troubles().len() as u64;
        let is_repairable = verified.repairable + missing + troubles > 0;
        let lost = !verified.joined.lost.is_empty();
        run.screen.say(&format!(
            "verified {} in {}, {}: {}",
            format_size(reader.source_bytes()),
            time::span(run.elapsed()),
            time::rate(reader.source_bytes(), run.elapsed()),
            match (lost, is_repairable) {
                (true, _) => "some of it is lost, as named above",
                (false, true) =>
                    "all of the source can be read, but outputs are missing or damaged",
                (false, false) => "everything is intact",
            },
        ));
        let code = if is_repairable { exit::REPAIRABLE } else { exit::DONE };
        let facts = facts(&reader, &verified.joined)
            .with("repairable", verified.repairable)
            .with("lost_parts", verified.lost_parts);
        Ok(Ending { code, facts })
    }
}
