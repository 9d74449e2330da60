//! The store's secrets: the key of chunk ids and the seed of the gear table.
//!
//! Both are drawn at random when the store is made, so that nobody can tell from ids or chunk
//! lengths whether a store holds a file they know, and so that no two stores cut alike.

use super::envelope::{self, Object};
use super::wire::{Reader, Writer};
use crate::error::Result;
use crate::id::{ChunkId, StoreId, random};

/// The secrets of one store.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The store they belong to.
    pub store: StoreId,
    /// Key of the keyed hash that names chunks.
    pub id_key: [u8; 32],
    /// Seed of the gear table that cuts them.
    pub gear_seed: u64,
}

impl Keys {
    /// Fresh secrets for a new store.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate(store: StoreId) -> Result<Self> {
        Ok(Keys { store, id_key: random()?, gear_seed: u64::from_le_bytes(random()?) })
    }

    /// Names a chunk.
    pub fn chunk_id(&self, content: &[u8]) -> ChunkId {
        ChunkId(*blake3::keyed_hash(&self.id_key, content).as_bytes())
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        Writer::new(&mut body).raw(&self.store.0).raw(&self.id_key).u64(self.gear_seed);
        envelope::close_version(Object::Keys, 1, &body)
    }

    /// Reads framed secrets.
    ///
    /// # Errors
    /// Those of [`envelope::open`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(envelope::open(Object::Keys, bytes)?, "keys object");
        let keys = Keys {
            store: StoreId(reader.array()?),
            id_key: reader.array()?,
            gear_seed: reader.u64()?,
        };
        reader.finish()?;
        Ok(keys)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({}, secret)", self.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_do_not_print() {
        let keys = Keys::generate(StoreId([1; 16])).unwrap();
        assert_eq!(Keys::decode(&keys.encode()).unwrap(), keys);
        assert_ne!(Keys::generate(StoreId([1; 16])).unwrap(), keys);
        assert!(format!("{keys:?}").ends_with("secret)"));
    }
}
