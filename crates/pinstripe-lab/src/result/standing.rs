//! The standing of the variants of a group: two of them by the rounds that both were run in, and
//! all of them as in a race, in which a variant that is shown to be slower need not run on
//! (Birattari and others 2002, A racing algorithm for configuring metaheuristics, GECCO).

use std::cmp::Ordering;

use super::{Run, Variant};
use crate::stats::{self, LEVEL, Paired, Verdict};

/// The confidence needed to call a variant of a race slower, or as good. The race is judged again
/// and again, and each time chance may deceive: so it is higher than that of a single judgement.
const RACE_LEVEL: f64 = 0.99;

/// With so many pairs, it is they that are judged; fewer would have to be won by one side nearly
/// all.
const PAIRS_TO_JUDGE: usize = 8;

/// The standing of a variant in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is shown not to be slower, by the share that was asked for, than any other that is not
    /// shown to be.
    AsGood,
    /// It is shown to be slower than the best.
    Slower,
    /// Neither is shown.
    Open,
}

/// The standing of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standings {
    /// The number of the one that is fastest so far.
    pub best: usize,
    /// By variant.
    pub each: Vec<Standing>,
}

/// Which runs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Those that nothing disturbed.
    Quiet,
    /// All of them. On a machine that is never quiet neighbours in time are disturbed alike, so
    /// that one can still be held against the other.
    All,
}

impl Counting {
    /// The runs that count of these variants: all, where of one of them more runs were disturbed
    /// than not.
    pub fn of(variants: &[&Variant]) -> Counting {
        let is_quiet = |it: &&Variant| 2 * it.values().len() >= it.runs.len();
        if variants.iter().all(is_quiet) { Counting::Quiet } else { Counting::All }
    }

    fn counts(self, run: &Run) -> bool {
        self == Counting::All || run.is_valid()
    }

    /// The runs that count.
    pub fn runs(self, variant: &Variant) -> impl Iterator<Item = &Run> {
        variant.runs.iter().filter(move |run| self.counts(run))
    }

    /// Their values.
    pub fn values(self, variant: &Variant) -> Vec<f64> {
        self.runs(variant).map(|run| run.measured.value).collect()
    }

    /// Values of two variants, round by round.
    fn pairs(self, one: &Variant, other: &Variant) -> Vec<(f64, f64)> {
        let in_round = |run: &Run| {
            let round = run.round?;
            other.runs.iter().find(|it| it.round == Some(round) && self.counts(it))
        };
        self.runs(one)
            .filter_map(|run| Some((run.measured.value, in_round(run)?.measured.value)))
            .collect()
    }

    /// One variant against another, round by round.
    pub fn paired(self, one: &Variant, other: &Variant) -> Option<Paired> {
        stats::paired(&self.pairs(one, other), one.metric.better, LEVEL)
    }

    /// The same as surely as a race wants it.
    fn raced(self, one: &Variant, other: &Variant) -> Option<Paired> {
        stats::paired(&self.pairs(one, other), one.metric.better, RACE_LEVEL)
    }
}

impl Variant {
    /// Judges it by another one that was measured in the same execution: round by round where there
    /// are enough rounds, and lot against lot otherwise.
    pub fn against(&self, baseline: &Variant, seed: u64) -> Verdict {
        let pairs = Counting::Quiet.pairs(self, baseline);
        let by_pairs = (pairs.len() >= PAIRS_TO_JUDGE)
            .then(|| stats::judge_pairs(&pairs, self.metric.better))
            .flatten();
        let by_lots = || stats::judge(&self.values(), &baseline.values(), self.metric.better, seed);
        by_pairs.unwrap_or_else(by_lots)
    }
}

/// The standing of a group, when a share of `negligible` is nothing to be slower by. None before
/// there are rounds enough.
pub fn standings(variants: &[&Variant], counting: Counting, negligible: f64) -> Option<Standings> {
    let best = leader(variants, counting)?;
    let edge = 1.0 - negligible;
    let against =
        |one: usize, other: usize| Some(counting.raced(variants[one], variants[other])?.interval);
    let is_slower = |at: usize| Some(at != best && against(at, best)?.high < edge);
    let is_slower: Vec<bool> = (0..variants.len()).map(is_slower).collect::<Option<_>>()?;
    let is_shown = |one: usize, other: usize| against(one, other).is_some_and(|it| it.low > edge);
    let stands = |at: usize| {
        let mut rivals = (0..variants.len()).filter(|other| *other != at && !is_slower[*other]);
        match is_slower[at] {
            true => Standing::Slower,
            false if rivals.all(|other| is_shown(at, other)) => Standing::AsGood,
            false => Standing::Open,
        }
    };
    Some(Standings { best, each: (0..variants.len()).map(stands).collect() })
}

/// The fastest by the rounds that each shares with the one that was run most often; of equal ones
/// the first. None while these are too few for a pair to say anything.
fn leader(variants: &[&Variant], counting: Counting) -> Option<usize> {
    let most = variants.iter().map(|it| counting.values(it).len()).max()?;
    let measure = variants.iter().find(|it| counting.values(it).len() == most)?;
    let speeds: Option<Vec<f64>> =
        variants.iter().map(|it| Some(counting.raced(it, measure)?.speed)).collect();
    let faster = |a: &(usize, f64), b: &(usize, f64)| match a.1.total_cmp(&b.1) {
        Ordering::Equal => b.0.cmp(&a.0),
        other => other,
    };
    speeds?.into_iter().enumerate().max_by(faster).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::super::Results;
    use super::super::tests::results;
    use super::*;
    use crate::guard::Disturbance;

    /// Runs of each level in so many rounds, on a disk that is slow by half in every third of them.
    fn raced(levels: &[f64], rounds: usize) -> Results {
        let slow = |round: usize| if round % 3 == 2 { 0.5 } else { 1.0 + 0.001 * round as f64 };
        let runs = |(at, level): (usize, &f64)| -> Vec<f64> {
            (0..rounds).map(|it| level * slow(it) * (1.0 + 0.01 * ((it + at) % 2) as f64)).collect()
        };
        let values: Vec<Vec<f64>> = levels.iter().enumerate().map(runs).collect();
        let names: Vec<String> = (0..levels.len()).map(|at| format!("v{at}")).collect();
        let named: Vec<(&str, &[f64])> =
            names.iter().zip(&values).map(|(name, runs)| (&**name, &runs[..])).collect();
        results(&named)
    }

    fn stands(results: &Results) -> Option<Vec<Standing>> {
        let variants: Vec<&Variant> = results.variants.iter().collect();
        standings(&variants, Counting::of(&variants), 0.03).map(|it| it.each)
    }

    #[test]
    fn rounds_tell_apart_what_a_swinging_disk_hides_from_lots() {
        let made = raced(&[95.0, 100.0], 9);
        let [one, other] = &made.variants[..] else { panic!() };
        let by_lots = stats::judge(&one.values(), &other.values(), one.metric.better, 1);
        assert_eq!(by_lots.finding, stats::Finding::NoDifference);
        assert_eq!(one.against(other, 1).finding, stats::Finding::Slower);
        let few = raced(&[95.0, 100.0], 7);
        assert_eq!(few.variants[0].against(&few.variants[1], 1).runs, (7, 7));
    }

    #[test]
    fn the_best_leads_and_others_stand_by_what_is_shown() {
        use Standing::{AsGood, Open, Slower};
        let made = raced(&[80.0, 99.7, 97.0, 100.0], 12);
        assert_eq!(stands(&made), Some(vec![Slower, AsGood, Open, AsGood]));
        let far = raced(&[60.0, 80.0, 100.0], 8);
        assert_eq!(stands(&far), Some(vec![Slower, Slower, AsGood]));
        assert_eq!(stands(&raced(&[80.0, 100.0], 7)), None, "seven rounds show nothing");
    }

    #[test]
    fn a_leader_by_a_hair_is_not_known_to_be_as_good() {
        let mut made = raced(&[100.0, 100.0], 8);
        let swing = [1.2, 0.8, 1.3, 0.9, 1.25, 0.85, 1.1, 0.95];
        made.variants[0].runs.iter_mut().zip(swing).for_each(|(run, it)| run.measured.value *= it);
        assert_eq!(stands(&made), Some(vec![Standing::Open, Standing::Open]));
    }

    #[test]
    fn who_left_the_race_is_held_against_others_by_the_rounds_it_ran_in() {
        let mut made = raced(&[80.0, 95.0, 100.0], 12);
        // It ran while the disk was fast, and would look as good by its median.
        made.variants[0].runs.retain(|run| run.measured.value > 70.0);
        assert_eq!(made.variants[0].runs.len(), 8);
        assert_eq!(stands(&made), Some(vec![Standing::Slower, Standing::Slower, Standing::AsGood]));
    }

    #[test]
    fn what_is_disturbed_now_and_then_does_not_count_and_what_always_is_does() {
        let mut made = raced(&[80.0, 100.0], 16);
        let disturb = |made: &mut Results, every: usize| {
            let runs = made.variants[1].runs.iter_mut().step_by(every);
            runs.for_each(|run| {
                let kind = "steal".to_owned();
                run.disturbances.push(Disturbance { kind, what: "stolen".to_owned() });
            });
        };
        disturb(&mut made, 4);
        made.variants[1].runs[0].measured.value = 1.0;
        assert_eq!(Counting::of(&made.variants.iter().collect::<Vec<_>>()), Counting::Quiet);
        assert_eq!(Counting::Quiet.values(&made.variants[1]).len(), 12);
        assert_eq!(stands(&made), Some(vec![Standing::Slower, Standing::AsGood]));
        disturb(&mut made, 1);
        assert_eq!(Counting::of(&made.variants.iter().collect::<Vec<_>>()), Counting::All);
        assert_eq!(stands(&made), Some(vec![Standing::Slower, Standing::AsGood]));
        assert_eq!(
            made.variants[0].against(&made.variants[1], 1).finding,
            stats::Finding::TooFewRuns
        );
    }
}
