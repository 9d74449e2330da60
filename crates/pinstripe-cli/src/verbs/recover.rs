//! `pinstripe recover`: a take whose recording was cut off, put in order.

use std::path::PathBuf;

use pinstripe_base::error::Result;
use pinstripe_base::units::format_count;
use pinstripe_record::recover::recover;

use crate::args::refuse_option;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::time;
use crate::verbs::record::CONTROL;

/// Complete the files of a take whose recording was cut off
///
/// Every file gets the length and the header that the take's journal vouches for: all that was
/// durable, and nothing else. A take that is complete stays as it is; one that is being recorded is
/// refused.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe recover /mnt/a/take1
  pinstripe recover /mnt/a/take1 --json && pinstripe verify /mnt/a/take1")]
pub struct RecoverArgs {
    /// Directory of the take, in any of its DIRs
    #[arg(value_name = "TAKE", value_hint = clap::ValueHint::DirPath)]
    take: PathBuf,
}

impl RecoverArgs {
    /// Recovers.
    ///
    /// # Errors
    /// Those of [`recover`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(!run.common.store.is_empty(), "--store", "name the directory of a take")?;
        let outcome = recover(&self.take, &run.monitor)?;
        // A recorder that was killed leaves its socket, at which no process answers any more.
        let _ = std::fs::remove_file(self.take.join(CONTROL));
        for file in &outcome.files {
            let event = Event::new("recovered").with_path("path", &file.path);
            let event = event.with("stream", file.stream.as_str()).with("frames", file.frames);
            run.screen.event(&event)?;
            let name = file.path.display();
            run.screen.row(&format!("{name}: {} frames", format_count(file.frames)))?;
        }
        run.screen.say(&match (outcome.was_complete, outcome.never_began) {
            (true, _) => "the take was complete already; nothing was changed".to_owned(),
            (_, true) => "the take was armed and never began: nothing had been recorded, and only \
                          its manifest is left"
                .to_owned(),
            _ => format!(
                "{} put in order, with all that was durable: up to {} after the beginning",
                counted(outcome.files.len() as u64, "file"),
                time::span(outcome.vouched),
            ),
        });
        let facts = Event::default()
            .with("take", outcome.manifest.take.as_str())
            .with("files", outcome.files.len())
            .with("was_complete", outcome.was_complete)
            .with("never_began", outcome.never_began)
            .with("vouched_seconds", outcome.vouched.as_secs_f64());
        Ok(Ending::done(facts))
    }
}
