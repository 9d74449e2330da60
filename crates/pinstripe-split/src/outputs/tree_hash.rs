//! The BLAKE3 of a source whose units are hashed by many threads, in any order.
//!
//! BLAKE3 is a binary tree over chunks of 1 KiB whose left subtrees are as large as a power of two
//! allows (the BLAKE3 paper, section 2.1). A unit's length is such a power of two, so each unit
//! except the last is a subtree of its own, and the root can be computed from their chaining
//! values.
//!
//! Invariants: memory holds one value for each level of the tree and one for each unit that arrived
//! out of order; the hash equals that of the source read in order.

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

/// The contribution of a unit to the hash of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitHash {
    /// The hash of the unit as a complete source, if it is the only unit.
    alone: Option<[u8; 32]>,
    /// As a subtree. The chaining value depends on the offset: the same bytes at another offset
    /// have another value.
    pub chaining_value: ChainingValue,
}

impl UnitHash {
    /// Hashes a unit that begins at `offset`, a multiple of the unit length; the unit must not be
    /// empty.
    pub fn from_bytes(offset: u64, bytes: &[u8]) -> Self {
        // Only a first unit can be all that there is, and it is hashed twice for it.
        let alone = (offset == 0).then(|| *blake3::hash(bytes).as_bytes());
        let mut hasher = Hasher::new();
        hasher.set_input_offset(offset).update(bytes);
        UnitHash { alone, chaining_value: hasher.finalize_non_root() }
    }

    /// Makes a unit's contribution from its stored hash. `alone` is the hash of the unit if it is
    /// the complete source.
    pub fn known(chaining_value: ChainingValue, alone: Option<[u8; 32]>) -> Self {
        UnitHash { alone, chaining_value }
    }
}

/// Combines the contributions of units into the hash of the source.
#[derive(Debug, Default)]
pub(crate) struct TreeHash {
    /// Complete subtrees, from left to right, each with its number of units, which is a power of
    /// two.
    stack: Vec<(ChainingValue, u64)>,
    /// The newest part. The last unit so far; whether another unit follows it is not known yet.
    last: Option<UnitHash>,
    /// Units so far.
    units: u64,
    /// The contributions of units for which earlier units are still missing.
    early: BTreeMap<u64, UnitHash>,
}

impl TreeHash {
    /// Takes the contribution of unit number `unit`.
    pub fn take(&mut self, unit: u64, part: UnitHash) {
        self.early.insert(unit, part);
        while let Some(part) = self.early.remove(&self.units) {
            self.push(part);
        }
    }

    fn push(&mut self, part: UnitHash) {
        if let Some(last) = self.last.replace(part) {
            let mut subtree = (last.chaining_value, 1);
            while self.stack.last().is_some_and(|(_, units)| *units == subtree.1) {
                let (left, units) = self.stack.pop().expect("it was examined");
                subtree = (merge_subtrees_non_root(&left, &subtree.0, Mode::Hash), 2 * units);
            }
            self.stack.push(subtree);
        }
        self.units += 1;
    }

    /// The number of units taken in an unbroken sequence from the first one.
    #[cfg(test)]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the hash of all units, or `None` when a unit is missing.
    pub fn finish(self) -> Option<[u8; 32]> {
        if !self.early.is_empty() {
            return None;
        }
        let Some(last) = self.last else { return Some(*blake3::hash(b"").as_bytes()) };
        let Some(((first, _), between)) = self.stack.split_first() else { return last.alone };
        let right = between.iter().rev().fold(last.chaining_value, |right, (left, _)| {
            merge_subtrees_non_root(left, &right, Mode::Hash)
        });
        Some(*merge_subtrees_root(first, &right, Mode::Hash).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_give_the_hash_of_the_whole() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
        for unit in [4096_usize, 16_384] {
            for len in [0, 1, 1024, 4095, 4096, 4097, 16_384, 65_536, 65_537, 100_000, 300_000] {
                let bytes = &bytes[..len];
                let mut units: Vec<_> = bytes.chunks(unit).enumerate().collect();
                units.reverse();
                let third = units.len() / 3;
                units.rotate_left(third);
                let mut hash = TreeHash::default();
                for (number, unit_bytes) in units {
                    hash.take(
                        number as u64,
                        UnitHash::from_bytes((number * unit) as u64, unit_bytes),
                    );
                }
                assert_eq!(hash.units(), len.div_ceil(unit) as u64);
                assert_eq!(hash.finish(), Some(*blake3::hash(bytes).as_bytes()), "{len} by {unit}");
            }
        }
    }

    #[test]
    fn a_missing_part_is_no_hash() {
        let mut hash = TreeHash::default();
        hash.take(0, UnitHash::from_bytes(0, &[1; 4096]));
        hash.take(2, UnitHash::from_bytes(8192, &[1; 4096]));
        assert_eq!((hash.units(), hash.finish()), (1, None));
    }
}
