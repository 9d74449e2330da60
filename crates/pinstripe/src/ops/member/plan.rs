//! Plans moves, from lists of extents alone.
//!
//! Invariants: no extent moves to a member that has an extent of the same set or lacks the space;
//! equal lists give equal plans. Members are identified by their numbers; balance is measured in
//! bytes, not in extents, because sets differ in length: in free bytes, or in used bytes if the free
//! bytes of a member are unknown.

use std::collections::{BTreeMap, BTreeSet};

use pinstripe_member::ExtentName;

/// One stripe set: the present members that have an extent of it, and the length of each extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPlacement {
    /// The name of the set's extents.
    pub name: ExtentName,
    /// The length of the extent of each member, by member number.
    pub holders: BTreeMap<usize, u64>,
}

/// One extent that must change its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The name.
    pub name: ExtentName,
    /// The member that has the extent.
    pub from: usize,
    /// The member that gets the extent; it has no extent of the set.
    pub to: usize,
    /// The length.
    pub bytes: u64,
}

/// A plan: the moves, and the extents that cannot move.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// Moves, at most one for each set.
    pub moves: Vec<Move>,
    /// Sets with an extent on every member that could take one.
    pub homeless: Vec<ExtentName>,
}

/// Returns the bytes of all sets on each of these members.
pub fn loads(spreads: &[SetPlacement], members: &[usize]) -> BTreeMap<usize, u64> {
    let mut loads: BTreeMap<usize, u64> = members.iter().map(|member| (*member, 0)).collect();
    for (member, bytes) in spreads.iter().flat_map(|spread| &spread.holders) {
        if let Some(load) = loads.get_mut(member) {
            *load += bytes;
        }
    }
    loads
}

/// Members that may get extents, and the space on each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Takers {
    /// The numbers.
    pub members: Vec<usize>,
    /// Bytes for which a member has space; no entry if that is unknown.
    pub room_bytes: BTreeMap<usize, u64>,
    /// The file system of a member: members of one file system share its space.
    pub devices: BTreeMap<usize, u64>,
}

impl Takers {
    /// Returns the number of bytes of extents that a member can hold in total, given what it holds
    /// now.
    fn most_bytes(&self, loads: &BTreeMap<usize, u64>) -> BTreeMap<usize, u64> {
        let most = |(member, room): (&usize, &u64)| Some((*member, loads.get(member)? + room));
        self.room_bytes.iter().filter_map(most).collect()
    }

    /// Returns a weight in bytes for each member: the heaviest member is the first that should give
    /// data away. An extent weighs its bytes.
    fn weights(&self, loads: &BTreeMap<usize, u64>) -> BTreeMap<usize, i128> {
        let free =
            |(member, load): (&usize, &u64)| Some((*member, -self.share(*member, *load, loads)?));
        let by_free: BTreeMap<usize, i128> = loads.iter().filter_map(free).collect();
        if by_free.len() == loads.len() {
            return by_free;
        }
        loads.iter().map(|(member, load)| (*member, i128::from(*load))).collect()
    }

    /// Returns the free bytes of a member; of a file system with several members its equal share,
    /// which is negative if it uses more. `None` if they are unknown.
    fn share(&self, member: usize, load: u64, loads: &BTreeMap<usize, u64>) -> Option<i128> {
        let mut room = *self.room_bytes.get(&member)?;
        let Some(device) = self.devices.get(&member) else { return Some(i128::from(room)) };
        let (mut sum, mut count) = (0, 0);
        for (other, load) in loads {
            if self.devices.get(other) == Some(device) {
                (sum, count) = (sum + i128::from(*load), count + 1);
                // Each member was asked at another moment: other programs write to the same disk.
                room = room.min(self.room_bytes.get(other).copied().unwrap_or(room));
            }
        }
        Some((sum + i128::from(room)) / count - i128::from(load))
    }
}

/// Whether an extent fits on a member with this load.
fn fits(most: &BTreeMap<usize, u64>, member: usize, load: u64, bytes: u64) -> bool {
    most.get(&member).is_none_or(|most| load + bytes <= *most)
}

/// Plans to empty a member: each extent goes to the `preferred` member if that has none of the set,
/// otherwise to the member with the fewest bytes that has none.
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

/// Plans moves from members with little free space to members with much, until no single move would
/// reduce the difference between two members by more than half the length of its extent: if all
/// extents have the same length, members then differ by at most one extent. The sets in `stay` are
/// not moved.
pub(crate) fn even_out(
    spreads: &[SetPlacement],
    takers: &Takers,
    stay: &BTreeSet<ExtentName>,
) -> Vec<Move> {
    let mut loads = loads(spreads, &takers.members);
    let limits = takers.most_bytes(&loads);
    let mut weights = takers.weights(&loads);
    let mut spreads = spreads.to_vec();
    spreads.retain(|spread| !stay.contains(&spread.name));
    let mean = weights.values().sum::<i128>() / weights.len().max(1) as i128;
    let mut moves = Vec::new();
    // First only from members above the mean to those below it, so that nothing moves twice; then
    // every move that still helps. Each round examines every extent once for each pair of members.
    let mut is_first = true;
    loop {
        let before = moves.len();
        for (from, to) in pairs(&weights) {
            for spread in &mut spreads {
                let Some(&bytes) = spread.holders.get(&from) else { continue };
                let (most, least) = (weights[&from], weights[&to]);
                let weight = i128::from(bytes);
                let is_worth_it = bytes > 0 && most > least + weight + weight / 2;
                let towards_mean = most >= mean + weight / 2 && least + weight / 2 <= mean;
                let stays = spread.holders.contains_key(&to)
                    || (is_first && !towards_mean)
                    || !fits(&limits, to, loads[&to], bytes);
                if !is_worth_it || stays {
                    continue;
                }
                spread.holders.remove(&from);
                let before = spread.holders.insert(to, bytes);
                debug_assert!(before.is_none(), "no member gets two extents of a set");
                *loads.entry(from).or_default() -= bytes;
                *loads.entry(to).or_default() += bytes;
                *weights.entry(from).or_default() -= weight;
                *weights.entry(to).or_default() += weight;
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

/// Returns pairs of members, those with the largest difference first.
fn pairs(weights: &BTreeMap<usize, i128>) -> Vec<(usize, usize)> {
    let mut pairs: Vec<_> = weights
        .iter()
        .flat_map(|(from, most)| {
            weights.iter().filter(move |(_, least)| most > least).map(|(to, _)| (*from, *to))
        })
        .collect();
    pairs.sort_by_key(|(from, to)| (std::cmp::Reverse(weights[from] - weights[to]), *from, *to));
    pairs
}

/// Returns the moves without intermediate stops: an extent that moves twice moves once, or not at
/// all if it returns. Moves of one set are in an order in which each finds its target free.
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
