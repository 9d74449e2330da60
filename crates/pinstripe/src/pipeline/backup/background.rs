//! Background work of a backup: watching other writers, and merging index runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::pipeline::limits::{MERGE_ROWS, WATCH_INTERVAL, WATCH_INTERVAL_FAR};
use crate::store::Store;
use crate::store::deletion::acknowledge::Acknowledger;
use crate::store::index::{Index, PACKS_LISTED_FAR};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::{ExtentKind, PrefetchHint};
use pinstripe_stripe::Abort;

/// The rooms that each check lists: the steps of deletion, and the rooms that refreshing the index
/// needs.
const LOOK: [PrefetchHint; 4] = [
    PrefetchHint::new(ExtentKind::Keys, 1),
    PrefetchHint::new(ExtentKind::Gc, 3),
    PrefetchHint::new(ExtentKind::Index, 1),
    PrefetchHint::maybe(ExtentKind::Packs, 1),
];

/// Checks every second, or less often with remote members, which packs other writers have finished,
/// which are condemned, and whether the keys were rotated, until `end` closes.
pub fn watch(
    store: &Store,
    index: &Index<'_>,
    acknowledger: &mut Acknowledger,
    abort: &Abort,
    end: &Receiver<()>,
) {
    let goes_on = |interval| end.recv_timeout(interval) == Err(RecvTimeoutError::Timeout);
    watch_while(store, index, acknowledger, abort, goes_on);
}

/// Returns the interval between checks: on remote members a listing costs money, and a large store
/// needs several requests per listing.
fn interval(store: &Store, index: &Index<'_>) -> Duration {
    match store.is_far() {
        false => WATCH_INTERVAL,
        true if index.packs().len() > PACKS_LISTED_FAR => 2 * WATCH_INTERVAL_FAR,
        true => WATCH_INTERVAL_FAR,
    }
}

/// Runs the checks of [`watch`] as long as `goes_on` returns true after waiting for an interval.
fn watch_while(
    store: &Store,
    index: &Index<'_>,
    acknowledger: &mut Acknowledger,
    abort: &Abort,
    mut goes_on: impl FnMut(Duration) -> bool,
) {
    while goes_on(interval(store, index)) {
        store.prefetch(&LOOK);
        match acknowledger.poll(store, index) {
            // Nothing that this run commits could rest on what it can verify.
            Err(error) if error.kind() == Kind::KeysChanged => return abort.raise(error),
            // A member that cannot be listed is reported by the stage that needs it; meanwhile a gc
            // waits for an answer.
            _ => {}
        }
        let _ = index.refresh();
    }
}

/// Merges index runs until there is nothing left to merge. A long merge is abandoned when the
/// backup ends; a short one is finished, because otherwise a series of short backups would never
/// merge anything.
pub fn merge(index: &Index<'_>, ended: &AtomicBool, abort: &Abort, monitor: &Monitor) {
    if index.is_append_only() {
        return;
    }
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
        monitor.warning(
            "index runs",
            error.advice("the index runs were not changed; no data is lost"),
        );
    }
}

/// Sets its flag when the backup ends, with success or failure.
pub struct Ended<'a>(pub &'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
