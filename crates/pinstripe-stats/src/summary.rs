//! The median and the spread of samples.

use serde::{Deserialize, Serialize};

/// Median and extremes of some samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle sample; if the number of samples is even, the mean of the two middle ones.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

impl Summary {
    /// Returns the summary of the samples; `None` if there are none.
    pub fn from_samples(samples: &[f64]) -> Option<Summary> {
        let sorted = sorted(samples);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Summary { median: quantile_of_sorted(&sorted, 0.5), min, max })
    }
}

/// Returns the median; `None` if there are no samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// Returns the quantile `q`, from 0 to 1, with linear interpolation between the samples: type 7 of
/// Hyndman and Fan (1996), the default of R and NumPy. `None` without samples.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    (!samples.is_empty()).then(|| quantile_of_sorted(&sorted(samples), q))
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

pub(super) fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let place = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    match sorted.get(below + 1) {
        Some(above) if part > 0.0 => sorted[below] + part * (above - sorted[below]),
        _ => sorted[below],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_order_nor_on_one_wild_sample() {
        let summary = Summary::from_samples(&[3.0, 900.0, 1.0]).unwrap();
        assert_eq!(summary, Summary { median: 3.0, min: 1.0, max: 900.0 });
        assert_eq!(Summary::from_samples(&[4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(Summary::from_samples(&[5.0]).unwrap().median, 5.0);
        assert_eq!(Summary::from_samples(&[]), None);
    }

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.quantile([7.1, 3.2, 9.9, 4.4, 5.0, 8.8], q)
        let samples = [7.1, 3.2, 9.9, 4.4, 5.0, 8.8];
        for (q, wanted) in
            [(0.0, 3.2), (0.1, 3.8), (0.25, 4.55), (0.5, 6.05), (0.9, 9.35), (1.0, 9.9)]
        {
            let found = quantile(&samples, q).unwrap();
            assert!((found - wanted).abs() < 1e-12, "{q}: {found}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }
}
