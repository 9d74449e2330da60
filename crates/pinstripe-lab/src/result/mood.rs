//! How the speed of the disk changes during an execution, by the time of a short read that is
//! always the same.

use std::collections::BTreeMap;

use pinstripe_stats::{median, quantile};

use super::Results;

/// The smallest number of rounds for which a range is reported.
const KNOWN: usize = 5;
/// If a disk's times vary by more than this share, the disk is not quiet.
const MOVED: f64 = 0.2;

impl Results {
    /// The figure for the time that a short read of the disk took before a run.
    pub(crate) const PROBED_BEFORE: &str = "disk_probe_us";
    /// The figure for the time that a short read of the disk took after a run.
    pub(crate) const PROBED_AFTER: &str = "disk_probe_after_us";

    /// The range of the time of a short read over the rounds, in microseconds; `None` if it is so
    /// small that the disk was quiet.
    pub(crate) fn disk_mood(&self) -> Option<(f64, f64)> {
        let mut rounds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for run in self.variants.iter().flat_map(|it| &it.runs) {
            let Some(round) = run.round else { continue };
            let times = [Self::PROBED_BEFORE, Self::PROBED_AFTER];
            let times = times.iter().filter_map(|name| run.measured.figures.get(*name));
            rounds.entry(round).or_default().extend(times);
        }
        let medians: Vec<f64> = rounds.values().filter_map(|it| median(it)).collect();
        range(&medians).filter(|(low, high)| *high > low * (1.0 + MOVED))
    }
}

/// The 10 % and 90 % quantiles of the rounds' medians, which a single bad moment does not change. A
/// probe after a write is slower than one after a read; each round has both.
fn range(rounds: &[f64]) -> Option<(f64, f64)> {
    let (low, high) = (quantile(rounds, 0.1)?, quantile(rounds, 0.9)?);
    (rounds.len() >= KNOWN).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::results;

    /// What is said where the probe of each run takes so long.
    fn find_modes(times: &[f64]) -> Option<(f64, f64)> {
        let levels = vec![100.0; times.len()];
        let mut made = results(&[("a", &levels), ("b", &levels)]);
        for variant in &mut made.variants {
            for (run, time) in variant.runs.iter_mut().zip(times) {
                run.measured.figures.insert(Results::PROBED_BEFORE.to_owned(), *time);
            }
        }
        made.disk_mood()
    }

    #[test]
    fn a_disk_whose_mood_moved_by_a_quarter_is_not_quiet() {
        let steady = [100.0, 101.0, 99.0, 103.0, 100.0, 250.0, 98.0, 102.0, 100.0, 101.0, 99.0];
        assert_eq!(find_modes(&steady), None, "one bad moment is no mood");
        let moved = steady.map(|it| if it > 100.0 { it * 1.24 } else { it });
        let (low, high) = find_modes(&moved).unwrap();
        assert!(low < 101.0 && high > 123.0, "{low} {high}");
        assert_eq!(find_modes(&moved[..4]), None);
        assert_eq!(find_modes(&[]), None);
    }
}
