//! Pseudorandom numbers that depend only on a seed: for tests, samples and generated data. Ids and
//! keys come from the system instead ([`crate::id`]).

use std::io::{self, Read};

/// The next number of a generator state: splitmix64 (Steele, Lea, Flood, "Fast splittable
/// pseudorandom number generators", 2014).
#[inline]
pub const fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix64(*state)
}

/// The finalizer of splitmix64: different inputs give different outputs that appear unrelated.
#[inline]
pub const fn mix64(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The seed of one of many runs: each run gets a different seed, and the same `seed` always gives
/// the same ones.
pub fn of_run(seed: u64, number: u64) -> u64 {
    seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Pseudorandom bytes that no codec can compress, the same for the same seed (splitmix64).
pub struct Noise(pub u64);

impl Noise {
    /// The next number.
    #[allow(clippy::should_implement_trait)] // It never ends, and is read as bytes as well.
    pub fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// A random number below `end`. All numbers are equally likely, up to a relative error of `end`
    /// / 2^64.
    ///
    /// # Panics
    /// Panics when `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below zero");
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for piece in buffer.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
        Ok(buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the reference implementation in C (prng.di.unimi.it/splitmix64.c) gives them.
    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut state = 1_234_567;
        let numbers = [(); 3].map(|()| splitmix64(&mut state));
        let reference =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, reference);
    }
}
