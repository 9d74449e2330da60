//! What the key rooms of the members hold together, and which of it counts.
//!
//! Invariants: the ring of the highest generation that a slot speaks of is the current one, and
//! only its slots open the store, so a member that comes back with slots of before a rotation
//! revives none of them; a slot that was removed opens nothing, wherever it turns up again.

use std::collections::BTreeMap;

use super::super::Store;
use crate::error::{Error, Kind, Result};
use crate::format::envelope::{self, Object};
use crate::format::key_ring::{KeyRing, KeySlot};
use crate::format::keys::{GENERATIONS_MAX, Keys};
use crate::format::label::Encryption;
use crate::format::removed_slot::RemovedSlot;
use crate::id::StoreId;
use crate::member::{ExtentName, Room};

/// What the key rooms of the present members hold together.
#[derive(Debug, Default)]
pub struct KeyRoom {
    /// Sound rings by generation, with their bytes.
    rings: BTreeMap<u32, (KeyRing, Vec<u8>)>,
    /// Sound slots by name, with their bytes.
    slots: BTreeMap<[u8; 16], (KeySlot, Vec<u8>)>,
    /// Sound objects that say that a slot was removed, by name, with their bytes.
    removed: BTreeMap<[u8; 16], (RemovedSlot, Vec<u8>)>,
    /// Objects of which no present member has a sound copy.
    pub damaged: Vec<(ExtentName, Error)>,
}

impl KeyRoom {
    /// The ring that counts and its slots, oldest first. `None` when there is no pair of both.
    pub fn current(&self) -> Option<(&KeyRing, Vec<&KeySlot>)> {
        self.rings.values().rev().find_map(|(ring, _)| {
            let mut slots: Vec<_> = (self.slots.values())
                .map(|(slot, _)| slot)
                .filter(|slot| slot.ring_commitment == ring.commitment)
                .collect();
            if slots.is_empty() {
                return None;
            }
            slots.retain(|slot| !self.is_removed(slot));
            slots.sort_by_key(|slot| (slot.created_seconds, &slot.label, slot.id));
            Some((ring, slots))
        })
    }

    fn is_removed(&self, slot: &KeySlot) -> bool {
        let mut removed = self.removed.values();
        removed.any(|(it, _)| (it.slot, it.generation) == (slot.id, slot.generation))
    }

    /// The first number of a removal from this ring that is not taken, without a slot yet.
    pub(super) fn next_removal(&self, ring: &KeyRing) -> RemovedSlot {
        let is_damaged = |name| self.damaged.iter().any(|(damaged, _)| *damaged == name);
        let is_taken =
            |name| self.removed.contains_key(&name) || is_damaged(ExtentName::In(Room::Keys, name));
        let KeyRing { store, generation, .. } = *ring;
        let mut removal = RemovedSlot { store, generation, number: 0, slot: [0; 16] };
        while is_taken(removal.own_name()) {
            removal.number += 1;
        }
        removal
    }

    /// Names and bytes of what counts: what every member must have. What was removed comes first,
    /// the ring last.
    pub fn wanted(&self) -> Vec<(ExtentName, &[u8])> {
        let Some((ring, slots)) = self.current() else { return Vec::new() };
        let removed = self.removed.iter().filter(|(_, (it, _))| it.generation == ring.generation);
        let removed =
            removed.map(|(name, (_, bytes))| (ExtentName::In(Room::Keys, *name), bytes.as_slice()));
        let slots = slots.iter().map(|slot| {
            let (_, bytes) = &self.slots[&slot.id];
            (ExtentName::In(Room::Keys, slot.id), bytes.as_slice())
        });
        let (_, bytes) = &self.rings[&ring.generation];
        let name = KeyRing::name(ring.store, ring.generation);
        let ring = (ExtentName::In(Room::Keys, name), bytes.as_slice());
        removed.chain(slots).chain([ring]).collect()
    }

    /// Names of what counts no more: other slots first, then the rings of earlier generations.
    pub(super) fn stale(&self) -> Vec<ExtentName> {
        let Some((ring, _)) = self.current() else { return Vec::new() };
        let slots = self.slots.values().map(|(slot, _)| slot);
        // Slots of the next generation may be those of a rotation that is going on.
        let slots = slots.filter(|slot| match slot.ring_commitment == ring.commitment {
            true => self.is_removed(slot),
            false => slot.generation <= ring.generation,
        });
        // Slots of an earlier ring open nothing, whether they were removed or not.
        let removed = self.removed.iter().filter(|(_, (it, _))| it.generation < ring.generation);
        let rings = self.rings.values().map(|(ring, _)| ring);
        let rings = rings.filter(|other| other.generation < ring.generation);
        slots
            .map(|slot| slot.id)
            .chain(removed.map(|(name, _)| *name))
            .chain(rings.map(|ring| KeyRing::name(ring.store, ring.generation)))
            .map(|id| ExtentName::In(Room::Keys, id))
            .collect()
    }

    /// Slots of which no member has a sound copy, by their names.
    pub fn damaged_slots(&self, store: StoreId) -> impl Iterator<Item = [u8; 16]> {
        let ids = self.damaged.iter().filter_map(|(name, _)| match name {
            ExtentName::In(_, id) => Some(*id),
            ExtentName::Label => None,
        });
        ids.filter(move |&id| !is_ring(store, id))
    }

    /// Keeps the bytes of a sound object.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) {
        if let Ok(slot) = KeySlot::decode(&bytes) {
            self.slots.insert(slot.id, (slot, bytes));
        } else if let Ok(removed) = RemovedSlot::decode(&bytes) {
            self.removed.insert(removed.own_name(), (removed, bytes));
        } else if let Ok(ring) = KeyRing::decode(&bytes) {
            self.rings.insert(ring.generation, (ring, bytes));
        }
    }
}

/// Whether these bytes are a key object of the store under this name.
///
/// # Errors
/// What is wrong with them.
pub fn judge_key_object(store: &Store, id: [u8; 16], bytes: &[u8]) -> Result<()> {
    let wrong = || Err(Error::new(Kind::Corrupt, "this key object belongs elsewhere"));
    let config = &store.config;
    if config.encryption == Encryption::None {
        let keys = Keys::decode(bytes)?;
        let is_ours = store.keys.as_ref().is_none_or(|ours| *ours == keys);
        return if keys.store == config.store && is_ours { Ok(()) } else { wrong() };
    }
    let (owner, name) = if envelope::is_of(Object::Keys, bytes) {
        let ring = KeyRing::decode(bytes)?;
        (ring.store, KeyRing::name(ring.store, ring.generation))
    } else if envelope::is_of(Object::RemovedSlot, bytes) {
        let removed = RemovedSlot::decode(bytes)?;
        (removed.store, removed.own_name())
    } else {
        let slot = KeySlot::decode(bytes)?;
        (slot.store, slot.id)
    };
    if (owner, name) == (config.store, id) { Ok(()) } else { wrong() }
}

/// Whether an object of this name is a ring. Names of slots are random.
fn is_ring(store: StoreId, id: [u8; 16]) -> bool {
    // As many generations as a ring may hold.
    (0..GENERATIONS_MAX as u32).any(|generation| KeyRing::name(store, generation) == id)
}
