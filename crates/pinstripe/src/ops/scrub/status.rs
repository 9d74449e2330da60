//! `scrub --status`: shows how much of the store was verified how long ago.

use std::collections::HashSet;

use super::finding::Ledger;
use super::{sets, state};
use crate::store::Store;
use pinstripe_base::error::Result;
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::Monitor;

const DAY: i64 = 86_400;
/// The limits of the age bands, in days.
const AGES: [i64; 5] = [1, 7, 30, 90, 365];

/// The sets whose last verification falls into one age band.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct AgeBand {
    /// The largest age in days; `None` for sets that are older than all limits and for those that
    /// were never verified.
    pub days: Option<i64>,
    /// Whether the sets were verified at all.
    pub verified: bool,
    /// Stripe sets.
    pub sets: u64,
    /// The bytes of the sets on all members.
    pub bytes: u64,
}

/// The state of scrubbing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubStatus {
    /// The bands, from the youngest to the sets that were never verified.
    pub bands: Vec<AgeBand>,
    /// The set whose verification is the oldest.
    pub oldest: Option<SetId>,
    /// When the oldest verification of a set began; `None` if a set was never verified.
    pub oldest_seconds: Option<i64>,
}

/// Compares the state of the last scrub with the present sets of the store; `now` is in seconds
/// since 1970.
///
/// # Errors
/// Fails with the errors of [`super::run`].
pub fn status(store: &Store, now: i64, monitor: &Monitor) -> Result<ScrubStatus> {
    let state = state::load(store)?;
    let survey = sets::survey(store, &HashSet::new(), &Ledger::new(store, monitor, &|_| {}))?;
    let band = |days| AgeBand { days, verified: true, ..AgeBand::default() };
    let mut bands: Vec<_> = AGES.iter().map(|days| band(Some(*days))).chain([band(None)]).collect();
    bands.push(AgeBand::default());
    let mut left: Vec<_> = state.shares.clone();
    let mut open = state.open;
    let mut oldest: Option<(SetId, i64)> = None;
    for item in &survey.sets {
        let share = usize::from(item.set.0[0]);
        let in_open = item.set.0[0] == state.cursor.0[0] && item.set <= state.cursor;
        // Sets that came after the share was verified count as never verified: no more of the
        // present sets can have been verified than existed then.
        let known = match in_open && open.began_seconds != 0 {
            true => &mut open,
            false => &mut left[share],
        };
        let began = if known.sets > 0 { known.began_seconds } else { 0 };
        known.sets = known.sets.saturating_sub(1);
        let at = match began {
            0 => bands.len() - 1,
            began => AGES
                .iter()
                .position(|days| now.saturating_sub(began) <= days * DAY)
                .unwrap_or(AGES.len()),
        };
        bands[at].sets += 1;
        bands[at].bytes += item.bytes;
        let when = if began == 0 { i64::MIN } else { began };
        if oldest.is_none_or(|(_, oldest)| when < oldest) {
            oldest = Some((item.set, when));
        }
    }
    let oldest_seconds = oldest.map(|(_, when)| when).filter(|when| *when != i64::MIN);
    Ok(ScrubStatus { bands, oldest: oldest.map(|(set, _)| set), oldest_seconds })
}
