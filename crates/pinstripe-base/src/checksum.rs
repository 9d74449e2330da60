//! The checksum of stored bytes: XXH3 with 128 bits.
//!
//! The checksum detects damage and needs no key, so that members can be checked without permission
//! to read their content. The checksum does not prove the origin of the bytes: the keyed ids of
//! chunks do. The checksum costs a fifth of a cryptographic hash (doc/decisions/0007), and it is
//! computed three times: for a record, for its strips, for their parity.

use twox_hash::XxHash3_128;

/// Bytes of a checksum.
pub const CHECKSUM_BYTES: usize = 16;

/// A checksum in stored form: a little-endian number.
pub type Checksum = [u8; CHECKSUM_BYTES];

/// The checksum of a run of bytes.
pub fn checksum(bytes: &[u8]) -> Checksum {
    XxHash3_128::oneshot(bytes).to_le_bytes()
}

/// The checksum of two runs of bytes as if they were joined.
pub fn checksum_of_two(first: &[u8], second: &[u8]) -> Checksum {
    let mut hasher = XxHash3_128::new();
    hasher.write(first);
    hasher.write(second);
    hasher.finish_128().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_is_pinned() {
        // From the reference implementation's test vectors: XXH3_128bits of nothing, seed 0.
        assert_eq!(checksum(b""), 0x99aa06d3014798d86001c324468d497f_u128.to_le_bytes());
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        for cut in [0, 1, 40, 1000, 99_999, 100_000] {
            assert_eq!(checksum_of_two(&bytes[..cut], &bytes[cut..]), checksum(&bytes));
        }
    }
}
