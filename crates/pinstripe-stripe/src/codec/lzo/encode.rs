//! The LZO1X-1 encoder: one greedy pass with one candidate per position.
//!
//! A dictionary maps a hash of four bytes to the last position where they occurred. Positions are
//! stored modulo 65536: the format reaches at most 49151 bytes back, and an outdated position fails
//! the comparison that every candidate must pass. As long as no match is found the stride grows, so
//! that incompressible data is processed quickly.
//!
//! The loads of the search are not bounds-checked, because checks cost a sixth of the speed; every
//! write is checked. The loads are safe because of the invariant of [`Dictionary`]: it is cleared
//! at the start of a call, and then gets only positions before the current one.

use super::{END, FAR_BYTES, MIDDLE_BYTES, NEAR_BYTES};

/// log2 of the number of dictionary entries: 32 KiB of positions stay in the first-level cache.
const HASH_BITS: u32 = 14;
/// The shortest match that is searched for; encoding a match takes two or three bytes.
const MIN_MATCH_BYTES: usize = 4;
/// No match begins in this many bytes at the end of the input, so that fixed-size loads stay within
/// it.
const TAIL_BYTES: usize = 20;
/// The stride grows by one byte after each this many bytes without a match.
const PATIENCE_BYTES: usize = 32;
/// The longest stride: a longer one would skip the first matches after a random section.
const MAX_STRIDE_BYTES: usize = 64;
/// The number of bytes copied at once for a short run of literals.
const STEP_BYTES: usize = 16;

/// The last position of each hash, modulo 65536.
type HashPlaces = [u16; 1 << HASH_BITS];

/// The encoder's memory of positions, reused from call to call.
pub struct Dictionary(Box<HashPlaces>);

impl Default for Dictionary {
    fn default() -> Self {
        Dictionary(Box::new([0; 1 << HASH_BITS]))
    }
}

/// The length of `out` that [`compress`] needs for `raw_bytes` of input.
pub const fn max_stored_bytes(raw_bytes: usize) -> usize {
    raw_bytes + raw_bytes / 16 + 64 + END.len()
}

/// Compresses `raw` into the beginning of `out`; returns the number of bytes written.
///
/// # Panics
/// Panics when `out` is shorter than [`max_stored_bytes`] of `raw.len()`.
pub fn compress(raw: &[u8], dictionary: &mut Dictionary, out: &mut [u8]) -> usize {
    assert!(out.len() >= max_stored_bytes(raw.len()), "the output has room for the worst case");
    let places = &mut *dictionary.0;
    // Cleared so that equal input gives equal output, regardless of earlier calls.
    places.fill(0);
    let mut writer = LzoWriter { out, at: 0 };
    let mut literals = 0;
    while let Some((at, distance)) = find_match(raw, places, literals) {
        let len = match_bytes(raw, at - distance, at);
        writer.literals(raw, literals, at - literals);
        writer.copy(distance, len);
        literals = at + len;
    }
    writer.last_literals(&raw[literals..]);
    writer.end()
}

/// Returns the position and distance of the first match at or after `literals`, which is the end of
/// the last match.
#[inline(always)]
fn find_match(raw: &[u8], places: &mut HashPlaces, literals: usize) -> Option<(usize, usize)> {
    let limit = raw.len().saturating_sub(TAIL_BYTES);
    // Nothing can match at 0, and every noted place must be before the current one.
    let mut at = literals.max(1);
    // Most matches come soon: this loop knows its next place without waiting for anything.
    let soon = limit.min(literals + PATIENCE_BYTES);
    while at < soon {
        // SAFETY: `at` is in 1..limit, and `literals` is behind every place of earlier calls.
        if let Some(distance) = unsafe { probe(raw, places, at) } {
            return Some((at, distance));
        }
        at += 1;
    }
    while at < limit {
        // SAFETY: `at` is in 1..limit, and `literals` is behind every place of earlier calls.
        if let Some(distance) = unsafe { probe(raw, places, at) } {
            return Some((at, distance));
        }
        at += (1 + (at - literals) / PATIENCE_BYTES).min(MAX_STRIDE_BYTES);
    }
    None
}

/// Records the position `at`, and returns how far back its first four bytes last occurred.
///
/// # Safety
/// The caller ensures that `0 < at`, `at + TAIL_BYTES <= raw.len()`, and that `at` was smaller in
/// every earlier call since `places` was cleared.
#[inline(always)]
unsafe fn probe(raw: &[u8], places: &mut HashPlaces, at: usize) -> Option<usize> {
    debug_assert!(0 < at && at + TAIL_BYTES <= raw.len());
    // SAFETY: the caller's promise; the tail is longer than four bytes.
    let word = unsafe { load32(raw, at) };
    let place = &mut places[(word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize];
    let distance = usize::from((at as u16).wrapping_sub(*place));
    *place = at as u16;
    debug_assert!(distance <= at);
    // SAFETY: the noted place p is 0 or an earlier `at`, so p < at, and the distance modulo 65536
    // is at most `at - p`: the load begins in 0..=at.
    let earlier = unsafe { load32(raw, at - distance) };
    // Distance 0 is a place 65536 or more back; the format cannot say what is beyond its reach.
    (earlier == word && distance.wrapping_sub(1) < FAR_BYTES).then_some(distance)
}

/// Loads four bytes as a number.
///
/// # Safety
/// The caller ensures that `at + 4 <= bytes.len()`.
#[inline(always)]
unsafe fn load32(bytes: &[u8], at: usize) -> u32 {
    // SAFETY: the caller's promise; the read asks for no alignment.
    u32::from_le(unsafe { bytes.as_ptr().add(at).cast::<u32>().read_unaligned() })
}

/// Loads eight bytes as a number.
///
/// # Safety
/// The caller ensures that `at + 8 <= bytes.len()`.
#[inline(always)]
unsafe fn load64(bytes: &[u8], at: usize) -> u64 {
    // SAFETY: the caller's promise; the read asks for no alignment.
    u64::from_le(unsafe { bytes.as_ptr().add(at).cast::<u64>().read_unaligned() })
}

/// Returns the number of bytes at `at` that equal those at `from`, given that the first four do.
///
/// # Panics
/// Panics unless `from < at`.
#[inline(always)]
fn match_bytes(raw: &[u8], from: usize, at: usize) -> usize {
    assert!(from < at, "a match is before its repetition");
    let mut len = MIN_MATCH_BYTES;
    while at + len + 8 <= raw.len() {
        // SAFETY: the loop condition, and `from < at`.
        let differ = unsafe { load64(raw, from + len) ^ load64(raw, at + len) };
        if differ != 0 {
            return len + (differ.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    while at + len < raw.len() && raw[from + len] == raw[at + len] {
        len += 1;
    }
    len
}

/// The stream being written; `out` is long enough for the worst case.
struct LzoWriter<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl LzoWriter<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: usize) {
        self.out[self.at] = byte as u8;
        self.at += 1;
    }

    /// Writes the rest of a length that does not fit in its instruction; `rest` is at least 1.
    fn long_length(&mut self, mut rest: usize) {
        while rest > 255 {
            self.byte(0);
            rest -= 255;
        }
        self.byte(rest);
    }

    /// Announces `len` literals. Writes the number of literals that follow: at the start of a
    /// stream in an instruction of its own form, up to three in two bits of the last byte but one
    /// of the instruction before. Every match ends in a pair of bytes that has these two bits, so
    /// this never changes a literal.
    fn announce(&mut self, len: usize) {
        if self.at == 0 && len <= 238 {
            self.byte(17 + len);
        } else if len <= 3 {
            self.out[self.at - 2] |= len as u8;
        } else if len <= 18 {
            self.byte(len - 3);
        } else {
            self.byte(0);
            self.long_length(len - 18);
        }
    }

    /// Writes `len` literals from `raw[from..]`, which must be followed by at least [`TAIL_BYTES`]
    /// more bytes.
    #[inline(always)]
    fn literals(&mut self, raw: &[u8], from: usize, len: usize) {
        if self.at > 0 && len <= STEP_BYTES {
            // As `announce`, but with no branch to mispredict.
            // The step copied may exceed `len`: the next instruction overwrites the excess, and the
            // room for the worst case allows for it.
            let few = len <= 3;
            let noted = self.out[self.at - 2] | len as u8;
            let (at, byte) =
                if few { (self.at - 2, noted) } else { (self.at, (len as u8).wrapping_sub(3)) };
            self.out[at] = byte;
            self.at += usize::from(!few);
            self.out[self.at..][..STEP_BYTES].copy_from_slice(&raw[from..][..STEP_BYTES]);
        } else {
            self.announce(len);
            self.out[self.at..][..len].copy_from_slice(&raw[from..][..len]);
        }
        self.at += len;
    }

    /// Writes the literals that no match follows.
    fn last_literals(&mut self, literals: &[u8]) {
        if !literals.is_empty() {
            self.announce(literals.len());
            self.out[self.at..][..literals.len()].copy_from_slice(literals);
            self.at += literals.len();
        }
    }

    /// Writes a match of `len` bytes, `distance` bytes back.
    #[inline(always)]
    fn copy(&mut self, distance: usize, len: usize) {
        if len <= 8 {
            return self.short_copy(distance, len);
        }
        let back = if distance <= MIDDLE_BYTES {
            self.long_form(0x20, 31, len - 2);
            distance - 1
        } else {
            let back = distance - MIDDLE_BYTES;
            self.long_form(0x10 | (back >> 14) << 3, 7, len - 2);
            back & 0x3fff
        };
        self.byte(back << 2);
        self.byte(back >> 6);
    }

    /// Writes a match of at most 8 bytes: all three forms are computed and one is selected, without
    /// a branch.
    #[inline(always)]
    fn short_copy(&mut self, distance: usize, len: usize) {
        // In each form the two low bits of the last byte but one stay zero: they take the count of
        // the literals that follow, up to three.
        let back = distance - 1;
        let near = (len - 1) << 5 | (back & 7) << 2 | (back >> 3) << 8;
        let middle = 0x20 | (len - 2) | back << 10;
        let beyond = distance.wrapping_sub(MIDDLE_BYTES);
        let far = 0x10 | ((beyond >> 14) & 1) << 3 | (len - 2) | (beyond & 0x3fff) << 10;
        let form = if distance <= MIDDLE_BYTES { middle } else { far };
        let form = if distance <= NEAR_BYTES { near } else { form };
        self.out[self.at..][..4].copy_from_slice(&(form as u32).to_le_bytes());
        self.at += if distance <= NEAR_BYTES { 2 } else { 3 };
    }

    /// Writes the first byte of a match, and the part of its length that does not fit in that byte.
    fn long_form(&mut self, instruction: usize, most: usize, len: usize) {
        if len <= most {
            self.byte(instruction | len);
        } else {
            self.byte(instruction);
            self.long_length(len - most);
        }
    }

    fn end(mut self) -> usize {
        self.out[self.at..self.at + END.len()].copy_from_slice(&END);
        self.at += END.len();
        self.at
    }
}
