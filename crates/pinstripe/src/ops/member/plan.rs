//! The plan of moves, decided from lists of extents alone.
//!
//! Invariants: nothing moves to a member that has an extent of the same set, or that has no room for
//! it; the same lists give the same plan. Members are known by their numbers; bytes decide, not counts, because sets
//! differ in length.

use std::collections::{BTreeMap, BTreeSet};

use pinstripe_member::ExtentName;

/// One stripe set: which present members have an extent of it, and how long each is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPlacement {
    /// The name of its extents.
    pub name: ExtentName,
    /// Member number and bytes.
    pub holders: BTreeMap<usize, u64>,
}

/// One extent that must change its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The name.
    pub name: ExtentName,
    /// The member that has it.
    pub from: usize,
    /// A member that has none of the set.
    pub to: usize,
    /// The length.
    pub bytes: u64,
}

/// A plan: the moves, and the extents that cannot move.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// Moves, at most one of each set.
    pub moves: Vec<Move>,
    /// Sets that have an extent on every taker already.
    pub homeless: Vec<ExtentName>,
}

/// Bytes of all sets by member, for these members.
pub fn loads(spreads: &[SetPlacement], members: &[usize]) -> BTreeMap<usize, u64> {
    let mut loads: BTreeMap<usize, u64> = members.iter().map(|member| (*member, 0)).collect();
    for (member, bytes) in spreads.iter().flat_map(|spread| &spread.holders) {
        if let Some(load) = loads.get_mut(member) {
            *load += bytes;
        }
    }
    loads
}

/// Members that may get extents, and the room on each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Takers {
    /// The numbers.
    pub members: Vec<usize>,
    /// Bytes that a member has room for; no entry if that is not known.
    pub room_bytes: BTreeMap<usize, u64>,
}

impl Takers {
    /// Bytes of extents that a member can hold in all, given what it holds now.
    fn most_bytes(&self, loads: &BTreeMap<usize, u64>) -> BTreeMap<usize, u64> {
        let most = |(member, room): (&usize, &u64)| Some((*member, loads.get(member)? + room));
        self.room_bytes.iter().filter_map(most).collect()
    }
}

/// Whether an extent fits on a member with this load.
fn fits(most: &BTreeMap<usize, u64>, member: usize, load: u64, bytes: u64) -> bool {
    most.get(&member).is_none_or(|most| load + bytes <= *most)
}

/// Takes everything off a member: each extent to `preferred` where that has none of the set, else
/// to the taker with the fewest bytes that has none.
pub fn empty(
    spreads: &[SetPlacement],
    from: usize,
    takers: &Takers,
    preferred: Option<usize>,
) -> Emptied {
    let mut loads = loads(spreads, &takers.members);
    let most = takers.most_bytes(&loads);
    let mut plan = Emptied::default();
    for spread in spreads {
        let Some(&bytes) = spread.holders.get(&from) else { continue };
        let fits = |member: &usize| fits(&most, *member, loads[member], bytes);
        let free = |member: &usize| {
            *member != from && !spread.holders.contains_key(member) && fits(member)
        };
        let first = preferred.filter(|member| loads.contains_key(member)).filter(free);
        let least = || loads.keys().copied().filter(free).min_by_key(|member| loads[member]);
        let Some(to) = first.or_else(least) else {
            plan.homeless.push(spread.name);
            continue;
        };
        debug_assert!(!spread.holders.contains_key(&to), "no member gets two extents of a set");
        *loads.entry(to).or_default() += bytes;
        plan.moves.push(Move { name: spread.name, from, to, bytes });
    }
    plan
}

/// Moves extents from members with many bytes to members with few, until no single move brings
/// two members closer together by more than half its length: of extents of one length, they
/// differ by no more than one then. The sets in `stay` are not moved.
pub(crate) fn even_out(
    spreads: &[SetPlacement],
    takers: &Takers,
    stay: &BTreeSet<ExtentName>,
) -> Vec<Move> {
    let mut loads = loads(spreads, &takers.members);
    let limits = takers.most_bytes(&loads);
    let mut spreads = spreads.to_vec();
    spreads.retain(|spread| !stay.contains(&spread.name));
    let mean = loads.values().sum::<u64>() / loads.len().max(1) as u64;
    let mut moves = Vec::new();
    // First only from members above the mean to those below it, so that nothing moves twice; then
    // every move that still helps. Each round examines every extent once for each pair of members.
    let mut is_first = true;
    loop {
        let before = moves.len();
        for (from, to) in pairs(&loads) {
            for spread in &mut spreads {
                let Some(&bytes) = spread.holders.get(&from) else { continue };
                let (most, least) = (loads[&from], loads[&to]);
                let is_worth_it = bytes > 0 && most > least + bytes + bytes / 2;
                let towards_mean = most >= mean + bytes / 2 && least + bytes / 2 <= mean;
                let stays = spread.holders.contains_key(&to)
                    || (is_first && !towards_mean)
                    || !fits(&limits, to, least, bytes);
                if !is_worth_it || stays {
                    continue;
                }
                spread.holders.remove(&from);
                let before = spread.holders.insert(to, bytes);
                debug_assert!(before.is_none(), "no member gets two extents of a set");
                *loads.entry(from).or_default() -= bytes;
                *loads.entry(to).or_default() += bytes;
                moves.push(Move { name: spread.name, from, to, bytes });
            }
        }
        match (moves.len() == before, is_first) {
            (true, true) => is_first = false,
            (true, false) => return without_stops(moves),
            (false, _) => {}
        }
    }
}

/// Pairs of members, those that are furthest apart first.
fn pairs(loads: &BTreeMap<usize, u64>) -> Vec<(usize, usize)> {
    let mut pairs: Vec<_> = loads
        .iter()
        .flat_map(|(from, most)| {
            loads.iter().filter(move |(_, least)| most > least).map(|(to, _)| (*from, *to))
        })
        .collect();
    pairs.sort_by_key(|(from, to)| (std::cmp::Reverse(loads[from] - loads[to]), *from, *to));
    pairs
}

/// The same without intermediate moves: an extent that moves twice moves once, or not at all when
/// it comes back. Moves of one set follow each other, in an order in which each finds its place
/// free.
fn without_stops(moves: Vec<Move>) -> Vec<Move> {
    let mut by_set: BTreeMap<ExtentName, Vec<Move>> = BTreeMap::new();
    for next in moves {
        let set = by_set.entry(next.name).or_default();
        match set.last_mut() {
            Some(last) if last.to == next.from => {
                last.to = next.to;
                if last.from == last.to {
                    set.pop();
                }
            }
            _ => set.push(next),
        }
    }
    by_set.into_values().flatten().collect()
}

#[cfg(test)]
mod tests;
