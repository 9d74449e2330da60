//! Pads sealed records, so that their lengths reveal less.

use pinstripe_member::label::Padding;

/// Returns the length to which `bytes` bytes are padded.
///
/// Padmé (Nikitin and others, 2019) rounds a length up so that its low bits are zero, and keeps
/// about as many of the highest bits as the binary form of its exponent has: a length of n bits
/// then reveals O(log n) bits, and grows by at most an eighth.
pub fn padded_bytes(padding: Padding, bytes: usize) -> usize {
    if padding == Padding::None || bytes < 4 {
        return bytes;
    }
    let exponent = bytes.ilog2();
    let kept = exponent.ilog2() + 1;
    let step = 1_usize << (exponent - kept);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn padme_leaves_few_lengths_and_adds_little() {
        for (bytes, wanted) in [(0, 0), (3, 3), (8, 8), (9, 10), (1000, 1024), (100_000, 100_352)] {
            assert_eq!(padded_bytes(Padding::Padme, bytes), wanted, "{bytes}");
            assert_eq!(padded_bytes(Padding::None, bytes), bytes);
        }
        let mut lengths = BTreeSet::new();
        for bytes in 1..=1 << 19 {
            let padded = padded_bytes(Padding::Padme, bytes);
            assert!(padded >= bytes && (padded - bytes) * 8 <= bytes, "{bytes}");
            lengths.insert(padded);
        }
        assert!(lengths.len() < 500, "{}", lengths.len());
    }
}
