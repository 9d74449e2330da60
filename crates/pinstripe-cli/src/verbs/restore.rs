//! `pinstripe restore`: bring a snapshot, or a part of it, back.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::error::Result;
use pinstripe::monitor::Counter;
use pinstripe::ops::restore;
use pinstripe::units::{format_count, format_size};

use super::{counted, snapshots};
use crate::escape;
use crate::named;
use crate::progress::Gauge;
use crate::run::{Ending, Run};
use crate::time;

/// Restore a snapshot, or a part of it, below a directory
///
/// Without :PATH everything returns below DIR under its full path; with it, what is at PATH
/// becomes the content of DIR. What is missing or damaged on the members is rebuilt from parity on
/// the way.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe restore latest --to /mnt/new
  pinstripe restore 1a2b3c4d:/home/me/Documents --to ~/Documents-of-may
  pinstripe restore latest:/etc --to /etc --overwrite --verify")]
pub struct Args {
    /// 'latest' or the beginning of an id, and what to restore of it
    #[arg(value_name = "SNAPSHOT[:PATH]")]
    what: OsString,

    /// The directory to restore to; missing or empty
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    to: PathBuf,

    /// Read everything again when it is written, and compare
    #[arg(long)]
    verify: bool,

    /// Restore into a directory that is not empty; files in the way are replaced
    #[arg(long)]
    overwrite: bool,
}

impl Args {
    /// Runs the restore.
    ///
    /// # Errors
    /// Those of [`restore::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (snapshot, path) = named::parse(&self.what)?;
        let store = run.open_store()?;
        let options = restore::Options {
            snapshot: &snapshot,
            path: path.as_bytes(),
            to: &self.to,
            overwrite: self.overwrite,
            verify: self.verify,
            limits: run.limits(&store),
        };
        let ticker = run.ticker(Gauge {
            label: "restoring",
            done_bytes: |monitor| {
                monitor.get(Counter::RestoredBytes) + monitor.get(Counter::CheckedBytes)
            },
            passes: if self.verify { 2 } else { 1 },
        });
        let restored = restore::run(&store, &options, &run.monitor)?;
        drop(ticker);
        self.say(run, &restored.id.short());
        let facts = snapshots::facts(&restored).with_path("to", &self.to);
        Ok(Ending::done(facts.with("verified", self.verify)))
    }

    fn say(&self, run: &Run, snapshot: &str) {
        let bytes = run.count(Counter::RestoredBytes);
        let elapsed = run.elapsed();
        run.screen.say(&format!(
            "restored {} entries, {} of snapshot {snapshot} to {} in {}, {}",
            format_count(run.count(Counter::RestoredEntries)),
            format_size(bytes),
            escape::path(&self.to),
            time::span(elapsed),
            time::rate(bytes, elapsed),
        ));
        let rebuilt = run.count(Counter::RebuiltStrips);
        if rebuilt > 0 {
            let rebuilt = counted(rebuilt, "strip");
            run.screen.say(&format!("rebuilt {rebuilt} from parity on the way"));
        }
        if self.verify {
            let checked = format_size(run.count(Counter::CheckedBytes));
            run.screen.say(&format!("read {checked} again and compared"));
        }
    }
}
