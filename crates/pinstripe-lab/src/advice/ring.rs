//! Recommends the ring size of a recorded stream and the write policy, for the case `record-probe`.
//!
//! Only the runs during a storm are considered, and of these only the policies that lost no byte.
//! The recommended policy is the one whose largest need of ring in all runs is the smallest, or the
//! first of several equal ones; the recommended ring has that size. The maximum is used, not the
//! median, because a recording is spoilt by its worst moment. The recommendation is decided if
//! every other policy lost bytes, or needed at least as large a ring in each round. Disturbed runs
//! do not count here, because the writes of other programs determine the ring's size.

use super::{Advice, OPEN, figures_of, is_settled, parameter};
use crate::questions::RECORD;
use crate::result::{Counting, PAIRS_TO_JUDGE, Results, Run, Variant};

/// The recorder's own ways of writing, each with the value of the recorder's option that selects
/// it. If the recorder's own engine was measured, only its ways are compared, because the other
/// policies are plain writers.
const OWN: [(&str, &str); 2] = [("recorder", "buffered"), ("recorder-direct", "direct")];

/// The ring that a run needed.
const NEEDED: &str = "ring_needed_kib";

/// A way of writing, and the largest ring that its streams needed.
struct RingNeed<'a> {
    variant: &'a Variant,
    policy: &'a str,
    ring_kib: f64,
    longest_ms: f64,
    overruns: f64,
    runs: usize,
}

/// Recommends the way to write and the ring to use.
pub(super) fn advise(results: &Results) -> Vec<Advice> {
    let has_own = results.variants.iter().any(|it| parameter(it, "policy").is_some_and(is_own));
    let is_asked = |it: &&Variant| {
        let class = parameter(it, "io-class").unwrap_or("normal");
        let is_possible = |policy| match has_own {
            true => is_own(policy),
            false => OWN.iter().any(|it| it.1 == policy),
        };
        parameter(it, "under") == Some("storm")
            && class == "normal"
            && parameter(it, "policy").is_some_and(is_possible)
    };
    let asked: Vec<&Variant> = results.variants.iter().filter(is_asked).collect();
    let settled = asked.into_iter().filter(|it| is_settled(it, Counting::Quiet));
    let needs: Vec<RingNeed<'_>> = settled.filter_map(need).collect();
    let sound = needs.iter().filter(|it| it.overruns == 0.0);
    let Some(chosen) = sound.min_by(|a, b| a.ring_kib.total_cmp(&b.ring_kib)) else {
        return Vec::new();
    };
    let is_decided = needs.iter().all(|it| it.overruns > 0.0 || needs_no_more(chosen, it));
    let others = needs.iter().filter(|it| it.policy != chosen.policy);
    let others: Vec<String> = others.map(of_other).collect();
    let option = |name: &str| {
        let found = results.parameters.iter().find(|it| it.name == name);
        found.map_or("?", |it| it.value.as_str())
    };
    let evidence = format!(
        "a ring of {} KiB was needed in the worst of {} runs (longest write {:.1} ms) for {} \
         streams of {} bytes per second and chunks of {}, in {}; {}{}",
        chosen.ring_kib,
        chosen.runs,
        chosen.longest_ms,
        option("streams"),
        option("rate"),
        option("chunk"),
        results.fingerprint.places.first().map_or("?", |it| it.path.as_str()),
        match others.is_empty() {
            true => "no other policy was measured".to_owned(),
            false => others.join(", "),
        },
        if is_decided { "" } else { OPEN },
    );
    let is_usual = chosen.policy == needs[0].policy;
    let advice = |setting: &str, value: String| Advice {
        question: RECORD.to_owned(),
        setting: setting.to_owned(),
        value,
        is_usual,
        is_decided,
        evidence: evidence.clone(),
    };
    vec![
        advice(
            "policy",
            OWN.iter().find(|it| it.0 == chosen.policy).map_or(chosen.policy, |it| it.1).to_owned(),
        ),
        advice("ring", format!("{}K", chosen.ring_kib)),
    ]
}

fn is_own(policy: &str) -> bool {
    OWN.iter().any(|it| it.0 == policy)
}

/// Whether a policy needed no larger ring than another one in any round.
fn needs_no_more(one: &RingNeed<'_>, other: &RingNeed<'_>) -> bool {
    let needed = |run: &Run| run.measured.figures.get(NEEDED).copied();
    let both = |a, b| Some((needed(a)?, needed(b)?));
    let rounds = Counting::Quiet.in_rounds(one.variant, other.variant, both);
    rounds.len() >= PAIRS_TO_JUDGE && rounds.iter().all(|(own, theirs)| own <= theirs)
}

fn need(variant: &Variant) -> Option<RingNeed<'_>> {
    let worst = |name: &str| figures_of(variant, name, Counting::Quiet).reduce(f64::max);
    Some(RingNeed {
        variant,
        policy: parameter(variant, "policy")?,
        ring_kib: worst(NEEDED)?,
        longest_ms: worst("longest_write_ms")?,
        overruns: worst("overruns")?,
        runs: Counting::Quiet.runs(variant).count(),
    })
}

fn of_other(need: &RingNeed<'_>) -> String {
    match need.overruns {
        0.0 => format!("{} needed {} KiB", need.policy, need.ring_kib),
        lost => format!("{} needed {} KiB and had overruns: {lost}", need.policy, need.ring_kib),
    }
}

#[cfg(test)]
mod tests {
    use super::super::advise;
    use super::super::tests::made;
    use super::*;

    /// Policies with the ring that each of sixteen runs needed, and overruns of the last run.
    fn results(values: &[(&str, [f64; 16], f64)]) -> Results {
        let named: Vec<(&str, f64)> = values.iter().map(|it| (it.0, 1.0)).collect();
        let mut made = made("record-probe", &["policy", "under"], &named);
        for (variant, (_, rings, overruns)) in made.variants.iter_mut().zip(values) {
            for (run, ring) in variant.runs.iter_mut().zip(rings) {
                run.measured.figures.insert(NEEDED.to_owned(), *ring);
                run.measured.figures.insert("longest_write_ms".to_owned(), 12.5);
                run.measured.figures.insert("overruns".to_owned(), 0.0);
            }
            variant.runs[15].measured.figures.insert("overruns".to_owned(), *overruns);
        }
        made
    }

    fn advised(values: &[(&str, [f64; 16], f64)]) -> Vec<(String, bool)> {
        let advice = advise(&results(values));
        advice.into_iter().map(|it| (it.value, it.is_decided)).collect()
    }

    fn is(values: [&str; 2], is_decided: bool) -> Vec<(String, bool)> {
        values.map(|it| (it.to_owned(), is_decided)).to_vec()
    }

    #[test]
    fn the_worst_run_decides_and_no_stream_may_lose_a_byte() {
        let steady = [128.0; 16];
        let mut once = [64.0; 16];
        once[3] = 1024.0;
        let found = advised(&[("direct, storm", once, 0.0), ("buffered, storm", steady, 0.0)]);
        assert_eq!(found, is(["buffered", "128K"], false), "in most rounds it needed more");
        let found =
            advised(&[("direct, storm", [256.0; 16], 0.0), ("buffered, storm", steady, 0.0)]);
        assert_eq!(found, is(["buffered", "128K"], true));
        let found = advised(&[("direct, storm", once, 0.0), ("buffered, storm", steady, 2.0)]);
        assert_eq!(found, is(["direct", "1024K"], true));
        assert!(advised(&[("buffered, storm", steady, 2.0)]).is_empty());
        assert!(advised(&[("buffered, idle", steady, 0.0)]).is_empty());
        let mut few = results(&[("buffered, storm", steady, 0.0)]);
        // A way that the recorder does not have is none to advise; its own engine outranks a plain writer.
        assert!(advised(&[("dsync, storm", [64.0; 16], 0.0)]).is_empty());
        let found = advised(&[
            ("buffered, storm", [64.0; 16], 0.0),
            ("recorder-direct, storm", steady, 0.0),
        ]);
        assert_eq!(found, is(["direct", "128K"], true));
        few.variants[0].runs.truncate(7);
        assert!(advise(&few).is_empty(), "the worst of seven runs is not the worst there is");
    }
}
