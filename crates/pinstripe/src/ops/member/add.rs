//! `member add`: makes a directory a member of the store.

use std::path::{Path, PathBuf};

use super::super::carried::Carried;
use super::super::{init, repair};
use super::set_state;
use crate::store::{Claim, Store, geometry_over};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::label::{MEMBERS_MAX, MemberState};

/// The new member.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Added {
    /// The number.
    pub member: usize,
    /// Small objects copied to the new member.
    pub copied_objects: u64,
    /// The number of data strips per row of packs from now on; 0 while too few members are present.
    pub data: usize,
}

/// Makes a missing or empty directory a member: it gets a label and all small objects, and only
/// then do the other labels list it. From then on new packs use the new member too. If the command
/// is interrupted, running it again resumes. Adding a member that is leaving makes it active again.
///
/// # Errors
/// Fails with [`Kind::Refused`] when it is not empty, or is on the disk of another member and
/// `same_disk` is not set, with [`Kind::Busy`] when another process changes the members, or with
/// the errors of the members.
pub fn add(store: &mut Store, place: &Path, same_disk: bool, monitor: &Monitor) -> Result<Added> {
    if !same_disk {
        init::refuse_disk(store, place, None)?;
    }
    let claim = store.claim()?;
    let (number, copied_objects) = assign_slot(store, &claim, place, monitor)?;
    if store.state(number) != Some(MemberState::Active) {
        set_state(store, &claim, number, MemberState::Active)?;
    }
    // It has joined even if too many members are absent for new data.
    let data = store.geometry().map_or(0, |geometry| geometry.data());
    Ok(Added { member: number, copied_objects, data })
}

/// Makes a directory a member with all small objects, and then lists it in every label.
pub(super) fn assign_slot(
    store: &mut Store,
    claim: &Claim,
    place: &Path,
    monitor: &Monitor,
) -> Result<(usize, u64)> {
    refuse_nesting(store, place)?;
    let members = store.member_slots.iter().filter(|slot| slot.row.is_some()).count();
    if members >= MEMBERS_MAX {
        return Err(Error::new(
            Kind::Refused,
            "the store already has the maximum number of members",
        )
        .expected(format!("fewer than {MEMBERS_MAX} members"), members));
    }
    // An impossible geometry is refused before anything is written.
    geometry_over(&store.config, members + 1)?;
    let carried = Carried::gather(store)?;
    let number = store.join(place)?;
    let mut outcome = repair::RepairOutcome::default();
    if let Some(member) = store.member_slots[number].member.as_ref() {
        outcome.repaired_objects += carried.put_on(&**member)?;
    }
    repair::small_objects(store, monitor, &mut outcome)?;
    store.write_labels_with(claim)?;
    outcome.repaired_objects += carried.update(store, number)?;
    Ok((number, outcome.repaired_objects))
}

/// Returns the paths of the members, except the one at `place` itself.
fn others(store: &Store, place: &Path) -> Vec<PathBuf> {
    let member_slots =
        store.member_slots.iter().filter(|slot| slot.row.is_some() && slot.place != place);
    member_slots.map(|slot| slot.place.clone()).collect()
}

fn refuse_nesting(store: &Store, place: &Path) -> Result<()> {
    let place = init::absolute(place)?;
    let mut places = others(store, &place);
    places.push(place);
    init::refuse_twins(&places)
}
