//! Comparison of executions. The runs of one execution share their file layout, the state of the
//! disk and the time of day, so an execution counts as one sample, however many runs it has. One
//! value of each execution is compared. The variance between executions is estimated from both
//! sides and from earlier executions: Student's test on logarithms, with one common variance.

use super::{Basis, Better, Finding, Interval, Verdict};

/// With this number of executions on each side, no earlier executions are needed.
const ENOUGH: usize = 3;
/// With this number of degrees of freedom, earlier executions replace a third execution on each
/// side.
const KNOWN: usize = 5;

/// The spread between executions of the same variant, estimated from earlier executions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// The sum of the squared deviations of logarithms from the mean of their period.
    pub squares: f64,
    /// The degrees of freedom: for each period, the number of its executions minus one.
    pub freedom: usize,
}

impl Spread {
    /// Computes the spread within periods of executions; nothing changed permanently within a
    /// period.
    pub fn within<'a>(stretches: impl IntoIterator<Item = &'a [f64]>) -> Spread {
        stretches.into_iter().fold(Spread::default(), Spread::with)
    }

    fn with(self, values: &[f64]) -> Spread {
        let logs: Vec<f64> = values.iter().filter(|it| **it > 0.0).map(|it| it.ln()).collect();
        let middle = mean(&logs);
        let squares: f64 = logs.iter().map(|it| (it - middle).powi(2)).sum();
        let freedom = self.freedom + logs.len().saturating_sub(1);
        Spread { squares: self.squares + squares, freedom }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Compares executions of a candidate with those of a baseline, by one value of each execution. A
/// verdict needs three executions on each side, or two if the spread is known from `earlier`
/// executions. With fewer executions, the result is an [estimate](Finding::Estimate), which has an
/// interval if the spread is known.
pub fn judge_executions(
    candidate: &[f64],
    baseline: &[f64],
    better: Better,
    earlier: Spread,
) -> Verdict {
    let (of, to) = match better {
        Better::Higher => (candidate, baseline),
        Better::Lower => (baseline, candidate),
    };
    let runs = (candidate.len(), baseline.len());
    let nothing = Verdict {
        finding: Finding::TooFewRuns,
        speed: None,
        interval: None,
        p: None,
        runs,
        basis: Basis::Executions,
    };
    let is_sound = of.iter().chain(to).all(|it| *it > 0.0);
    if of.is_empty() || to.is_empty() || !is_sound {
        return nothing;
    }
    let logs = |values: &[f64]| values.iter().map(|it| it.ln()).collect::<Vec<_>>();
    let ratio = mean(&logs(of)) - mean(&logs(to));
    let spread = earlier.with(of).with(to);
    let fewest = of.len().min(to.len());
    let is_judged = fewest >= ENOUGH || (fewest >= 2 && earlier.freedom >= KNOWN);
    let found = (spread.freedom > 0).then(|| {
        let each = 1.0 / of.len() as f64 + 1.0 / to.len() as f64;
        let error = (spread.squares / spread.freedom as f64 * each).sqrt();
        let far = error * t_beyond(1.0 - super::LEVEL, spread.freedom);
        (
            Interval::new((ratio - far).exp(), (ratio + far).exp()),
            chance(ratio, error, spread.freedom),
        )
    });
    let verdict = Verdict {
        speed: Some(ratio.exp()),
        interval: found.map(|it| it.0),
        p: found.map(|it| it.1).filter(|_| is_judged),
        finding: Finding::Estimate,
        ..nothing
    };
    if is_judged { verdict.concluded() } else { verdict }
}

/// Returns the two-sided p-value of a difference.
fn chance(difference: f64, error: f64, freedom: usize) -> f64 {
    match (difference == 0.0, error > 0.0) {
        (true, _) => 1.0,
        (false, true) => outside(difference.abs() / error, freedom),
        (false, false) => 0.0,
    }
}

/// Returns the probability of Student's distribution beyond `t` on both sides, by Abramowitz and
/// Stegun 26.7.3 and 26.7.4, which are exact for whole degrees of freedom.
fn outside(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = if is_odd { (cos, 0.0) } else { (1.0, 0.0) };
    let first = if is_odd { 3 } else { 2 };
    for at in (first..=freedom).step_by(2) {
        sum += term;
        term *= cos * cos * (at - 1) as f64 / at as f64;
    }
    let inside = match is_odd {
        true => (angle + sin * sum) * 2.0 / std::f64::consts::PI,
        false => sin * sum,
    };
    (1.0 - inside).clamp(0.0, 1.0)
}

/// Returns the quantile `t` that has this probability beyond it.
fn t_beyond(share: f64, freedom: usize) -> f64 {
    let halve = |(low, high): (f64, f64), _| {
        let middle = (low + high) / 2.0;
        if outside(middle, freedom) > share { (middle, high) } else { (low, middle) }
    };
    (0..60).fold((0.0, 1e4), halve).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_s_distribution_is_scipy_s() {
        // 2 * scipy.stats.t.sf(t, freedom), scipy.stats.t.isf(0.025, freedom)
        for (t, freedom, share) in [
            (1.0, 1, 0.5),
            (2.0, 2, 0.183_503_419_072_274),
            (2.5, 4, 0.066_766_544_811_987_8),
            (2.5, 7, 0.040_992_218_585_058_6),
        ] {
            assert!((outside(t, freedom) - share).abs() < 1e-9, "{}", outside(t, freedom));
        }
        for (freedom, t) in
            [(1, 12.706_204_7), (4, 2.776_445_1), (20, 2.085_963_4), (30, 2.042_272_5)]
        {
            assert!((t_beyond(0.05, freedom) - t).abs() < 1e-5, "{}", t_beyond(0.05, freedom));
        }
    }

    #[test]
    fn one_execution_each_is_an_estimate_and_never_a_verdict() {
        let found = judge_executions(&[80.0], &[100.0], Better::Higher, Spread::default());
        assert_eq!((found.finding, found.interval, found.p), (Finding::Estimate, None, None));
        assert!((found.speed.unwrap() - 0.8).abs() < 1e-9);
        // How far executions lie apart is known: so is the doubt, and it is no verdict still.
        let earlier = Spread::within([&[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8][..]]);
        let found = judge_executions(&[50.0], &[100.0], Better::Higher, earlier);
        assert_eq!((found.finding, found.p), (Finding::Estimate, None));
        assert!(found.interval.is_some_and(|it| it.high < 0.6), "{found:?}");
        let two = judge_executions(&[50.0, 50.4], &[100.0, 99.0], Better::Higher, earlier);
        assert_eq!(two.finding, Finding::Slower);
        let unknown =
            judge_executions(&[50.0, 50.4], &[100.0, 99.0], Better::Higher, Spread::default());
        assert_eq!(unknown.finding, Finding::Estimate);
        let none = judge_executions(&[], &[100.0], Better::Higher, earlier);
        assert_eq!((none.finding, none.speed), (Finding::TooFewRuns, None));
    }

    #[test]
    fn three_a_side_are_judged_by_how_far_they_lie_apart() {
        let (near, far) = ([100.0, 104.0, 97.0], [98.0, 120.0, 81.0]);
        let faster = near.map(|it| it * 1.3);
        assert_eq!(
            judge_executions(&faster, &near, Better::Higher, Spread::default()).finding,
            Finding::Faster
        );
        assert_eq!(
            judge_executions(&faster, &near, Better::Lower, Spread::default()).finding,
            Finding::Slower
        );
        assert_eq!(
            judge_executions(&far.map(|it| it * 1.1), &near, Better::Higher, Spread::default())
                .finding,
            Finding::CannotTell
        );
        let same = judge_executions(&[5.0; 3], &[5.0; 3], Better::Higher, Spread::default());
        assert_eq!((same.finding, same.p), (Finding::AsGood, Some(1.0)));
    }
}
