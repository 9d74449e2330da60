//! Decides which of two variants is faster, and by how much. There are three answers: one differs
//! from the other, if two different methods agree; one is as good as the other, if the complete
//! interval is within [`AS_GOOD`]; or the samples cannot decide.
//!
//! For several comparisons that belong together, such as those of all variants of a group,
//! [`correct`] keeps the probability of any false difference among them below [`ALPHA`] (Holm
//! 1979).

use serde::{Deserialize, Serialize};

use super::{Interval, Summary, mann_whitney, ratio_interval};

/// The probability of reporting any difference in a family of comparisons if no difference exists.
pub(crate) const ALPHA: f64 = 0.05;

/// One variant is as good as another if it is slower by at most this share.
pub const AS_GOOD: f64 = 0.03;

/// Whether higher or lower values are better.
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
    /// No difference is shown, and a difference of more than [`AS_GOOD`] is excluded.
    AsGood,
    /// No difference is shown, but there may be one as large as the interval. Older versions did
    /// not distinguish this finding from [`Finding::AsGood`].
    #[serde(alias = "no_difference")]
    CannotTell,
    /// There are too few runs for any result to be significant.
    TooFewRuns,
    /// There are too few executions for a verdict; the result is a ratio with its interval.
    Estimate,
}

/// The kind of repetitions on which a verdict is based.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Runs; the runs of both sides are compared as two independent sets.
    #[default]
    Runs,
    /// Rounds in which both sides ran undisturbed.
    Rounds,
    /// Rounds, some of them disturbed; the disturbance affected both sides alike.
    DisturbedRounds,
    /// Whole executions.
    Executions,
}

/// The comparison of a candidate with a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The conclusion.
    pub finding: Finding,
    /// How many times as fast as the baseline the candidate is: for rounds, the median of the
    /// ratios in each round; for runs, the ratio of the medians. `None` if a value is zero or
    /// missing.
    pub speed: Option<f64>,
    /// The interval of the speed ratio.
    pub interval: Option<Interval>,
    /// The two-sided p-value of the difference, corrected for the number of comparisons.
    pub p: Option<f64>,
    /// The number of runs, rounds or executions of the candidate and of the baseline.
    pub runs: (usize, usize),
    /// The unit that `runs` counts.
    #[serde(default)]
    pub basis: Basis,
}

impl Verdict {
    /// Sets the finding from the ratio, the interval and the p-value, in a family of this number of
    /// comparisons.
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

    /// Returns the smallest p-value that is possible with this number of repetitions: that of two
    /// sets that do not overlap, or of rounds that one side won without exception.
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

    /// Whether a difference is shown.
    pub fn is_different(&self) -> bool {
        matches!(self.finding, Finding::Faster | Finding::Slower)
    }
}

/// Corrects the verdicts of one family for their number, and sets their findings again. The
/// p-values become those of Holm, with which the probability of any false difference is at most
/// [`ALPHA`]. Verdicts without a p-value, and estimates, do not belong to the family.
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

/// Returns the number of rounds that a family of this number of comparisons needs so that winning
/// all rounds is significant.
pub fn rounds_to_tell_apart(family: usize) -> usize {
    1 + (family.max(1) as f64 / ALPHA).log2().ceil() as usize
}

/// Compares valid runs of a candidate with those of a baseline, as two independent sets: the
/// rank-sum test decides whether they differ, and their medians show by how much.
pub fn judge(candidate: &[f64], baseline: &[f64], better: Better) -> Verdict {
    let (of, to) = match better {
        Better::Higher => (candidate, baseline),
        Better::Lower => (baseline, candidate),
    };
    let middle = |samples| Summary::from_samples(samples).map(|it| it.median);
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
