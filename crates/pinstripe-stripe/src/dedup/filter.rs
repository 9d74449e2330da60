//! A set of 64-bit keys in 9 to 10 bits each: its "no" is certain, its "yes" is wrong one time in
//! 256.
//!
//! The filter is a binary fuse filter (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than
//! Xor Filters", 2022) with three slots per key and fingerprints of 8 bits. The array is divided
//! into segments whose length is a power of two; the slots of a key are in three neighbouring
//! segments, and the XOR of their contents is the key's fingerprint.
//!
//! Invariants: the filter contains every key that it was built from; a filter that was read from a
//! member is checked to have the length that its shape requires, so no query reaches beyond it. Not
//! in this module: the meaning of the keys, and what is done after a "yes".

use pinstripe_base::error::{Error, Kind, Result};

/// The number of slots of a key.
const ARITY: usize = 3;
/// log2 of the longest segment: 2^18 slots.
const SEGMENT_MAX_LOG2: u8 = 18;
/// The number of seeds that are tried before building fails: each seed fails about once in a
/// hundred times.
const SEEDS_MAX: u64 = 200;

/// The filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    seed: u64,
    segment_log2: u8,
    /// The number of segments that can hold the first slot of a key; two more segments follow.
    segments: u32,
    fingerprints: Box<[u8]>,
}

/// The parameters of a filter, which are stored with its fingerprints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The seed that is mixed into the keys.
    pub seed: u64,
    /// log2 of the number of slots of a segment.
    pub segment_log2: u8,
    /// The number of segments that can hold the first slot of a key.
    pub segments: u32,
}

impl Shape {
    /// The number of fingerprints, if the shape is possible.
    fn slots(&self) -> Option<usize> {
        if self.segment_log2 > SEGMENT_MAX_LOG2 || self.segments == 0 {
            return None;
        }
        let slots = (u64::from(self.segments) + (ARITY as u64 - 1)) << self.segment_log2;
        usize::try_from(slots).ok().filter(|&slots| slots <= u32::MAX as usize)
    }
}

impl Filter {
    /// Builds a filter. Builds a filter and leaves the keys sorted, each once. Building takes about
    /// 13 bytes of memory per key in addition to the keys.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when no seed fits, which never happens for keys that are
    /// hashes.
    pub fn build(keys: &mut Vec<u64>) -> Result<Self> {
        keys.sort_unstable();
        keys.dedup();
        let (segment_log2, segments) = dimensions(keys.len());
        let mut filter = Filter { seed: 0, segment_log2, segments, fingerprints: Box::default() };
        let shape = filter.shape();
        let slots = shape.slots().ok_or_else(|| {
            Error::new(
                Kind::Usage,
                format!("one filter of chunk ids cannot contain {} keys", keys.len()),
            )
        })?;
        let mut table = BuildTable::new(slots, keys.len());
        for attempt in 1..=SEEDS_MAX {
            filter.seed = mix(attempt);
            if table.peel(&filter, keys) {
                filter.fingerprints = table.assign(&filter);
                return Ok(filter);
            }
        }
        Err(Error::new(Kind::Corrupt, "no filter can be built from these chunk ids")
            .advice("some chunk ids are not hashes: run 'pinstripe check --read-data'"))
    }

    /// Makes a filter from its stored shape and fingerprints.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the number of fingerprints is not the one that the shape
    /// requires.
    pub fn from_parts(shape: Shape, fingerprints: &[u8]) -> Result<Self> {
        if shape.slots() != Some(fingerprints.len()) {
            let slots =
                shape.slots().map_or("a possible size of the filter".to_owned(), |n| n.to_string());
            return Err(Error::new(Kind::Corrupt, "a filter of chunk ids has a wrong length")
                .expected(slots, fingerprints.len()));
        }
        let Shape { seed, segment_log2, segments } = shape;
        Ok(Filter { seed, segment_log2, segments, fingerprints: fingerprints.into() })
    }

    /// Returns the parameters to store with [`fingerprints`](Self::fingerprints).
    pub fn shape(&self) -> Shape {
        Shape { seed: self.seed, segment_log2: self.segment_log2, segments: self.segments }
    }

    /// The fingerprints.
    pub fn fingerprints(&self) -> &[u8] {
        &self.fingerprints
    }

    /// Whether the key may be in the set; never `false` for a key that is in it.
    pub fn contains(&self, key: u64) -> bool {
        let hash = self.hash(key);
        let [a, b, c] = self.slots(hash);
        let found = self.fingerprints[a] ^ self.fingerprints[b] ^ self.fingerprints[c];
        found == fingerprint(hash)
    }

    fn hash(&self, key: u64) -> u64 {
        mix(key.wrapping_add(self.seed))
    }

    /// Returns the slots of a key: one in each of three neighbouring segments.
    fn slots(&self, hash: u64) -> [usize; ARITY] {
        let length = 1_usize << self.segment_log2;
        let firsts = u64::from(self.segments) << self.segment_log2;
        let first = ((u128::from(hash) * u128::from(firsts)) >> 64) as usize;
        let within = |bits: u64| bits as usize & (length - 1);
        [first, (first + length) ^ within(hash >> 18), (first + 2 * length) ^ within(hash)]
    }
}

/// Returns the length and the number of segments for this number of keys, computed as in the paper.
fn dimensions(keys: usize) -> (u8, u32) {
    let n = keys.max(2) as f64;
    let log2 = (n.ln() / 3.33_f64.ln() + 2.25).floor() as u8;
    let log2 = log2.min(SEGMENT_MAX_LOG2);
    let factor = (0.875 + 0.25 * 1e6_f64.ln() / n.ln()).max(1.125);
    let slots = (n * factor).round() as u64;
    let segments = slots.div_ceil(1 << log2).saturating_sub(ARITY as u64 - 1).max(1);
    (log2, u32::try_from(segments).unwrap_or(u32::MAX))
}

/// A bijection on 64 bits in which every bit of the input affects every bit of the output (the
/// finalizer of MurmurHash3).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

fn fingerprint(hash: u64) -> u8 {
    (hash ^ hash >> 32) as u8
}

/// The state of building a filter: for each slot, the number of unplaced keys that map to it, and
/// the XOR of their hashes; if one key is left, that is its hash.
struct BuildTable {
    counts: Vec<u8>,
    hashes: Vec<u64>,
    /// Slots that were assigned to one key each, in the order of assignment.
    order: Vec<u32>,
    /// Slots to which exactly one unplaced key maps.
    alone: Vec<u32>,
}

impl BuildTable {
    fn new(slots: usize, keys: usize) -> Self {
        BuildTable {
            counts: vec![0; slots],
            hashes: vec![0; slots],
            order: Vec::with_capacity(keys),
            alone: Vec::new(),
        }
    }

    /// Finds for each key a slot that no key after it uses; returns `false` when the seed does not
    /// allow this.
    fn peel(&mut self, filter: &Filter, keys: &[u64]) -> bool {
        self.counts.fill(0);
        self.hashes.fill(0);
        self.order.clear();
        self.alone.clear();
        for key in keys {
            let hash = filter.hash(*key);
            for slot in filter.slots(hash) {
                let Some(more) = self.counts[slot].checked_add(1) else { return false };
                self.counts[slot] = more;
                self.hashes[slot] ^= hash;
            }
        }
        let alone = |(slot, count): (usize, &u8)| (*count == 1).then_some(slot as u32);
        self.alone.extend(self.counts.iter().enumerate().filter_map(alone));
        while let Some(slot) = self.alone.pop() {
            if self.counts[slot as usize] != 1 {
                continue; // Its last key was placed in another slot meanwhile.
            }
            self.order.push(slot);
            let hash = self.hashes[slot as usize];
            for other in filter.slots(hash) {
                self.counts[other] -= 1;
                if other != slot as usize {
                    self.hashes[other] ^= hash;
                    if self.counts[other] == 1 {
                        self.alone.push(other as u32);
                    }
                }
            }
        }
        self.order.len() == keys.len()
    }

    /// Sets the fingerprints in the slots, in the reverse order of assignment.
    fn assign(&self, filter: &Filter) -> Box<[u8]> {
        let mut fingerprints = vec![0_u8; self.counts.len()].into_boxed_slice();
        for &slot in self.order.iter().rev() {
            let hash = self.hashes[slot as usize];
            let others = filter.slots(hash).into_iter().filter(|other| *other != slot as usize);
            let combined = others.fold(fingerprint(hash), |sum, other| sum ^ fingerprints[other]);
            fingerprints[slot as usize] = combined;
        }
        fingerprints
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(count: u64) -> Vec<u64> {
        (0..count).map(|n| mix(n ^ 0x5bd1_e995_0000_0001)).collect()
    }

    #[test]
    fn every_key_is_in_it_and_few_others() {
        for count in [0, 1, 2, 3, 7, 100, 1000, 30_000, 262_080] {
            let mut all = keys(count);
            let filter = Filter::build(&mut all).unwrap();
            assert!(all.iter().all(|key| filter.contains(*key)), "{count}");
            let asked = 100_000;
            let wrong = (0..asked).filter(|n| filter.contains(mix(n ^ 0xdead << 32))).count();
            // One in 256 is 391; a multiple of that would be a mistake in the arithmetic.
            assert!(wrong < 600, "{wrong} of {asked} with {count} keys");
        }
    }

    #[test]
    fn a_full_one_takes_less_than_nine_and_a_half_bits_per_key() {
        let mut all = keys(262_080);
        let filter = Filter::build(&mut all).unwrap();
        assert!(filter.fingerprints().len() * 100 < all.len() * 117, "{:?}", filter.shape());
    }

    #[test]
    fn keys_given_twice_count_once() {
        let mut all = keys(50);
        all.extend(keys(50));
        let filter = Filter::build(&mut all).unwrap();
        assert_eq!(all.len(), 50);
        assert_eq!(filter, Filter::build(&mut keys(50)).unwrap());
    }

    /// These are bytes on members: another way to compute them would not find old keys.
    #[test]
    fn the_bytes_are_pinned() {
        let filter = Filter::build(&mut vec![1, 2, 3, 0xffff_ffff_ffff_ffff]).unwrap();
        let shape = filter.shape();
        assert_eq!(PINNED_SHAPE, (shape.seed, shape.segment_log2, shape.segments));
        assert_eq!(PINNED_FINGERPRINTS, filter.fingerprints());
        assert_eq!(PINNED_SLOTS, filter.slots(filter.hash(3)));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let filter = Filter::build(&mut keys(10)).unwrap();
        let (shape, bytes) = (filter.shape(), filter.fingerprints());
        assert_eq!(Filter::from_parts(shape, bytes).unwrap(), filter);
        for wrong in [
            Shape { segments: 0, ..shape },
            Shape { segments: shape.segments + 1, ..shape },
            Shape { segments: u32::MAX, ..shape },
            Shape { segment_log2: 64, ..shape },
        ] {
            assert!(Filter::from_parts(wrong, bytes).is_err(), "{wrong:?}");
        }
        assert!(Filter::from_parts(shape, &bytes[1..]).is_err());
        assert!(Filter::from_parts(shape, &[]).is_err());
    }

    proptest! {
        #[test]
        fn any_keys_make_a_filter(mut keys: Vec<u64>) {
            let filter = Filter::build(&mut keys).unwrap();
            prop_assert!(keys.iter().all(|key| filter.contains(*key)));
            let again = Filter::from_parts(filter.shape(), filter.fingerprints()).unwrap();
            prop_assert_eq!(again, filter);
        }

        #[test]
        fn any_stored_filter_answers(
            seed: u64, segment_log2 in 0_u8..6, segments in 1_u32..9, key: u64,
        ) {
            let shape = Shape { seed, segment_log2, segments };
            let filter = Filter::from_parts(shape, &vec![7; shape.slots().unwrap()]).unwrap();
            let _ = filter.contains(key);
        }
    }

    const PINNED_SHAPE: (u64, u8, u32) = (12994781566227106604, 3, 1);
    const PINNED_FINGERPRINTS: &[u8] =
        &[0, 0, 0, 0, 0, 0, 84, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 163, 0, 0, 56, 0, 0, 0];
    const PINNED_SLOTS: [usize; 3] = [3, 12, 17];
}
