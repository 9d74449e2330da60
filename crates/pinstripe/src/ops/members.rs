//! `members`: lists the members of the store, with their places and contents.

use std::path::PathBuf;

use crate::store::index::Index;
use crate::store::{Store, redundancy};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::{Monitor, Redundancy};
use pinstripe_member::ExtentKind;
use pinstripe_member::label::MemberState as State;

/// One member of the store.
#[derive(Debug, Clone, serde::Serialize)]
pub struct MemberStatus {
    /// The member's number, from 0.
    pub member: usize,
    /// The member's path, or the last known one.
    #[serde(serialize_with = "pinstripe_base::units::lossy_path")]
    pub place: PathBuf,
    /// Whether the member was found.
    pub present: bool,
    /// Why the member was not found, or why it cannot be listed.
    pub absence: Option<String>,
    /// Whether the member is being emptied and gets nothing new.
    pub leaving: bool,
    /// Whether the member has no space for another pack.
    pub full: bool,
    /// Extents of packs.
    pub packs: u64,
    /// Bytes of all kinds on the member.
    pub stored_bytes: u64,
    /// Bytes free on the member's file system, if known.
    pub free_bytes: Option<u64>,
}

/// Returns the remaining redundancy, or `None` without the keys, which reading the index requires.
///
/// # Errors
/// Fails with the errors of the members.
pub fn redundancy(store: &Store, monitor: &Monitor) -> Result<Option<Redundancy>> {
    if store.is_locked() {
        return Ok(None);
    }
    let index = Index::load(store, monitor)?;
    redundancy::count(store, &index, monitor).map(Some)
}

/// Returns the state of every member.
///
/// # Errors
/// Never fails at present: the error of a member is part of its state.
pub fn run(store: &Store) -> Result<Vec<MemberStatus>> {
    let mut states = Vec::with_capacity(store.member_slots.len());
    let member_slots = store.member_slots.iter().enumerate().filter(|(_, slot)| slot.row.is_some());
    for (number, slot) in member_slots {
        let mut state = MemberStatus {
            member: number,
            place: slot.place.clone(),
            present: slot.member.is_some(),
            absence: slot.absence.as_ref().map(ToString::to_string),
            leaving: store.state(number).is_some_and(|state| state != State::Active),
            full: false,
            packs: 0,
            stored_bytes: 0,
            free_bytes: None,
        };
        if let Some(member) = &slot.member {
            for kind in ExtentKind::ALL {
                let extents = match member.list(kind) {
                    Ok(extents) => extents,
                    Err(error) => {
                        state.absence = Some(error.to_string());
                        continue;
                    }
                };
                state.stored_bytes += extents.iter().map(|(_, bytes)| bytes).sum::<u64>();
                if kind == ExtentKind::Packs {
                    state.packs = extents.len() as u64;
                }
            }
            let caps = member.caps();
            (state.free_bytes, state.full) = (caps.free_bytes, caps.is_full);
        }
        states.push(state);
    }
    Ok(states)
}
