//! Executions of a case against others: variants of one name, and what else is different.
//!
//! The unit of repetition is the execution: all runs of one share its layout of files, its hour and
//! the mood of the disk in it. So each execution gives one value of a variant, its median, and how
//! far such values lie apart is taken from the executions themselves and from the history.

use super::{Compared, Entry, Results, Variant, changes, entries};
use crate::fingerprint::{self, Facts};
use crate::stats::{self, Spread};

/// The seed of the search for changes in the history: the same history has the same ones.
const SEED: u64 = 1;

/// A comparison of results.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The second side against the first, for each variant that both have.
    pub verdicts: Vec<Compared>,
    /// Further differences, for people: parameters, the machine, disks and their settings.
    pub differences: Vec<String>,
    /// Names of variants that only one side has.
    pub unmatched: Vec<String>,
}

/// Compares two results: the first are the baseline. This can only be an estimate.
pub fn compare(baseline: &Results, candidate: &Results, history: &[Entry]) -> Comparison {
    compare_executions(&[baseline], &[candidate], history)
}

/// Compares executions: the first are the baseline. What else is different is said of the first of
/// each side.
pub fn compare_executions(
    before: &[&Results],
    after: &[&Results],
    history: &[Entry],
) -> Comparison {
    let mut verdicts = Vec::new();
    let mut unmatched = Vec::new();
    let earlier = Earlier { history, compared: [before, after].concat() };
    for variant in variants(after) {
        let (these, those) = (values(after, variant), values(before, variant));
        if !has(before, variant) {
            unmatched.push(variant.name.clone());
            continue;
        }
        let spread = earlier.spread(before, variant);
        let better = variant.metric.better;
        verdicts.push(Compared {
            group: variant.name.clone(),
            candidate: variant.name.clone(),
            baseline: "before".to_owned(),
            verdict: stats::judge_executions(&these, &those, better, spread),
        });
    }
    let missing = variants(before).into_iter().filter(|it| !has(after, it));
    let missing: Vec<String> = missing.map(|it| it.name.clone()).collect();
    unmatched.extend(missing.into_iter().filter(|it| !unmatched.contains(it)).collect::<Vec<_>>());
    stats::correct(&mut verdicts.iter_mut().map(|it| &mut it.verdict).collect::<Vec<_>>());
    let differences = match (before, after) {
        ([before, ..], [after, ..]) => differences(before, after),
        _ => Vec::new(),
    };
    Comparison { verdicts, differences, unmatched }
}

/// The variants of all results of a side, each once.
fn variants<'a>(side: &[&'a Results]) -> Vec<&'a Variant> {
    let mut all: Vec<&Variant> = Vec::new();
    for variant in side.iter().flat_map(|it| &it.variants) {
        if !all.iter().any(|it| it.name == variant.name) {
            all.push(variant);
        }
    }
    all
}

fn is_same(results: &Results, variant: &Variant) -> bool {
    results.variant(&variant.name).is_some_and(|it| it.metric == variant.metric)
}

fn has(side: &[&Results], variant: &Variant) -> bool {
    side.iter().any(|results| is_same(results, variant))
}

/// One value of each execution: the median of the runs that count.
fn values(side: &[&Results], variant: &Variant) -> Vec<f64> {
    let same = side.iter().filter(|results| is_same(results, variant));
    same.filter_map(|it| Some(it.variant(&variant.name)?.summary()?.median)).collect()
}

/// What is known of earlier executions.
struct Earlier<'a> {
    history: &'a [Entry],
    /// These do not count twice.
    compared: Vec<&'a Results>,
}

impl Earlier<'_> {
    /// How far executions that measured the same in the same place lie apart, as long as nothing
    /// changed for good.
    fn spread(&self, side: &[&Results], variant: &Variant) -> Spread {
        let name = |it: &Entry| it.variant == variant.name;
        let own = side.iter().flat_map(|it| entries(it)).find(name);
        let is_compared = |it: &Entry| {
            self.compared.iter().any(|results| results.started_seconds == it.started_seconds)
        };
        let Some(own) = own else { return Spread::default() };
        let earlier = self.history.iter().filter(|it| it.is_like(&own) && !is_compared(it));
        let all = changes(earlier.cloned().collect(), SEED);
        Spread::within(
            all.iter().flat_map(|it| it.stretches()).collect::<Vec<_>>().iter().map(|it| &**it),
        )
    }
}

fn differences(baseline: &Results, candidate: &Results) -> Vec<String> {
    let of = |results: &Results| {
        let parameters = results.parameters.iter().map(|it| (it.name.clone(), it.value.clone()));
        let mut told = Facts::from_iter(parameters);
        told.insert("program".to_owned(), results.program.clone());
        told.insert("case".to_owned(), results.case.clone());
        told
    };
    let told = fingerprint::differences(&of(baseline), &of(candidate));
    let (old, new) = (baseline.fingerprint.facts(), candidate.fingerprint.facts());
    [fingerprint::differences(&old, &new), told].concat()
}
