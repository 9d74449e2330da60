//! Compares executions of a case with other executions: variants with the same name, and other
//! differences.
//!
//! The unit of repetition is the execution: all runs of an execution share its file layout, its
//! time of day and the state of the disk. So each execution contributes only one value for a
//! variant: its median. The spread between such values is estimated from the executions themselves
//! and from the history.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_stats::{self as stats, Spread};

use super::{Compared, Entry, Metric, Results, Variant, changes, entries};
use crate::fingerprint::{self, Facts};

/// The seed of the search for changes in the history: the same history gives the same changes.
const SEED: u64 = 1;

/// A comparison of results.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The second side compared with the first, for each variant that both sides have.
    pub verdicts: Vec<Compared>,
    /// The figures that each verdict is about, in the same order.
    pub sides: Vec<Sides>,
    /// Further differences, for people: parameters, the machine, disks and their settings.
    pub differences: Vec<String>,
    /// Names of variants that only one side has.
    pub unmatched: Vec<String>,
}

/// The figures of both sides of a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Sides {
    /// The measured quantity, and its unit.
    pub metric: Metric,
    /// The median of the first side; with several executions, the median of their medians. `None`
    /// if no run counts.
    pub before: Option<f64>,
    /// The median of the second side, computed in the same way.
    pub after: Option<f64>,
}

impl Comparison {
    /// Fails if the sides have no variant in common; their comparison would only list differences.
    ///
    /// # Errors
    /// [`Kind::Usage`] with the variants that each side has measured.
    pub fn refuse_unrelated(&self, before: &[&Results], after: &[&Results]) -> Result<()> {
        if !self.verdicts.is_empty() {
            return Ok(());
        }
        let (before, after) = (measured(before), measured(after));
        let what = format!(
            "the results A and B have no variant in common: A measured {before}, and B measured \
             {after}"
        );
        Err(Error::new(Kind::Usage, what)
            .advice("compare results of the same case whose variants have the same names"))
    }
}

/// Describes what a side has measured, for example `fileio (seqrd, rndrd and 4 more)`.
fn measured(side: &[&Results]) -> String {
    /// The most names of variants that are listed for a case.
    const MOST: usize = 3;
    let questions = questions(side);
    let mut cases: Vec<&str> = questions.iter().map(|it| it.case).collect();
    cases.dedup();
    let of_case = |case: &str| {
        let own = questions.iter().filter(|it| it.case == case);
        let names: Vec<&str> = own.map(|it| it.variant.name.as_str()).collect();
        let more = match names.len().saturating_sub(MOST) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{case} ({}{more})", names[..names.len().min(MOST)].join(", "))
    };
    cases.into_iter().map(of_case).collect::<Vec<_>>().join("; ")
}

/// Compares two results; the first one is the baseline. A comparison of two results can only be an
/// estimate.
pub fn compare(baseline: &Results, candidate: &Results, history: &[Entry]) -> Comparison {
    compare_executions(&[baseline], &[candidate], history)
}

/// Compares executions; those of the first side are the baseline. Other differences are reported
/// for the first execution of each side.
pub fn compare_executions(
    before: &[&Results],
    after: &[&Results],
    history: &[Entry],
) -> Comparison {
    let (mut verdicts, mut sides) = (Vec::new(), Vec::new());
    let mut unmatched = Vec::new();
    let earlier = EarlierExecutions { history, compared: [before, after].concat() };
    for question in questions(after) {
        let variant = question.variant;
        if !question.is_in(before) {
            unmatched.push(variant.name.clone());
            continue;
        }
        let (these, those) = (question.values(after), question.values(before));
        let spread = earlier.spread(before, variant);
        let better = variant.metric.better;
        sides.push(Sides {
            metric: variant.metric.clone(),
            before: stats::median(&those),
            after: stats::median(&these),
        });
        verdicts.push(Compared {
            group: variant.name.clone(),
            candidate: variant.name.clone(),
            baseline: "before".to_owned(),
            verdict: stats::judge_executions(&these, &those, better, spread),
        });
    }
    let missing = questions(before).into_iter().filter(|it| !it.is_in(after));
    let missing: Vec<String> = missing.map(|it| it.variant.name.clone()).collect();
    unmatched.extend(missing.into_iter().filter(|it| !unmatched.contains(it)).collect::<Vec<_>>());
    stats::correct(&mut verdicts.iter_mut().map(|it| &mut it.verdict).collect::<Vec<_>>());
    let differences = match (before, after) {
        ([before, ..], [after, ..]) => differences(before, after),
        _ => Vec::new(),
    };
    Comparison { verdicts, sides, differences, unmatched }
}

/// A variant of a case. A variant with the same name in a different case is not comparable.
struct VariantKey<'a> {
    case: &'a str,
    variant: &'a Variant,
}

/// The questions of all results of a side, each once.
fn questions<'a>(side: &[&'a Results]) -> Vec<VariantKey<'a>> {
    let mut all: Vec<VariantKey> = Vec::new();
    for results in side {
        for variant in &results.variants {
            let is_it =
                |it: &VariantKey| it.case == results.case && it.variant.name == variant.name;
            if !all.iter().any(is_it) {
                all.push(VariantKey { case: &results.case, variant });
            }
        }
    }
    all
}

impl VariantKey<'_> {
    /// Returns the variant of a result that has this key.
    fn answer<'b>(&self, results: &'b Results) -> Option<&'b Variant> {
        let found = results.variant(&self.variant.name).filter(|_| results.case == self.case);
        found.filter(|it| it.metric == self.variant.metric)
    }

    fn is_in(&self, side: &[&Results]) -> bool {
        side.iter().any(|results| self.answer(results).is_some())
    }

    /// One value of each execution: the median of the runs that count.
    fn values(&self, side: &[&Results]) -> Vec<f64> {
        side.iter().filter_map(|it| Some(self.answer(it)?.summary()?.median)).collect()
    }
}

/// Earlier executions that the history lists.
struct EarlierExecutions<'a> {
    history: &'a [Entry],
    /// The compared executions, which must not be counted again if the history contains them.
    compared: Vec<&'a Results>,
}

impl EarlierExecutions<'_> {
    /// The spread between executions that measured the same in the same place, within a period
    /// without a permanent change.
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
