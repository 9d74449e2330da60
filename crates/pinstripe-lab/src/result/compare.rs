//! One execution of a case against another: variants of one name, and what else is different.

use super::{Compared, Results};
use crate::fingerprint::{self, Facts};
use crate::stats;

/// A comparison of two results.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The second against the first, for each variant that both have.
    pub verdicts: Vec<Compared>,
    /// Further differences, for people: parameters, the machine, disks and their settings.
    pub differences: Vec<String>,
    /// Names of variants that only one has.
    pub unmatched: Vec<String>,
}

/// Compares results: the first are the baseline.
pub fn compare(baseline: &Results, candidate: &Results) -> Comparison {
    let mut verdicts = Vec::new();
    let mut unmatched = Vec::new();
    for variant in &candidate.variants {
        let other = baseline.variant(&variant.name).filter(|it| it.metric == variant.metric);
        let Some(other) = other else {
            unmatched.push(variant.name.clone());
            continue;
        };
        let (these, those) = (variant.values(), other.values());
        verdicts.push(Compared {
            group: variant.name.clone(),
            candidate: variant.name.clone(),
            baseline: "before".to_owned(),
            verdict: stats::judge(&these, &those, variant.metric.better, candidate.seed),
        });
    }
    let missing = baseline
        .variants
        .iter()
        .filter(|it| candidate.variant(&it.name).is_none_or(|other| other.metric != it.metric));
    for variant in missing {
        if !unmatched.contains(&variant.name) {
            unmatched.push(variant.name.clone());
        }
    }
    Comparison { verdicts, differences: differences(baseline, candidate), unmatched }
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
