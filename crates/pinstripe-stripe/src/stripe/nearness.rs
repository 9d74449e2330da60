//! Which members of a set are read first, and which are read only when the other members do not
//! suffice.
//!
//! Reading a row takes as many of its strips as it has data strips. A strip on a local disk costs a
//! fraction of one in a bucket, in time and in money: so a remote strip is rebuilt from near ones,
//! including parity, if there are enough of them. If all members are remote, a member is not read
//! if its latency is much longer than that of the slowest member needed.
//!
//! Invariant: at least as many members as a row has data strips count as near.

use std::time::Duration;

use pinstripe_base::id::SetId;
use pinstripe_member::{Member, SharedMember, is_remote};

/// The distance of a member; near members sort first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance {
    /// The member is not on this machine: a request costs a round trip.
    pub is_remote: bool,
    /// The measured latency of the member's answers.
    pub latency: Duration,
}

/// Returns the distance of a member.
pub fn distance(member: &dyn Member) -> Distance {
    let latency = member.latency().unwrap_or_default();
    Distance { is_remote: is_remote(member.place()), latency }
}

/// Returns the present members in the order in which they are asked for the trailer of a set: near
/// members first, and members of equal distance in an order that depends on the set.
pub(super) fn turns(members: &[Option<SharedMember>], set: SetId) -> Vec<(usize, &SharedMember)> {
    let first = usize::from(set.0[SetId::LEN - 1]);
    let turns = (0..members.len()).map(|turn| (first + turn) % members.len());
    let there = |number: usize| Some((number, members[number].as_ref()?));
    let mut turns: Vec<_> = turns.filter_map(there).collect();
    turns.sort_by_cached_key(|(_, member)| distance(&***member).is_remote);
    turns
}

/// A member is not read if its latency is this many times that of the slowest member needed.
const FACTOR: u32 = 3;
/// Differences below this are ignored.
const LEAST: Duration = Duration::from_millis(2);

/// Returns which members are not read as long as `needed` other members have the strips; `None`
/// stands for an absent member.
pub(super) fn spared(members: &[Option<Distance>], needed: usize) -> Vec<bool> {
    let mut sorted: Vec<Distance> = members.iter().copied().flatten().collect();
    sorted.sort_unstable();
    let Some(last) = needed.checked_sub(1).and_then(|at| sorted.get(at)) else {
        return vec![false; members.len()];
    };
    let is_spared = |distance: &Option<Distance>| {
        distance.is_some_and(|it| {
            let is_late = it.latency > last.latency.saturating_mul(FACTOR) + LEAST;
            it.is_remote && (!last.is_remote || is_late)
        })
    };
    let spared: Vec<bool> = members.iter().map(is_spared).collect();
    let near = members.iter().zip(&spared).filter(|(it, is_spared)| it.is_some() && !**is_spared);
    debug_assert!(near.count() >= needed, "as many members as are needed stay near");
    spared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Option<Distance> {
        Some(Distance { is_remote: false, latency: Duration::ZERO })
    }

    fn bucket(millis: u64) -> Option<Distance> {
        Some(Distance { is_remote: true, latency: Duration::from_millis(millis) })
    }

    #[test]
    fn enough_near_members_spare_the_far_ones() {
        for (members, needed, expected) in [
            (vec![disk(), disk(), disk(), bucket(1)], 3, "...x"),
            (vec![bucket(80), disk(), disk(), bucket(1)], 2, "x..x"),
            // Too few are near: all are read from, but a far one that is later than all others.
            (vec![disk(), disk(), bucket(20)], 3, "..."),
            (vec![disk(), bucket(20), bucket(200)], 2, "..x"),
            (vec![bucket(20), bucket(200), bucket(25), bucket(30)], 3, ".x.."),
            (vec![bucket(20), bucket(50), bucket(25), bucket(30)], 3, "...."),
            (vec![bucket(0), bucket(1), bucket(0)], 2, "..."),
            (vec![disk(), None, disk(), bucket(20)], 2, "...x"),
            (vec![disk(), None, None, bucket(20)], 2, "...."),
            (vec![None, None], 1, ".."),
            (vec![bucket(9)], 0, "."),
        ] {
            let spared = spared(&members, needed);
            let drawn: String = spared.iter().map(|it| if *it { 'x' } else { '.' }).collect();
            assert_eq!(drawn, expected, "{members:?}, {needed}");
            let near = members.iter().zip(&spared).filter(|(member, it)| member.is_some() && !**it);
            let there = members.iter().flatten().count();
            assert!(near.count() >= needed.min(there), "{members:?}, {needed}");
        }
    }
}
