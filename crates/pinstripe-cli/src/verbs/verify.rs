//! `pinstripe verify`: compares every byte of a split or of a take with its checksums.

use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{format_count, format_size};
use pinstripe_record::{VerifyOutcome, is_take, verify};
use pinstripe_split::{open_outputs, require_complete, verify_outputs};

use super::join::{GAUGE, facts};
use crate::args::refuse_option;
use crate::event::Event;
use crate::exit;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::system;
use crate::time;

/// Verify the outputs of 'pinstripe split', or a take of 'pinstripe record', against checksums
///
/// Reports which parts are damaged, and which bytes of the source are lost, if any. Verification
/// needs no disk space. A directory that contains a file take.json is a take; the content of
/// streams from the input 'test:' is verified as well.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe verify /mnt/?/disk.img.split-*
  pinstripe verify a b c d --json
  pinstripe verify /mnt/a/take1")]
pub struct VerifyArgs {
    /// Outputs of one split, in any order; or the directory of a take
    #[arg(value_name = "OUT", required = true, value_hint = clap::ValueHint::FilePath)]
    outputs: Vec<PathBuf>,
}

impl VerifyArgs {
    /// Verifies.
    ///
    /// # Errors
    /// Fails with the errors of [`verify_outputs`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(
            !run.common.store.is_empty(),
            "--store",
            "give the outputs of 'pinstripe split'",
        )?;
        if let [take] = &self.outputs[..]
            && is_take(take)
        {
            return verify_take(run, take);
        }
        self.check_there()?;
        let (outputs, remote) = (run.each_place(&self.outputs)?, run.remote_outputs());
        let faults = run.common.device_faults()?;
        let reader = open_outputs(&outputs, remote.as_deref(), &faults, &run.monitor)?;
        require_complete(&reader, false)?;
        let workers = run.common.threads.map_or_else(system::cores, |threads| threads as usize);
        let ticker = run.ticker(GAUGE);
        let verified = verify_outputs(&reader, workers, &run.monitor)?;
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
                (true, _) => "the lost bytes of the source are listed above",
                (false, true) =>
                    "the complete source can be read, but outputs are missing or damaged",
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

impl VerifyArgs {
    /// Refuses a single path that does not exist, with a clearer message than the one for several
    /// outputs. A place with a scheme is not checked here.
    fn check_there(&self) -> Result<()> {
        match &self.outputs[..] {
            [only] if !only.to_string_lossy().contains(':') && !only.exists() => {
                let what = "this path is neither a take nor an output of 'pinstripe split'";
                let advice = "give the directory of a take, or the outputs of 'pinstripe split'";
                Err(Error::new(Kind::NotFound, what).at(only).advice(advice))
            }
            _ => Ok(()),
        }
    }
}

/// Verifies a take against the checksums in its journal.
fn verify_take(run: &Run, take: &Path) -> Result<Ending> {
    let found = verify(take, &run.monitor)?;
    let is_lost = found.is_lost || found.wrong_frames > 0;
    run.screen.say(&format!(
        "verified {} of '{}' in {} ({}): {}{}",
        counted(found.files, "file"),
        crate::escape::text(&found.manifest.take),
        time::span(run.elapsed()),
        format_size(found.sound_bytes + found.damaged_bytes),
        match (is_lost, found.is_repairable) {
            (true, _) =>
                "data of the take is damaged or missing; the affected files are listed above",
            (false, true) =>
                "the take is complete, but a copy of its data is damaged or missing, which is \
                 listed above",
            (false, false) => "everything is intact",
        },
        test_frames(&found),
    ));
    if found.wrong_frames > 0 {
        let what = format!("{} test frames are wrong", format_count(found.wrong_frames));
        run.monitor.loss(take, Error::corrupt(what, take));
    }
    let facts = Event::default()
        .with("take", found.manifest.take.as_str())
        .with("files", found.files)
        .with("sound_bytes", found.sound_bytes)
        .with("damaged_bytes", found.damaged_bytes)
        .with("right_frames", found.right_frames)
        .with("silent_frames", found.silent_frames)
        .with("wrong_frames", found.wrong_frames)
        .with("overrun_gaps", found.manifest.gaps.len());
    let code = if found.is_repairable { exit::REPAIRABLE } else { exit::DONE };
    Ok(Ending { code, facts })
}

/// The result for test streams, as text for the end of a line.
fn test_frames(found: &VerifyOutcome) -> String {
    let (right, silent) = (found.right_frames - found.silent_frames, found.silent_frames);
    let mut parts = Vec::new();
    if found.right_frames > 0 || found.wrong_frames > 0 {
        parts.push(format!("; {} test frames are right", format_count(right)));
    }
    if silent > 0 {
        parts.push(format!(", {} are silence in place of lost frames", format_count(silent)));
    }
    if found.wrong_frames > 0 {
        parts.push(format!(", {} frames are wrong", format_count(found.wrong_frames)));
    }
    parts.concat()
}
