//! The checksums of a member's blocks, as they are to be: a bounded part of the table in memory.
//!
//! Invariant: a leaf that differs from what the member has stays in memory until it was written.
//!
//! Never here: reading and writing. Who asks for a leaf that is not here brings it.

use std::collections::HashMap;

use crate::format::array::sums::{LEAF_BLOCKS, Sum, leaf_of};

/// Sums of one leaf.
pub type Sums = [Sum; LEAF_BLOCKS];

#[derive(Debug, Clone)]
struct Leaf {
    sums: Box<Sums>,
    /// Not yet on the member.
    is_changed: bool,
    /// When it was last asked for, in calls.
    used: u64,
}

/// A part of the table of one member.
#[derive(Debug)]
pub struct SumCache {
    leaves: HashMap<u64, Leaf>,
    most: usize,
    calls: u64,
    changed: usize,
}

impl SumCache {
    /// An empty one that keeps `most` leaves beside those that were changed.
    pub fn new(most: usize) -> Self {
        SumCache { leaves: HashMap::new(), most, calls: 0, changed: 0 }
    }

    /// Leaves that are not here, of all that speak of these blocks.
    pub fn missing(&self, blocks: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
        let leaves = match blocks.is_empty() {
            true => 0..0,
            false => leaf_of(blocks.start).0..leaf_of(blocks.end - 1).0 + 1,
        };
        leaves.filter(|leaf| !self.leaves.contains_key(leaf))
    }

    /// Takes a leaf as the member has it; what is here already stays.
    pub fn bring(&mut self, leaf: u64, sums: Sums) {
        let used = self.calls;
        let fresh = Leaf { sums: Box::new(sums), is_changed: false, used };
        self.leaves.entry(leaf).or_insert(fresh);
        if self.leaves.len() - self.changed > 2 * self.most {
            self.forget();
        }
    }

    /// The sum of a block; `None` if its leaf is not here.
    pub fn get(&mut self, block: u64) -> Option<Sum> {
        self.calls += 1;
        let (leaf, at) = leaf_of(block);
        let leaf = self.leaves.get_mut(&leaf)?;
        leaf.used = self.calls;
        Some(leaf.sums[at])
    }

    /// Says what a block's sum is from now on.
    ///
    /// # Panics
    /// If its leaf is not here.
    pub fn set(&mut self, block: u64, sum: Sum) {
        let (number, at) = leaf_of(block);
        let leaf = self.leaves.get_mut(&number).expect("the leaf was brought");
        if leaf.sums[at] != sum {
            leaf.sums[at] = sum;
            self.changed += usize::from(!leaf.is_changed);
            leaf.is_changed = true;
        }
    }

    /// Says that the member does not have a leaf at all.
    ///
    /// # Panics
    /// If it is not here.
    pub fn touch(&mut self, leaf: u64) {
        let leaf = self.leaves.get_mut(&leaf).expect("the leaf was brought");
        self.changed += usize::from(!leaf.is_changed);
        leaf.is_changed = true;
    }

    /// Says that nothing of a leaf counts any more.
    pub fn forget_leaf(&mut self, leaf: u64) {
        if self.leaves.remove(&leaf).is_some_and(|leaf| leaf.is_changed) {
            self.changed -= 1;
        }
    }

    /// Leaves that the member does not have so, in order.
    pub fn changed(&self) -> Vec<(u64, Sums)> {
        let changed = self.leaves.iter().filter(|(_, leaf)| leaf.is_changed);
        let mut changed: Vec<_> = changed.map(|(number, leaf)| (*number, *leaf.sums)).collect();
        changed.sort_unstable_by_key(|(number, _)| *number);
        changed
    }

    /// Says that a leaf was written with these sums.
    pub fn written(&mut self, leaf: u64, sums: &Sums) {
        if let Some(leaf) = self.leaves.get_mut(&leaf)
            && leaf.is_changed
            && *leaf.sums == *sums
        {
            leaf.is_changed = false;
            self.changed -= 1;
        }
    }

    /// Drops what was not asked for longest, and is on the member, down to what is to be kept.
    fn forget(&mut self) {
        let unchanged = self.leaves.iter().filter(|(_, leaf)| !leaf.is_changed);
        let mut ages: Vec<u64> = unchanged.map(|(_, leaf)| leaf.used).collect();
        if ages.len() <= self.most {
            return;
        }
        let surplus = ages.len() - self.most;
        let (_, newest, _) = ages.select_nth_unstable(surplus - 1);
        let newest = *newest;
        let mut left = surplus;
        self.leaves.retain(|_, leaf| {
            let goes = left > 0 && !leaf.is_changed && leaf.used <= newest;
            left -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Sums = [Sum::UNWRITTEN; LEAF_BLOCKS];
    const PER: u64 = LEAF_BLOCKS as u64;

    #[test]
    fn it_says_which_leaves_it_wants() {
        let mut cache = SumCache::new(8);
        assert!(cache.missing(PER - 1..PER + 1).eq([0, 1]));
        cache.bring(1, EMPTY);
        assert!(cache.missing(0..3 * PER).eq([0, 2]));
        assert!(cache.missing(PER..2 * PER).chain(cache.missing(5..5)).next().is_none());
        assert_eq!((cache.get(0), cache.get(PER)), (None, Some(Sum::UNWRITTEN)));
    }

    #[test]
    fn what_was_changed_stays_until_it_is_written() {
        let mut cache = SumCache::new(4);
        cache.bring(0, EMPTY);
        cache.set(3, Sum::of(b"a"));
        for leaf in 1..100 {
            cache.bring(leaf, EMPTY);
        }
        assert!(cache.leaves.len() <= 10, "{}", cache.leaves.len());
        assert_eq!(cache.get(3), Some(Sum::of(b"a")));
        // A member's older leaf does not replace it.
        cache.bring(0, EMPTY);
        let changed = cache.changed();
        assert_eq!((changed.len(), changed[0].0, changed[0].1[3]), (1, 0, Sum::of(b"a")));
        // Changed again while it was being written: it is still to be written.
        cache.set(3, Sum::of(b"b"));
        cache.written(0, &changed[0].1);
        let changed = cache.changed();
        assert_eq!(changed.len(), 1);
        cache.written(0, &changed[0].1);
        assert!(cache.changed().is_empty());
        assert_eq!(cache.changed, 0);
    }

    #[test]
    fn what_was_asked_for_last_is_kept() {
        let mut cache = SumCache::new(4);
        for leaf in 0..50 {
            cache.bring(leaf, EMPTY);
            cache.get(0);
        }
        assert_eq!(cache.get(0), Some(Sum::UNWRITTEN));
    }
}
