//! Speeds as runs would have them, made from a seed: what tests hold the statistics against.

use pinstripe_base::random::Noise;

/// How runs of one speed differ.
#[derive(Debug, Clone, Copy)]
pub enum SpeedNoise {
    /// By normal noise.
    Plain,
    /// So, and one of ten takes twice as long.
    Stalls,
}

/// A normal number: the sum of twelve even ones.
pub fn normal(noise: &mut Noise) -> f64 {
    let even = |_| noise.below(1 << 30) as f64 / f64::from(1 << 30);
    (0..12).map(even).sum::<f64>() - 6.0
}

/// The speed of a run.
pub fn speed(kind: SpeedNoise, share: f64, noise: &mut Noise) -> f64 {
    let stalled = matches!(kind, SpeedNoise::Stalls) && noise.below(10) == 0;
    let speed = (1.0 + share * normal(noise)).max(0.05);
    if stalled { speed / 2.0 } else { speed }
}
