//! Ranks the variants of a group. Two variants are compared by the rounds in which both ran. All
//! variants are compared as in a race, in which a variant that is shown to be slower need not run
//! any more (Birattari and others 2002, A racing algorithm for configuring metaheuristics, GECCO).

use std::cmp::Ordering;

use pinstripe_stats::{self as stats, Basis, Interval, Paired, Verdict};

use super::{Run, Variant};

/// The confidence needed to call a variant as good as another one. The confidence is higher than
/// for a single judgement, because the race is judged repeatedly and each judgement can be wrong by
/// chance.
const GOOD_LEVEL: f64 = 0.99;

/// The probability that one check of a race of equal variants calls any of them slower. The leader
/// may only be the luckiest variant, so every pair of variants counts as a possible comparison, and
/// each pair gets its part of this probability. Over all checks together the probability stays
/// below 1 %, as the tests show.
const DROP_ALPHA: f64 = 0.005;

/// The smallest number of pairs that is judged; with fewer pairs, one side would have to win nearly
/// all of them.
pub(crate) const PAIRS_TO_JUDGE: usize = 8;

/// The standing of a variant in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The variant is shown to be at most the given share slower than any other variant that is not
    /// itself shown to be slower.
    AsGood,
    /// The variant is shown to be slower than the best one.
    Slower,
    /// Neither is shown.
    Open,
}

/// The standings of all variants of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standings {
    /// The index of the variant that is fastest so far.
    pub best: usize,
    /// By variant.
    pub each: Vec<Standing>,
}

impl Standings {
    /// The variant that decides whether the race continues: the baseline, or if the baseline is
    /// shown to be slower, the first variant that is not. The race is open as long as the standing
    /// of this variant is open.
    pub fn decides(&self, baseline: usize) -> usize {
        let in_race = |at: &usize| self.each[*at] != Standing::Slower;
        let first = || (0..self.each.len()).find(in_race);
        Some(baseline).filter(in_race).or_else(first).unwrap_or(self.best)
    }
}

/// Which runs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Only runs that nothing disturbed count.
    Quiet,
    /// All runs count; a pair counts if both runs have the same kinds of disturbance. On a machine
    /// that is never quiet, runs that follow each other are disturbed alike and can still be
    /// compared.
    Alike,
}

impl Counting {
    /// Which runs of these variants count: all runs, if more runs of one variant were disturbed
    /// than not.
    pub fn count(variants: &[&Variant]) -> Counting {
        let is_quiet = |it: &&Variant| 2 * it.values().len() >= it.runs.len();
        if variants.iter().all(is_quiet) { Counting::Quiet } else { Counting::Alike }
    }

    /// Which runs' figures are shown: those that count, or all runs if none counts.
    pub fn shown(variant: &Variant) -> Counting {
        if variant.runs.iter().any(Run::is_valid) { Counting::Quiet } else { Counting::Alike }
    }

    fn counts(self, run: &Run) -> bool {
        self == Counting::Alike || run.is_valid()
    }

    /// Whether two runs of one round may be compared.
    fn are_alike(self, one: &Run, other: &Run) -> bool {
        let is_shared = |kind: &str| other.disturbances.iter().any(|it| it.kind == kind);
        match (one.is_valid(), other.is_valid()) {
            (true, true) => true,
            (false, false) => {
                self == Counting::Alike && one.disturbances.iter().any(|it| is_shared(&it.kind))
            }
            _ => false,
        }
    }

    /// The runs that count.
    pub fn runs(self, variant: &Variant) -> impl Iterator<Item = &Run> {
        variant.runs.iter().filter(move |run| self.counts(run))
    }

    /// The values.
    pub fn values(self, variant: &Variant) -> Vec<f64> {
        self.runs(variant).map(|run| run.measured.value).collect()
    }

    /// Applies `of` to the two runs of each round in which both variants ran.
    pub(crate) fn in_rounds<'a, T>(
        self,
        one: &'a Variant,
        other: &'a Variant,
        of: impl Fn(&'a Run, &'a Run) -> Option<T>,
    ) -> Vec<T> {
        let partner = |run: &Run| {
            let round = run.round?;
            other.runs.iter().find(|it| it.round == Some(round) && self.are_alike(run, it))
        };
        one.runs.iter().filter_map(|run| of(run, partner(run)?)).collect()
    }

    /// The values of two variants, as pairs by round.
    pub fn pairs(self, one: &Variant, other: &Variant) -> Vec<(f64, f64)> {
        self.in_rounds(one, other, |a, b| Some((a.measured.value, b.measured.value)))
    }

    /// One variant compared with another, round by round; `None` if there are too few rounds.
    pub fn paired(self, one: &Variant, other: &Variant) -> Option<Paired> {
        let pairs = self.pairs(one, other);
        let has_enough = pairs.len() >= PAIRS_TO_JUDGE;
        has_enough.then(|| stats::paired(&pairs, one.metric.better)).flatten()
    }

    /// The interval of the speed ratio, at the confidence that a race requires.
    pub fn raced(self, one: &Variant, other: &Variant) -> Option<Interval> {
        stats::bounds(&self.pairs(one, other), one.metric.better, GOOD_LEVEL)
    }
}

impl Variant {
    /// Judges the variant against another one of the same execution. The two variants are compared
    /// round by round if there are enough rounds, of undisturbed runs or of runs that were
    /// disturbed alike; otherwise as two independent samples.
    pub fn against(&self, baseline: &Variant) -> Verdict {
        let by_rounds = |counting: Counting, basis: Basis| {
            let pairs = counting.pairs(self, baseline);
            let has_enough = pairs.len() >= PAIRS_TO_JUDGE;
            let found = has_enough.then(|| stats::judge_pairs(&pairs, self.metric.better))?;
            Some(Verdict { basis, ..found? })
        };
        by_rounds(Counting::Quiet, Basis::Rounds)
            .or_else(|| by_rounds(Counting::Alike, Basis::DisturbedRounds))
            .unwrap_or_else(|| stats::judge(&self.values(), &baseline.values(), self.metric.better))
    }
}

/// The standings of a group; being slower by a share of at most `negligible` does not matter.
/// Returns `None` until there are enough rounds.
pub fn standings(variants: &[&Variant], counting: Counting, negligible: f64) -> Option<Standings> {
    let count = variants.len();
    // Each pair once, in both directions: computing pairs and their means takes a while in a long
    // race.
    let pairs: Vec<Vec<Vec<(f64, f64)>>> = variants
        .iter()
        .map(|one| variants.iter().map(|other| counting.pairs(one, other)).collect())
        .collect();
    let better = variants.first()?.metric.better;
    let best = leader(variants, &pairs)?;
    let edge = 1.0 - negligible;
    let compared = (count * count.saturating_sub(1) / 2).max(1);
    let sure = 1.0 - DROP_ALPHA / compared as f64;
    let is_slower = |at: &usize| {
        let bounds = stats::bounds(&pairs[*at][best], better, sure);
        *at != best && bounds.is_some_and(|it| it.high < edge)
    };
    let slower: Vec<bool> = (0..count).map(|at| is_slower(&at)).collect();
    let is_shown = |one: usize, other: usize| {
        stats::bounds(&pairs[one][other], better, GOOD_LEVEL).is_some_and(|it| it.low > edge)
    };
    let stands = |at: usize| {
        let mut rivals = (0..count).filter(|other| *other != at && !slower[*other]);
        match slower[at] {
            true => Standing::Slower,
            false if rivals.all(|other| is_shown(at, other)) => Standing::AsGood,
            false => Standing::Open,
        }
    };
    Some(Standings { best, each: (0..count).map(stands).collect() })
}

/// The fastest variant, by the rounds that each variant shares with the variant that ran most
/// often; the first of several equal ones. Returns `None` while there are too few rounds to compare
/// a pair.
fn leader(variants: &[&Variant], pairs: &[Vec<Vec<(f64, f64)>>]) -> Option<usize> {
    let runs = |at: usize| pairs[at][at].len();
    let most = (0..variants.len()).map(runs).max()?;
    let measure = (0..variants.len()).find(|at| runs(*at) == most)?;
    let speed = |at: usize| {
        let pairs = &pairs[at][measure];
        let has_enough = pairs.len() >= PAIRS_TO_JUDGE;
        has_enough.then(|| stats::paired(pairs, variants[at].metric.better)).flatten()
    };
    let speeds: Option<Vec<f64>> = (0..variants.len()).map(|at| Some(speed(at)?.speed)).collect();
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
    use pinstripe_stats::Finding;

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
        standings(&variants, Counting::count(&variants), 0.03).map(|it| it.each)
    }

    #[test]
    fn rounds_tell_apart_what_a_swinging_disk_hides_from_lots() {
        let made = raced(&[95.0, 100.0], 9);
        let [one, other] = &made.variants[..] else { panic!() };
        let by_lots = stats::judge(&one.values(), &other.values(), one.metric.better);
        assert_eq!(by_lots.finding, Finding::CannotTell);
        assert_eq!(one.against(other).finding, Finding::Slower);
        let few = raced(&[95.0, 100.0], 7);
        assert_eq!(few.variants[0].against(&few.variants[1]).runs, (7, 7));
    }

    #[test]
    fn the_best_leads_and_others_stand_by_what_is_shown() {
        use Standing::{AsGood, Open, Slower};
        let made = raced(&[80.0, 99.7, 97.0, 100.0], 12);
        assert_eq!(stands(&made), Some(vec![Slower, AsGood, Open, AsGood]));
        let far = raced(&[60.0, 80.0, 100.0], 12);
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
        let mut made = raced(&[80.0, 95.0, 100.0], 18);
        // It ran while the disk was fast, and would look as good by its median.
        made.variants[0].runs.retain(|run| run.measured.value > 70.0);
        assert_eq!(made.variants[0].runs.len(), 12);
        assert_eq!(stands(&made), Some(vec![Standing::Slower, Standing::Slower, Standing::AsGood]));
    }

    #[test]
    fn what_is_disturbed_now_and_then_does_not_count_and_what_always_is_does() {
        let mut made = raced(&[80.0, 100.0], 20);
        let disturb = |made: &mut Results, variant: usize, every: usize| {
            let runs = made.variants[variant].runs.iter_mut().step_by(every);
            runs.for_each(|run| {
                let kind = "steal".to_owned();
                run.disturbances.push(Disturbance { kind, what: "stolen".to_owned() });
            });
        };
        disturb(&mut made, 1, 4);
        made.variants[1].runs[0].measured.value = 1.0;
        let counting = |made: &Results| Counting::count(&made.variants.iter().collect::<Vec<_>>());
        assert_eq!(counting(&made), Counting::Quiet);
        assert_eq!(Counting::Quiet.values(&made.variants[1]).len(), 15);
        assert_eq!(stands(&made), Some(vec![Standing::Slower, Standing::AsGood]));
        disturb(&mut made, 1, 1);
        assert_eq!(counting(&made), Counting::Alike);
        assert_eq!(stands(&made), None, "one of each round was disturbed, and the other not");
        assert_eq!(made.variants[0].against(&made.variants[1]).finding, Finding::TooFewRuns);
        disturb(&mut made, 0, 1);
        assert_eq!(stands(&made), Some(vec![Standing::Slower, Standing::AsGood]));
        let alike = made.variants[0].against(&made.variants[1]);
        assert_eq!((alike.finding, alike.basis), (Finding::Slower, Basis::DisturbedRounds));
    }

    /// Of so many races of equal variants with this noise, those in which one was called slower at
    /// any look, and those in which a first one that is slower by 5 % was called as good.
    fn wrong_races(variants: usize, noise: f64, rounds: usize, races: u64) -> (usize, usize) {
        use pinstripe_base::random::Noise;
        use pinstripe_stats::{SpeedNoise, simulated_speed};
        let race = |seed: u64, first: f64| {
            let mut chance = Noise(seed);
            let mut run = |at: usize| {
                let level = if at == 0 { first } else { 1.0 };
                level * simulated_speed(SpeedNoise::Plain, noise, &mut chance)
            };
            let values: Vec<Vec<f64>> =
                (0..variants).map(|at| (0..rounds).map(|_| run(at)).collect()).collect();
            let names: Vec<String> = (0..variants).map(|at| format!("v{at}")).collect();
            let named: Vec<(&str, &[f64])> =
                names.iter().zip(&values).map(|(name, runs)| (&**name, &runs[..])).collect();
            let whole = results(&named);
            let mut found = (false, false);
            let mut look = PAIRS_TO_JUDGE;
            while look <= rounds {
                let mut so_far = whole.clone();
                so_far.variants.iter_mut().for_each(|it| it.runs.truncate(look));
                let each = stands(&so_far).unwrap();
                found.0 |= each.contains(&Standing::Slower);
                found.1 |= each[0] == Standing::AsGood;
                look += (look / 4).max(1);
            }
            found
        };
        let dropped = (0..races).filter(|seed| race(seed * 2 + 1, 1.0).0).count();
        let closed = (0..races).filter(|seed| race(seed * 2 + 2, 0.95).1).count();
        (dropped, closed)
    }

    #[test]
    fn a_race_of_equal_variants_seldom_drops_one() {
        let found = wrong_races(14, 0.15, 26, 30);
        assert_eq!(found, (0, 0), "dropped, called as good");
        assert!(wrong_races(2, 0.15, 50, 60).0 <= 1);
    }

    #[test]
    fn of_many_races_of_equal_variants_one_in_a_hundred_drops_one() {
        const TEST: &str = "of_many_races_of_equal_variants_one_in_a_hundred_drops_one";
        if !pinstripe_testing::is_soaked(TEST, "lab") {
            return;
        }
        for (variants, noise) in
            [(2, 0.05), (2, 0.15), (2, 0.30), (4, 0.15), (14, 0.05), (14, 0.15)]
        {
            let (dropped, closed) = wrong_races(variants, noise, 100, 500);
            assert!(dropped <= 10 && closed <= 10, "{variants}, {noise}: {dropped}, {closed}");
        }
    }
}
