//! Counts how long answers took, in steps of a factor of the square root of two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of steps, which range from a microsecond to half an hour.
const STEPS: usize = 64;

/// Counts of durations.
#[derive(Debug)]
pub struct Latencies([AtomicU64; STEPS]);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Latencies {
    /// Counts one.
    pub fn add(&self, took: Duration) {
        self.0[step_of(took.as_micros() as u64)].fetch_add(1, Ordering::Relaxed);
    }

    /// The time within which `percent` per cent of all answers came, rounded up to the end of a
    /// step; zero before the first answer.
    pub fn percentile(&self, percent: u64) -> Duration {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut seen = 0;
        for (step, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && wanted > 0 {
                return Duration::from_micros(end_of(step));
            }
        }
        Duration::ZERO
    }
}

/// The step of a duration; there are two steps for each power of two.
fn step_of(micros: u64) -> usize {
    let micros = micros.max(1);
    let power = micros.ilog2() as usize;
    let is_upper = power > 0 && micros >> (power - 1) & 1 == 1;
    (2 * power + usize::from(is_upper)).min(STEPS - 1)
}

/// The largest duration of a step.
fn end_of(step: usize) -> u64 {
    let power = 1u64 << (step / 2);
    if step.is_multiple_of(2) { power + power / 2 } else { 2 * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_step() {
        let latencies = Latencies::default();
        assert_eq!(latencies.percentile(99), Duration::ZERO);
        for micros in 1..=1000 {
            latencies.add(Duration::from_micros(micros));
        }
        for (percent, micros) in [(50, 500.0), (90, 900.0), (99, 990.0)] {
            let found = latencies.percentile(percent).as_micros() as f64;
            assert!((0.99..=1.5).contains(&(found / micros)), "{percent}: {found}");
        }
        latencies.add(Duration::from_secs(1 << 40));
        assert!(latencies.percentile(100) >= Duration::from_secs(1800));
    }
}
