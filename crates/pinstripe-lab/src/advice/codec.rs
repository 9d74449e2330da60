//! Recommends the codec of a split, for the case `split`.
//!
//! If several codecs are shown to be at most [`NEGLIGIBLE`] slower than the default of `split`, the
//! one that writes the fewest bytes is recommended; if several write equally few bytes, the fastest
//! one. So space is saved only if that costs no time. The default is kept if every other codec is
//! shown not to be better: the other codec does not write less in the same time, and it is not
//! faster without writing more. If neither condition is shown to hold, nothing is decided.

use super::{
    Advice, NEGLIGIBLE, OPEN, figure, figure_of, is_settled, is_slower, keeps_up, median,
    parameter, unrest,
};
use crate::questions::{self, CODEC};
use crate::result::{Counting, Results, Variant};

/// Bytes written for each byte of the source.
const WRITTEN: &str = "written_of_each";

/// Returns the recommended setting. It is taken from the first group that contains the default
/// codec of `split` and another codec.
pub(super) fn advise(results: &Results) -> Option<Advice> {
    results.groups().into_iter().find_map(|group| of_group(results, group))
}

/// A codec, and the number of bytes that it writes for each byte of the source.
struct MeasuredCodec<'a> {
    variant: &'a Variant,
    codec: &'a str,
    written: f64,
}

fn of_group(results: &Results, group: &str) -> Option<Advice> {
    let all: Vec<&Variant> = results.variants.iter().filter(|it| it.group == group).collect();
    let counting = Counting::count(&all);
    let settled = all.into_iter().filter(|it| is_settled(it, counting));
    let known = settled.filter_map(|variant| {
        let written = figure_of(variant, WRITTEN, counting)?;
        Some(MeasuredCodec { variant, codec: parameter(variant, "codec")?, written })
    });
    let known: Vec<MeasuredCodec<'_>> = known.collect();
    let usual = questions::usual(&results.case, CODEC, "codec")?;
    let baseline = known.iter().find(|it| it.codec == usual).filter(|_| known.len() > 1)?;
    let rate = |it: &MeasuredCodec<'_>| median(it.variant, counting);
    let saves = |it: &&MeasuredCodec<'_>| {
        it.written < baseline.written * (1.0 - NEGLIGIBLE)
            && keeps_up(it.variant, baseline.variant, counting)
    };
    let least = known.iter().filter(saves).map(|it| it.written).reduce(f64::min);
    let better = known
        .iter()
        .filter(saves)
        .filter(|it| least.is_some_and(|least| it.written <= least * (1.0 + NEGLIGIBLE)))
        .max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let chosen = better.unwrap_or(baseline);
    let others = known.iter().filter(|it| it.codec != baseline.codec);
    let is_decided =
        better.is_some() || others.into_iter().all(|it| is_no_better(it, baseline, counting));
    let rest = if is_decided { "" } else { OPEN };
    Some(Advice {
        question: CODEC.to_owned(),
        setting: "codec".to_owned(),
        value: chosen.codec.to_owned(),
        is_usual: chosen.codec == usual,
        is_decided,
        evidence: evidence(results, chosen, &known, counting) + rest + unrest(counting),
    })
}

/// Whether a codec is shown to be no better than the baseline.
fn is_no_better(it: &MeasuredCodec<'_>, baseline: &MeasuredCodec<'_>, counting: Counting) -> bool {
    let (less, more) = (1.0 - NEGLIGIBLE, 1.0 + NEGLIGIBLE);
    let saves_room = it.written < baseline.written * less;
    let writes_more = it.written > baseline.written * more;
    match (saves_room, writes_more) {
        (true, _) => is_slower(it.variant, baseline.variant, counting),
        (false, true) => true,
        (false, false) => keeps_up(baseline.variant, it.variant, counting),
    }
}

fn evidence(
    results: &Results,
    chosen: &MeasuredCodec<'_>,
    known: &[MeasuredCodec<'_>],
    counting: Counting,
) -> String {
    let speed =
        |it: &MeasuredCodec<'_>| counting.paired(it.variant, chosen.variant).map(|it| it.speed);
    let others = known.iter().filter(|it| it.codec != chosen.codec);
    let others: Vec<String> = others
        .filter_map(|it| Some(format!("{} {:.2} and {:.2}", it.codec, speed(it)?, it.written)))
        .collect();
    let data = results.parameters.iter().filter(|it| matches!(&*it.name, "data" | "sample"));
    let mut data = data.filter(|it| it.value != "none");
    let data = data.next_back().map_or("?", |it| it.value.as_str());
    format!(
        "{} {}, with {:.2} bytes written for each byte of the source, in {} runs with the data \
         '{data}'; speed of the other codecs relative to this one, and their written bytes: {}",
        figure(median(chosen.variant, counting)),
        chosen.variant.metric.unit,
        chosen.written,
        counting.runs(chosen.variant).count(),
        others.join("; "),
    )
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

    fn advised(values: &[(&str, f64, f64)]) -> (String, bool) {
        let [advice] = &advise(&results(values))[..] else { panic!("one question") };
        assert!(
            advice.evidence.contains("in 16 runs with the data 'dump'; "),
            "{}",
            advice.evidence
        );
        assert_eq!(advice.is_usual, advice.value == "auto");
        (advice.value.clone(), advice.is_decided)
    }

    #[test]
    fn room_is_saved_as_long_as_it_costs_no_time() {
        let auto = ("auto", 100.0, 1.0);
        let is = |value: &str| (value.to_owned(), true);
        assert_eq!(advised(&[auto, ("lz4", 120.0, 0.6), ("zstd:1", 99.0, 0.4)]), is("zstd:1"));
        assert_eq!(advised(&[auto, ("lz4", 120.0, 0.6), ("zstd:1", 80.0, 0.4)]), is("lz4"));
        assert_eq!(advised(&[auto, ("lz4", 90.0, 0.6), ("zstd:1", 80.0, 0.4)]), is("auto"));
        // As small but for almost nothing: the faster one.
        assert_eq!(advised(&[auto, ("lz4", 120.0, 0.41), ("zstd:1", 105.0, 0.4)]), is("lz4"));
        // Faster without saving anything: what exists is not shown to be the best.
        assert_eq!(advised(&[auto, ("raw", 120.0, 1.0)]), ("auto".to_owned(), false));
        assert_eq!(advised(&[auto, ("raw", 120.0, 1.5)]), is("auto"));
    }

    #[test]
    fn what_is_not_shown_to_keep_up_or_not_to_is_left_open() {
        let mut made = results(&[("auto", 100.0, 1.0), ("lz4", 98.0, 0.5)]);
        for (at, run) in made.variants[1].runs.iter_mut().enumerate() {
            run.measured.value *= if at % 2 == 0 { 0.9 } else { 1.1 };
        }
        let advice = &advise(&made)[0];
        assert_eq!((&*advice.value, advice.is_decided), ("auto", false));
        assert!(
            advice.evidence.ends_with("too close to each other for a decision in this time"),
            "{advice:?}"
        );
        made.variants.iter_mut().for_each(|it| it.runs.truncate(7));
        assert!(advise(&made).is_empty(), "seven rounds show nothing");
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_advised_with_that_word() {
        let mut made = results(&[("auto", 100.0, 1.0), ("lz4", 120.0, 0.6)]);
        disturb(&mut made);
        let advice = &advise(&made)[0];
        assert_eq!(advice.value, "lz4");
        assert!(
            advice.evidence.ends_with(
                "auto 0.83 and 1.00; other programs used the machine during the measurement"
            ),
            "{advice:?}"
        );
    }

    #[test]
    fn without_what_split_does_by_itself_there_is_nothing_to_judge_by() {
        assert!(advise(&results(&[("lz4", 1.0, 0.5), ("zstd:1", 2.0, 0.4)])).is_empty());
        assert!(advise(&results(&[("auto", 1.0, 1.0)])).is_empty());
    }
}
