//! Recommends settings from measurements, as a pure function of the results.
//!
//! In each group whose variants differ in one setting, variants are compared round by round. The
//! baseline is the default of the verb; it is kept if it is shown to be at most [`NEGLIGIBLE`]
//! worse than all other values. If the baseline is shown to be slower, the first other value that
//! is shown to be as good as the rest is recommended (a cheaper value comes first). If there is
//! none, the fastest of the values that are shown to be faster than the baseline is recommended. If
//! the baseline is shown neither to be as good nor to be slower, nothing is decided. Some cases
//! answer one question by several groups or figures; their rules are in [`across`], [`codec`] and
//! [`ring`].
//!
//! Invariants: no recommendation is made from fewer than eight rounds; a decision does not
//! contradict the figures shown with it. This module contains no option names of other programs,
//! and accesses no files.

mod across;
mod codec;
mod ring;

use serde::{Deserialize, Serialize};

use pinstripe_stats as stats;

use crate::questions;
use crate::result::{self, Counting, Note, PAIRS_TO_JUDGE, Results, Standing, Standings, Variant};

/// A variant that is slower by at most this share counts as equally good.
pub const NEGLIGIBLE: f64 = stats::AS_GOOD;

/// The end of the evidence text if the figures show nothing.
const OPEN: &str = "; the results are too close to each other for a decision in this time";

/// A setting with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The question that the setting answers: the name of the group, or the topic of several
    /// groups.
    pub question: String,
    /// The setting, as the name of the option that sets it, without dashes.
    pub setting: String,
    /// The value to set.
    pub value: String,
    /// Whether the value is the baseline: the default of the verb, or the first value if no verb
    /// has a default.
    pub is_usual: bool,
    /// Whether the value is shown to be better than the baseline, or to be as good as all others.
    /// If this is false, `value` is the baseline, and the user need not set anything.
    pub is_decided: bool,
    /// The figures that support the setting, as text for people.
    pub evidence: String,
}

/// The recommended settings, question by question, in the order of the results. If too few rounds
/// count, nothing is recommended.
pub fn advise(results: &Results) -> Vec<Advice> {
    let mut all = of_case(results);
    if results.accepts_noise() {
        let unrest = unrest(Counting::Alike);
        all.iter_mut().for_each(|it| it.evidence += unrest);
    }
    all
}

fn of_case(results: &Results) -> Vec<Advice> {
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
    let counting = Counting::count(&durable);
    let variants: Vec<&Variant> =
        durable.into_iter().filter(|it| has_rounds(it, counting)).collect();
    let setting = common_setting(&variants)?;
    let usual = questions::usual(&results.case, group, &setting);
    let is_usual = |it: &&Variant| usual.is_none_or(|usual| it.parameters[0].value == usual);
    let baseline = variants.iter().position(is_usual)?;
    let standings = result::standings(&variants, counting, NEGLIGIBLE)?;
    let found = choose(&variants, &standings, baseline, counting);
    let found = found.filter(|(at, _)| !is_contradicted(&variants, *at, counting));
    let (at, rest) = found.unwrap_or((baseline, OPEN));
    let evidence = evidence(variants[at], &variants, counting);
    Some(Advice {
        question: group.to_owned(),
        setting,
        value: variants[at].parameters[0].value.clone(),
        is_usual: at == baseline,
        is_decided: found.is_some(),
        evidence: evidence + rest + unrest(counting),
    })
}

/// The variant that is shown to be the best choice, with remarks; `None` if nothing is shown.
fn choose(
    variants: &[&Variant],
    standings: &Standings,
    baseline: usize,
    counting: Counting,
) -> Option<(usize, &'static str)> {
    let is = |standing: Standing| move |at: &usize| standings.each[*at] == standing;
    match standings.each[baseline] {
        Standing::AsGood => return Some((baseline, "")),
        Standing::Open => return None,
        Standing::Slower => {}
    }
    if let Some(good) = (0..variants.len()).find(is(Standing::AsGood)) {
        return Some((good, ""));
    }
    let is_faster = |at: &usize| {
        let bounds = counting.raced(variants[*at], variants[baseline]);
        bounds.is_some_and(|it| it.low > 1.0)
    };
    let speed = |at: &usize| counting.paired(variants[*at], variants[baseline]).map(|it| it.speed);
    let open = (0..variants.len()).filter(is(Standing::Open)).filter(is_faster);
    let best = open.filter_map(|at| Some((at, speed(&at)?))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((best.0, "; the best value could not be distinguished from the next best values"))
}

/// Whether the figures contradict the choice of a variant: another one is faster by more than a
/// negligible amount.
fn is_contradicted(variants: &[&Variant], at: usize, counting: Counting) -> bool {
    let is_ahead = |it: &&Variant| {
        let found = counting.paired(it, variants[at]);
        it.name != variants[at].name && found.is_none_or(|it| it.speed > 1.0 + NEGLIGIBLE)
    };
    variants.iter().any(is_ahead)
}

/// Whether a variant's figures can be believed: enough rounds count, and written bytes were waited
/// for until they were durable.
fn is_settled(variant: &Variant, counting: Counting) -> bool {
    is_durable(variant) && has_rounds(variant, counting)
}

fn has_rounds(variant: &Variant, counting: Counting) -> bool {
    counting.pairs(variant, variant).len() >= PAIRS_TO_JUDGE
}

/// Returns the end of the evidence text; it is not empty if disturbed runs count.
fn unrest(counting: Counting) -> &'static str {
    match counting {
        Counting::Quiet => "",
        Counting::Alike => "; other programs used the machine during the measurement",
    }
}

fn is_durable(variant: &Variant) -> bool {
    let is_believed =
        |note: &Note| !matches!(note, Note::AcceptedNotDurable | Note::NotDirect | Note::Memory);
    variant.notes().iter().all(is_believed)
}

/// The one setting in which all of the variants differ; there must be two or more variants.
fn common_setting(variants: &[&Variant]) -> Option<String> {
    let name = |variant: &&Variant| match &variant.parameters[..] {
        [only] => Some(only.name.clone()),
        _ => None,
    };
    let first = variants.first().and_then(name)?;
    let is_alike = variants.iter().all(|variant| name(variant).as_ref() == Some(&first));
    (is_alike && variants.len() > 1).then_some(first)
}

/// Whether `one` is shown to be at most a negligible amount slower than `other`.
fn keeps_up(one: &Variant, other: &Variant, counting: Counting) -> bool {
    counting.raced(one, other).is_some_and(|it| it.low > 1.0 - NEGLIGIBLE)
}

/// Whether `one` is shown to be slower than `other` by more than a negligible amount.
fn is_slower(one: &Variant, other: &Variant, counting: Counting) -> bool {
    counting.raced(one, other).is_some_and(|it| it.high < 1.0 - NEGLIGIBLE)
}

/// Returns the evidence, for example `1850 MB/s [1802, 1871], the median of 12 runs; speed of the
/// other values relative to this one, compared in the same rounds: buffered 0.77, dsync 0.17`.
fn evidence(chosen: &Variant, variants: &[&Variant], counting: Counting) -> String {
    let unit = &chosen.metric.unit;
    let values = counting.values(chosen);
    let interval = stats::median_interval(&values);
    let interval =
        interval.map_or(String::new(), |it| format!(" [{}, {}]", figure(it.low), figure(it.high)));
    let others = variants.iter().filter(|it| it.name != chosen.name);
    let speeds = others.filter_map(|it| {
        let speed = counting.paired(it, chosen)?.speed;
        Some(format!("{} {speed:.2}", it.parameters[0].value))
    });
    let speeds: Vec<String> = speeds.collect();
    let middle = figure(median(chosen, counting));
    format!(
        "{middle} {unit}{interval}, the median of {} runs; speed of the other values relative to \
         this one, compared in the same rounds: {}",
        values.len(),
        speeds.join(", ")
    )
}

/// Formats a figure with its significant digits.
fn figure(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// The median of the runs that count; 0 if no run counts.
fn median(variant: &Variant, counting: Counting) -> f64 {
    stats::median(&counting.values(variant)).unwrap_or(0.0)
}

/// The values that the runs that count have for an additional figure.
fn figures_of<'a>(
    variant: &'a Variant,
    name: &'a str,
    counting: Counting,
) -> impl Iterator<Item = f64> + 'a {
    counting.runs(variant).filter_map(move |it| it.measured.figures.get(name).copied())
}

/// The median.
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

    /// Twelve runs about each level, durable; by name of the variant, which is `VALUE` or `VALUE,
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

    /// Sixteen runs about each of these levels, as durable ones of a group that differs in depth.
    fn group(values: &[(&str, f64)]) -> Results {
        let runs = |level: f64| (0..16).map(|n| level * (1.0 + 0.002 * f64::from(n))).collect();
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

    /// The question of `quick` whose answer is `split --depth`, which is 4 by itself.
    fn depths(values: &[(&str, f64)]) -> Results {
        let mut made = group(values);
        made.case = "quick".to_owned();
        made.variants
            .iter_mut()
            .for_each(|it| it.group = "write 1 MiB blocks sequentially, direct".to_owned());
        made
    }

    /// As on a machine that is never quiet.
    pub fn disturb(results: &mut Results) {
        for run in results.variants.iter_mut().flat_map(|it| &mut it.runs) {
            let (kind, what) = ("steal".to_owned(), "the hypervisor took 3 %".to_owned());
            run.disturbances.push(Disturbance { kind, what });
        }
    }

    /// Every second run of the first variant is that much slower, every other as much faster.
    fn swing(results: &mut Results, by: f64) {
        for (at, run) in results.variants[0].runs.iter_mut().enumerate() {
            run.measured.value *= if at % 2 == 0 { 1.0 - by } else { 1.0 + by };
        }
    }

    fn advised(results: &Results) -> (String, bool, bool) {
        let [advice] = &advise(results)[..] else { panic!("one group, one advice") };
        assert_eq!(advice.setting, "depth");
        (advice.value.clone(), advice.is_usual, advice.is_decided)
    }

    fn said(value: &str, is_usual: bool, is_decided: bool) -> (String, bool, bool) {
        (value.to_owned(), is_usual, is_decided)
    }

    #[test]
    fn what_the_verb_does_by_itself_stays_where_it_is_as_good_as_anything() {
        let found = advised(&depths(&[("1", 99.0), ("2", 80.0), ("4", 100.0), ("8", 101.0)]));
        assert_eq!(found, said("4", true, true));
        let found = advised(&depths(&[("1", 99.0), ("4", 100.0)]));
        assert_eq!(found, said("4", true, true), "a cheaper value is no reason to change");
    }

    #[test]
    fn something_else_is_advised_only_where_it_is_shown_to_be_better() {
        let found = advised(&depths(&[("1", 60.0), ("4", 80.0), ("8", 100.0), ("16", 101.0)]));
        assert_eq!(found, said("8", false, true), "the cheapest of those that are as good");
        let mut open = depths(&[("8", 100.0), ("1", 60.0), ("4", 50.0), ("16", 101.0)]);
        swing(&mut open, 0.1);
        let found = &advise(&open)[0];
        assert!(found.value != "4" && found.is_decided && !found.is_usual, "{found:?}");
        assert!(found.evidence.contains("could not be distinguished"), "{found:?}");
    }

    #[test]
    fn without_a_verb_the_first_value_is_what_others_are_held_against() {
        let found = advised(&group(&[("1", 50.0), ("4", 100.0), ("16", 101.0)]));
        assert_eq!(found, said("4", false, true));
        assert_eq!(advised(&group(&[("1", 99.0), ("4", 100.0)])), said("1", true, true));
    }

    #[test]
    fn fewer_than_eight_rounds_give_no_advice() {
        // A disk that swings by half: depth 1 is slower by 15 % in each of seven rounds.
        let moods = [100.0, 55.0, 90.0, 60.0, 110.0, 50.0, 80.0, 95.0, 52.0, 105.0, 70.0, 88.0];
        let all = |factor: f64| moods.map(|mood| mood * factor);
        let (slow, fast) = (all(0.85), all(1.0));
        let named = [("1", &slow[..]), ("2", &fast[..]), ("4", &fast[..]), ("8", &fast[..])];
        let mut made = results(&named);
        made.case = "quick".to_owned();
        for variant in &mut made.variants {
            variant.group = "write 1 MiB blocks sequentially, direct".to_owned();
            variant.parameters = vec![Parameter::new("depth", &variant.name)];
            variant.runs.iter_mut().for_each(|it| it.notes.clear());
        }
        let mut seven = made.clone();
        seven.variants.iter_mut().for_each(|it| it.runs.truncate(7));
        assert!(advise(&seven).is_empty());
        // Of more rounds what the verb does by itself stays.
        assert_eq!(advised(&made), said("4", true, true));
        assert_eq!(crate::knobs::knobs(&advise(&made))[0].value, "4");
    }

    #[test]
    fn what_is_not_shown_is_not_decided_and_no_knob() {
        let mut made = depths(&[("8", 103.0), ("4", 100.0)]);
        swing(&mut made, 0.15);
        let advice = advise(&made);
        assert_eq!(advised(&made), said("4", true, false));
        assert!(
            advice[0].evidence.ends_with("too close to each other for a decision in this time"),
            "{advice:?}"
        );
        assert!(crate::knobs::knobs(&advice).is_empty());
    }

    #[test]
    fn advice_never_contradicts_the_figures_beside_it() {
        for level in [60.0, 80.0, 90.0, 95.0, 98.0, 100.0, 103.0, 110.0, 150.0] {
            for by in [0.0, 0.02, 0.05, 0.2, 0.5] {
                let mut made = depths(&[("1", level), ("2", 97.0), ("4", 100.0), ("8", 104.0)]);
                swing(&mut made, by);
                let advice = &advise(&made)[0];
                let chosen = made.variants.iter().find(|it| it.name == advice.value).unwrap();
                let speed = |it: &Variant| Counting::Quiet.paired(it, chosen).unwrap().speed;
                let ahead = made.variants.iter().map(speed).fold(0.0, f64::max);
                assert!(!advice.is_decided || ahead <= 1.031, "{level}, {by}: {advice:?}");
                assert!(advice.is_decided || advice.is_usual, "{level}, {by}: {advice:?}");
            }
        }
    }

    #[test]
    fn the_evidence_has_all_figures() {
        let advice = &advise(&group(&[("1", 50.0), ("4", 100.0)]))[0];
        let others = "the median of 16 runs; speed of the other values relative to this one, \
                      compared in the same rounds: 1 0.50";
        assert!(advice.evidence.contains(others), "{}", advice.evidence);
        assert!(advice.evidence.contains("MB/s ["), "{}", advice.evidence);
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_advised_with_that_word() {
        let mut made = group(&[("1", 50.0), ("4", 100.0)]);
        disturb(&mut made);
        let advice = &advise(&made)[0];
        assert_eq!(advice.value, "4");
        assert!(
            advice.evidence.ends_with("; other programs used the machine during the measurement"),
            "{}",
            advice.evidence
        );
        // The user accepts it: the same, and still with that word.
        let mut accepted = made.clone();
        accepted.accept_noise();
        assert_eq!(advise(&accepted)[0].value, "4");
        assert!(
            advise(&accepted)[0]
                .evidence
                .ends_with("; other programs used the machine during the measurement")
        );
        // By different things, rounds cannot be compared: nothing can be said.
        for run in &mut made.variants[0].runs {
            run.disturbances[0].kind = "memory".to_owned();
        }
        assert!(advise(&made).is_empty());
    }

    #[test]
    fn what_was_not_durable_or_not_measured_says_nothing() {
        let mut made = group(&[("1", 50.0), ("4", 100.0)]);
        made.variants[1].runs.iter_mut().for_each(|it| it.notes.push(Note::AcceptedNotDurable));
        assert!(advise(&made).is_empty(), "one variant alone is no choice");
        let mut made = group(&[("1", 50.0), ("4", 100.0)]);
        made.variants[0].runs.truncate(7);
        assert!(advise(&made).is_empty());
        // Nothing is held against a default that was not measured.
        let later = |run: &Run| Run { round: run.round.map(|it| it + 16), ..run.clone() };
        let mut made = depths(&[("1", 50.0), ("8", 100.0)]);
        for variant in &mut made.variants {
            variant.runs.extend(variant.runs.iter().map(later).collect::<Vec<_>>());
        }
        assert!(advise(&made).is_empty());
    }
}
