//! What this host saw of writers on other hosts, kept from one run of gc to the next.
//!
//! Invariant: times are relative to one boot of this machine; after the next boot, observation
//! starts again.

use std::time::Duration;

use pinstripe::{FailureDetector, Store};
use pinstripe_base::clock;

use super::context::Run;
use super::known_stores::{KnownSightings, Proof};

/// Returns a failure detector that knows when earlier runs, since this boot, last saw each process.
pub fn detector(run: &Run, store: &Store, timeout: Duration) -> FailureDetector {
    let known = run.known_stores().get(store.config.store).map(|known| known.sightings.clone());
    let sightings = known.unwrap_or_default().of_boot(&store.process().boot);
    FailureDetector::new(timeout, sightings, clock::since_boot)
}

/// Remembers the sightings of a detector.
pub fn keep(run: &Run, store: &Store, detector: &FailureDetector) {
    let seen = KnownSightings::new(&store.process().boot, &detector.sightings());
    run.known_stores().keep(store, &[], Proof::Label, &run.monitor, |known| {
        known.sightings = seen;
    });
}
