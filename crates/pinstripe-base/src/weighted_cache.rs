//! A map whose entries have weights; entries are evicted when the sum of the weights is too large.
//!
//! Entries are evicted by the clock algorithm (CLOCK, Corbato 1968): entries that were used since
//! the hand last passed stay for another round. An entry that is heavier than the limit is kept
//! alone.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::Hash;

/// The map.
#[derive(Debug)]
pub struct WeightedCache<K, V> {
    most: u64,
    weight: u64,
    entries: HashMap<K, Weighted<V>>,
    /// All keys, in the order in which the hand passes them.
    hand: VecDeque<K>,
}

#[derive(Debug)]
struct Weighted<V> {
    value: V,
    weight: u64,
    is_recent: bool,
}

impl<K: Copy + Eq + Hash, V: Clone> WeightedCache<K, V> {
    /// An empty cache, whose entries may weigh `most` in total.
    pub fn new(most: u64) -> Self {
        WeightedCache { most, weight: 0, entries: HashMap::new(), hand: VecDeque::new() }
    }

    /// The value of a key, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<V> {
        let found = self.entries.get_mut(key)?;
        found.is_recent = true;
        Some(found.value.clone())
    }

    /// Stores a value, unless the key already has one, which is then kept. Returns the value that
    /// is kept.
    pub fn keep(&mut self, key: K, value: V, weight: u64) -> V {
        if let Some(there) = self.get(&key) {
            return there;
        }
        while self.weight.saturating_add(weight) > self.most
            && let Some(next) = self.hand.pop_front()
        {
            self.pass(next);
        }
        self.hand.push_back(key);
        self.weight += weight;
        self.entries.insert(key, Weighted { value: value.clone(), weight, is_recent: false });
        value
    }

    /// Moves the hand past an entry, which stays for another round if it was used.
    fn pass(&mut self, key: K) {
        let Entry::Occupied(mut entry) = self.entries.entry(key) else { return };
        if std::mem::take(&mut entry.get_mut().is_recent) {
            self.hand.push_back(key);
        } else {
            self.weight -= entry.remove().weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut cache = WeightedCache::new(10);
        for key in 0..5 {
            assert_eq!(cache.keep(key, key * 10, 2), key * 10);
        }
        assert_eq!(cache.get(&0), Some(0));
        assert_eq!(cache.keep(5, 50, 3), 50, "two of the others make room");
        let there = [0, 1, 2, 3, 4, 5].map(|key| cache.entries.contains_key(&key));
        assert_eq!(there, [true, false, false, true, true, true]);
        assert_eq!((cache.weight, cache.hand.len()), (9, 4));
        assert_eq!(cache.get(&1), None);
    }

    #[test]
    fn the_first_value_of_a_key_stays() {
        let mut cache = WeightedCache::new(10);
        assert_eq!(cache.keep(1, "first", 4), "first");
        assert_eq!(cache.keep(1, "second", 4), "first");
        assert_eq!((cache.weight, cache.hand.len()), (4, 1));
    }

    #[test]
    fn what_is_too_heavy_is_kept_alone() {
        let mut cache = WeightedCache::new(10);
        cache.keep(1, "light", 4);
        assert_eq!(cache.get(&1), Some("light"));
        cache.keep(2, "heavy", 100);
        assert_eq!((cache.get(&1), cache.get(&2)), (None, Some("heavy")));
        cache.keep(3, "light again", 10);
        // It was asked for, but all others have gone by then.
        assert_eq!((cache.get(&2), cache.get(&3)), (None, Some("light again")));
        assert_eq!(cache.weight, 10);
    }
}
