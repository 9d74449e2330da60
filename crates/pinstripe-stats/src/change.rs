//! Finds permanent changes in a history: divisive estimation by energy distance (Matteson and James
//! 2014, "e-divisive"), which assumes nothing about the distribution.
//!
//! A change is accepted if random permutations of the same points rarely give a change as large.

use pinstripe_base::random::Noise;

/// A change has at least this many points before and after it: a single spike is not a change.
pub(crate) const MIN_SIDE: usize = 3;
/// The number of random permutations that are tried.
const ORDERS: usize = 499;
/// The highest probability of a false change.
const ALPHA: f64 = 0.05;

/// Returns the places of changes, in order: each is the index of the first point after the change.
/// At least eight points are needed to distinguish a change from chance.
pub fn change_points(history: &[f64], seed: u64) -> Vec<usize> {
    let mut found = Vec::new();
    let mut segments = vec![(0, history.len())];
    let mut noise = Noise(seed);
    while let Some((start, end)) = segments.pop() {
        let points = &history[start..end];
        let Some((at, distance)) = best_split(points) else { continue };
        if chance_of(points, distance, &mut noise) <= ALPHA {
            found.push(start + at);
            segments.extend([(start, start + at), (start + at, end)]);
        }
    }
    found.sort_unstable();
    found
}

/// Returns the distance of two samples: `nm / (n + m)` times their energy distance, unbiased
/// (equation 5 of the paper). Returns `None` if a sample has fewer than two points.
#[cfg(test)]
pub(crate) fn divergence(one: &[f64], other: &[f64]) -> Option<f64> {
    let (n, m) = (one.len(), other.len());
    (n >= 2 && m >= 2).then(|| scaled(n, m, between(one, other), within(one), within(other)))
}

fn scaled(n: usize, m: usize, between: f64, in_one: f64, in_other: f64) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let pairs = |count: f64| count * (count - 1.0) / 2.0;
    let energy = 2.0 * between / (n * m) - in_one / pairs(n) - in_other / pairs(m);
    n * m / (n + m) * energy
}

fn between(one: &[f64], other: &[f64]) -> f64 {
    one.iter().map(|a| other.iter().map(|b| (a - b).abs()).sum::<f64>()).sum()
}

fn within(points: &[f64]) -> f64 {
    (1..points.len()).map(|at| between(&points[at..=at], &points[..at])).sum()
}

/// The split with the largest divergence.
fn best_split(points: &[f64]) -> Option<(usize, f64)> {
    let count = points.len();
    if count < 2 * MIN_SIDE {
        return None;
    }
    let (left, right) = points.split_at(MIN_SIDE);
    let (mut across, mut in_left, mut in_right) =
        (between(left, right), within(left), within(right));
    let mut best = (MIN_SIDE, scaled(MIN_SIDE, count - MIN_SIDE, across, in_left, in_right));
    for at in MIN_SIDE + 1..=count - MIN_SIDE {
        // The point before the new split goes from the right side to the left.
        let moved = &points[at - 1..at];
        let (to_left, to_right) =
            (between(moved, &points[..at - 1]), between(moved, &points[at..]));
        across += to_right - to_left;
        in_left += to_left;
        in_right -= to_right;
        let distance = scaled(at, count - at, across, in_left, in_right);
        if distance > best.1 {
            best = (at, distance);
        }
    }
    Some(best)
}

/// Returns the probability of a split at least as good by chance, from random permutations of the
/// points.
fn chance_of(points: &[f64], distance: f64, noise: &mut Noise) -> f64 {
    let mut shuffled = points.to_vec();
    let mut as_good = || {
        for at in (1..shuffled.len()).rev() {
            shuffled.swap(at, noise.below(at as u64 + 1) as usize);
        }
        // Sums in another order differ in their last digits.
        best_split(&shuffled).is_some_and(|(_, other)| other >= distance * (1.0 - 1e-9))
    };
    let as_good = (0..ORDERS).filter(|_| as_good()).count();
    (1 + as_good) as f64 / (1 + ORDERS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divergence_is_the_definition_s() {
        // n = m = 3: numpy.abs(numpy.subtract.outer(a, b)) over all pairs, then equation 5.
        let found = divergence(&[1.0, 2.0, 4.0], &[7.0, 9.0, 10.0]).unwrap();
        assert!((found - 13.0).abs() < 1e-12, "{found}");
        assert_eq!(divergence(&[1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn the_quick_search_finds_what_the_definition_finds() {
        let mut noise = Noise(3);
        let points: Vec<f64> = (0..40).map(|_| noise.below(1000) as f64).collect();
        let by_definition = (MIN_SIDE..=points.len() - MIN_SIDE)
            .map(|at| (at, divergence(&points[..at], &points[at..]).unwrap()))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap();
        let found = best_split(&points).unwrap();
        assert_eq!(found.0, by_definition.0);
        assert!((found.1 - by_definition.1).abs() < 1e-6);
    }

    #[test]
    fn steps_are_found_where_they_are() {
        let mut noise = Noise(1);
        let mut around = |level: f64, points: usize| -> Vec<f64> {
            (0..points).map(|_| level + noise.below(100) as f64 / 25.0).collect()
        };
        let history = [around(100.0, 12), around(90.0, 9), around(110.0, 15)].concat();
        assert_eq!(change_points(&history, 5), [12, 21]);
        assert_eq!(change_points(&around(100.0, 40), 5), [] as [usize; 0]);
    }

    #[test]
    fn one_spike_and_a_short_history_are_no_change() {
        let mut spike = vec![10.0, 10.1, 9.9, 10.2, 9.8, 10.0, 10.1, 9.9, 10.05, 10.0];
        spike[5] = 50.0;
        assert_eq!(change_points(&spike, 1), [] as [usize; 0]);
        assert_eq!(change_points(&[1.0, 1.0, 1.0, 9.0, 9.0], 1), [] as [usize; 0]);
        assert_eq!(change_points(&[], 1), [] as [usize; 0]);
        // Nothing ever changed: all orders are as good.
        assert_eq!(change_points(&[4.0; 20], 1), [] as [usize; 0]);
    }
}
