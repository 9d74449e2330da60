//! The plain version of every kernel: safe code on 64-bit words, each with eight bytes of the
//! field.
//!
//! The plain version is used on processors without vector instructions and for the rest below one
//! vector, and tests compare every other version with it. The plain version deliberately multiplies
//! in another way than the other versions: bit by bit, without tables.
//!
//! Data is processed tile by tile, so that sources that are read more than once stay in the
//! first-level cache.

use super::kernel::Term;
use std::ops::Range;

const TILE_BYTES: usize = 512;
type Tile = [u64; TILE_BYTES / 8];

const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const REDUCTION: u64 = 0x1d1d_1d1d_1d1d_1d1d;

/// Computes `out[span]` = sum of `source[span]`.
pub(super) fn xor(sources: &[&[u8]], out: &mut [u8], span: Range<usize>) {
    for tile in tiles(span) {
        let mut sum = [0; _];
        for source in sources {
            add(&mut sum, &source[tile.clone()]);
        }
        put(&sum, &mut out[tile]);
    }
}

/// Computes `p[span]` = sum of `source[span]` and `q[span]` = sum of 2^index * `source[span]`.
pub(super) fn pq(sources: &[&[u8]], p: &mut [u8], q: &mut [u8], span: Range<usize>) {
    for tile in tiles(span) {
        let (mut p_sum, mut q_sum) = ([0; _], [0; _]);
        for source in sources.iter().rev() {
            double(&mut q_sum);
            add(&mut p_sum, &source[tile.clone()]);
            add(&mut q_sum, &source[tile.clone()]);
        }
        put(&p_sum, &mut p[tile.clone()]);
        put(&q_sum, &mut q[tile]);
    }
}

/// Computes the sum of `term.factors[n] * term.source[tile]`.
///
/// The function uses Horner's rule over the bits of the factors: seven doublings in total, however
/// many terms there are.
fn sum_of(terms: &[Term], n: usize, tile: &Range<usize>) -> Tile {
    let mut sum = [0; _];
    for bit in (0..8).rev() {
        double(&mut sum);
        for term in terms.iter().filter(|term| term.factors[n] >> bit & 1 == 1) {
            add(&mut sum, &term.source[tile.clone()]);
        }
    }
    sum
}

/// Computes `outs[n][span]` = sum of `term.factors[n] * term.source[span]`.
pub(super) fn combine(terms: &[Term], outs: &mut [&mut [u8]], span: Range<usize>) {
    for tile in tiles(span) {
        for (n, out) in outs.iter_mut().enumerate() {
            put(&sum_of(terms, n, &tile), &mut out[tile.clone()]);
        }
    }
}

/// Computes `outs[n][span] ^=` sum of `term.factors[n] * term.source[span]`.
pub(super) fn add_into(terms: &[Term], outs: &mut [&mut [u8]], span: Range<usize>) {
    for tile in tiles(span) {
        for (n, out) in outs.iter_mut().enumerate() {
            let mut sum = sum_of(terms, n, &tile);
            add(&mut sum, &out[tile.clone()]);
            put(&sum, &mut out[tile.clone()]);
        }
    }
}

/// `target[span] ^= source[span]`.
pub(super) fn xor_into(target: &mut [u8], source: &[u8], span: Range<usize>) {
    for (to, from) in target[span.clone()].iter_mut().zip(&source[span]) {
        *to ^= from;
    }
}

fn tiles(span: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = span.end;
    span.step_by(TILE_BYTES).map(move |start| start..end.min(start + TILE_BYTES))
}

/// `source` is at most as long as a tile; the rest of the tile is not changed.
fn add(tile: &mut Tile, source: &[u8]) {
    match source.try_into() {
        Ok(full) => add_full(tile, full),
        Err(_) => {
            let mut padded = [0; TILE_BYTES];
            padded[..source.len()].copy_from_slice(source);
            add_full(tile, &padded);
        }
    }
}

fn add_full(tile: &mut Tile, source: &[u8; TILE_BYTES]) {
    for (word, bytes) in tile.iter_mut().zip(source.as_chunks().0) {
        *word ^= u64::from_ne_bytes(*bytes);
    }
}

/// Multiplies every byte by two: shifts it left and, if the highest bit was set, reduces it.
fn double(tile: &mut Tile) {
    for word in tile {
        let high = *word & HIGH_BITS;
        let overflowed = (high << 1).wrapping_sub(high >> 7);
        *word = ((*word ^ high) << 1) ^ (overflowed & REDUCTION);
    }
}

fn put(tile: &Tile, out: &mut [u8]) {
    let (words, rest) = out.as_chunks_mut();
    for (bytes, word) in words.iter_mut().zip(tile) {
        *bytes = word.to_ne_bytes();
    }
    if let Some(word) = tile.get(words.len()) {
        let bytes = word.to_ne_bytes();
        rest.copy_from_slice(&bytes[..rest.len()]);
    }
}
