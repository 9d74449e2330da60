//! Numbers that look like chance and are always the same for the same seed.

use std::io::{self, Read};

use pinstripe_base::random::splitmix64;

/// The seed of one of many runs: chance is another one in each, and the same again for the same
/// seed.
pub fn of_run(seed: u64, number: u64) -> u64 {
    seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Bytes that no codec makes smaller, always the same ones (splitmix64).
pub struct Noise(pub u64);

impl Noise {
    /// The next number.
    #[allow(clippy::should_implement_trait)] // It never ends, and is read as bytes as well.
    pub fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// A number below `end`, all of them as likely but for one part in 2^64 / `end`.
    ///
    /// # Panics
    /// When `end` is zero.
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
