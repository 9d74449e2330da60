//! Votes of members on the content of an object, if no MAC shows which copy is intact.

use std::collections::BTreeMap;

/// Returns the number of `members` that must agree: as many as a writer of a store with this parity
/// must have reached, minus those that are absent now, but always more than parity replaces, so
/// that the members that may be lost cannot decide alone. If a writer needs to reach only one
/// member, a single member is believed.
pub(super) fn votes_needed(members: usize, parity: usize, absent: usize) -> usize {
    let reached = members.saturating_sub(parity);
    reached.saturating_sub(absent).max(parity + 1).min(reached).max(1)
}

/// Counts how many copies of one object are equal, by their content without the MAC.
pub(super) struct Votes<T>(BTreeMap<Vec<u8>, (T, usize)>);

impl<T> Default for Votes<T> {
    fn default() -> Self {
        Votes(BTreeMap::new())
    }
}

impl<T> Votes<T> {
    /// Counts a copy; returns the number of equal copies so far. The first of the equal copies is
    /// kept.
    pub fn count(&mut self, content: Vec<u8>, copy: T) -> usize {
        let (_, votes) = self.0.entry(content).or_insert((copy, 0));
        *votes += 1;
        *votes
    }

    /// Returns one of the copies on which most members agree, and the number of these copies.
    pub fn most(self) -> Option<(T, usize)> {
        self.0.into_values().max_by_key(|(_, votes)| *votes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_members_than_parity_replaces_decide_alone() {
        for members in 1..=12 {
            for parity in 0..members.min(5) {
                for absent in 0..=parity {
                    let needed = votes_needed(members, parity, absent);
                    let reached = members - parity;
                    assert!((1..=reached).contains(&needed), "{members} {parity} {absent}");
                    assert!(needed > parity || needed == reached, "{members} {parity} {absent}");
                }
            }
        }
        assert_eq!([4, 3, 2, 1].map(|members| votes_needed(members, 1, 0)), [3, 2, 1, 1]);
        assert_eq!(votes_needed(4, 1, 1), 2);
        assert_eq!(votes_needed(6, 2, 1), 3);
    }
}
