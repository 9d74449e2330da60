//! `pinstripe lab clean`.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::Result;
use pinstripe_base::units::{counted, format_size};
use pinstripe_lab::{extent_of, leftovers, remove_leftover};

use super::carry;
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Remove directories that killed runs of the lab have left behind
///
/// Removes directories named pinstripe-lab-* if the process that created them no longer runs.
/// Links, directories of processes that still run on this machine, and directories in which a file
/// system is mounted are not removed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab clean --dry-run /srv
  pinstripe lab clean /srv /mnt/ssd")]
pub struct LabCleanArgs {
    /// Directories in which the lab has measured [default: .]
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// Only show which directories would be removed
    #[arg(long)]
    dry_run: bool,
}

impl LabCleanArgs {
    /// Removes leftovers, and reports each.
    ///
    /// # Errors
    /// Fails with the first of the errors of [`remove_leftover`], and then removes no more.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let dirs = match self.dirs.as_slice() {
            [] => vec![PathBuf::from(".")],
            dirs => dirs.to_vec(),
        };
        let whole = |dir: &PathBuf| carry::whole_dir_or("cannot be searched", dir);
        let dirs = dirs.iter().map(whole).collect::<Result<Vec<_>>>()?;
        let mut left: Vec<PathBuf> = dirs.iter().flat_map(|dir| leftovers(dir)).collect();
        left.sort();
        left.dedup();
        let mut all_bytes = 0;
        for path in &left {
            let (files, bytes) = extent_of(path);
            if !self.dry_run {
                remove_leftover(path)?;
            }
            all_bytes += bytes;
            let did = if self.dry_run { "would remove" } else { "removed" };
            let files = counted(files, "file", "files");
            let line = format!("{did} {}: {files}, {}", escape::path(path), format_size(bytes));
            run.screen.row(&line)?;
            let event = Event::new("lab_leftover").with_path("path", path).with("bytes", bytes);
            run.screen.event(&event)?;
        }
        if left.is_empty() {
            run.screen.say("no files of killed runs were found");
        }
        let facts = Event::default().with("leftovers", left.len()).with("bytes", all_bytes);
        Ok(Ending::done(facts.with("dry_run", self.dry_run)))
    }
}
