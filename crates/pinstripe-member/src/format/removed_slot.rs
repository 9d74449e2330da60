//! The object that says that a key slot was removed: the slot does not open the store any more,
//! wherever a copy of it reappears.
//!
//! The removals of slots of one key ring are numbered, and an object's name follows from ring and
//! number: of two concurrent removals one is first, so that the last slot is never removed.

use super::envelope::{self, Object};
use pinstripe_base::error::Result;
use pinstripe_base::id::StoreId;
use pinstripe_base::wire::{Reader, Writer};

const NAME_CONTEXT: &str = "pinstripe 2026 name of a removed key slot";

/// A key slot that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedSlot {
    /// The store.
    pub store: StoreId,
    /// Generation of the ring that the removed slot opened. The object becomes useless when that
    /// ring is gone.
    pub generation: u32,
    /// The number of this removal within its generation, from 0.
    pub number: u32,
    /// The slot.
    pub slot: [u8; 16],
}

impl RemovedSlot {
    /// Returns the object name of the removal with this number within a generation.
    pub fn name(store: StoreId, generation: u32, number: u32) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_derive_key(NAME_CONTEXT);
        hasher.update(&store.0).update(&generation.to_le_bytes()).update(&number.to_le_bytes());
        let mut name = [0; 16];
        name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        name
    }

    /// Its own name.
    pub fn own_name(&self) -> [u8; 16] {
        Self::name(self.store, self.generation, self.number)
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        Writer::new(&mut body)
            .raw(&self.store.0)
            .u32(self.generation)
            .u32(self.number)
            .raw(&self.slot);
        envelope::close(Object::RemovedSlot, &body)
    }

    /// Reads a framed object.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body = envelope::open(Object::RemovedSlot, bytes)?;
        let mut reader = Reader::new(body, "removed key slot");
        let removed = RemovedSlot {
            store: StoreId(reader.array()?),
            generation: reader.u32()?,
            number: reader.u32()?,
            slot: reader.array()?,
        };
        reader.finish()?;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_removed_slot_comes_back(store: [u8; 16], slot: [u8; 16], generation: u32, number: u32) {
            let removed = RemovedSlot { store: StoreId(store), generation, number, slot };
            prop_assert_eq!(RemovedSlot::decode(&removed.encode()).unwrap(), removed);
            let other = RemovedSlot { number: number ^ 1, ..removed };
            prop_assert_ne!(removed.own_name(), other.own_name());
        }

        #[test]
        fn arbitrary_bodies_never_panic(bytes: Vec<u8>) {
            let _ = RemovedSlot::decode(&bytes);
            let _ = RemovedSlot::decode(&envelope::close(Object::RemovedSlot, &bytes));
        }
    }
}
