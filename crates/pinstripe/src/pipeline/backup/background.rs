//! Background work of a backup: watching other writers, and merging index runs.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::member::is_remote;
use crate::pipeline::abort::Abort;
use crate::pipeline::limits::{MERGE_ROWS, WATCH_INTERVAL, WATCH_INTERVAL_FAR};
use crate::store::Store;
use crate::store::deletion::acknowledge::Acknowledger;
use crate::store::index::Index;
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Monitor;

/// Checks every second, or less often where members are far away, which packs other writers have finished and which are to be deleted, until
/// `end` closes.
pub fn watch(
    store: &Store,
    index: &Index<'_>,
    acknowledger: &mut Acknowledger,
    end: &Receiver<()>,
) {
    let is_far = store.present().any(|(_, member)| is_remote(member.place()));
    let interval = if is_far { WATCH_INTERVAL_FAR } else { WATCH_INTERVAL };
    while end.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        // A member that cannot be listed is reported by the stage that needs it; meanwhile a gc
        // waits for an answer.
        let _ = acknowledger.look(store, index);
        let _ = index.refresh();
    }
}

/// Merges runs until there is nothing to merge. A long merge is given up when the backup ends; one
/// that is short is finished, or backups that are always short would never merge anything.
pub fn merge(index: &Index<'_>, ended: &AtomicBool, abort: &Abort, monitor: &Monitor) {
    let done = index.remove_redundant().and_then(|()| {
        while let Some(merge) = index.plan_merge() {
            let is_short = merge.rows() <= MERGE_ROWS;
            let is_over = || abort.is_raised() || (!is_short && ended.load(Ordering::Relaxed));
            if is_over() || index.merge(merge, &is_over)?.is_none() {
                break;
            }
        }
        Ok(())
    });
    // The index is as good as before; only what is derived was not made smaller.
    if let Err(error) = done
        && !abort.is_raised()
        && error.kind() != Kind::NotFound
    {
        monitor.warning("index runs", error.advice("they stay as they are; nothing is lost"));
    }
}

/// Sets its flag when the backup ends, in success or failure.
pub struct Ended<'a>(pub &'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
