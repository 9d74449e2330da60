//! A device of any length whose content is computed from a seed: it stores nothing, and verifies
//! all writes.

use std::ops::Range;
use std::path::PathBuf;

use super::{Device, NullDevice};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::random::mix64;

/// Reads as the pattern of its seed; accepts only writes of the same bytes.
pub struct PatternDevice {
    /// The place and the length of the device.
    bounds: NullDevice,
    seed: u64,
}

impl PatternDevice {
    /// A device of `len` bytes; `place` is for messages only.
    pub fn new(place: impl Into<PathBuf>, seed: u64, len: u64) -> Self {
        PatternDevice { bounds: NullDevice::new(place, len), seed }
    }

    /// The pattern of `seed` from `offset` on: bytes that no codec can compress, the same on every
    /// machine.
    pub fn fill(seed: u64, offset: u64, buf: &mut [u8]) {
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let word = word(seed, at / 8).to_le_bytes();
            let from = (at % 8) as usize;
            let (now, later) = rest.split_at_mut(rest.len().min(8 - from));
            now.copy_from_slice(&word[from..from + now.len()]);
            at = at.wrapping_add(now.len() as u64);
            rest = later;
        }
    }
}

/// One word of the pattern: the mixer of splitmix64, applied to the word's number.
fn word(seed: u64, number: u64) -> u64 {
    mix64(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed))
}

/// The number of bytes that are compared at a time.
const PIECE_BYTES: usize = 4096;

impl Device for PatternDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.bounds.check_read(offset, buf.len())?;
        Self::fill(self.seed, offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.bounds.write_at(offset, bytes)?;
        let mut at = offset;
        for piece in bytes.chunks(PIECE_BYTES) {
            let mut wanted = [0; PIECE_BYTES];
            let wanted = &mut wanted[..piece.len()];
            Self::fill(self.seed, at, wanted);
            if let Some(differs) = wanted.iter().zip(piece).position(|(a, b)| a != b) {
                let what = format!("byte {} differs from the test pattern", at + differs as u64);
                let (wanted, found) = (wanted[differs], piece[differs]);
                return Err(Error::corrupt(what, self.place()).expected(wanted, found));
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn discard(&self, _: Range<u64>) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "a test pattern has no space that could be released")
            .at(self.place()))
    }

    crate::forward_device!(bounds: long_by_parts len set_len sync caps place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rules_of_the_seam_but_no_bytes() {
        let fresh = || Box::new(PatternDevice::new("pattern", 7, 1 << 20)) as Box<dyn Device>;
        crate::device::conformance::run_bounds(&fresh);
    }

    #[test]
    fn content_follows_from_seed_and_offset_alone() {
        let mut whole = vec![0; 20_000];
        PatternDevice::fill(1, 5, &mut whole);
        for (from, len) in [(0, 1), (3, 8), (7, 9000), (19_999, 1), (4, 0)] {
            let mut part = vec![0; len];
            PatternDevice::fill(1, 5 + from as u64, &mut part);
            assert_eq!(part, whole[from..from + len]);
        }
        let mut other = vec![0; 20_000];
        PatternDevice::fill(2, 5, &mut other);
        assert_ne!(other, whole);
    }

    #[test]
    fn a_write_that_differs_is_refused_and_says_where() {
        let device = PatternDevice::new("pattern", 1, 1 << 40);
        let mut bytes = vec![0; 10_000];
        PatternDevice::fill(1, 1 << 30, &mut bytes);
        device.write_at(1 << 30, &bytes).unwrap();
        bytes[9_000] ^= 1;
        let error = device.write_at(1 << 30, &bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains(&format!("byte {}", (1 << 30) + 9_000)), "{error}");
    }
}
