//! Intervals of medians by order statistics: the median is between the k-th smallest and the k-th
//! largest of `n` samples with a probability that depends only on `n` and `k`, whatever the
//! distribution. The ends are interpolated between two neighbouring ranks (Hettmansperger and
//! Sheather 1986), so that the stated level is met for every number of samples from six on.
//!
//! Invariant: an interval states its level, and its coverage is at least that. With fewer than six
//! samples the interval extends from the smallest to the largest, and its level is the one that
//! this number allows.

use serde::{Deserialize, Serialize};

use super::summary::quantile_of_sorted;

/// The probability that the true value is within an interval from enough samples.
pub const LEVEL: f64 = 0.95;
/// The level for which the ends of an interval are computed. The computed level is above [`LEVEL`]
/// because measuring stops when the interval is narrow, and intervals that are narrow by chance
/// miss the true value more often. With such a stop the true coverage is 93 to 97 %, as the tests
/// show.
const COMPUTED: f64 = 0.96;
/// The level of each of the two intervals from which the interval of a ratio is computed.
const PART: f64 = 0.93;
/// The number of samples on each side from which the interval of a ratio has the full level.
const RATIO_FULL: usize = 4;

/// An interval for the true value, computed from samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The probability that the interval contains the true value; files of older versions do not
    /// contain it.
    #[serde(default = "usual_level")]
    pub level: f64,
}

fn usual_level() -> f64 {
    LEVEL
}

impl Interval {
    /// Creates an interval with the level [`LEVEL`].
    pub fn new(low: f64, high: f64) -> Self {
        Interval { low, high, level: LEVEL }
    }

    /// Half of the interval's width, as a share of `middle`; infinite if `middle` is zero.
    pub fn half_width(&self, middle: f64) -> f64 {
        match middle {
            0.0 => f64::INFINITY,
            middle => (self.high - self.low) / 2.0 / middle.abs(),
        }
    }

    /// Whether the interval contains `value`.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether the interval has the usual level; otherwise it extends from the smallest to the
    /// largest sample.
    pub fn is_full(&self) -> bool {
        self.level >= LEVEL
    }

    /// `95 %`.
    pub fn level_text(&self) -> String {
        format!("{:.0} %", self.level * 100.0)
    }

    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Interval { low: change(self.low), high: change(self.high), ..self }
    }
}

/// Returns the interval of the median; `None` for fewer than two samples.
pub fn median_interval(samples: &[f64]) -> Option<Interval> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let found = of_sorted(&sorted, COMPUTED)?;
    Some(Interval { level: if found.level >= COMPUTED { LEVEL } else { found.level }, ..found })
}

/// Returns the interval of the median of ratios that have these logarithms.
pub(super) fn median_of_ratios(logs: &[f64]) -> Option<Interval> {
    Some(median_interval(logs)?.map(f64::exp))
}

/// Returns the interval of `median(of) / median(to)`: the intervals of both medians, on a
/// logarithmic scale, are combined as for independent values (Donner and Zou 2012, MOVER). Returns
/// `None` for fewer than two samples on a side, and if a value is not above zero.
pub(crate) fn ratio_interval(of: &[f64], to: &[f64]) -> Option<Interval> {
    if of.iter().chain(to).any(|it| *it <= 0.0) {
        return None;
    }
    let logs = |samples: &[f64]| -> Option<(f64, Interval)> {
        let mut logs: Vec<f64> = samples.iter().map(|it| it.ln()).collect();
        logs.sort_by(f64::total_cmp);
        let found = of_sorted(&logs, PART)?;
        Some((quantile_of_sorted(&logs, 0.5), found))
    };
    let ((over, one), (under, other)) = (logs(of)?, logs(to)?);
    let ratio = over - under;
    let below = (over - one.low).hypot(other.high - under);
    let above = (one.high - over).hypot(under - other.low);
    let level = match of.len().min(to.len()) >= RATIO_FULL {
        true => LEVEL,
        false => one.level.min(other.level),
    };
    Some(Interval { low: (ratio - below).exp(), high: (ratio + above).exp(), level })
}

/// Returns the interval with exactly this level if the number of samples allows it, or else the
/// range of all samples.
fn of_sorted(sorted: &[f64], level: f64) -> Option<Interval> {
    let count = sorted.len();
    if count < 2 {
        return None;
    }
    let ends = |rank: usize| (sorted[rank - 1], sorted[count - rank]);
    let (widest, (low, high)) = (level_of_rank(count, 1), ends(1));
    if widest < level {
        return Some(Interval { low, high, level: widest });
    }
    let most = count.div_ceil(2);
    let rank = (1..most).take_while(|rank| level_of_rank(count, *rank) >= level).last();
    let rank = rank.unwrap_or(1);
    let (wide, narrow) = (level_of_rank(count, rank), level_of_rank(count, rank + 1));
    let part = if wide > narrow { (wide - level) / (wide - narrow) } else { 0.0 };
    let (n, k) = (count as f64, rank as f64);
    // The weight is not linear in the level: it would miss most in the middle.
    let weight = (n - k) * part / (k + (n - 2.0 * k) * part);
    let ((low, high), (inner_low, inner_high)) = (ends(rank), ends(rank + 1));
    Some(Interval {
        low: low + weight * (inner_low - low),
        high: high + weight * (inner_high - high),
        level,
    })
}

/// Returns the probability that the median is between the sample with this rank from below and the
/// sample with this rank from above.
fn level_of_rank(count: usize, rank: usize) -> f64 {
    let mut ways = 1.0;
    let mut outside = 0.0;
    for below in 0..rank {
        outside += ways;
        ways *= (count - below) as f64 / (below + 1) as f64;
    }
    1.0 - 2.0 * outside / 2_f64.powi(count as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn levels_are_those_of_the_binomial_distribution() {
        // 1 - 2 * scipy.stats.binom.cdf(rank - 1, count, 0.5)
        for (count, rank, level) in [
            (2, 1, 0.5),
            (3, 1, 0.75),
            (4, 1, 0.875),
            (5, 1, 0.9375),
            (6, 1, 0.96875),
            (7, 1, 0.984_375),
            (10, 2, 0.978_515_625),
            (20, 6, 0.958_610_534_667_968_8),
        ] {
            is_near(level_of_rank(count, rank), level);
        }
    }

    #[test]
    fn of_fewer_than_six_it_is_all_of_them_and_says_what_that_is_worth() {
        for (count, level) in [(2, "50 %"), (3, "75 %"), (4, "88 %"), (5, "94 %"), (6, "95 %")] {
            let samples: Vec<f64> = (0..count).map(f64::from).collect();
            let found = median_interval(&samples).unwrap();
            assert_eq!(found.level_text(), level, "{count}");
            assert_eq!(found.is_full(), count == 6);
            assert!(count == 6 || (found.low, found.high) == (0.0, f64::from(count - 1)));
        }
        assert_eq!(median_interval(&[1.0]), None);
    }

    #[test]
    fn ends_lie_between_the_ranks_whose_levels_enclose_the_wanted_one() {
        let samples: Vec<f64> = (1..=10).map(f64::from).collect();
        let found = median_interval(&samples).unwrap();
        assert!(found.low > 2.0 && found.low < 3.0 && found.high > 8.0, "{found:?}");
        is_near(found.low + found.high, 11.0);
        let two = of_sorted(&samples, level_of_rank(10, 2)).unwrap();
        assert_eq!((two.low, two.high), (2.0, 9.0));
    }

    #[test]
    fn a_ratio_is_as_wide_as_both_together() {
        let of: Vec<f64> = [97.1, 99.8, 100.3, 101.9, 98.4, 103.2, 100.9].to_vec();
        let to: Vec<f64> = of.iter().map(|it| it / 2.0).collect();
        let (found, back) = (ratio_interval(&of, &to).unwrap(), ratio_interval(&to, &of).unwrap());
        assert!(found.contains(2.0) && found.low > 1.9 && found.high < 2.1, "{found:?}");
        is_near(found.low, 1.0 / back.high);
        assert_eq!(found.level, LEVEL);
        assert_eq!(ratio_interval(&of[..2], &to).unwrap().level, 0.5);
        assert_eq!(ratio_interval(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(ratio_interval(&[1.0, 2.0], &[0.0, 0.0]), None);
    }

    #[test]
    fn equal_samples_leave_no_doubt() {
        let sure = median_interval(&[5.0; 7]).unwrap();
        assert_eq!((sure.low, sure.high, sure.half_width(5.0)), (5.0, 5.0, 0.0));
        assert!(sure.contains(5.0) && !sure.contains(5.1));
        assert_eq!(Interval::new(-1.0, 1.0).half_width(0.0), f64::INFINITY);
    }
}
