//! `key`: manages the ways to open an encrypted store, and changes its keys.

use crate::store::Store;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{NAME_MIN_DIGITS, hex};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::key_ring::{KeySlot, SlotWay};
use pinstripe_member::label::Encryption;
use pinstripe_stripe::NewSlot;

/// A key slot, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Slot {
    /// The slot's id, as hex digits.
    pub slot: String,
    /// The kind of the slot: `password` or `key file`.
    pub way: &'static str,
    /// The name for people.
    pub label: String,
    /// When the slot was made, in seconds since 1970.
    pub created_seconds: i64,
    /// The cost of trying a password: memory in KiB.
    pub memory_kib: Option<u32>,
    /// The cost of trying a password: passes over the memory.
    pub passes: Option<u32>,
    /// Lanes.
    pub lanes: Option<u32>,
}

impl Slot {
    fn from_slot(slot: &KeySlot) -> Self {
        let (way, costs) = match slot.way {
            SlotWay::Password(costs) => ("password", Some(costs)),
            SlotWay::KeyFile => ("key file", None),
        };
        Slot {
            slot: hex(&slot.id),
            way,
            label: slot.label.clone(),
            created_seconds: slot.created_seconds,
            memory_kib: costs.map(|costs| costs.memory_kib),
            passes: costs.map(|costs| costs.passes),
            lanes: costs.map(|costs| costs.lanes),
        }
    }
}

/// Returns the slots that open the store, oldest first; this requires no key. Damaged slots are
/// reported.
///
/// # Errors
/// Fails when a member cannot be listed, or with [`Kind::Usage`] for a store that is not encrypted.
pub fn list(store: &Store, monitor: &Monitor) -> Result<Vec<Slot>> {
    if store.config.encryption == Encryption::None {
        return Err(Error::new(
            Kind::Usage,
            "this store has no key slots, because it is not encrypted",
        ));
    }
    let room = store.stored_keys()?;
    let slots = room.current().map(|(_, slots)| slots).unwrap_or_default();
    let slots = slots.into_iter().map(Slot::from_slot).collect();
    for (name, error) in room.damaged {
        let error = error.advice(
            "no member has an intact copy of this key slot; other key slots still work. Add a new \
             key slot with 'pinstripe key add', and remove this one by its id with 'pinstripe key \
             remove'",
        );
        monitor.warning(name.path(), error);
    }
    Ok(slots)
}

/// Adds a way to open the store.
///
/// # Errors
/// Fails with the errors of [`Store::add_slot`].
pub fn add(store: &Store, new: &NewSlot) -> Result<Slot> {
    store.add_slot(new).map(|slot| Slot::from_slot(&slot))
}

/// Removes the slot that is named by the beginning of its id or by its label. A slot that is
/// damaged on all members can only be named by its id. Returns the slot's id, and the slot itself
/// if it was intact.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no slot has the name, with [`Kind::Usage`] when several have
/// it, or with the errors of [`Store::remove_slot`].
pub fn remove(store: &Store, name: &str) -> Result<(String, Option<Slot>)> {
    store.keys()?;
    let room = store.stored_keys()?;
    let slots = room.current().map(|(_, slots)| slots).unwrap_or_default();
    let is_named = |id: [u8; 16]| name.len() >= NAME_MIN_DIGITS && hex(&id).starts_with(name);
    let sound = slots.iter().filter(|slot| slot.label == name || is_named(slot.id));
    let damaged = room.damaged_slots(store.config.store).filter(|&id| is_named(id));
    let mut named = sound.map(|slot| slot.id).chain(damaged);
    match (named.next(), named.next()) {
        (Some(id), None) => {
            store.remove_slot(id)?;
            let sound = slots.iter().find(|slot| slot.id == id);
            Ok((hex(&id), sound.map(|slot| Slot::from_slot(slot))))
        }
        (Some(_), Some(_)) => {
            Err(Error::new(Kind::Usage, format!("'{name}' matches several key slots"))
                .advice("give the id of the key slot, which 'pinstripe key list' shows"))
        }
        (None, _) => Err(Error::new(Kind::NotFound, format!("there is no key slot '{name}'"))
            .advice("'pinstripe key list' lists the key slots")),
    }
}

/// Gives the store new keys that only this slot opens; returns the slot and the number of slots
/// that were removed.
///
/// # Errors
/// Fails with the errors of [`Store::rotate_keys`].
pub fn rotate(store: &mut Store, new: &NewSlot) -> Result<(Slot, usize)> {
    let room = store.stored_keys()?;
    let before = room.current().map_or(0, |(_, slots)| slots.len());
    let slot = store.rotate_keys(new)?;
    Ok((Slot::from_slot(&slot), before))
}
