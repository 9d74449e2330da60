//! Spares the codecs what they cannot make smaller: encrypted and already compressed bytes.
//!
//! Three cheap looks, each of which can only acquit: 64 pieces of 64 bytes must each have as many
//! different bytes as random ones have (text, machine code and runs fail at the first or second
//! piece, so compressible records pay almost nothing); all pieces together must have a flat
//! histogram; and no string may come twice in the whole record. Pure; no allocation.

/// Shorter records are cheaper to compress than to look at.
const MIN_BYTES: usize = 4096;
/// Pieces looked at, spread over the record.
const PIECES: usize = 64;
/// Bytes of a piece.
const PIECE_BYTES: usize = 64;
/// Different bytes in a random piece: 56.7 on average, and below this one time in a million.
const MIN_DISTINCT: u32 = 45;
/// The chi-squared statistic of 4096 random bytes over 256 values is 255 +- 23. An order-0 coder
/// could save a 64th of the bytes where it is about 960; this stays well below.
const MAX_CHI_SQUARED: u32 = 480;

/// Whether no codec here would make `raw` a 64th smaller. `false` when in doubt.
pub fn looks_incompressible(raw: &[u8]) -> bool {
    raw.len() >= MIN_BYTES && pieces_look_random(raw) && !repeats_itself(raw)
}

/// Whether 64 pieces look random, one by one and together.
fn pieces_look_random(raw: &[u8]) -> bool {
    let mut counts = [0u16; 256];
    let mut last_seen = [0u8; 256];
    let stride = raw.len() / PIECES;
    for piece in 0..PIECES {
        // A different place in each stride, so that no regular layout hides from all pieces.
        let shift = piece * 40_503 % (stride - PIECE_BYTES + 1);
        let at = piece * stride + shift;
        let mut distinct = 0;
        for &byte in &raw[at..at + PIECE_BYTES] {
            let seen = &mut last_seen[usize::from(byte)];
            distinct += u32::from(*seen != piece as u8 + 1);
            *seen = piece as u8 + 1;
            counts[usize::from(byte)] += 1;
        }
        if distinct < MIN_DISTINCT {
            return false;
        }
    }
    let mean = (PIECES * PIECE_BYTES / 256) as u32;
    let squares: u32 = counts.iter().map(|&count| u32::from(count).abs_diff(mean).pow(2)).sum();
    squares / mean <= MAX_CHI_SQUARED
}

/// Bytes looked at together for the anchor byte: eight words.
const BLOCK_BYTES: usize = 64;
/// log2 of the slots for the strings behind anchors; long records are thinned out to half of it.
const SLOTS_LOG: u32 = 11;

/// Whether more than 1 in 128 sampled strings came before in the record.
///
/// Strings are sampled by content, so that a repetition is found at any distance: wherever one
/// certain byte stands (in random bytes every 256th), the eight bytes behind it are the sample.
fn repeats_itself(raw: &[u8]) -> bool {
    let anchor = u64::from_le_bytes([raw[raw.len() / 2]; 8]);
    let thinning = (raw.len() >> (SLOTS_LOG + 7)).next_power_of_two() as u64;
    let mut slots = [0u32; 1 << SLOTS_LOG];
    let (mut samples, mut repeats) = (0usize, 0usize);
    for at in (0..raw.len().saturating_sub(BLOCK_BYTES + 8)).step_by(BLOCK_BYTES) {
        let block: &[u8; BLOCK_BYTES + 8] =
            raw[at..at + BLOCK_BYTES + 8].try_into().expect("a slice of that length");
        let hits: [u64; 8] = std::array::from_fn(|n| lowest_zero(word(block, 8 * n) ^ anchor));
        if hits.iter().fold(0, |any, hit| any | hit) == 0 {
            continue;
        }
        // The first anchor of each word is sample enough.
        for (n, hit) in hits.into_iter().enumerate().filter(|&(_, hit)| hit != 0) {
            let behind = word(block, 8 * n + hit.trailing_zeros() as usize / 8 + 1);
            let hash = behind.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if (hash >> 16) & (thinning - 1) != 0 {
                continue;
            }
            let slot = &mut slots[(hash >> (64 - SLOTS_LOG)) as usize];
            let mark = (hash >> 20) as u32;
            samples += 1;
            repeats += usize::from(*slot == mark);
            *slot = mark;
        }
    }
    // Far fewer samples than in random bytes: the few strings there are were thinned out.
    let too_few = samples * 4 < raw.len() / 256 / thinning as usize;
    too_few || repeats > samples / 128
}

/// Not 0 if any byte of `word` is 0; its lowest set bit is then the top one of the lowest such.
#[inline(always)]
fn lowest_zero(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

#[inline(always)]
fn word(block: &[u8; BLOCK_BYTES + 8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("a slice of eight bytes"))
}
