//! Made-up bytes, as fast as memory: a function of a seed and the place, so that any range can be
//! made at any time by any number of threads.
//!
//! A block is all zeros, or begins with its number, so that no two of these are equal, continues
//! with random bytes, and ends with words. It is made in cells: a cell's random bytes are a stretch
//! of one pool, chosen by the cell's number and xored with a key that no other cell has; nothing
//! comes twice, so no codec makes it smaller. Its words are a stretch of another pool, unchanged.
//!
//! Invariant: equal recipes give equal bytes in every version and on every machine (tests.rs has
//! their hashes).

mod spec;

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{ByteSource, Extent, Identity};
use pinstripe_base::error::Result;
use pinstripe_base::random::mix64;

pub use spec::{FakeSpec, Millionths, PREFIX};

/// Each pool has this many bytes in which a stretch may begin: they stay in the second-level cache.
const POOL_BYTES: usize = 1 << 20;
/// Stretches begin at multiples of this.
const PLACE_BYTES: usize = 64;
/// The longest cell, and how much longer than `POOL_BYTES` a pool is.
const CELL_MAX_BYTES: usize = 4096;
/// The unit in which the random bytes are xored.
const WORD_BYTES: usize = 8;

/// The odd number next to 2^64 divided by the golden ratio: its multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source that makes its bytes up.
pub struct Fake {
    spec: FakeSpec,
    place: PathBuf,
    seed: u64,
    cell_bytes: usize,
    /// The number of random bytes at the beginning of each block.
    random_bytes: u64,
    noise: Vec<u8>,
    words: Vec<u8>,
}

impl Fake {
    /// Makes the pools, two MiB at most.
    ///
    /// # Errors
    /// The errors of [`FakeSpec::check`].
    pub fn new(spec: FakeSpec) -> Result<Self> {
        spec.check()?;
        let seed = mix64(spec.seed.wrapping_add(GOLDEN));
        let words = if spec.entropy == Millionths::ALL { Vec::new() } else { words(seed) };
        Ok(Fake {
            place: PathBuf::from(spec.to_string()),
            seed,
            cell_bytes: CELL_MAX_BYTES.min(spec.block_bytes as usize),
            random_bytes: spec.entropy.of(spec.block_bytes) / WORD_BYTES as u64 * WORD_BYTES as u64,
            noise: noise(seed),
            words,
            spec,
        })
    }

    /// The recipe.
    pub fn spec(&self) -> &FakeSpec {
        &self.spec
    }

    /// Makes the bytes from `offset` on; those behind the length are made as well.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let cell_bytes = self.cell_bytes as u64;
        let mut cell = offset / cell_bytes;
        let mut skipped = (offset % cell_bytes) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let bytes = (self.cell_bytes - skipped).min(rest.len());
            let (now, later) = rest.split_at_mut(bytes);
            if bytes == self.cell_bytes {
                self.fill_cell(cell, now);
            } else {
                let mut whole = [0; CELL_MAX_BYTES];
                self.fill_cell(cell, &mut whole[..self.cell_bytes]);
                now.copy_from_slice(&whole[skipped..skipped + bytes]);
            }
            (cell, skipped, rest) = (cell.wrapping_add(1), 0, later);
        }
    }

    fn fill_cell(&self, cell: u64, out: &mut [u8]) {
        let cells_per_block = self.spec.block_bytes / self.cell_bytes as u64;
        let block = cell / cells_per_block;
        if self.is_zero(block) {
            return out.fill(0);
        }
        let within = cell % cells_per_block * self.cell_bytes as u64;
        let random_bytes = self.random_bytes.saturating_sub(within).min(out.len() as u64);
        let key = mix64(self.seed.wrapping_add(cell.wrapping_mul(GOLDEN)));
        let (random, told) = out.split_at_mut(random_bytes as usize);
        let pool = &self.noise[place(key >> 8)..];
        for (to, from) in random.chunks_exact_mut(WORD_BYTES).zip(pool.chunks_exact(WORD_BYTES)) {
            let word = u64::from_le_bytes(*from.first_chunk().expect("a chunk is a word")) ^ key;
            to.copy_from_slice(&word.to_le_bytes());
        }
        if !told.is_empty() {
            told.copy_from_slice(&self.words[place(key >> 32)..][..told.len()]);
        }
        if within == 0 {
            out[..WORD_BYTES].copy_from_slice(&block.to_le_bytes());
        }
    }

    fn is_zero(&self, block: u64) -> bool {
        let draw = mix64(!self.seed.wrapping_add(block.wrapping_mul(GOLDEN)));
        self.spec.zero.is_hit_by(draw)
    }
}

/// The beginning of a stretch in a pool.
fn place(draw: u64) -> usize {
    draw as usize % (POOL_BYTES / PLACE_BYTES) * PLACE_BYTES
}

fn noise(seed: u64) -> Vec<u8> {
    let mut pool = vec![0; POOL_BYTES + CELL_MAX_BYTES];
    for (number, word) in (1_u64..).zip(pool.chunks_exact_mut(WORD_BYTES)) {
        let random = mix64(!seed.wrapping_add(number.wrapping_mul(GOLDEN)));
        word.copy_from_slice(&random.to_le_bytes());
    }
    pool
}

/// Words of a few thousand, some much more often than others, as text has them.
fn words(seed: u64) -> Vec<u8> {
    const LETTERS: &[u8; 16] = b"etaoinshrdlucmfw";
    const KNOWN: u64 = 1 << 12;
    let bytes = POOL_BYTES + CELL_MAX_BYTES;
    let mut text = Vec::with_capacity(bytes + 16);
    let mut number = 0;
    while text.len() < bytes {
        number += 1;
        let draw = mix64(seed ^ mix64(number));
        // The product of two even draws: low numbers come often.
        let word = (draw % KNOWN) * ((draw >> 16) % KNOWN) / KNOWN;
        let mut letters = mix64(word.wrapping_mul(GOLDEN));
        for _ in 0..2 + word % 7 {
            text.push(LETTERS[(letters % 16) as usize]);
            letters >>= 4;
        }
        text.push(if draw >> 60 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(bytes);
    text
}

impl ByteSource for Fake {
    fn length(&self) -> Option<u64> {
        Some(self.spec.bytes)
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn identity(&self) -> Option<Identity> {
        let told = blake3::hash(self.spec.to_string().as_bytes());
        let inode = u64::from_le_bytes(*told.as_bytes().first_chunk().expect("a hash is longer"));
        let bytes = self.spec.bytes;
        Some(Identity { device: 0, inode, bytes, modified_seconds: 0, modified_nanos: 0 })
    }

    fn extent(&self, _: u64) -> Result<Extent> {
        Ok(Extent { end: self.spec.bytes, is_hole: false })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = self.spec.bytes.saturating_sub(offset);
        let bytes = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
        self.fill(offset, &mut buffer[..bytes]);
        Ok(bytes)
    }

    fn readahead(&self, _: Range<u64>) {}
}
