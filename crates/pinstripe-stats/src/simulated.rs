//! Simulates the speeds of runs from a seed, to test the statistics.

use pinstripe_base::random::Noise;

/// How the speeds of runs vary.
#[derive(Debug, Clone, Copy)]
pub enum SpeedNoise {
    /// By normal noise.
    Plain,
    /// The noise is normal, and one run in ten takes twice as long.
    Stalls,
}

/// Returns a normally distributed number: the sum of twelve uniform numbers.
pub fn normal(noise: &mut Noise) -> f64 {
    let even = |_| noise.below(1 << 30) as f64 / f64::from(1 << 30);
    (0..12).map(even).sum::<f64>() - 6.0
}

/// Returns the speed of a run.
pub fn speed(kind: SpeedNoise, share: f64, noise: &mut Noise) -> f64 {
    let stalled = matches!(kind, SpeedNoise::Stalls) && noise.below(10) == 0;
    let speed = (1.0 + share * normal(noise)).max(0.05);
    if stalled { speed / 2.0 } else { speed }
}
