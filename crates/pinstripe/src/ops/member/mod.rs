//! `member`: adds, removes and replaces members, balances them, and merges halves of a store.
//!
//! Order of a move: the extent is written to its new member from strips that match their checksums,
//! made durable, and only then removed from its old place. If a move is interrupted, the extent may
//! have two copies, which does no harm, and running the verb again continues. Readers are not
//! disturbed: they look up again which member has an extent. Only one process moves extents at a
//! time: it has a claim ([`Claim`]), and before it removes anything it checks that the claim and
//! the copy still exist.
//!
//! Not in this module: rewriting packs over fewer members, which `gc` does.

mod add;
mod carry;
mod merge;
pub mod plan;
mod rebalance;
mod remove;
mod replace;

use std::collections::BTreeMap;

pub use add::{Added, add};
pub use merge::{Brought, merge};
pub use rebalance::{MemberShare, Rebalanced, rebalance};
pub use remove::{RemoveOutcome, remove};
pub use replace::{Replaced, replace};

use crate::store::index::geometry_of;
use crate::store::{Claim, Store};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::MemberState;
use pinstripe_member::{ExtentKind, ExtentName};
use plan::{SetPlacement, Takers};

/// The counts of a move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// Extents written to another member.
    pub moved_extents: u64,
    /// Bytes in them.
    pub moved_bytes: u64,
    /// Extents removed because another member had the same extent.
    pub removed_copies: u64,
}

impl std::ops::AddAssign for Moved {
    fn add_assign(&mut self, other: Moved) {
        self.moved_extents += other.moved_extents;
        self.moved_bytes += other.moved_bytes;
        self.removed_copies += other.removed_copies;
    }
}

/// Returns all sets and the members that have their extents, packs first.
///
/// # Errors
/// Fails when a present member cannot be listed, because its content is unknown then.
fn survey(store: &Store) -> Result<Vec<SetPlacement>> {
    let mut sets: BTreeMap<ExtentName, BTreeMap<usize, u64>> = BTreeMap::new();
    for kind in [ExtentKind::Packs, ExtentKind::Index] {
        for (number, member) in store.present() {
            for (id, bytes) in member.list(kind)? {
                sets.entry(ExtentName::In(kind, id)).or_default().insert(number, bytes);
            }
        }
    }
    Ok(sets.into_iter().map(|(name, holders)| SetPlacement { name, holders }).collect())
}

/// Returns the number of members over which a set was striped, if this can be determined.
fn width_of(store: &Store, spread: &SetPlacement) -> Option<usize> {
    let holders: Vec<_> = spread.holders.keys().copied().collect();
    geometry_of(store, spread.name, &holders).map(|geometry| geometry.members())
}

/// Returns the numbers of the members that get new extents.
fn takers(store: &Store) -> Takers {
    let mut takers = Takers::default();
    for (number, member) in store.takers().iter().enumerate() {
        let Some(member) = member else { continue };
        takers.members.push(number);
        let caps = member.caps();
        if let Some(usable) = caps.usable_bytes(SPARED_MOST_BYTES) {
            let room = if caps.is_full { 0 } else { usable };
            takers.room_bytes.insert(number, room);
        }
        if let Some(device) = caps.device {
            takers.devices.insert(number, device);
        }
    }
    takers
}

/// The largest part of the free space on its target that a move leaves unused.
const SPARED_MOST_BYTES: u64 = 16 << 20;

/// Handles a member number that no member has. If the removal of a member with this number was
/// interrupted before it was in all labels, the labels are brought up to date.
fn finish_retiring(store: &Store, claim: &Claim, number: usize) -> Result<()> {
    if number < store.member_slots.len() && store.write_labels_with(claim)? > 0 {
        return Ok(());
    }
    Err(Error::new(Kind::Usage, format!("there is no member {number}"))
        .advice("'pinstripe members' lists the members"))
}

/// Changes the state of a member in the table.
fn set_state(store: &mut Store, claim: &Claim, number: usize, state: MemberState) -> Result<()> {
    store.change_table(claim, |table| {
        let rows = table.rows.iter_mut();
        rows.filter(|row| usize::from(row.number) == number).for_each(|row| row.state = state);
    })
}
