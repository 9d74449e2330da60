//! The verdict which of two is faster, and by how much. There are three answers: one differs from
//! the other, if two different methods agree; one is as good as the other within [`AS_GOOD`], if
//! the complete interval is; or the samples cannot decide.
//!
//! For several comparisons that belong together, such as all variants of a group, [`correct`] keeps
//! the chance of one false difference among all of them below [`ALPHA`] (Holm 1979).

use serde::{Deserialize, Serialize};

use super::{Interval, Summary, mann_whitney, ratio_interval};

/// The probability of seeing a difference, anywhere in a family of comparisons, where there is
/// none.
pub(crate) const ALPHA: f64 = 0.05;

/// One is as good as the other if it is slower by at most this share.
pub const AS_GOOD: f64 = 0.03;

/// Which values are the better ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// As of rates.
    Higher,
    /// As of times.
    Lower,
}

/// The conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The candidate is faster.
    Faster,
    /// The candidate is slower.
    Slower,
    /// No difference is seen, and none of more than [`AS_GOOD`] is left possible.
    AsGood,
    /// No difference is seen, but one as large as the interval says may be there. Older versions
    /// did not tell this from [`Finding::AsGood`].
    #[serde(alias = "no_difference")]
    CannotTell,
    /// Too few runs: no result could be significant.
    TooFewRuns,
    /// Too few executions to judge by: a ratio with its doubt, and no verdict.
    Estimate,
}

/// The repetitions that a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Runs, lot against lot.
    #[default]
    Runs,
    /// Rounds in which both ran undisturbed.
    Rounds,
    /// Rounds, some of them disturbed: the disturbance met both alike.
    DisturbedRounds,
    /// Whole executions.
    Executions,
}

/// A candidate against a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The conclusion.
    pub finding: Finding,
    /// How many times as fast as the baseline the candidate is: of rounds the median of the ratios
    /// in each, of runs the ratio of the medians. None where a value is zero or missing.
    pub speed: Option<f64>,
    /// The interval of the ratio.
    pub interval: Option<Interval>,
    /// The chance of runs so different if there is no difference, two-sided; corrected for the
    /// number of comparisons.
    pub p: Option<f64>,
    /// Runs, rounds or executions of the candidate and of the baseline.
    pub runs: (usize, usize),
    /// The unit of `runs`.
    #[serde(default)]
    pub basis: Basis,
}

impl Verdict {
    /// Concludes from its ratio, interval and probability, in a family of this many comparisons.
    fn conclude(&mut self, family: usize) {
        let can_differ = self.least_p() * family as f64 <= ALPHA;
        self.finding = match (self.interval, self.p) {
            (Some(interval), Some(p)) if can_differ => {
                let is_seen = p <= ALPHA && !interval.contains(1.0);
                let is_good =
                    interval.low >= 1.0 - AS_GOOD && interval.high <= 1.0 / (1.0 - AS_GOOD);
                match (is_seen, is_good) {
                    (true, _) if interval.low > 1.0 => Finding::Faster,
                    (true, _) => Finding::Slower,
                    (false, true) => Finding::AsGood,
                    (false, false) => Finding::CannotTell,
                }
            }
            _ => Finding::TooFewRuns,
        };
    }

    /// The smallest probability that this number of repetitions can have: that of lots that do not
    /// overlap, and of rounds that one side won all of.
    fn least_p(&self) -> f64 {
        let (n, m) = self.runs;
        match self.basis {
            Basis::Rounds | Basis::DisturbedRounds => 2_f64.powi(1 - n as i32),
            // 2 / (n + m over n)
            Basis::Runs => (1..=n).fold(2.0, |p, at| p * at as f64 / (m + at) as f64),
            Basis::Executions => 0.0,
        }
    }

    pub(super) fn concluded(mut self) -> Self {
        self.conclude(1);
        self
    }

    /// Whether a difference was seen.
    pub fn is_different(&self) -> bool {
        matches!(self.finding, Finding::Faster | Finding::Slower)
    }
}

/// Corrects the verdicts of one family for how many they are, and concludes again: their
/// probabilities become those of Holm, with which the chance that any of them sees a difference that
/// does not exist is at most [`ALPHA`]. Verdicts without a probability, and mere estimates, do not
/// belong to the family.
pub fn correct(verdicts: &mut [&mut Verdict]) {
    let is_of_it = |it: &&mut &mut Verdict| it.p.is_some() && it.finding != Finding::Estimate;
    let mut family: Vec<&mut &mut Verdict> = verdicts.iter_mut().filter(is_of_it).collect();
    family.sort_by(|a, b| a.p.unwrap_or(1.0).total_cmp(&b.p.unwrap_or(1.0)));
    let (all, mut least) = (family.len(), 0.0_f64);
    for (at, verdict) in family.into_iter().enumerate() {
        least = least.max(verdict.p.unwrap_or(1.0) * (all - at) as f64).min(1.0);
        verdict.p = Some(least);
        verdict.conclude(all);
    }
}

/// The number of rounds that a family of this many comparisons needs until winning all rounds is
/// significant.
pub fn rounds_to_tell_apart(family: usize) -> usize {
    1 + (family.max(1) as f64 / ALPHA).log2().ceil() as usize
}

/// Judges valid runs of a candidate against those of a baseline, lot against lot: by the rank sum
/// test whether they differ, and by their medians by how much.
pub fn judge(candidate: &[f64], baseline: &[f64], better: Better) -> Verdict {
    let (of, to) = match better {
        Better::Higher => (candidate, baseline),
        Better::Lower => (baseline, candidate),
    };
    let middle = |samples| Summary::of(samples).map(|it| it.median);
    let speed = middle(of).zip(middle(to)).map(|(of, to)| of / to).filter(|it| it.is_finite());
    let verdict = Verdict {
        finding: Finding::TooFewRuns,
        speed,
        interval: ratio_interval(of, to),
        p: mann_whitney(of, to).map(|test| test.p),
        runs: (candidate.len(), baseline.len()),
        basis: Basis::Runs,
    };
    verdict.concluded()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_difference_is_seen_from_both_sides() {
        let slow = [97.1, 99.8, 100.3, 101.9, 98.4];
        let fast = [110.2, 112.8, 109.1, 111.7, 113.9];
        let verdict = judge(&fast, &slow, Better::Higher);
        assert_eq!(verdict.finding, Finding::Faster);
        assert!(verdict.interval.unwrap().contains(verdict.speed.unwrap()));
        assert_eq!(judge(&slow, &fast, Better::Higher).finding, Finding::Slower);
        // As times, the larger ones are the slower ones.
        assert_eq!(judge(&fast, &slow, Better::Lower).finding, Finding::Slower);
    }

    #[test]
    fn three_runs_each_are_too_few() {
        let verdict = judge(&[1.0, 1.1, 1.2], &[9.0, 9.1, 9.2], Better::Higher);
        assert_eq!(verdict.finding, Finding::TooFewRuns);
        assert_eq!(judge(&[], &[1.0], Better::Higher).finding, Finding::TooFewRuns);
    }

    #[test]
    fn no_speed_can_be_given_against_zero() {
        let verdict = judge(&[1.0; 5], &[0.0; 5], Better::Higher);
        assert_eq!((verdict.speed, verdict.interval), (None, None));
    }

    #[test]
    fn as_good_and_cannot_tell_are_two_answers() {
        let steady = [100.0, 100.2, 99.9, 100.4, 99.8, 100.1];
        let verdict = judge(&steady, &steady.map(|it| it * 1.001), Better::Higher);
        assert_eq!(verdict.finding, Finding::AsGood, "{verdict:?}");
        // Five of 62 to 143 against five of 100: anything from far slower to far faster.
        let wild = judge(&[62.0, 143.0, 90.0, 75.0, 120.0], &steady[..5], Better::Higher);
        assert_eq!(wild.finding, Finding::CannotTell, "{wild:?}");
        let old: Finding = serde_json::from_str("\"no_difference\"").unwrap();
        assert_eq!(old, Finding::CannotTell);
    }

    #[test]
    fn of_many_comparisons_each_has_to_be_surer() {
        let verdict = |p: f64, count: usize| Verdict {
            finding: Finding::Faster,
            speed: Some(1.1),
            interval: Some(Interval::new(1.05, 1.15)),
            p: Some(p),
            runs: (count, count),
            basis: Basis::Rounds,
        };
        let mut all = [verdict(0.04, 12), verdict(0.001, 12), verdict(0.02, 12)];
        let mut nothing = Verdict { p: None, finding: Finding::TooFewRuns, ..verdict(1.0, 2) };
        let [a, b, c] = &mut all;
        correct(&mut [a, &mut nothing, b, c]);
        // statsmodels.stats.multitest.multipletests([0.04, 0.001, 0.02], method='holm')
        let found: Vec<f64> = all.iter().map(|it| it.p.unwrap()).collect();
        let wanted = [0.04, 0.003, 0.04];
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        assert!(all.iter().all(Verdict::is_different));
        assert_eq!(nothing.p, None);
        // Twenty comparisons of eight rounds each could never tell anything apart.
        let mut many = [verdict(0.0078, 8); 20];
        correct(&mut many.iter_mut().collect::<Vec<_>>());
        assert!(many.iter().all(|it| it.finding == Finding::TooFewRuns));
        assert_eq!([1, 6, 13].map(rounds_to_tell_apart), [6, 8, 10]);
    }
}
