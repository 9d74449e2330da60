//! Finishes a file when all of its pieces are written or kept, or when one cannot be restored.
//! These steps run on the threads of a restore. Invariant: a file of the target is changed in place
//! only if it has no name that belongs to another entry, restored or not (`linked.rs`).

use std::ops::Range;

use super::RestorePlan;
use super::target::Target;
use crate::sink::{Existing, Unset};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::sync::lock;
use pinstripe_stripe::Abort;

impl RestorePlan<'_> {
    /// Records the result for one piece, and finishes the file with its last piece.
    pub(super) fn settle_piece(&self, target: &Target, result: Result<()>, abort: &Abort) {
        let complete = result.map(|()| target.settle_piece());
        self.finish_if_complete(target, complete, abort);
    }

    /// Ends the planning of a file, and finishes the file if all of its pieces are settled already.
    pub(super) fn end_planning(&self, target: &Target, planned: Result<()>, abort: &Abort) {
        let complete = planned.map(|()| target.end_planning());
        self.finish_if_complete(target, complete, abort);
    }

    fn finish_if_complete(
        &self,
        target: &Target,
        complete: Result<Option<Vec<Range<u64>>>>,
        abort: &Abort,
    ) {
        match complete {
            Ok(None) => {}
            Ok(Some(kept)) => self.finish(target, &kept, abort),
            Err(error) => self.fail(target, error, abort),
        }
    }

    /// Finishes a file whose pieces are all written or in the `kept` ranges of the existing one.
    fn finish(&self, target: &Target, kept: &[Range<u64>], abort: &Abort) {
        // Before the file, which would be created for one that needs none.
        if let Some(existing) = target.is_there(kept) {
            return self.keep(target, existing, kept, abort);
        }
        let finished = target.file(self).and_then(|file| {
            if let Some(existing) = &target.existing {
                file.take_over(existing, kept)?;
            }
            file.finish()
        });
        self.restored(target, finished, abort);
    }

    /// Keeps the content of an existing file in the ranges of `data`, and sets metadata that
    /// differs. If the file has names that are not this entry's, they would get that metadata too:
    /// then a separate file is made for the entry.
    pub(super) fn keep(
        &self,
        target: &Target,
        existing: &Existing,
        data: &[Range<u64>],
        abort: &Abort,
    ) {
        if existing.has_metadata(&target.meta) {
            return self.count_kept(&target.path);
        }
        let changed = match self.linked.has_all_names(target.key, existing) {
            true => existing.apply_metadata(&target.meta),
            false => target.file(self).and_then(|file| {
                file.take_over(existing, data)?;
                file.finish()
            }),
        };
        self.restored(target, changed, abort);
    }

    fn restored(&self, target: &Target, done: Result<Vec<Unset>>, abort: &Abort) {
        match done {
            Ok(unset) => self.count_restored(&target.path, unset),
            Err(error) => self.fail(target, error, abort),
        }
    }

    /// Abandons a file, and reports why.
    fn fail(&self, target: &Target, error: Error, abort: &Abort) {
        self.monitor.take_back(Counter::RestoredBytes, target.fail());
        if error.kind() == Kind::NoSpace {
            abort.raise(error.advice(
                "free space on the target's file system, and restore again with --overwrite",
            ));
        } else {
            let is_source =
                matches!(error.kind(), Kind::Corrupt | Kind::TooManyLosses | Kind::NotFound);
            if target.key.is_some() && !is_source {
                lock(&self.blocked).insert(target.path.clone());
            }
            self.lose(&target.path, error);
        }
    }
}
