//! Small sets of numbers: the members of an array, the shards of a row. Each set is one machine
//! word, so that the planner's set operations are single instructions.

use std::fmt;

/// The number of different numbers that a set can hold: 0 to 63.
pub(crate) const SET_MAX: usize = 64;

/// Members by their number in the array.
pub(crate) type MemberSet = Set;
/// Shards of a row: data in order, then P, then Q; in a mirror, the copies.
pub(crate) type ShardSet = Set;

/// A set of numbers below [`SET_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Set(u64);

impl Set {
    /// Nothing.
    pub const EMPTY: Set = Set(0);

    /// The set of one number.
    ///
    /// # Panics
    /// Panics for numbers from [`SET_MAX`] on, as do all methods that take a number.
    pub const fn one(number: usize) -> Set {
        assert!(number < SET_MAX, "sets hold numbers below 64");
        Set(1 << number)
    }

    /// All numbers below `count`, which is at most [`SET_MAX`].
    pub const fn below(count: usize) -> Set {
        assert!(count <= SET_MAX, "sets hold numbers below 64");
        Set(if count == SET_MAX { u64::MAX } else { (1 << count) - 1 })
    }

    /// Whether the set has the number.
    pub const fn has(self, number: usize) -> bool {
        number < SET_MAX && self.0 >> number & 1 == 1
    }

    /// The set with one more number.
    #[must_use]
    pub const fn with(self, number: usize) -> Set {
        self.or(Set::one(number))
    }

    /// The union.
    #[must_use]
    pub const fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// The intersection.
    #[must_use]
    pub const fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// The numbers of this set that are not in the other set.
    #[must_use]
    pub const fn minus(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// The symmetric difference.
    #[must_use]
    pub const fn flip(self, other: Set) -> Set {
        Set(self.0 ^ other.0)
    }

    /// The set as bits, the lowest number first.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// From bits.
    pub(crate) const fn from_bits(bits: u64) -> Set {
        Set(bits)
    }

    /// The number of elements.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lowest number in the set.
    pub const fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// The `count` lowest numbers in the set.
    #[must_use]
    pub fn lowest(self, count: usize) -> Set {
        self.iter().take(count).collect()
    }

    /// The numbers of the set, lowest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = Set(left).first()?;
            left &= left - 1;
            Some(number)
        })
    }
}

impl FromIterator<usize> for Set {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        numbers.into_iter().fold(Set::EMPTY, Set::with)
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_their_numbers_to_the_last_bit() {
        let set: Set = [63, 0, 5].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert!(set.has(63) && !set.has(62) && !set.has(64));
        assert_eq!((set.len(), set.first()), (3, Some(0)));
        assert_eq!(Set::below(64).len(), 64);
        assert_eq!(Set::below(3).minus(Set::one(1)).iter().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(set.lowest(2), Set::one(0).with(5));
        assert_eq!(set.and(Set::below(6)).flip(Set::one(5)), Set::one(0));
        assert_eq!(Set::EMPTY.first(), None);
        assert_eq!(format!("{set:?}"), "{0, 5, 63}");
    }
}
