//! Detects samples with two modes, which a median and an interval do not describe; the reader must
//! know this.
//!
//! The largest gap between neighbouring samples is compared with the gap that the uniform
//! distribution, the flattest with one mode, would have by chance. The spacings of `n` uniform
//! samples divide their range into `n - 1` parts, and a given spacing is larger than a share `g` of
//! the range with the probability `(1 - g)^(n - 2)`.

use super::summary::quantile_of_sorted;

/// The smallest number of samples in a mode; fewer samples are outliers.
const FEWEST: usize = 3;
/// The smallest number of samples for which an answer is given.
const SAMPLES: usize = 8;
/// The probability that two clusters are found although there is only one.
const ALPHA: f64 = 0.01;
/// Clusters whose centres differ by less than this share are ignored.
const APART: f64 = 0.10;

/// Two clusters: the centre of each and the number of its samples, the lower cluster first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Humps {
    /// The lower centre.
    pub low: f64,
    /// The higher one.
    pub high: f64,
    /// Samples of each.
    pub counts: (usize, usize),
}

/// Returns the two clusters of these samples; `None` if they form one.
pub fn humps(samples: &[f64]) -> Option<Humps> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let range = sorted.last()? - sorted.first()?;
    if count < SAMPLES || range <= 0.0 {
        return None;
    }
    let places = FEWEST..=count - FEWEST;
    let tried = (count - 2 * FEWEST + 1) as f64;
    let least = 1.0 - (ALPHA / tried).powf(1.0 / (count - 2) as f64);
    let gap = |at: &usize| sorted[*at] - sorted[*at - 1];
    let at = places.max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
    let (below, above) = sorted.split_at(at);
    let (low, high) = (quantile_of_sorted(below, 0.5), quantile_of_sorted(above, 0.5));
    let is_told = gap(&at) > least * range && (high - low) > APART * low.abs();
    is_told.then_some(Humps { low, high, counts: (below.len(), above.len()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::random::Noise;

    #[test]
    fn two_heaps_are_seen_and_one_is_not() {
        let two = [4.08, 5.24, 4.07, 4.10, 5.21, 4.09, 5.25, 4.06, 4.11];
        let found = humps(&two).unwrap();
        assert_eq!(found, Humps { low: 4.085, high: 5.24, counts: (6, 3) });
        // Two stray ones are no heap, and heaps that nearly touch are of no interest.
        assert_eq!(humps(&[4.08, 5.24, 4.07, 4.10, 5.21, 4.09, 4.12, 4.06, 4.11]), None);
        assert_eq!(humps(&two.map(|it| 100.0 + it)), None);
        assert_eq!(humps(&two[..7]), None);
        assert_eq!(humps(&[5.0; 9]), None);
    }

    #[test]
    fn chance_seldom_makes_two_heaps() {
        let mut noise = Noise(5);
        let mut draw = || 1.0 + noise.below(1 << 20) as f64 / f64::from(1 << 20);
        for count in [8, 12, 20] {
            let seen = (0..1000).filter(|_| {
                let samples: Vec<f64> = (0..count).map(|_| draw()).collect();
                humps(&samples).is_some()
            });
            let seen = seen.count();
            assert!(seen <= 20, "{seen} of 1000 lots of {count}");
        }
    }
}
