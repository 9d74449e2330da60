//! `analyze`: reports how much deduplication and compression would save on a tree that is not
//! backed up.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::pipeline::limits::Limits;
use crate::pipeline::survey::{Survey, survey};
use crate::walk::{self, Exclude};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Monitor;

/// Options of `analyze`.
pub struct AnalyzeOptions<'a> {
    /// Directories or files, analyzed together: content that is in several of them counts once as
    /// distinct.
    pub paths: &'a [PathBuf],
    /// Paths to leave out.
    pub exclude: Exclude,
    /// Do not enter mounted file systems.
    pub one_file_system: bool,
    /// Threads and memory.
    pub limits: Limits,
    /// Set by another thread to stop early.
    pub stop: &'a AtomicBool,
}

/// Reads everything once. A file that cannot be read counts as a loss in the ledger.
///
/// # Errors
/// Fails when the metadata of a path cannot be read, or with
/// [`Kind::Interrupted`](pinstripe_base::error::Kind::Interrupted) when it was stopped.
pub fn run(options: AnalyzeOptions<'_>, monitor: &Monitor) -> Result<Survey> {
    let walk = walk::WalkOptions {
        one_file_system: options.one_file_system,
        exclude: options.exclude,
        ..walk::WalkOptions::default()
    };
    survey(options.paths, walk, options.limits, options.stop, monitor)
}
