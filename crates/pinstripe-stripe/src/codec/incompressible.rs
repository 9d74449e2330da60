//! Detects bytes that no codec can compress: encrypted or already compressed bytes.
//!
//! A record is called incompressible only if it passes three cheap tests: each of 64 pieces of 64
//! bytes has as many different bytes as random data has (text, machine code and repeated bytes fail
//! at the first or second piece, so compressible records cost almost nothing); all pieces together
//! have a flat histogram; and no sampled string occurs twice. Pure; no allocation.

use pinstripe_base::random::mix64;

/// Records shorter than this are cheaper to compress than to examine.
const MIN_BYTES: usize = 4096;
/// The number of pieces that are examined, distributed over the record.
const PIECES: usize = 64;
/// Bytes of a piece.
const PIECE_BYTES: usize = 64;
/// The least number of different bytes in a piece that looks random: random pieces have 56.7 on
/// average, and fewer than this one time in a million.
const MIN_DISTINCT: u32 = 45;
/// The limit for the chi-squared statistic of the sampled bytes, which is 255 +- 23 for 4096 random
/// bytes over 256 values. An order-0 coder could save a 64th of the bytes where the statistic is
/// about 960; this limit is well below.
const MAX_CHI_SQUARED: u32 = 480;

/// How much of a record is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The preceding records are unknown, or were compressible.
    Thorough,
    /// The preceding records looked incompressible: this takes a quarter of the time, and a record
    /// that is compressible in one eighth passes as random one time in eight.
    Brief,
}

impl Look {
    /// Returns n, where one in n pieces or windows is examined.
    const fn one_in(self) -> usize {
        match self {
            Look::Thorough => 1,
            Look::Brief => 4,
        }
    }
}

/// Whether no codec here would reduce `raw` by a 64th. Returns `false` when in doubt.
pub fn looks_incompressible(raw: &[u8], look: Look) -> bool {
    raw.len() >= MIN_BYTES && pieces_look_random(raw, look) && !repeats_itself(raw, look)
}

/// Whether the pieces look random, both each alone and all together.
fn pieces_look_random(raw: &[u8], look: Look) -> bool {
    let mut counts = [0u16; 256];
    let mut last_seen = [0u8; 256];
    let stride = raw.len() / PIECES;
    for piece in (0..PIECES).step_by(look.one_in()) {
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
    let mean = (PIECES / look.one_in() * PIECE_BYTES / 256) as u32;
    let squares: u32 = counts.iter().map(|&count| u32::from(count).abs_diff(mean).pow(2)).sum();
    squares / mean <= MAX_CHI_SQUARED
}

/// The number of bytes searched together for the anchor byte: eight words.
const BLOCK_BYTES: usize = 64;
/// The length of a window in which strings are sampled.
const WINDOW_BYTES: usize = 8 * BLOCK_BYTES;
/// In longer records there is one window per this many bytes.
const WINDOW_STRIDE_BYTES: usize = 8 * WINDOW_BYTES;
/// Every record has at least this many windows, unless fewer cover it completely.
const MIN_WINDOWS: usize = 32;
/// log2 of the number of slots for sampled strings; a record of 4 MiB has about this many samples.
const SLOTS_LOG: u32 = 11;

/// Whether a sampled string occurs twice in the record.
///
/// Strings are sampled by content, so that a repetition is found at any distance: a sample is the
/// eight bytes after each occurrence of one certain byte, which in random data is every 256th.
/// Searching the complete record would cost as much as zstd itself needs to give up, so only
/// windows are searched, at random offsets so that no distance escapes all of them: if half of a
/// record repeats the other half, this is missed once in thousands of records; a repeated eighth is
/// missed now and then.
fn repeats_itself(raw: &[u8], look: Look) -> bool {
    let anchor = u64::from_le_bytes([raw[raw.len() / 2]; 8]);
    let stride = (raw.len() / MIN_WINDOWS).clamp(WINDOW_BYTES + 8, WINDOW_STRIDE_BYTES);
    let mut slots = [0u32; 1 << SLOTS_LOG];
    for (number, part) in raw.chunks_exact(stride).enumerate().step_by(look.one_in()) {
        let at = scatter(number as u64) as usize % (stride - WINDOW_BYTES - 7);
        let window = &part[at..at + WINDOW_BYTES + 8];
        for block in (0..WINDOW_BYTES).step_by(BLOCK_BYTES) {
            let hits: [u64; 8] =
                std::array::from_fn(|n| lowest_zero(word(window, block + 8 * n) ^ anchor));
            if hits.iter().fold(0, |any, hit| any | hit) == 0 {
                continue;
            }
            // The first anchor of each word is sample enough.
            for (n, hit) in hits.into_iter().enumerate().filter(|&(_, hit)| hit != 0) {
                let behind = word(window, block + 8 * n + hit.trailing_zeros() as usize / 8 + 1);
                let hash = behind.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let slot = &mut slots[(hash >> (64 - SLOTS_LOG)) as usize];
                let mark = (hash >> 20) as u32;
                if *slot == mark {
                    return true;
                }
                *slot = mark;
            }
        }
    }
    false
}

/// Returns a value that is not 0 if any byte of `word` is 0; its lowest set bit is then the highest
/// bit of the lowest such byte.
#[inline(always)]
fn lowest_zero(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

#[inline(always)]
fn word(window: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(window[at..at + 8].try_into().expect("a slice of eight bytes"))
}

/// Returns a pseudorandom number.
fn scatter(number: u64) -> u64 {
    mix64((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
