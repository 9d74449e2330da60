//! `member rebalance`: extents go from members with many to members with few.

use super::plan::{self, Move};
use super::{Moved, carry, survey, takers};
use crate::error::Result;
use crate::member::ExtentName;
use crate::monitor::Monitor;
use crate::pipeline::limits::Limits;
use crate::store::index::geometry_of;
use crate::store::{Claim, Store};

/// What was done, or would be.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Rebalanced {
    /// What was moved and removed.
    #[serde(flatten)]
    pub moved: Moved,
    /// Of each member that takes new extents: what it held before, and holds after.
    pub shares: Vec<Share>,
}

/// What one member holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    /// Its number.
    pub member: usize,
    /// Bytes in extents before.
    pub before_bytes: u64,
    /// Bytes in extents after.
    pub after_bytes: u64,
}

/// Makes the members hold about the same, within one extent, as far as sets allow; removes what
/// stands twice. With `dry_run` it only says what it would do. Cut off, running it again goes on.
///
/// # Errors
/// [`Kind::Busy`](crate::error::Kind::Busy) when another process changes the members; those of
/// the members.
pub fn rebalance(
    store: &Store,
    dry_run: bool,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Rebalanced> {
    // What is planned must still be so when it is done.
    let claim = if dry_run { None } else { Some(store.claim()?) };
    let twins = twins(store)?;
    let mut spreads = survey(store)?;
    let takers = takers(store);
    let before = plan::loads(&spreads, &takers);
    for (name, number) in &twins {
        let spread = spreads.iter_mut().filter(|spread| spread.name == *name);
        for spread in spread {
            spread.holders.remove(number);
        }
    }
    let moves = plan::even_out(&spreads, &takers);
    let mut after = plan::loads(&spreads, &takers);
    for one in &moves {
        after.entry(one.from).and_modify(|bytes| *bytes -= one.bytes);
        after.entry(one.to).and_modify(|bytes| *bytes += one.bytes);
    }
    let share = |(member, before_bytes): (&usize, &u64)| Share {
        member: *member,
        before_bytes: *before_bytes,
        after_bytes: after[member],
    };
    let shares = before.iter().map(share).collect();
    let moved = match claim {
        Some(claim) => work(store, &claim, &twins, &moves, limits, monitor)?,
        None => planned(&moves, twins.len()),
    };
    Ok(Rebalanced { moved, shares })
}

fn planned(moves: &[Move], twins: usize) -> Moved {
    Moved {
        moved_extents: moves.len() as u64,
        moved_bytes: moves.iter().map(|one| one.bytes).sum(),
        removed_copies: twins as u64,
    }
}

fn work(
    store: &Store,
    claim: &Claim,
    twins: &[(ExtentName, usize)],
    moves: &[Move],
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Moved> {
    monitor.expect(moves.iter().map(|one| one.bytes).sum(), moves.len() as u64);
    let mut moved = Moved::default();
    for (name, number) in twins {
        if carry::has_twin(store, *name, *number)? {
            moved += carry::drop_copy(store, claim, *name, *number)?;
        }
    }
    moved += carry::moves(store, claim, moves, limits, monitor)?;
    Ok(moved)
}

/// Extents of which another member has the same, of sets that have more than they should.
fn twins(store: &Store) -> Result<Vec<(ExtentName, usize)>> {
    let mut twins = Vec::new();
    for spread in survey(store)? {
        let holders: Vec<_> = spread.holders.keys().copied().collect();
        let geometry = geometry_of(store, spread.name, &holders);
        if geometry.is_none_or(|geometry| holders.len() <= geometry.members()) {
            continue;
        }
        let Some(reader) = carry::open(store, spread.name)? else { continue };
        for number in reader.spare_members() {
            if carry::has_twin(store, spread.name, number)? {
                twins.push((spread.name, number));
            }
        }
    }
    Ok(twins)
}
