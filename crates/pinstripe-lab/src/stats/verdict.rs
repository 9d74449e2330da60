//! The verdict which of two is faster, and by how much: given only where two different tests agree.

use serde::{Deserialize, Serialize};

use super::{Interval, Summary, mann_whitney, ratio_interval};

/// The probability of seeing a difference where there is none.
pub const ALPHA: f64 = 0.05;

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
    /// None that is larger than the noise: smaller than the interval says.
    NoDifference,
    /// No result of so few runs could be told from chance.
    TooFewRuns,
}

/// A candidate against a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The conclusion.
    pub finding: Finding,
    /// The ratio of the candidate's median to the other one; none where a median is zero or
    /// missing.
    pub speed: Option<f64>,
    /// The interval of the ratio, to 95 %.
    pub interval: Option<Interval>,
    /// The chance of runs so different where there is no difference (Mann and Whitney, two-sided).
    pub p: Option<f64>,
    /// Runs of the candidate and of the baseline.
    pub runs: (usize, usize),
}

/// Judges valid runs of a candidate against those of a baseline.
pub fn judge(candidate: &[f64], baseline: &[f64], better: Better, seed: u64) -> Verdict {
    let (of, to) = match better {
        Better::Higher => (candidate, baseline),
        Better::Lower => (baseline, candidate),
    };
    let middle = |samples| Summary::of(samples).map(|it| it.median);
    let speed = middle(of).zip(middle(to)).map(|(of, to)| of / to).filter(|it| it.is_finite());
    let interval = ratio_interval(of, to, seed);
    let test = mann_whitney(of, to);
    let finding = match (interval, test) {
        (Some(interval), Some(test)) if can_differ(of.len(), to.len()) => {
            let is_seen = test.p <= ALPHA && !interval.contains(1.0);
            match (is_seen, interval.low > 1.0) {
                (false, _) => Finding::NoDifference,
                (true, true) => Finding::Faster,
                (true, false) => Finding::Slower,
            }
        }
        _ => Finding::TooFewRuns,
    };
    let runs = (candidate.len(), baseline.len());
    Verdict { finding, speed, interval, p: test.map(|test| test.p), runs }
}

/// Whether lots of this size that do not overlap at all would be told apart.
fn can_differ(n: usize, m: usize) -> bool {
    let (one, other): (Vec<f64>, Vec<f64>) =
        ((0..n).map(|it| it as f64).collect(), (n..n + m).map(|it| it as f64).collect());
    mann_whitney(&one, &other).is_some_and(|test| test.p <= ALPHA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Noise;

    #[test]
    fn a_clear_difference_is_seen_from_both_sides() {
        let slow = [97.1, 99.8, 100.3, 101.9, 98.4];
        let fast = [110.2, 112.8, 109.1, 111.7, 113.9];
        let verdict = judge(&fast, &slow, Better::Higher, 1);
        assert_eq!(verdict.finding, Finding::Faster);
        assert!(verdict.interval.unwrap().contains(verdict.speed.unwrap()));
        assert_eq!(judge(&slow, &fast, Better::Higher, 1).finding, Finding::Slower);
        // As times, the larger ones are the slower ones.
        assert_eq!(judge(&fast, &slow, Better::Lower, 1).finding, Finding::Slower);
    }

    #[test]
    fn three_runs_each_are_too_few() {
        let verdict = judge(&[1.0, 1.1, 1.2], &[9.0, 9.1, 9.2], Better::Higher, 1);
        assert_eq!(verdict.finding, Finding::TooFewRuns);
        assert_eq!(judge(&[], &[1.0], Better::Higher, 1).finding, Finding::TooFewRuns);
    }

    #[test]
    fn no_speed_can_be_given_against_zero() {
        let verdict = judge(&[1.0; 5], &[0.0; 5], Better::Higher, 1);
        assert_eq!((verdict.speed, verdict.interval), (None, None));
    }

    /// Runs about `level` with a noise of 4 %: the sum of four even draws is nearly normal.
    fn runs(level: f64, count: usize, noise: &mut Noise) -> Vec<f64> {
        let mut draw = || noise.below(1 << 20) as f64 / (1 << 20) as f64 - 0.5;
        (0..count)
            .map(|_| level * (1.0 + 0.04 * (draw() + draw() + draw() + draw()) * 3_f64.sqrt()))
            .collect()
    }

    #[test]
    fn what_is_equal_is_seldom_called_different_and_a_tenth_is_found() {
        let mut noise = Noise(11);
        let mut count = |level: f64| {
            let differs = |_: &u64| {
                let (one, other) = (runs(level, 7, &mut noise), runs(100.0, 7, &mut noise));
                let finding = judge(&one, &other, Better::Higher, 1).finding;
                matches!(finding, Finding::Faster | Finding::Slower)
            };
            (0..100).filter(differs).count()
        };
        let (equal, slower) = (count(100.0), count(90.0));
        assert!(equal <= 5, "{equal} of 100 equal ones");
        assert!(slower >= 90, "{slower} of 100 that are a tenth slower");
    }
}
