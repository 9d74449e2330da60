//! Tests whether one set of samples tends to be higher than another: the rank-sum test of Mann and
//! Whitney (1947).
//!
//! For few samples the p-value is exact, including ties; for many samples the normal approximation
//! is used, with corrections for ties and continuity.

/// The most samples, in both sets together, for which the p-value is computed exactly.
const MOST_EXACT: usize = 60;

/// The result of the rank-sum test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RankTest {
    /// The number of pairs in which the sample of the first set is larger; a tie counts as half a
    /// pair.
    pub u: f64,
    /// The two-sided p-value: the probability of a difference at least this large if there is no
    /// real difference.
    pub p: f64,
}

/// Compares two sets of samples; returns `None` if one is empty.
pub(crate) fn mann_whitney(one: &[f64], other: &[f64]) -> Option<RankTest> {
    let (n, m) = (one.len(), other.len());
    if n == 0 || m == 0 {
        return None;
    }
    let ranks = doubled_ranks(one, other);
    let sum: u64 = ranks[..n].iter().sum();
    let u = sum as f64 / 2.0 - (n * (n + 1)) as f64 / 2.0;
    let p = match n + m <= MOST_EXACT {
        true => exact(&ranks, n, sum),
        false => approximate(&ranks, n, u),
    };
    Some(RankTest { u, p })
}

/// Returns twice the rank of each sample among all samples, in the order of the sets. Equal samples
/// get the mean of their ranks, which may end in a half.
pub(super) fn doubled_ranks(one: &[f64], other: &[f64]) -> Vec<u64> {
    let all: Vec<f64> = one.iter().chain(other).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*a].total_cmp(&all[*b]));
    let mut ranks = vec![0; all.len()];
    let mut first = 0;
    while first < order.len() {
        let value = all[order[first]];
        let tied = order[first..].iter().take_while(|at| all[**at] == value).count();
        for at in &order[first..first + tied] {
            ranks[*at] = (2 * first + tied + 1) as u64;
        }
        first += tied;
    }
    ranks
}

/// Counts, of all ways to choose `n` of the ranks, those whose sum is at least as extreme.
fn exact(ranks: &[u64], n: usize, sum: u64) -> f64 {
    let most: usize = ranks.iter().sum::<u64>() as usize;
    // ways[k][s]: choices of k ranks that add up to s.
    let mut ways = vec![vec![0.0_f64; most + 1]; n + 1];
    ways[0][0] = 1.0;
    for rank in ranks.iter().map(|rank| *rank as usize) {
        for chosen in (1..=n).rev() {
            let (below, these) = ways.split_at_mut(chosen);
            let fewer = &below[chosen - 1];
            for total in rank..=most {
                these[0][total] += fewer[total - rank];
            }
        }
    }
    let all: f64 = ways[n].iter().sum();
    let (low, high) = (ways[n][..=sum as usize].iter(), ways[n][sum as usize..].iter());
    let tail = low.sum::<f64>().min(high.sum::<f64>()) / all;
    (2.0 * tail).min(1.0)
}

fn approximate(ranks: &[u64], n: usize, u: f64) -> f64 {
    let (n, all) = (n as f64, ranks.len() as f64);
    let m = all - n;
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let tied: f64 = sorted
        .chunk_by(|a, b| a == b)
        .map(|tied| tied.len() as f64)
        .map(|tied| tied * tied * tied - tied)
        .sum();
    let variance = n * m / 12.0 * ((all + 1.0) - tied / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

/// Returns the probability that a standard normal number exceeds `z` >= 0, by Abramowitz and Stegun
/// 26.2.17, with an error below 7.5e-8.
pub(super) fn upper_tail(z: f64) -> f64 {
    const B: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let sum = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_lots_are_counted_out_as_scipy_does() {
        // scipy.stats.mannwhitneyu(one, other, method='exact', alternative='two-sided')
        let cases: [(&[f64], &[f64], f64, f64); 4] = [
            (&[97.1, 99.8, 100.3], &[110.2, 112.8, 109.1], 0.0, 0.1),
            (
                &[97.1, 99.8, 100.3, 101.9],
                &[110.2, 112.8, 109.1, 111.7],
                0.0,
                0.028_571_428_571_428_57,
            ),
            (
                &[1.1, 4.2, 3.3, 8.7, 2.5],
                &[6.1, 2.9, 7.7, 9.2, 5.0, 8.1],
                7.0,
                0.177_489_177_489_177_47,
            ),
            (
                &[97.1, 99.8, 100.3, 101.9, 98.4, 103.2, 100.9],
                &[110.2, 112.8, 109.1, 111.7, 113.9, 108.5, 112.0],
                0.0,
                0.000_582_750_582_750_582_8,
            ),
        ];
        // With ties: scipy.stats.permutation_test over all orders, the statistic being U of
        // mid-ranks.
        let tied: [(&[f64], &[f64], f64, f64); 2] = [
            (&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 4.0, 4.0, 5.0, 6.0], 5.5, 0.182_539_682_539_682_53),
            (&[3.0, 3.0, 3.0, 4.0], &[3.0, 5.0, 5.0, 5.0], 2.5, 0.142_857_142_857_142_85),
        ];
        for (one, other, u, p) in cases.into_iter().chain(tied) {
            let found = mann_whitney(one, other).unwrap();
            assert_eq!(found.u, u, "{one:?}");
            assert!((found.p - p).abs() < 1e-12, "{one:?}: {}", found.p);
            // Which of them is asked about first does not matter.
            assert!((mann_whitney(other, one).unwrap().p - p).abs() < 1e-12, "{one:?}");
        }
    }

    #[test]
    fn large_lots_are_approximated_as_scipy_does() {
        let one: Vec<f64> =
            (0..40).map(|i| f64::from((i * 37) % 101) + 0.5 * f64::from(i % 2)).collect();
        let other: Vec<f64> = (0..35).map(|i| f64::from((i * 53) % 97 + 12)).collect();
        // scipy.stats.mannwhitneyu(one, other, method='asymptotic', alternative='two-sided')
        let found = mann_whitney(&one, &other).unwrap();
        assert_eq!(found.u, 608.0);
        assert!((found.p - 0.331_169_493_570_641_74).abs() < 1e-6, "{}", found.p);
        // The same with many ties: of numpy.round(one / 10) and numpy.round(other / 10).
        let tens =
            |lot: &[f64]| lot.iter().map(|it| (it / 10.0).round_ties_even()).collect::<Vec<_>>();
        let found = mann_whitney(&tens(&one), &tens(&other)).unwrap();
        assert_eq!(found.u, 619.0);
        assert!((found.p - 0.390_328_134_250_120_36).abs() < 1e-6, "{}", found.p);
    }

    #[test]
    fn equal_lots_do_not_differ_and_empty_ones_cannot() {
        assert_eq!(mann_whitney(&[2.0; 4], &[2.0; 4]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[2.0; 40], &[2.0; 40]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
    }
}
