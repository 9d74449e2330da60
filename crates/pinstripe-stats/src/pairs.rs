//! Compares two variants that took turns, so that a disturbance that affects both at the same time,
//! such as a slow minute of the disk, cancels out.
//!
//! The result is the median of the ratios in each round, with its interval; the signed-rank test
//! (Wilcoxon 1945) on their logarithms decides whether the difference is due to chance. A race is
//! decided by the interval that corresponds to that test (Tukey), which exists for any level: it
//! excludes the values that the test would reject.

use super::order::median_of_ratios;
use super::rank::{doubled_ranks, upper_tail};
use super::{Basis, Better, Finding, Interval, Verdict};

/// The most pairs for which the distribution is computed exactly.
const MOST_EXACT: usize = 60;
/// The smallest number of pairs; with fewer, the result could be due to chance even if one side won
/// all of them.
const FEWEST: usize = 6;

/// The comparison of the first values of pairs with the second values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paired {
    /// The ratio of speeds, first over second: the median over all pairs.
    pub speed: f64,
    /// The interval.
    pub interval: Interval,
    /// The p-value: the probability of pairs that are this one-sided if there is no difference.
    pub p: f64,
    /// Pairs.
    pub count: usize,
}

/// Compares the two sides of pairs. Returns `None` if a value is not above zero, and for fewer than
/// six pairs.
pub fn paired(pairs: &[(f64, f64)], better: Better) -> Option<Paired> {
    let logs = logs(pairs, better).filter(|it| it.len() >= FEWEST)?;
    let (speed, interval) = (super::median(&logs)?.exp(), median_of_ratios(&logs)?);
    Some(Paired { speed, interval, p: signed_ranks(&logs), count: pairs.len() })
}

/// Returns the range of speed ratios that the signed-rank test does not reject at this level.
/// Returns `None` if a value is not above zero, and if there are too few pairs for the level: fewer
/// than 6 for 95 %, fewer than 8 for 99 %.
pub fn bounds(pairs: &[(f64, f64)], better: Better, level: f64) -> Option<Interval> {
    let cut = means_outside(pairs.len(), level)?;
    let means = walsh_means(&logs(pairs, better)?);
    Some(Interval { low: means[cut].exp(), high: means[means.len() - 1 - cut].exp(), level })
}

/// Returns the logarithms of the ratios; `None` if a value is not above zero.
fn logs(pairs: &[(f64, f64)], better: Better) -> Option<Vec<f64>> {
    let log = |(of, to): &(f64, f64)| match better {
        Better::Higher => (of / to).ln(),
        Better::Lower => (to / of).ln(),
    };
    let is_sound = pairs.iter().all(|(of, to)| *of > 0.0 && *to > 0.0);
    is_sound.then(|| pairs.iter().map(log).collect())
}

/// Compares the two sides of pairs, and returns a verdict.
pub fn judge_pairs(pairs: &[(f64, f64)], better: Better) -> Option<Verdict> {
    let found = paired(pairs, better)?;
    let verdict = Verdict {
        finding: Finding::TooFewRuns,
        speed: Some(found.speed),
        interval: Some(found.interval),
        p: Some(found.p),
        runs: (found.count, found.count),
        basis: Basis::Rounds,
    };
    Some(verdict.concluded())
}

/// Returns the means of all pairs of numbers, each number also paired with itself, in order (the
/// Walsh averages).
fn walsh_means(numbers: &[f64]) -> Vec<f64> {
    let with = |at: usize| numbers[at..].iter().map(move |other| (numbers[at] + other) / 2.0);
    let mut means: Vec<f64> = (0..numbers.len()).flat_map(with).collect();
    means.sort_by(f64::total_cmp);
    means
}

/// Returns the number of Walsh averages outside of the interval on each side; `None` if there is no
/// such interval.
fn means_outside(count: usize, level: f64) -> Option<usize> {
    let tail = (1.0 - level) / 2.0;
    let n = count as f64;
    if count > MOST_EXACT {
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        return Some((n * (n + 1.0) / 4.0 - normal_beyond(tail) * deviation).floor() as usize - 1);
    }
    let ranks: Vec<usize> = (1..=count).collect();
    let all = 2_f64.powi(count as i32);
    let mut chance = 0.0;
    let outside = ways(&ranks).into_iter().take_while(|ways| {
        chance += ways / all;
        chance <= tail
    });
    // As many sums are too small to be chance as means are left out.
    outside.count().checked_sub(1)
}

/// Returns the value of the standard normal distribution that has this probability beyond it.
fn normal_beyond(tail: f64) -> f64 {
    let halve = |(low, high): (f64, f64), _| {
        let middle = (low + high) / 2.0;
        if upper_tail(middle) > tail { (middle, high) } else { (low, middle) }
    };
    (0..40).fold((0.0, 10.0), halve).0
}

/// Returns, for each sum, the number of subsets of the ranks that have this sum.
fn ways(ranks: &[usize]) -> Vec<f64> {
    let mut ways = vec![0.0; ranks.iter().sum::<usize>() + 1];
    ways[0] = 1.0;
    for rank in ranks {
        for sum in (*rank..ways.len()).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

/// Returns the two-sided p-value of the signed-rank test. Zeros have no sign and are left out;
/// equal values get the mean of their ranks.
fn signed_ranks(numbers: &[f64]) -> f64 {
    let signed: Vec<f64> = numbers.iter().copied().filter(|it| *it != 0.0).collect();
    let sizes: Vec<f64> = signed.iter().map(|it| it.abs()).collect();
    let ranks = doubled_ranks(&sizes, &[]);
    let is_more = |(number, _): &(&f64, &u64)| **number > 0.0;
    let sum: u64 = signed.iter().zip(&ranks).filter(is_more).map(|(_, rank)| rank).sum();
    let smaller = sum.min(ranks.iter().sum::<u64>() - sum);
    if signed.len() > MOST_EXACT {
        return approximate(&ranks, smaller);
    }
    let ranks: Vec<usize> = ranks.iter().map(|it| *it as usize).collect();
    let below: f64 = ways(&ranks)[..=smaller as usize].iter().sum();
    (2.0 * below / 2_f64.powi(ranks.len() as i32)).min(1.0)
}

/// Approximates the p-value for many pairs by the normal distribution, with the variance of the
/// ranks including ties.
fn approximate(doubled_ranks: &[u64], smaller: u64) -> f64 {
    let sum = doubled_ranks.iter().sum::<u64>() as f64 / 2.0;
    let squares: f64 = doubled_ranks.iter().map(|it| (*it as f64 / 2.0).powi(2)).sum();
    let z = ((sum / 2.0 - smaller as f64 / 2.0) - 0.5).max(0.0) / (squares / 4.0).sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LEVEL;
    use pinstripe_base::random::Noise;

    fn of_logs(logs: &[f64]) -> Vec<(f64, f64)> {
        logs.iter().map(|it| (it.exp(), 1.0)).collect()
    }

    fn is_near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn signs_are_counted_out_as_scipy_does() {
        // scipy.stats.wilcoxon(logs, method='exact').pvalue, and numpy.median(logs).
        let logs = [0.021, -0.013, 0.052, 0.034, 0.047, -0.008, 0.061, 0.029];
        let found = paired(&of_logs(&logs), Better::Higher).unwrap();
        is_near(found.p, 0.039_062_5);
        is_near(found.speed.ln(), 0.0315);
        is_near(signed_ranks(&[0.01, 0.02, 0.03, 0.04, 0.05, 0.06]), 0.031_25);
        let turned = paired(&of_logs(&logs), Better::Lower).unwrap();
        is_near(turned.speed, 1.0 / found.speed);
        is_near(turned.interval.low, 1.0 / found.interval.high);
    }

    #[test]
    fn the_interval_leaves_out_what_the_test_would_reject() {
        // Of eight, four means are outside on either side (Conover, table A12: the quantile at
        // 0.025 is 4).
        let logs = [0.021, -0.013, 0.052, 0.034, 0.047, -0.008, 0.061, 0.029];
        let found = bounds(&of_logs(&logs), Better::Higher, LEVEL).unwrap();
        let means = walsh_means(&logs);
        is_near(found.low.ln(), means[3]);
        is_near(found.high.ln(), means[means.len() - 4]);
        let at = |shift: f64| signed_ranks(&logs.map(|it| it - shift));
        assert!(at(found.low.ln() - 1e-6) < 0.05);
        assert!(at(found.low.ln() + 1e-6) > 0.05);
        assert!(at(found.high.ln() + 1e-6) < 0.05);
        assert!(at(found.high.ln() - 1e-6) > 0.05);
        // Of six all are needed.
        let six = bounds(&of_logs(&logs[..6]), Better::Higher, LEVEL).unwrap();
        is_near(six.low.ln(), -0.013);
        is_near(six.high.ln(), 0.052);
    }

    #[test]
    fn many_are_judged_nearly_as_if_they_were_counted_out() {
        let mut noise = Noise(3);
        let logs: Vec<f64> = (0..60).map(|_| 0.01 + noise.below(1000) as f64 / 5e3 - 0.1).collect();
        let sizes: Vec<f64> = logs.iter().map(|it| it.abs()).collect();
        let ranks = doubled_ranks(&sizes, &[]);
        let lost = logs.iter().zip(&ranks).filter(|(it, _)| **it < 0.0);
        let lost: u64 = lost.map(|(_, rank)| rank).sum();
        let smaller = lost.min(ranks.iter().sum::<u64>() - lost);
        let (exact, nearly) = (signed_ranks(&logs), approximate(&ranks, smaller));
        assert!((exact - nearly).abs() < 0.003, "{exact} {nearly}");
        let doubled: Vec<f64> = logs.iter().chain(&logs).copied().collect();
        let (wide, narrow) = (of_logs(&logs), of_logs(&doubled));
        let of = |pairs: &[(f64, f64)]| bounds(pairs, Better::Higher, LEVEL).unwrap();
        let (wide, narrow) = (of(&wide), of(&narrow));
        assert!(wide.low < narrow.low && narrow.high < wide.high, "{wide:?} {narrow:?}");
    }

    #[test]
    fn surer_intervals_are_wider_and_take_more_pairs() {
        let logs = [0.021, -0.013, 0.052, 0.034, 0.047, -0.008, 0.061, 0.029];
        let (sure, surer) = (0.95, 0.99);
        assert_eq!(bounds(&of_logs(&logs[..5]), Better::Higher, sure), None);
        assert_eq!(bounds(&of_logs(&logs[..7]), Better::Higher, surer), None);
        // Of eight all are needed: 2 / 2^8 is below 0.01, 4 / 2^8 is not.
        let all = bounds(&of_logs(&logs), Better::Higher, surer).unwrap();
        is_near(all.low.ln(), -0.013);
        is_near(all.high.ln(), 0.061);
        // scipy.stats.norm.isf
        assert!((normal_beyond(0.025) - 1.959_964).abs() < 1e-5);
        assert!((normal_beyond(0.005) - 2.575_829).abs() < 1e-5);
        let many = of_logs(&logs.repeat(10));
        let of_many = |level: f64| bounds(&many, Better::Higher, level).unwrap();
        assert!(of_many(surer).low < of_many(sure).low);
        assert!(of_many(surer).high > of_many(sure).high);
    }

    #[test]
    fn few_pairs_and_values_of_nothing_say_nothing() {
        assert_eq!(judge_pairs(&[(1.0, 9.0); 5], Better::Higher), None);
        assert_eq!(judge_pairs(&[(1.0, 0.0); 9], Better::Higher), None);
        let equal = judge_pairs(&[(5.0, 5.0); 9], Better::Higher).unwrap();
        assert_eq!((equal.finding, equal.speed), (Finding::AsGood, Some(1.0)));
    }

    /// Pairs on a disk that is slow by a third at times, with a noise of 4 % beside; the first side
    /// is so fast.
    fn turns(level: f64, count: usize, noise: &mut Noise) -> Vec<(f64, f64)> {
        let mut draw = || noise.below(1 << 20) as f64 / (1 << 20) as f64 - 0.5;
        let mut run =
            |level: f64| level * (1.0 + 0.04 * (draw() + draw() + draw() + draw()) * 3_f64.sqrt());
        let slow = |at: usize| if (at / 3).is_multiple_of(2) { 1.0 } else { 0.7 };
        (0..count).map(|at| (slow(at) * run(level), slow(at) * run(100.0))).collect()
    }

    #[test]
    fn what_is_equal_is_seldom_called_different_and_a_tenth_is_found_on_a_disk_that_swings() {
        let mut noise = Noise(11);
        let mut count = |level: f64| {
            let differs = |_: &u64| {
                let verdict = judge_pairs(&turns(level, 10, &mut noise), Better::Higher);
                verdict.unwrap().is_different()
            };
            (0..100).filter(differs).count()
        };
        let (equal, slower) = (count(100.0), count(90.0));
        assert!(equal <= 5, "{equal} of 100 equal ones");
        assert!(slower >= 90, "{slower} of 100 that are a tenth slower");
    }
}
