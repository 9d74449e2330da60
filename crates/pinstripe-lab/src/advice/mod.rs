//! Recommended settings, from measurements: a pure function of results.
//!
//! In each group whose variants differ in one setting, the advice is the first value in the group's
//! order among those that are not shown to be slower than the best by more than [`NEGLIGIBLE`]: a
//! cheaper value comes first there. Variants are compared round by round, and with few rounds lot
//! against lot. A value that seems slower by more than [`DOUBTFUL`] is passed over even where noise
//! hides it. Some cases answer one question by several groups or figures; their rules stand beside:
//! [`across`], [`codec`], [`ring`].
//!
//! Never here: names of options of other programs, and files.

mod across;
mod codec;
mod ring;

use serde::{Deserialize, Serialize};

use crate::result::{self, Counting, Note, Results, Standing, Standings, Variant};
use crate::stats::{self, Finding, judge};

/// A share by which something may be slower without being passed over.
pub const NEGLIGIBLE: f64 = 0.03;

/// A share by which a median may be lower without being passed over where chance could have made
/// that: of noisy runs chance could have made anything.
const DOUBTFUL: f64 = 0.20;

/// Runs that must count: of fewer, nothing could be told from chance.
const RUNS_MIN: usize = 4;

pub use across::QUESTION as ALL_LOADS;
pub use codec::QUESTION as CODEC;
pub use ring::QUESTION as RECORD;

/// A setting with what speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The question: the group, or what several groups are about.
    pub question: String,
    /// The setting, as the option that sets it without dashes.
    pub setting: String,
    /// The value to set.
    pub value: String,
    /// Whether that is the variant by which the group was judged.
    pub is_first: bool,
    /// Whether that is shown. If not, others may be as good or better, and it is what costs less.
    pub is_decided: bool,
    /// The figures, for people.
    pub evidence: String,
}

/// The recommended settings, question by question, in the order of the results. Where too few runs
/// count, nothing is recommended.
pub fn advise(results: &Results) -> Vec<Advice> {
    match results.case.as_str() {
        "stripe" => across::advise(results).into_iter().collect(),
        "split" => codec::advise(results).into_iter().collect(),
        "record-probe" => ring::advise(results),
        _ => {
            let groups = results.groups();
            groups.into_iter().filter_map(|group| of_group(results, group)).collect()
        }
    }
}

fn of_group(results: &Results, group: &str) -> Option<Advice> {
    let of_group = results.variants.iter().filter(|it| it.group == group && is_durable(it));
    let durable: Vec<&Variant> = of_group.collect();
    let counting = Counting::of(&durable);
    let variants: Vec<&Variant> =
        durable.into_iter().filter(|it| is_settled(it, counting)).collect();
    let setting = common_setting(&variants)?;
    let standings = result::standings(&variants, counting, NEGLIGIBLE);
    let is_good = match &standings {
        Some(standings) => good_by_rounds(&variants, standings, counting),
        None => good_by_lots(&variants, counting, results.seed)?,
    };
    let at = is_good.iter().position(|it| *it)?;
    let chosen = variants[at];
    let is_close = standings.is_some_and(|it| it.each[at] == Standing::Open);
    let mut evidence = evidence(chosen, &variants, counting, results.seed);
    if is_close {
        evidence += "; too close to decide in that time";
    }
    evidence += unrest(counting);
    Some(Advice {
        question: group.to_owned(),
        setting,
        value: chosen.parameters[0].value.clone(),
        is_first: chosen.name == variants[0].name,
        is_decided: !is_close,
        evidence,
    })
}

/// Which variants are not passed over, by the rounds that they were run in together.
fn good_by_rounds(variants: &[&Variant], standings: &Standings, counting: Counting) -> Vec<bool> {
    let best = variants[standings.best];
    let looks_good = |variant: &Variant| {
        let found = counting.paired(variant, best);
        variant.name == best.name || found.is_some_and(|it| it.speed >= 1.0 - DOUBTFUL)
    };
    let is_good = |(variant, standing): (&&Variant, &Standing)| match standing {
        Standing::AsGood => true,
        Standing::Slower => false,
        Standing::Open => looks_good(variant),
    };
    variants.iter().zip(&standings.each).map(is_good).collect()
}

/// The same of few runs: lot against lot.
fn good_by_lots(variants: &[&Variant], counting: Counting, seed: u64) -> Option<Vec<bool>> {
    let best = variants[result::best(variants, counting)?];
    Some(variants.iter().map(|it| !is_slower(it, best, counting, seed)).collect())
}

/// Whether it can be believed: enough runs count, and what was written was waited for.
fn is_settled(variant: &Variant, counting: Counting) -> bool {
    is_durable(variant) && counting.runs(variant).count() >= RUNS_MIN
}

/// The end of what speaks for it, where runs count that others disturbed.
fn unrest(counting: Counting) -> &'static str {
    match counting {
        Counting::Quiet => "",
        Counting::All => "; the machine was not quiet",
    }
}

fn is_durable(variant: &Variant) -> bool {
    let is_believed = |note: &Note| !matches!(note, Note::AcceptedNotDurable | Note::NotDirect);
    variant.notes().iter().all(is_believed)
}

/// The one setting in which all of two variants or more differ.
fn common_setting(variants: &[&Variant]) -> Option<String> {
    let name = |variant: &&Variant| match &variant.parameters[..] {
        [only] => Some(only.name.clone()),
        _ => None,
    };
    let first = variants.first().and_then(name)?;
    let is_alike = variants.iter().all(|variant| name(variant).as_ref() == Some(&first));
    (is_alike && variants.len() > 1).then_some(first)
}

/// Whether a variant is shown to be slower than the best by more than can be neglected, the whole
/// interval of it, or looks so much slower that it had better not be chance. Of the median alone
/// nothing is asked: settings that are a little apart would be advised by turns.
fn is_slower(variant: &Variant, best: &Variant, counting: Counting, seed: u64) -> bool {
    if variant.name == best.name {
        return false;
    }
    let (values, of_best) = (counting.values(variant), counting.values(best));
    let verdict = judge(&values, &of_best, best.metric.better, seed);
    let is_seen = verdict.finding != Finding::NoDifference;
    let is_shown = verdict.interval.is_none_or(|it| it.high < 1.0 - NEGLIGIBLE);
    is_seen && is_shown || verdict.speed.is_none_or(|speed| speed < 1.0 - DOUBTFUL)
}

/// `1850 MB/s [1802, 1871] of 7 runs; in the same rounds buffered 0.77, dsync 0.17 times as fast`;
/// of few rounds `1850 MB/s [1802, 1871] of 4 runs; buffered: 1420, dsync: 310`.
fn evidence(chosen: &Variant, variants: &[&Variant], counting: Counting, seed: u64) -> String {
    let unit = &chosen.metric.unit;
    let values = counting.values(chosen);
    let interval = stats::median_interval(&values, seed);
    let interval =
        interval.map_or(String::new(), |it| format!(" [{}, {}]", figure(it.low), figure(it.high)));
    let middle = median(chosen, counting);
    let others: Vec<&&Variant> = variants.iter().filter(|it| it.name != chosen.name).collect();
    let value = |it: &Variant| it.parameters[0].value.clone();
    let speed = |it: &&&Variant| Some((value(it), counting.paired(it, chosen)?.speed));
    let speeds: Option<Vec<(String, f64)>> = others.iter().map(speed).collect();
    let others = match speeds {
        Some(speeds) => {
            let all: Vec<String> =
                speeds.iter().map(|(value, speed)| format!("{value} {speed:.2}")).collect();
            format!("in the same rounds {} times as fast", all.join(", "))
        }
        None => {
            let others = others.iter().map(|it| {
                let median = median(it, counting);
                format!("{}: {}", value(it), figure(median))
            });
            others.collect::<Vec<_>>().join(", ")
        }
    };
    format!("{} {unit}{interval} of {} runs; {others}", figure(middle), values.len())
}

/// A figure in as many digits as can be told apart.
fn figure(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// The median of the runs that count; 0 of none.
fn median(variant: &Variant, counting: Counting) -> f64 {
    stats::median(&counting.values(variant)).unwrap_or(0.0)
}

/// The values of a further figure of the runs that count.
fn figures_of<'a>(
    variant: &'a Variant,
    name: &'a str,
    counting: Counting,
) -> impl Iterator<Item = f64> + 'a {
    counting.runs(variant).filter_map(move |it| it.measured.figures.get(name).copied())
}

/// Their median.
fn figure_of(variant: &Variant, name: &str, counting: Counting) -> Option<f64> {
    stats::median(&figures_of(variant, name, counting).collect::<Vec<_>>())
}

/// The value of a parameter of a variant.
fn parameter<'a>(variant: &'a Variant, name: &str) -> Option<&'a str> {
    let found = variant.parameters.iter().find(|it| it.name == name);
    found.map(|it| it.value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Disturbance;
    use crate::result::tests::results;
    use crate::result::{Parameter, Run};
    use crate::stats::Better;

    /// Six runs about each level, durable; by name of the variant, which is `VALUE` or `VALUE,
    /// VALUE` of parameters of these names.
    pub fn made(case: &str, names: &[&str], values: &[(&str, f64)]) -> Results {
        let mut made = group(values);
        made.case = case.to_owned();
        for variant in &mut made.variants {
            let values = variant.name.split(", ");
            let pairs = names.iter().zip(values);
            variant.parameters = pairs.map(|(name, value)| Parameter::new(name, value)).collect();
        }
        made
    }

    /// Six runs about each of these levels, as durable ones of a group that differs in depth.
    fn group(values: &[(&str, f64)]) -> Results {
        let runs = |level: f64| (0..6).map(|n| level * (1.0 + 0.002 * f64::from(n))).collect();
        let runs: Vec<(&str, Vec<f64>)> =
            values.iter().map(|(value, level)| (*value, runs(*level))).collect();
        let borrowed: Vec<(&str, &[f64])> =
            runs.iter().map(|(value, runs)| (*value, &runs[..])).collect();
        let mut made = results(&borrowed);
        for variant in &mut made.variants {
            variant.parameters = vec![Parameter::new("depth", &variant.name)];
            variant.runs.iter_mut().for_each(|it| it.notes.clear());
        }
        made
    }

    /// As on a machine that is never quiet.
    pub fn disturb(results: &mut Results) {
        for run in results.variants.iter_mut().flat_map(|it| &mut it.runs) {
            let (kind, what) = ("steal".to_owned(), "the hypervisor took 3 %".to_owned());
            run.disturbances.push(Disturbance { kind, what });
        }
    }

    fn advised(values: &[(&str, f64)]) -> (String, bool) {
        let [advice] = &advise(&group(values))[..] else { panic!("one group, one advice") };
        assert_eq!((&*advice.question, &*advice.setting), ("all", "depth"));
        (advice.value.clone(), advice.is_first)
    }

    #[test]
    fn the_first_of_those_that_are_as_good_as_the_best_is_advised() {
        assert_eq!(advised(&[("1", 50.0), ("4", 100.0), ("16", 101.0)]), ("4".to_owned(), false));
        assert_eq!(advised(&[("1", 99.0), ("4", 100.0)]), ("1".to_owned(), true));
        assert_eq!(advised(&[("1", 120.0), ("4", 100.0), ("16", 90.0)]), ("1".to_owned(), true));
    }

    #[test]
    fn what_looks_much_slower_is_passed_over_even_where_noise_hides_it() {
        let noisy = |share: f64| {
            let mut made = group(&[("1", 100.0), ("4", 100.0)]);
            let spread = [40.0, 60.0, share, share, 140.0, 160.0];
            made.variants[0]
                .runs
                .iter_mut()
                .zip(spread)
                .for_each(|(run, it)| run.measured.value = it);
            let verdict =
                judge(&made.variants[0].values(), &made.variants[1].values(), Better::Higher, 1);
            assert_eq!(verdict.finding, Finding::NoDifference, "{verdict:?}");
            advise(&made)[0].value.clone()
        };
        assert_eq!((noisy(95.0), noisy(75.0)), ("1".to_owned(), "4".to_owned()));
    }

    #[test]
    fn the_evidence_has_all_figures() {
        let advice = &advise(&group(&[("1", 50.0), ("4", 100.0)]))[0];
        let others = "of 6 runs; in the same rounds 1 0.50 times as fast";
        assert!(advice.evidence.contains(others), "{}", advice.evidence);
        assert!(advice.evidence.contains("MB/s ["), "{}", advice.evidence);
    }

    #[test]
    fn of_four_runs_medians_are_told() {
        let mut made = group(&[("1", 50.0), ("4", 100.0)]);
        made.variants.iter_mut().for_each(|it| it.runs.truncate(4));
        let advice = &advise(&made)[0];
        assert_eq!(advice.value, "4");
        assert!(advice.evidence.contains("of 4 runs; 1: 50"), "{}", advice.evidence);
    }

    #[test]
    fn what_is_too_close_to_tell_is_told() {
        let swings = |level: f64| (0..12).map(move |n| level * (1.0 + 0.1 * f64::from(n % 2)));
        let mut made = group(&[("1", 100.0), ("4", 100.0)]);
        for variant in &mut made.variants {
            let later = |run: &Run| Run { round: run.round.map(|it| it + 6), ..run.clone() };
            variant.runs.extend(variant.runs.iter().map(later).collect::<Vec<_>>());
        }
        let values = swings(100.0).chain(swings(102.0).map(|it| 210.0 - it));
        let runs = made.variants.iter_mut().flat_map(|it| &mut it.runs);
        runs.zip(values).for_each(|(run, value)| run.measured.value = value);
        let advice = &advise(&made)[0];
        assert_eq!(advice.value, "1");
        assert!(advice.evidence.ends_with("too close to decide in that time"), "{advice:?}");
        assert!(!advice.is_decided && advise(&group(&[("1", 50.0), ("4", 100.0)]))[0].is_decided);
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_advised_with_that_word() {
        let mut made = group(&[("1", 50.0), ("4", 100.0)]);
        disturb(&mut made);
        let advice = &advise(&made)[0];
        assert_eq!(advice.value, "4");
        assert!(advice.evidence.ends_with("; the machine was not quiet"), "{}", advice.evidence);
    }

    #[test]
    fn what_was_not_durable_or_not_measured_says_nothing() {
        let mut made = group(&[("1", 50.0), ("4", 100.0)]);
        made.variants[1].runs.iter_mut().for_each(|it| it.notes.push(Note::AcceptedNotDurable));
        assert!(advise(&made).is_empty(), "one variant alone is no choice");
        let mut made = group(&[("1", 50.0), ("4", 100.0)]);
        made.variants[0].runs.truncate(3);
        assert!(advise(&made).is_empty());
    }
}
