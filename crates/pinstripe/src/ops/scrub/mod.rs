//! `scrub`: verifies all strips and small objects, one part of the store at a time, and repairs
//! damage at once.
//!
//! Stripe sets are visited in the order of their ids, in rounds; the state records where the last
//! scrub stopped and when each share of the store was verified. No key is needed: strips and small
//! objects carry checksums of their stored bytes.
//!
//! Invariants: a rewritten extent replaces the old one only when it is durable. A missing extent
//! that a running writer may be about to write is not touched. The only intact objects that are
//! removed are superseded index runs. No decision depends on wall clocks.
//!
//! Not in this module: rebuilding index runs, labels of new members, giving up lost packs: repair
//! does these.

mod budget;
mod finding;
mod objects;
mod sets;
mod state;
mod status;

pub use budget::{Budget, Portion};
pub use finding::{Fate, Finding};
pub use status::{AgeBand, ScrubStatus, status};

use std::collections::HashSet;
use std::time::{Duration, Instant};

use budget::Throttle;
use finding::Ledger;

use crate::ops::stale;
use crate::pipeline::limits::Limits;
use crate::store::{Store, attach_or_replace, index};
use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::units::GIB;
use pinstripe_io::pool::each;

/// The largest number of verified bytes that a killed scrub loses: the state is written after this
/// many bytes.
pub const SAVE_BYTES_DEFAULT: u64 = GIB;
/// The state is also written at least at this interval, however slow the scrub is.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// The number of sets for each worker that are verified between two checks of the budget.
const SETS_PER_WORKER: usize = 2;

/// Options of a scrub.
pub struct ScrubOptions {
    /// When to stop; without limits everything is verified once.
    pub budget: Budget,
    /// The largest number of bytes read per second.
    pub rate: Option<u64>,
    /// The number of verified bytes after which the state is written.
    pub save_bytes: u64,
    /// Threads.
    pub limits: Limits,
}

/// The outcome.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct ScrubOutcome {
    /// Stripe sets verified.
    pub sets: u64,
    /// The number of stripe sets in the store.
    pub all_sets: u64,
    /// Bytes of the verified sets, on all members.
    pub verified_bytes: u64,
    /// Bytes of all sets.
    pub all_bytes: u64,
    /// Extents rewritten.
    pub mended_extents: u64,
    /// Small objects rewritten.
    pub mended_objects: u64,
    /// Superseded index runs that a member brought back after an absence, and that were removed.
    pub removed_runs: u64,
    /// Damaged or missing parts that are left for `repair`.
    pub repairable: u64,
    /// Parts that cannot be repaired.
    pub lost: u64,
}

/// Verifies as much as the budget allows, from where the last scrub stopped. `report` gets every
/// finding, from any thread.
///
/// # Errors
/// Fails only if the scrub cannot run: members cannot be listed, an object is of a newer version,
/// or the state cannot be written to any member.
pub fn run(
    store: &Store,
    options: &ScrubOptions,
    monitor: &Monitor,
    report: &(dyn Fn(&Finding) + Sync),
) -> Result<ScrubOutcome> {
    let ledger = Ledger::new(store, monitor, report);
    store.sweep(monitor);
    let mut known = state::load(store)?;
    let began = clock::monotonic();
    let throttle = Throttle::new(options.rate);
    absent_members(store, &ledger);
    let (superseded, removed_runs) = drop_superseded(store, &ledger)?;
    objects::run(store, &ledger)?;

    let survey = sets::survey(store, &superseded, &ledger)?;
    let all_bytes: u64 = survey.sets.iter().map(|set| set.bytes).sum();
    let wanted = options.budget.bytes(all_bytes);
    monitor.set_total(wanted.min(all_bytes), 0);
    let mut round = ScrubRun {
        progress: state::Progress::new(&mut known, store.absent().next().is_none()),
        saved: (began, 0),
        outcome: ScrubOutcome {
            all_sets: survey.sets.len() as u64,
            all_bytes,
            removed_runs,
            ..ScrubOutcome::default()
        },
    };
    let is_late = || options.budget.time.is_some_and(|time| clock::since(began) >= time);
    let mut order = &round.progress.order(&survey.sets)[..];
    while round.outcome.verified_bytes < wanted && !order.is_empty() && !is_late() {
        let mut left = wanted - round.outcome.verified_bytes;
        let fits = |at: &&usize| {
            let before = left;
            left = left.saturating_sub(survey.sets[**at].bytes);
            before > 0
        };
        let workers = options.limits.set_readers(store, 0);
        let most = SETS_PER_WORKER * workers;
        let (batch, rest) = order.split_at(order.iter().take(most).take_while(fits).count());
        order = rest;
        each(workers, batch, |&at| {
            sets::verify(store, &survey, &survey.sets[at], &throttle, &ledger)
        })?;
        for &at in batch {
            round.outcome.sets += 1;
            round.outcome.verified_bytes += survey.sets[at].bytes;
            round.progress.verified(&survey.sets, at, clock::now().0);
        }
        round.save_now_and_then(store, options.save_bytes, monitor)?;
    }
    let ScrubRun { progress, mut outcome, .. } = round;
    progress.save(store, monitor)?;
    ledger.tally(&mut outcome);
    // Each was reported when it stopped answering.
    outcome.repairable += store.silent().count() as u64;
    Ok(outcome)
}

/// A scrub in progress.
struct ScrubRun<'a> {
    progress: state::Progress<'a>,
    /// When the state was last written, and how many bytes were verified by then.
    saved: (Instant, u64),
    outcome: ScrubOutcome,
}

impl ScrubRun<'_> {
    fn save_now_and_then(&mut self, store: &Store, every: u64, monitor: &Monitor) -> Result<()> {
        let (when, verified) = self.saved;
        if self.outcome.verified_bytes - verified < every && clock::since(when) < SAVE_EVERY {
            return Ok(());
        }
        self.progress.save(store, monitor)?;
        self.saved = (clock::monotonic(), self.outcome.verified_bytes);
        Ok(())
    }
}

/// Reports members that were absent, and removes the superseded index runs that they brought back.
/// Returns those index runs, and the number that was removed: none while another writer is running.
fn drop_superseded(store: &Store, ledger: &Ledger<'_>) -> Result<(HashSet<SetId>, u64)> {
    let superseded = index::superseded(store)?;
    let stale = index::stale_members(store, &superseded)?;
    stale::report(store, &stale, stale::UPDATED, ledger.monitor);
    for (number, one) in &stale {
        ledger.stale(*number, one.describe(*number, store.is_full(*number)));
    }
    let removed = index::drop_superseded(store, None)?.len() as u64;
    Ok((superseded.into_iter().map(|run| run.set).collect(), removed))
}

fn absent_members(store: &Store, ledger: &Ledger<'_>) {
    for number in store.absent() {
        let error = store
            .absence_as(number, &format!("member {number} is absent"))
            .advice(attach_or_replace(number));
        ledger.absent(number, error);
    }
}

/// Counts bytes that were read, and limits the rate if requested.
fn took(monitor: &Monitor, throttle: &Throttle, bytes: u64) {
    monitor.add(Counter::CheckedBytes, bytes);
    throttle.took(bytes);
}
