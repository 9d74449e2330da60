//! Finds the knee: the load above which more load gains little throughput and costs much latency.

/// Returns the point where the curve of throughput over latency bends. Both are scaled to 0 to 1,
/// and the point is chosen that is furthest above the line from the first corner to the last
/// (Satopää, Albrecht, Irwin and Raghavan 2011, Finding a "Kneedle" in a Haystack, ICDCS
/// workshops). With a handful of points nothing is smoothed, and the point with the largest
/// difference is taken.
///
/// Points are pairs (throughput, latency) in the order of load; the first of several equal points
/// is chosen. Returns `None` for fewer than three points, and if a value is not greater than zero.
pub fn knee(points: &[(f64, f64)]) -> Option<usize> {
    let is_sound = |(rate, time): &(f64, f64)| *rate > 0.0 && *time > 0.0;
    if points.len() < 3 || !points.iter().all(is_sound) {
        return None;
    }
    let rate = scaled(points.iter().map(|it| it.0), 1.0);
    let time = scaled(points.iter().map(|it| it.1), 0.0);
    let above = |at: usize| rate[at] - time[at];
    (0..points.len()).reduce(|best, at| if above(at) > above(best) { at } else { best })
}

/// Scales values from 0 for the smallest to 1 for the largest; returns `flat` if all are equal.
fn scaled(all: impl Iterator<Item = f64> + Clone, flat: f64) -> Vec<f64> {
    let low = all.clone().fold(f64::MAX, f64::min);
    let high = all.clone().fold(f64::MIN, f64::max);
    let part = |it: f64| if high > low { (it - low) / (high - low) } else { flat };
    all.map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_a_closed_loop_is_full() {
        // Little's law: until all 8 servers are busy throughput grows and no request waits.
        let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0_f64];
        let points: Vec<(f64, f64)> =
            loads.iter().map(|load| (load.min(8.0) * 1000.0, (load / 8.0).max(1.0))).collect();
        assert_eq!(knee(&points), Some(3));
        // A disk that one request keeps busy: all more only waits.
        let points: Vec<(f64, f64)> = loads.iter().map(|load| (500.0, *load)).collect();
        assert_eq!(knee(&points), Some(0));
        // One that bends slowly, and one that loses throughput by too much load.
        let slow = [(71_675.0, 11.0), (148_064.0, 47.0), (173_476.0, 169.0), (181_617.0, 332.0)];
        assert_eq!(knee(&slow), Some(1));
        assert_eq!(knee(&[(3082.0, 239.0), (3620.0, 532.0), (2972.0, 2400.0)]), Some(1));
    }

    #[test]
    fn nothing_is_said_of_few_points_and_of_zeros() {
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 1.0)]), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 1.0), (0.0, 2.0)]), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0)]), None);
    }
}
