//! The codec of a split: the case `split`.
//!
//! Room is saved only where that costs no time: of the codecs that nothing shows to be slower than
//! raw by more than [`NEGLIGIBLE`] - raw is one of them - that one is advised which writes least;
//! of those that write as little but for [`NEGLIGIBLE`], the fastest.

use super::{
    Advice, NEGLIGIBLE, figure, figure_of, is_settled, is_slower, median, parameter, unrest,
};
use crate::result::{Counting, Results, Variant};

/// The question.
pub const QUESTION: &str = "split by codec";
/// By what others are judged.
const RAW: &str = "raw";
/// Bytes written for each byte of the source.
const WRITTEN: &str = "written_of_each";

/// The recommended setting, by the first group that compares codecs with raw.
pub(super) fn advise(results: &Results) -> Option<Advice> {
    results.groups().into_iter().find_map(|group| of_group(results, group))
}

fn of_group(results: &Results, group: &str) -> Option<Advice> {
    let all: Vec<&Variant> = results.variants.iter().filter(|it| it.group == group).collect();
    let counting = Counting::of(&all);
    let rate = |variant: &Variant| median(variant, counting);
    let known: Vec<(&Variant, f64)> = all
        .into_iter()
        .filter(|it| is_settled(it, counting))
        .filter_map(|it| Some((it, figure_of(it, WRITTEN, counting)?)))
        .collect();
    let codec = |variant: &Variant| parameter(variant, "codec").unwrap_or_default().to_owned();
    let (raw, _) = *known.iter().find(|(it, _)| codec(it) == RAW).filter(|_| known.len() > 1)?;
    let keeps_up = |it: &&(&Variant, f64)| !is_slower(it.0, raw, counting, results.seed);
    let least = known.iter().filter(keeps_up).map(|it| it.1).reduce(f64::min)?;
    let (chosen, written) = known
        .iter()
        .filter(keeps_up)
        .filter(|it| it.1 <= least * (1.0 + NEGLIGIBLE))
        .max_by(|a, b| rate(a.0).total_cmp(&rate(b.0)))?;
    let others = known.iter().filter(|(it, _)| it.name != chosen.name);
    let others: Vec<String> = others
        .map(|(it, written)| format!("{}: {}, {written:.2}", codec(it), figure(rate(it))))
        .collect();
    let data = results.parameters.iter().filter(|it| matches!(&*it.name, "data" | "sample"));
    let mut data = data.filter(|it| it.value != "none");
    let data = data.next_back().map_or("?", |it| it.value.as_str());
    Some(Advice {
        question: QUESTION.to_owned(),
        setting: "codec".to_owned(),
        value: codec(chosen),
        is_first: codec(chosen) == codec(known[0].0),
        is_decided: true,
        evidence: format!(
            "{} {}, {written:.2} bytes written for each, of {} runs on '{data}'; {}{}",
            figure(rate(chosen)),
            chosen.metric.unit,
            counting.runs(chosen).count(),
            others.join("; "),
            unrest(counting)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::advise;
    use super::super::tests::{disturb, made};
    use super::*;
    use crate::result::Parameter;

    fn results(values: &[(&str, f64, f64)]) -> Results {
        let rates: Vec<(&str, f64)> = values.iter().map(|it| (it.0, it.1)).collect();
        let mut made = made("split", &["codec"], &rates);
        for (variant, (_, _, written)) in made.variants.iter_mut().zip(values) {
            for run in &mut variant.runs {
                run.measured.figures.insert(WRITTEN.to_owned(), *written);
            }
        }
        made.parameters = vec![Parameter::new("data", "dump"), Parameter::new("sample", "none")];
        made
    }

    fn advised(values: &[(&str, f64, f64)]) -> String {
        let [advice] = &advise(&results(values))[..] else { panic!("one question") };
        assert!(advice.evidence.contains("of 6 runs on 'dump'; "), "{}", advice.evidence);
        advice.value.clone()
    }

    #[test]
    fn room_is_saved_as_long_as_it_costs_no_time() {
        let raw = ("raw", 100.0, 1.0);
        assert_eq!(advised(&[raw, ("lz4", 120.0, 0.6), ("zstd:1", 99.0, 0.4)]), "zstd:1");
        assert_eq!(advised(&[raw, ("lz4", 120.0, 0.6), ("zstd:1", 80.0, 0.4)]), "lz4");
        assert_eq!(advised(&[raw, ("lz4", 90.0, 0.6), ("zstd:1", 80.0, 0.4)]), "raw");
        // As small but for next to nothing: the faster one.
        assert_eq!(advised(&[raw, ("lz4", 120.0, 0.41), ("zstd:1", 105.0, 0.4)]), "lz4");
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_advised_with_that_word() {
        let mut made = results(&[("raw", 100.0, 1.0), ("lz4", 120.0, 0.6)]);
        disturb(&mut made);
        let advice = &advise(&made)[0];
        assert_eq!(advice.value, "lz4");
        assert!(
            advice.evidence.ends_with("raw: 100, 1.00; the machine was not quiet"),
            "{advice:?}"
        );
    }

    #[test]
    fn without_raw_there_is_nothing_to_judge_by() {
        assert!(advise(&results(&[("lz4", 1.0, 0.5), ("zstd:1", 2.0, 0.4)])).is_empty());
        assert!(advise(&results(&[("raw", 1.0, 1.0)])).is_empty());
    }
}
