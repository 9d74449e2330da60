//! What a few repeated measurements say: the median, and how far they lie apart.

/// Median and extremes of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle sample; the mean of the two middle ones when their number is even.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

impl Summary {
    /// The summary of the samples; none when there are none.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Summary { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_order_nor_on_one_wild_sample() {
        let summary = Summary::of(&[3.0, 900.0, 1.0]).unwrap();
        assert_eq!(summary, Summary { median: 3.0, min: 1.0, max: 900.0 });
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(Summary::of(&[5.0]).unwrap().median, 5.0);
        assert_eq!(Summary::of(&[]), None);
    }
}
