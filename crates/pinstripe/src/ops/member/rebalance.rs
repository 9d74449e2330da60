//! `member rebalance`: moves extents from members with many bytes to members with few.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{self, Move, SetPlacement};
use super::{Moved, carry, survey, takers, width_of};
use crate::pipeline::limits::Limits;
use crate::store::{Claim, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentName;

/// The result of a rebalance, or in a dry run the expected result.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Rebalanced {
    /// The numbers of moved and removed extents.
    #[serde(flatten)]
    pub moved: Moved,
    /// For each member that takes new extents: its bytes before and after.
    pub shares: Vec<MemberShare>,
}

/// The bytes of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct MemberShare {
    /// The number.
    pub member: usize,
    /// Bytes in extents before.
    pub before_bytes: u64,
    /// Bytes in extents after.
    pub after_bytes: u64,
}

/// Balances the members to within one extent, as far as sets allow, and removes second copies of
/// extents. With `dry_run`, the moves are only reported. If the command is interrupted, running it
/// again resumes.
///
/// # Errors
/// Fails with [`Kind::Busy`](pinstripe_base::error::Kind::Busy) when another process changes the
/// members, or with the errors of the members.
pub fn rebalance(
    store: &Store,
    dry_run: bool,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Rebalanced> {
    // The claim keeps the plan valid until it is carried out.
    let claim = if dry_run { None } else { Some(store.claim()?) };
    if let Some(claim) = &claim {
        store.announce(claim, monitor)?;
    }
    let mut spreads = survey(store)?;
    let widths = widths(store, &spreads);
    let twins = twins(store, &spreads, &widths)?;
    let takers = takers(store);
    let before = plan::loads(&spreads, &takers.members);
    for (name, number) in &twins {
        let spread = spreads.iter_mut().filter(|spread| spread.name == *name);
        for spread in spread {
            spread.holders.remove(number);
        }
    }
    let stay = lacking(&spreads, &widths);
    let moves = plan::even_out(&spreads, &takers, &stay);
    let mut after = plan::loads(&spreads, &takers.members);
    for one in &moves {
        after.entry(one.from).and_modify(|bytes| *bytes -= one.bytes);
        after.entry(one.to).and_modify(|bytes| *bytes += one.bytes);
    }
    let share = |(member, before_bytes): (&usize, &u64)| MemberShare {
        member: *member,
        before_bytes: *before_bytes,
        after_bytes: after[member],
    };
    let shares = before.iter().map(share).collect();
    if !stay.is_empty() {
        let sets = pinstripe_base::units::counted(
            stay.len() as u64,
            "stripe set lacks",
            "stripe sets lack",
        );
        let what = format!("{sets} an extent, so not all extents can be moved");
        let advice =
            "attach the absent members, run 'pinstripe repair', then run this command again";
        monitor.warning("packs", Error::new(Kind::Refused, what).advice(advice));
    }
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
    monitor.set_total(moves.iter().map(|one| one.bytes).sum(), moves.len() as u64);
    let mut moved = Moved::default();
    for (name, number) in twins {
        if carry::has_twin(store, *name, *number)? {
            moved += carry::drop_copy(store, claim, *name, *number)?;
        }
    }
    moved += carry::moves(store, claim, moves, limits, monitor)?;
    Ok(moved)
}

/// Returns the number of members over which each set was striped, where this can be determined.
fn widths(store: &Store, spreads: &[SetPlacement]) -> BTreeMap<ExtentName, usize> {
    let width = |spread: &SetPlacement| Some((spread.name, width_of(store, spread)?));
    spreads.iter().filter_map(width).collect()
}

/// Returns the sets that lack an extent. The extents of such a set stay where they are: if the
/// member that lost one got another extent of the same set and failed again, the set would lose two
/// extents at once.
fn lacking(spreads: &[SetPlacement], widths: &BTreeMap<ExtentName, usize>) -> BTreeSet<ExtentName> {
    let is_whole = |spread: &&SetPlacement| {
        widths.get(&spread.name).is_some_and(|width| spread.holders.len() >= *width)
    };
    spreads.iter().filter(|spread| !is_whole(spread)).map(|spread| spread.name).collect()
}

/// Returns extents that another member has too, of sets that have more extents than they should.
fn twins(
    store: &Store,
    spreads: &[SetPlacement],
    widths: &BTreeMap<ExtentName, usize>,
) -> Result<Vec<(ExtentName, usize)>> {
    let has_more = |spread: &&SetPlacement| {
        widths.get(&spread.name).is_some_and(|width| spread.holders.len() > *width)
    };
    let mut twins = Vec::new();
    for spread in spreads.iter().filter(has_more) {
        let Some(reader) = carry::open(store, spread.name)? else { continue };
        for number in reader.spare_members() {
            if carry::has_twin(store, spread.name, number)? {
                twins.push((spread.name, number));
            }
        }
    }
    Ok(twins)
}
