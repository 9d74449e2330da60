//! Fills the catalog: one thread reads the trees, and only the caller's thread writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::bounded;

use crate::catalog::change_of;
use crate::pipeline::limits::{CATALOG_BATCH_CHANGES, CATALOG_BATCHES};
use crate::store::tree::TreeDiff;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::ChangeSink;

/// Writes all differences of two trees into a catalog, batch by batch.
///
/// # Errors
/// Fails when a tree cannot be read or the catalog cannot be written, or with [`Kind::Interrupted`]
/// when `stop` is set before the end.
pub fn run(
    mut diff: TreeDiff<'_>,
    intake: &mut (dyn ChangeSink + '_),
    stop: &AtomicBool,
) -> Result<()> {
    let (sender, batches) = bounded(CATALOG_BATCHES);
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut batch = Vec::new();
            while let Some(difference) = diff.next_difference()? {
                batch.extend(change_of(difference));
                if batch.len() >= CATALOG_BATCH_CHANGES
                    && sender.send(std::mem::take(&mut batch)).is_err()
                {
                    break; // The writer failed, and reports why.
                }
            }
            let _ = sender.send(batch);
            Ok(())
        });
        // The receiver goes with the iterator, so a reader that still sends gets an error.
        let written =
            batches.into_iter().try_for_each(|batch| match stop.load(Ordering::Relaxed) {
                true => Err(Error::new(Kind::Interrupted, "the catalog is not complete yet")),
                false => intake.write(&batch),
            });
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(read)
    })
}
