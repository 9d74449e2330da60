//! Intervals by the bootstrap (Efron 1979): the samples are drawn again and again, with
//! replacement, and the middle of what comes out is the interval (the percentile method).

use serde::{Deserialize, Serialize};

use super::summary::quantile_of_sorted;
use crate::random::Noise;

/// The probability that the true value lies within an interval.
pub const LEVEL: f64 = 0.95;
/// The number of resamples: the ends of the interval are then steady to about one
/// in a hundred of its width.
const DRAWS: usize = 4000;

/// The interval of the true value, as far as the samples say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Half of its width as a share of `middle`; infinite around zero.
    pub fn half_width(&self, middle: f64) -> f64 {
        match middle {
            0.0 => f64::INFINITY,
            middle => (self.high - self.low) / 2.0 / middle.abs(),
        }
    }

    /// Whether it contains `value`.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The interval of the median; none of fewer than two samples.
pub fn median_interval(samples: &[f64], seed: u64) -> Option<Interval> {
    (samples.len() >= 2).then(|| {
        let mut resampling = Resampling::new(seed);
        middle((0..DRAWS).map(|_| resampling.median(samples)).collect())
    })
}

/// The interval of `median(of) / median(to)`; none of fewer than two samples each, and none where a
/// median of zero is drawn in `to`.
pub fn ratio_interval(of: &[f64], to: &[f64], seed: u64) -> Option<Interval> {
    if of.len() < 2 || to.len() < 2 {
        return None;
    }
    let mut resampling = Resampling::new(seed);
    let mut draw = || resampling.median(of) / resampling.median(to);
    let ratios: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    ratios.iter().all(|ratio| ratio.is_finite()).then(|| middle(ratios))
}

/// Draws from samples, with one buffer for all draws.
struct Resampling {
    noise: Noise,
    drawn: Vec<f64>,
}

impl Resampling {
    fn new(seed: u64) -> Self {
        Resampling { noise: Noise(seed), drawn: Vec::new() }
    }

    /// The median of as many draws as there are samples.
    fn median(&mut self, samples: &[f64]) -> f64 {
        let Resampling { noise, drawn } = self;
        let count = samples.len() as u64;
        drawn.clear();
        drawn.extend((0..count).map(|_| samples[noise.below(count) as usize]));
        drawn.sort_unstable_by(f64::total_cmp);
        quantile_of_sorted(drawn, 0.5)
    }
}

fn middle(mut drawn: Vec<f64>) -> Interval {
    drawn.sort_unstable_by(f64::total_cmp);
    let outside = (1.0 - LEVEL) / 2.0;
    Interval {
        low: quantile_of_sorted(&drawn, outside),
        high: quantile_of_sorted(&drawn, 1.0 - outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: [f64; 7] = [97.1, 99.8, 100.3, 101.9, 98.4, 103.2, 100.9];
    const FAST: [f64; 7] = [110.2, 112.8, 109.1, 111.7, 113.9, 108.5, 112.0];

    fn is_near(found: f64, wanted: f64, within: f64) {
        assert!((found - wanted).abs() <= within, "{found} is not {wanted}");
    }

    #[test]
    fn intervals_are_those_of_scipy() {
        // scipy.stats.bootstrap((SLOW,), numpy.median, n_resamples=200000, method='percentile',
        // vectorized=True).confidence_interval
        let slow = median_interval(&SLOW, 1).unwrap();
        is_near(slow.low, 98.4, 0.61);
        is_near(slow.high, 101.9, 0.61);
        // The same of (FAST, SLOW) with the ratio of their medians.
        let ratio = ratio_interval(&FAST, &SLOW, 1).unwrap();
        is_near(ratio.low, 1.081_269, 0.006);
        is_near(ratio.high, 1.138_211, 0.006);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        assert_eq!(median_interval(&SLOW, 7), median_interval(&SLOW, 7));
        assert_eq!(ratio_interval(&FAST, &SLOW, 7), ratio_interval(&FAST, &SLOW, 7));
    }

    #[test]
    fn too_few_samples_have_no_interval() {
        assert_eq!(median_interval(&[1.0], 1), None);
        assert_eq!(ratio_interval(&[1.0, 2.0], &[1.0], 1), None);
        assert_eq!(ratio_interval(&[1.0, 2.0], &[0.0, 0.0], 1), None);
    }

    #[test]
    fn equal_samples_leave_no_doubt() {
        let sure = median_interval(&[5.0; 4], 1).unwrap();
        assert_eq!((sure.low, sure.high, sure.half_width(5.0)), (5.0, 5.0, 0.0));
        assert!(sure.contains(5.0) && !sure.contains(5.1));
        assert_eq!(Interval { low: -1.0, high: 1.0 }.half_width(0.0), f64::INFINITY);
    }
}
