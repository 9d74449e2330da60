//! Estimates how much of the input is distinct, in bounded memory.
//!
//! Invariants: counts are exact as long as all keys fit; beyond that, the keys are sampled, and the
//! sample is halved as often as needed: keys are hashes, so every key has the same chance, and all
//! occurrences of a key are in the sample or none. Totals are always exact. The estimate never says
//! that a single chunk is new: that is the task of the chunk index.

use std::collections::HashMap;

/// Counts items and how many of them are distinct.
#[derive(Debug)]
pub struct Distinct {
    /// The number of bytes of each key in the sample.
    seen: HashMap<u64, u64>,
    most: usize,
    /// The number of high bits that must be zero in a key for the key to be in the sample.
    shift: u32,
    items: u64,
    bytes: u64,
    sampled_bytes: u64,
}

/// The counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of all items.
    pub items: u64,
    /// The bytes.
    pub bytes: u64,
    /// The number of distinct items: exact, or estimated when `sampled` is above 1.
    pub distinct_items: u64,
    /// The number of bytes of distinct items.
    pub distinct_bytes: u64,
    /// Only one in this many keys was counted; 1 if all were.
    pub sampled: u64,
}

impl Distinct {
    /// Makes a counter that keeps at most `most` keys, of about 32 bytes each.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = most.max(16);
        Distinct { seen: HashMap::new(), most, shift: 0, items: 0, bytes: 0, sampled_bytes: 0 }
    }

    /// Counts an item with this key and length; returns whether the key is in the sample and is new
    /// there.
    pub fn add(&mut self, key: u64, bytes: u64) -> bool {
        self.items += 1;
        self.bytes += bytes;
        if !self.is_sampled(key) || self.seen.contains_key(&key) {
            return false;
        }
        self.seen.insert(key, bytes);
        self.sampled_bytes += bytes;
        while self.seen.len() > self.most {
            self.shift += 1;
            let shift = self.shift;
            self.seen.retain(|key, _| key.leading_zeros() >= shift);
            self.sampled_bytes = self.seen.values().sum();
        }
        debug_assert!(self.sampled_bytes <= self.bytes, "the sample is part of all");
        debug_assert!(self.seen.len() <= self.most, "the sample fits");
        true
    }

    /// Counts items that were seen before: `items` items of `bytes` bytes together. None is new.
    pub fn add_again(&mut self, items: u64, bytes: u64) {
        self.items += items;
        self.bytes += bytes;
    }

    fn is_sampled(&self, key: u64) -> bool {
        key.leading_zeros() >= self.shift
    }

    /// Returns the counts so far.
    pub fn count(&self) -> Count {
        let sampled = 1 << self.shift;
        let estimate = |found: u64, all: u64| found.saturating_mul(sampled).min(all);
        Count {
            items: self.items,
            bytes: self.bytes,
            distinct_items: estimate(self.seen.len() as u64, self.items),
            distinct_bytes: estimate(self.sampled_bytes, self.bytes),
            sampled,
        }
    }
}

/// The key of a hash, which is its first eight bytes.
pub fn key_of(hash: &[u8; 32]) -> u64 {
    u64::from_be_bytes(*hash.first_chunk().expect("a hash is longer than a key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> u64 {
        key_of(blake3::hash(&number.to_le_bytes()).as_bytes())
    }

    #[test]
    fn few_are_counted_exactly() {
        let mut distinct = Distinct::new(1000);
        for round in 0..3 {
            for number in 0..100 {
                assert_eq!(distinct.add(key(number), 10 + number), round == 0);
            }
        }
        let wanted = Count {
            items: 300,
            bytes: 3 * (1000 + 4950),
            distinct_items: 100,
            distinct_bytes: 1000 + 4950,
            sampled: 1,
        };
        assert_eq!(distinct.count(), wanted);
    }

    #[test]
    fn many_are_sampled_and_the_estimate_is_near() {
        let mut distinct = Distinct::new(4096);
        for number in 0..100_000 {
            distinct.add(key(number), 100);
            distinct.add(key(number / 2), 100);
        }
        let count = distinct.count();
        assert_eq!((count.items, count.bytes), (200_000, 20_000_000));
        assert!(count.sampled > 1 && distinct.seen.len() <= 4096);
        assert!((90_000..110_000).contains(&count.distinct_items), "{count:?}");
        assert_eq!(count.distinct_bytes, 100 * count.distinct_items);
    }
}
