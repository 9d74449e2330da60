//! Recommends one setting for several loads at once, for the case `stripe`.
//!
//! For each load, a value's share is 1 unless the value is shown to be slower than the best value;
//! otherwise the share is its speed relative to the best value. A value's score is the geometric
//! mean of its shares. The baseline, which applies without any setting, is kept if its score is at
//! most [`NEGLIGIBLE`] below the best score. Otherwise the choice is among the other values within
//! this margin: the one whose members move the fewest bytes. The baseline counts as decided if it
//! is shown to be as fast as every other value in every load. Another value counts as decided if
//! the baseline is shown to be slower than it in one load, and it is as fast as the baseline in all
//! loads.

use super::{
    Advice, NEGLIGIBLE, OPEN, figure_of, is_settled, is_slower, keeps_up, parameter, unrest,
};
use crate::questions::{self, ALL_LOADS};
use crate::result::{self, Counting, Results, Variant};

/// The bytes that members read and write for each byte that the user reads or writes.
const MOVED: [&str; 3] = ["members_read_of_each", "members_written_of_each", "log_written_of_each"];

struct Score<'a> {
    value: &'a str,
    /// The score: the geometric mean of the value's shares over all loads.
    share: f64,
    /// Bytes that all members move for each byte of the user, as the mean over all loads.
    moved: f64,
}

/// The recommended setting; `None` if a variant has too few valid rounds.
pub(super) fn advise(results: &Results) -> Option<Advice> {
    let setting = setting(results)?;
    let counting = Counting::count(&results.variants.iter().collect::<Vec<_>>());
    let mut values: Vec<&str> = Vec::new();
    for variant in &results.variants {
        let value = parameter(variant, setting)?;
        if !is_settled(variant, counting) {
            return None;
        }
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let scores = values.iter().map(|value| score(results, setting, value, counting));
    let scores: Vec<Score<'_>> = scores.collect::<Option<_>>()?;
    let best = scores.iter().map(|it| it.share).fold(0.0, f64::max);
    let is_good = |it: &&Score<'_>| it.share >= best * (1.0 - NEGLIGIBLE);
    let usual = questions::usual(&results.case, ALL_LOADS, setting);
    let is_usual = |it: &&Score<'_>| usual.is_none_or(|usual| it.value == usual);
    let baseline = scores.iter().find(is_usual).filter(|_| scores.len() > 1)?;
    let better = scores.iter().filter(is_good).min_by(|a, b| a.moved.total_cmp(&b.moved));
    let better = better.filter(|_| !is_good(&baseline));
    let of = |value: &str| of_value(results, setting, value);
    let is_decided = match better {
        Some(better) => is_shown(&of(better.value), &of(baseline.value), counting),
        None => scores.iter().all(|it| {
            let pairs = of(baseline.value).into_iter().zip(of(it.value));
            it.value == baseline.value
                || pairs.into_iter().all(|(own, other)| keeps_up(own, other, counting))
        }),
    };
    let chosen = better.filter(|_| is_decided).unwrap_or(baseline);
    let rest = if is_decided { "" } else { OPEN };
    Some(Advice {
        question: ALL_LOADS.to_owned(),
        setting: setting.to_owned(),
        value: chosen.value.to_owned(),
        is_usual: chosen.value == baseline.value,
        is_decided,
        evidence: evidence(results, chosen, &scores, counting) + rest + unrest(counting),
    })
}

/// The variants that have a value, load by load.
fn of_value<'a>(results: &'a Results, setting: &str, value: &str) -> Vec<&'a Variant> {
    let is_it = |it: &&Variant| parameter(it, setting) == Some(value);
    results.variants.iter().filter(is_it).collect()
}

/// Whether one value is shown to be better than another: faster in one load, and not slower in any.
fn is_shown(of: &[&Variant], to: &[&Variant], counting: Counting) -> bool {
    let pairs = || of.iter().zip(to);
    pairs().any(|(of, to)| is_slower(to, of, counting))
        && pairs().all(|(of, to)| keeps_up(of, to, counting))
}

/// Returns the only parameter that variants have in addition to the load.
fn setting(results: &Results) -> Option<&str> {
    match &results.variants.first()?.parameters[..] {
        [load, setting] if load.name == "load" => Some(&setting.name),
        _ => None,
    }
}

fn score<'a>(
    results: &Results,
    setting: &str,
    value: &'a str,
    counting: Counting,
) -> Option<Score<'a>> {
    let (mut shares, mut moved) = (Vec::new(), Vec::new());
    for group in results.groups() {
        let variants: Vec<&Variant> =
            results.variants.iter().filter(|it| it.group == group).collect();
        let best = variants[result::best(&variants, counting)?];
        let of_value = variants.iter().find(|it| parameter(it, setting) == Some(value))?;
        shares.push(share(of_value, best, counting));
        let of_each = MOVED.iter().filter_map(|name| figure_of(of_value, name, counting));
        moved.push(of_each.sum::<f64>());
    }
    let loads = shares.len() as f64;
    let logs: f64 = shares.iter().map(|it: &f64| it.max(1e-9).ln()).sum();
    Some(Score { value, share: (logs / loads).exp(), moved: moved.iter().sum::<f64>() / loads })
}

fn share(variant: &Variant, best: &Variant, counting: Counting) -> f64 {
    let speed = || counting.paired(variant, best).map(|it| it.speed);
    match is_slower(variant, best, counting) {
        true => speed().unwrap_or(1.0),
        false => 1.0,
    }
}

fn evidence(
    results: &Results,
    chosen: &Score<'_>,
    scores: &[Score<'_>],
    counting: Counting,
) -> String {
    let runs = results.variants.iter().map(|it| counting.runs(it).count()).min().unwrap_or(0);
    let loads = results.groups().join(", ");
    let others = scores.iter().filter(|it| it.value != chosen.value);
    let others: String = others
        .map(|it| format!("; {} reaches {:.2} and transfers {:.2}", it.value, it.share, it.moved))
        .collect();
    let notes: String = results.notes.iter().map(|note| format!("; {note}")).collect();
    format!(
        "reaches {:.2} of the best rate, and members transfer {:.2} bytes for each requested \
         byte{others}; these are means over {loads}, with at least {runs} runs each{notes}",
        chosen.share, chosen.moved,
    )
}

#[cfg(test)]
mod tests {
    use super::super::advise;
    use super::super::tests::{disturb, made};
    use super::*;

    /// Values of two loads, with bytes moved.
    fn results(values: &[(&str, f64)], moved: &[f64]) -> Results {
        let mut made = made("stripe", &["load", "granule"], values);
        for (variant, moved) in made.variants.iter_mut().zip(moved) {
            variant.group = variant.parameters[0].value.clone();
            for run in &mut variant.runs {
                run.measured.figures.insert(MOVED[1].to_owned(), *moved);
            }
        }
        made
    }

    fn advised(values: &[(&str, f64)], moved: &[f64]) -> (String, bool) {
        let [advice] = &advise(&results(values, moved))[..] else { panic!("one question") };
        assert_eq!((&*advice.question, &*advice.setting), (ALL_LOADS, "granule"));
        assert_eq!(advice.is_usual, advice.value == "auto");
        (advice.value.clone(), advice.is_decided)
    }

    fn is(value: &str) -> (String, bool) {
        (value.to_owned(), true)
    }

    #[test]
    fn what_is_there_stays_where_it_is_as_good() {
        let values = [("w, auto", 99.0), ("w, 4K", 100.0), ("r, auto", 50.0), ("r, 4K", 49.0)];
        assert_eq!(advised(&values, &[9.0, 1.0, 9.0, 1.0]), is("auto"));
    }

    #[test]
    fn what_is_best_over_all_loads_is_taken_and_of_as_good_ones_the_one_that_moves_less() {
        let loads = |a: f64, b: f64, c: f64| {
            [
                ("w, auto", a),
                ("w, 4K", b),
                ("w, 64K", c),
                ("r, auto", 50.0),
                ("r, 4K", 50.0),
                ("r, 64K", 50.0),
            ]
        };
        let moved = [1.0, 4.0, 3.0, 1.0, 1.0, 1.0];
        assert_eq!(advised(&loads(50.0, 100.0, 70.0), &moved), is("4K"));
        assert_eq!(advised(&loads(50.0, 100.0, 99.0), &moved), is("64K"));
        // Much worse in one load is not made good by a little in another: it stays, and is not
        // shown to be the best.
        let values = [("w, auto", 100.0), ("w, 4K", 110.0), ("r, auto", 100.0), ("r, 4K", 50.0)];
        assert_eq!(advised(&values, &[1.0; 4]), ("auto".to_owned(), false));
    }

    #[test]
    fn one_variant_with_too_few_rounds_leaves_it_open() {
        let values = [("w, auto", 99.0), ("w, 4K", 100.0), ("r, auto", 50.0), ("r, 4K", 49.0)];
        let mut results = results(&values, &[1.0; 4]);
        let advice = &advise(&results)[0];
        let wanted = "reaches 1.00 of the best rate, and members transfer 1.00 bytes for each \
                      requested byte; 4K reaches 1.00 and transfers 1.00; these are means over \
                      w, r, with at least 16 runs each";
        assert_eq!(advice.evidence, wanted);
        let mut disturbed = results.clone();
        disturb(&mut disturbed);
        assert_eq!(
            advise(&disturbed)[0].evidence,
            format!("{wanted}; other programs used the machine during the measurement")
        );
        results.variants[2].runs.truncate(7);
        assert!(advise(&results).is_empty());
    }
}
