//! The ring of a stream that is recorded, and how it is written: the case `record-probe`.
//!
//! Beside a storm, of the policies by which no stream lost a byte in any run, that one is advised
//! whose largest need of all runs is the smallest, and a ring of that size. Of equal ones the first
//! is taken. Not the median: a recording is spoilt by its worst moment.

use super::{Advice, figures_of, is_settled, parameter, unrest};
use crate::result::{Counting, Results, Variant};

/// The question.
pub const QUESTION: &str = "record beside a storm";

/// A way of writing, and what its streams needed at most.
struct Need<'a> {
    policy: &'a str,
    ring_kib: f64,
    longest_ms: f64,
    overruns: f64,
    runs: usize,
}

/// The way to write, and the ring to use.
pub(super) fn advise(results: &Results) -> Vec<Advice> {
    let is_asked = |it: &&Variant| {
        let class = parameter(it, "io-class").unwrap_or("normal");
        parameter(it, "under") == Some("storm") && class == "normal"
    };
    let asked: Vec<&Variant> = results.variants.iter().filter(is_asked).collect();
    let counting = Counting::of(&asked);
    let settled = asked.into_iter().filter(|it| is_settled(it, counting));
    let needs: Vec<Need<'_>> = settled.filter_map(|it| need(it, counting)).collect();
    let sound = needs.iter().filter(|it| it.overruns == 0.0);
    let Some(chosen) = sound.min_by(|a, b| a.ring_kib.total_cmp(&b.ring_kib)) else {
        return Vec::new();
    };
    let others = needs.iter().filter(|it| it.policy != chosen.policy);
    let others: Vec<String> = others.map(of_other).collect();
    let option = |name: &str| {
        let found = results.parameters.iter().find(|it| it.name == name);
        found.map_or("?", |it| it.value.as_str())
    };
    let evidence = format!(
        "{} KiB needed in the worst of {} runs (longest write {:.1} ms) by {} streams of {} bytes a second, \
         chunks of {}, in {}; {}{}",
        chosen.ring_kib,
        chosen.runs,
        chosen.longest_ms,
        option("streams"),
        option("rate"),
        option("chunk"),
        results.fingerprint.places.first().map_or("?", |it| it.path.as_str()),
        match others.is_empty() {
            true => "nothing else was measured".to_owned(),
            false => others.join(", "),
        },
        unrest(counting),
    );
    let advice = |setting: &str, value: String, is_first: bool| Advice {
        question: QUESTION.to_owned(),
        setting: setting.to_owned(),
        value,
        is_first,
        is_decided: true,
        evidence: evidence.clone(),
    };
    let is_first = chosen.policy == needs[0].policy;
    vec![
        advice("policy", chosen.policy.to_owned(), is_first),
        advice("ring", format!("{}K", chosen.ring_kib), is_first),
    ]
}

fn need(variant: &Variant, counting: Counting) -> Option<Need<'_>> {
    let worst = |name: &str| figures_of(variant, name, counting).reduce(f64::max);
    Some(Need {
        policy: parameter(variant, "policy")?,
        ring_kib: worst("ring_needed_kib")?,
        longest_ms: worst("longest_write_ms")?,
        overruns: worst("overruns")?,
        runs: counting.runs(variant).count(),
    })
}

fn of_other(need: &Need<'_>) -> String {
    match need.overruns {
        0.0 => format!("{}: {} KiB", need.policy, need.ring_kib),
        lost => format!("{}: {} KiB, overruns: {lost}", need.policy, need.ring_kib),
    }
}

#[cfg(test)]
mod tests {
    use super::super::advise;
    use super::super::tests::made;
    use super::*;

    /// Policies with the ring that each run needed, and overruns of the last run.
    fn results(values: &[(&str, [f64; 6], f64)]) -> Results {
        let named: Vec<(&str, f64)> = values.iter().map(|it| (it.0, 1.0)).collect();
        let mut made = made("record-probe", &["policy", "under"], &named);
        for (variant, (_, rings, overruns)) in made.variants.iter_mut().zip(values) {
            for (run, ring) in variant.runs.iter_mut().zip(rings) {
                run.measured.figures.insert("ring_needed_kib".to_owned(), *ring);
                run.measured.figures.insert("longest_write_ms".to_owned(), 12.5);
                run.measured.figures.insert("overruns".to_owned(), 0.0);
            }
            variant.runs[5].measured.figures.insert("overruns".to_owned(), *overruns);
        }
        made
    }

    fn advised(values: &[(&str, [f64; 6], f64)]) -> Vec<(String, String)> {
        let advice = advise(&results(values));
        advice.into_iter().map(|it| (it.setting, it.value)).collect()
    }

    #[test]
    fn the_worst_run_decides_and_no_stream_may_lose_a_byte() {
        let steady = [128.0; 6];
        let mut once = [64.0; 6];
        once[3] = 1024.0;
        let found = advised(&[("direct, storm", once, 0.0), ("buffered, storm", steady, 0.0)]);
        let wanted = [("policy", "buffered"), ("ring", "128K")];
        assert_eq!(found, wanted.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let found = advised(&[("direct, storm", once, 0.0), ("buffered, storm", steady, 2.0)]);
        assert_eq!(found[1].1, "1024K");
        assert!(advised(&[("buffered, storm", steady, 2.0)]).is_empty());
        assert!(advised(&[("buffered, idle", steady, 0.0)]).is_empty());
    }
}
