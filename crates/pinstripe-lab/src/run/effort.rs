//! Determines the number of runs of each variant: until the answer is known, or the time has
//! elapsed.

use std::time::Duration;

use pinstripe_stats as stats;

use super::VariantNo;
use crate::guard::Limits;
use crate::result::{self, Counting, Results, Standing, Variant};

/// The condition for enough runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Until {
    /// For every variant of a group, the interval of the median is within this share of the median
    /// on both sides.
    Narrow(f64),
    /// It is known whether the baseline of a group is slower than the best variant by more than
    /// this share and, if so, which variant is the first that is not. A variant that is shown to be
    /// slower is not run any more.
    Settled(f64),
}

/// The number of runs of each variant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// The smallest number of valid runs of each variant, unless the time has elapsed.
    pub min_runs: usize,
    /// The greatest number of runs of each variant.
    pub max_runs: usize,
    /// The condition for enough runs.
    pub until: Until,
    /// After this time no further run is started, provided that every variant has been run.
    pub budget: Duration,
    /// The number of warm-up runs of each variant, which come first and are not kept.
    pub warm_up: usize,
    /// The longest wait before each run for the machine to become quiet.
    pub patience: Duration,
    /// The limits beyond which a run counts as disturbed.
    pub limits: Limits,
    /// Whether disturbed runs count anyway, with a note.
    pub accepts_noise: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            min_runs: 8,
            max_runs: 20,
            until: Until::Narrow(0.05),
            budget: Duration::from_secs(300),
            warm_up: 1,
            patience: Duration::from_secs(2),
            limits: Limits::default(),
            accepts_noise: false,
        }
    }
}

impl Effort {
    /// Makes exactly this many runs of each variant; disturbed runs are repeated, at most this many
    /// times.
    #[must_use]
    pub fn exactly(self, runs: usize) -> Self {
        Effort { min_runs: runs, max_runs: runs, ..self }
    }

    /// The indices of the variants that run in the next round; empty if no more rounds are needed.
    pub(super) fn next_round(&self, results: &Results) -> Vec<VariantNo> {
        let variants = &results.variants;
        let open = results.groups().into_iter().flat_map(|group| {
            let all = (0..variants.len()).filter(|at| variants[*at].group == group);
            let all = all.map(VariantNo).collect();
            match self.until {
                Until::Narrow(share) => self.not_narrow(results, all, share),
                Until::Settled(share) => self.not_settled(results, all, share),
            }
        });
        let mut open: Vec<VariantNo> = open.filter(|at| self.can_run(&variants[at.0])).collect();
        open.sort_unstable();
        open
    }

    /// The round before which it is checked again whether more rounds are needed. In a long race
    /// checks are less frequent, because a single round would change the answer only by chance.
    pub(super) fn next_look(&self, round: u64) -> u64 {
        match self.until {
            Until::Narrow(_) => round + 1,
            Until::Settled(_) => round + (round / 4).max(1),
        }
    }

    /// Whether a variant may run again: at most the requested number of runs, and a limited number
    /// of disturbed runs.
    pub(super) fn can_run(&self, variant: &Variant) -> bool {
        variant.values().len() < self.max_runs && variant.runs.len() < 2 * self.max_runs
    }

    /// The smallest number of runs for a group with this many variants. If several comparisons
    /// belong together, each must be more certain, so fewer rounds could not show anything.
    fn least(&self, variants: usize) -> usize {
        let to_tell_apart = stats::rounds_to_tell_apart(variants.saturating_sub(1));
        self.min_runs.max(if variants > 1 { to_tell_apart } else { 0 }).min(self.max_runs)
    }

    /// Returns all variants of the group, if the interval of one is too wide and the variant may
    /// run again.
    fn not_narrow(&self, results: &Results, group: Vec<VariantNo>, share: f64) -> Vec<VariantNo> {
        let is_narrow = |variant: &Variant| {
            let found = variant.summary().zip(variant.interval());
            found.is_some_and(|(it, interval)| interval.half_width(it.median) <= share)
        };
        let least = self.least(group.len());
        let is_open = |at: &VariantNo| {
            let variant = &results.variants[at.0];
            let is_short = variant.values().len() < least || !is_narrow(variant);
            is_short && self.can_run(variant)
        };
        if group.iter().any(is_open) { group } else { Vec::new() }
    }

    /// For a group whose best variant is still open, all variants that may be the best. Returns an
    /// empty list if one of these may not run again, because the others could not be compared with
    /// it.
    fn not_settled(&self, results: &Results, group: Vec<VariantNo>, share: f64) -> Vec<VariantNo> {
        let variants: Vec<&Variant> = group.iter().map(|at| &results.variants[at.0]).collect();
        let counting = Counting::count(&variants);
        let standings = result::standings(&variants, counting, share);
        let Some(standings) = standings else { return group };
        let baseline = variants.first().and_then(|it| results.baseline(&it.group));
        let baseline = group.iter().position(|it| Some(it.0) == baseline).unwrap_or(0);
        let is_open = standings.each[standings.decides(baseline)] == Standing::Open;
        let in_race = group.into_iter().zip(standings.each);
        let in_race = in_race.filter(|(_, it)| *it != Standing::Slower).map(|(at, _)| at);
        let in_race: Vec<VariantNo> = in_race.collect();
        let may_run = in_race.iter().all(|at| self.can_run(&results.variants[at.0]));
        if is_open && may_run { in_race } else { Vec::new() }
    }
}
