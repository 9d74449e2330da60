//! The store's secrets: the key of chunk ids, that of the gear table, and those of the seals.
//!
//! All are drawn at random when the store is made, so that a reader without them cannot tell from
//! ids or chunk lengths whether a store holds a known file, and so that no two stores cut alike. A
//! store that seals nothing keeps them in the clear, as version 1 did; any other keeps them sealed
//! in a *ring* ([`super::key_ring`]).
//!
//! Invariant: they are wiped from memory when dropped, and nothing prints them.

use zeroize::Zeroize;

use super::envelope::{self, Object};
use super::label::{Chunker, Encryption, Padding, StoreConfig};
use crate::secret::SecretKey;
use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, StoreId, random};
use pinstripe_base::wire::{Reader, Writer};

/// Most generations of seal keys that a ring may have.
pub const GENERATIONS_MAX: usize = 4096;

const GEAR_CONTEXT: &str = "pinstripe 2026 gear table of a store";

/// The key of the gear table that cuts content.
#[derive(Clone, PartialEq, Eq)]
pub enum GearKey {
    /// The shared table with every value XORed with this: stores without seals.
    Seed(u64),
    /// A table of its own, by BLAKE3 in derive-key mode with extended output.
    Table(SecretKey),
}

impl GearKey {
    /// The table that a 32-byte key stands for; of a seed, the same of its bytes and zeros.
    pub fn table(&self) -> [u64; 256] {
        let mut hasher = blake3::Hasher::new_derive_key(GEAR_CONTEXT);
        match self {
            GearKey::Seed(seed) => hasher.update(&seed.to_le_bytes()).update(&[0; 24]),
            GearKey::Table(key) => hasher.update(&key[..]),
        };
        let mut xof = hasher.finalize_xof();
        std::array::from_fn(|_| {
            let mut value = [0; 8];
            xof.fill(&mut value);
            u64::from_le_bytes(value)
        })
    }
}

/// The secrets of one store.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The store they belong to.
    pub store: StoreId,
    /// Key of the keyed hash that names chunks.
    pub id_key: SecretKey,
    /// The key of the gear table that cuts them.
    pub gear: GearKey,
    /// Master keys of seals, by generation; new seals are under the last. Empty in a store that
    /// seals nothing.
    pub seals: Vec<SecretKey>,
}

impl Keys {
    /// Fresh secrets for a new store that seals nothing.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate(store: StoreId) -> Result<Self> {
        let gear = GearKey::Seed(u64::from_le_bytes(random()?));
        Ok(Keys { store, id_key: fresh()?, gear, seals: Vec::new() })
    }

    /// Fresh secrets for a new store that seals.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate_sealing(store: StoreId) -> Result<Self> {
        let gear = GearKey::Table(fresh()?);
        Ok(Keys { store, id_key: fresh()?, gear, seals: vec![fresh()?] })
    }

    /// Names a chunk.
    pub fn chunk_id(&self, content: &[u8]) -> ChunkId {
        ChunkId(*blake3::keyed_hash(&self.id_key, content).as_bytes())
    }

    /// The framed object in which a store that seals nothing keeps its keys.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let seed = match self.gear {
            GearKey::Seed(seed) => seed,
            GearKey::Table(_) => unreachable!("keys of a sealed store are stored in a key ring"),
        };
        Writer::new(&mut body).raw(&self.store.0).raw(&self.id_key[..]).u64(seed);
        envelope::close_version(Object::Keys, 1, &body)
    }

    /// Decodes framed keys that are not sealed.
    ///
    /// # Errors
    /// The errors of [`envelope::open_version`];
    /// [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for a ring.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, body) = envelope::open_version(Object::Keys, bytes)?;
        let mut reader = Reader::new(body, "keys object");
        if version != 1 {
            return Err(
                reader.corrupt("the object has a sealed key ring instead of unencrypted keys")
            );
        }
        let keys = Keys {
            store: StoreId(reader.array()?),
            id_key: key(&mut reader)?,
            gear: GearKey::Seed(reader.u64()?),
            seals: Vec::new(),
        };
        reader.finish()?;
        Ok(keys)
    }

    /// What stands inside the seal of a ring: the keys, and the settings of the label that an
    /// attacker could turn against them.
    pub fn encode_ring(&self, config: &StoreConfig) -> zeroize::Zeroizing<Vec<u8>> {
        let gear = match &self.gear {
            GearKey::Table(key) => key,
            GearKey::Seed(_) => unreachable!("a ring has a gear key"),
        };
        let mut out = Vec::with_capacity(128 + 32 * self.seals.len());
        let mut writer = Writer::new(&mut out);
        writer
            .raw(&self.store.0)
            .u8(config.encryption as u8)
            .u8(config.chunker as u8)
            .u8(config.padding as u8)
            .raw(&self.id_key[..])
            .raw(&gear[..])
            .varint(self.seals.len() as u64);
        for seal in &self.seals {
            writer.raw(&seal[..]);
        }
        zeroize::Zeroizing::new(out)
    }

    /// Reads what stood inside the seal of a ring, with the settings it was made for.
    ///
    /// # Errors
    /// [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for anything that `encode_ring` does not
    /// write.
    pub fn decode_ring(plain: &[u8]) -> Result<(Self, (Encryption, Chunker, Padding))> {
        let mut reader = Reader::new(plain, "key ring");
        let store = StoreId(reader.array()?);
        let settings = (
            Encryption::from_byte(reader.u8()?),
            Chunker::from_byte(reader.u8()?),
            Padding::from_byte(reader.u8()?),
        );
        let (Some(encryption), Some(chunker), Some(padding)) = settings else {
            return Err(reader.corrupt("an unknown setting"));
        };
        let id_key = key(&mut reader)?;
        let gear = GearKey::Table(key(&mut reader)?);
        let count = reader.count(32)?;
        if count == 0 || count > GENERATIONS_MAX {
            return Err(reader.corrupt("the number of seal keys is impossible"));
        }
        let seals = (0..count).map(|_| key(&mut reader)).collect::<Result<_>>()?;
        reader.finish()?;
        Ok((Keys { store, id_key, gear, seals }, (encryption, chunker, padding)))
    }
}

/// A key at random.
fn fresh() -> Result<SecretKey> {
    random().map(|key: [u8; 32]| SecretKey::from(key))
}

fn key(reader: &mut Reader<'_>) -> Result<SecretKey> {
    reader.array().map(|key: [u8; 32]| SecretKey::from(key))
}

impl Drop for Keys {
    fn drop(&mut self) {
        // All others wipe themselves.
        if let GearKey::Seed(seed) = &mut self.gear {
            seed.zeroize();
        }
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

    #[test]
    fn a_gear_key_is_a_table_of_its_own() {
        let [one, other] = [1, 2].map(|byte| GearKey::Table([byte; 32].into()).table());
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
        assert_eq!(one, GearKey::Table([1; 32].into()).table());
    }
}
