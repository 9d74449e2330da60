//! The store's secrets: the key of chunk ids, the key of the gear table, and the keys of the seals.
//!
//! All keys are drawn at random when the store is made, so that a reader without them cannot tell
//! from ids or chunk lengths whether a store holds a known file, and so that no two stores cut
//! content alike. A store without encryption keeps its keys in the clear, as version 1 did; any
//! other store keeps them sealed in a *ring* ([`super::key_ring`]).
//!
//! Invariant: the keys are wiped from memory when dropped, and nothing prints them.

use zeroize::Zeroize;

use super::envelope::{self, Object};
use super::label::{Chunker, Encryption, Padding, StoreConfig};
use crate::secret::SecretKey;
use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, StoreId, random};
use pinstripe_base::wire::{Reader, Writer};

/// The largest number of generations of seal keys in a ring.
pub const GENERATIONS_MAX: usize = 4096;

const GEAR_CONTEXT: &str = "pinstripe 2026 gear table of a store";

/// The key of the gear table that cuts content.
#[derive(Clone, PartialEq, Eq)]
pub enum GearKey {
    /// The shared table with every value XORed with this number: for stores without encryption.
    Seed(u64),
    /// A table of the store's own, made by BLAKE3 in derive-key mode with extended output.
    Table(SecretKey),
}

impl GearKey {
    /// Returns the table that follows from a 32-byte key; a seed counts as a key of its bytes and
    /// zeros.
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
    /// The store that the secrets belong to.
    pub store: StoreId,
    /// Key of the keyed hash that names chunks.
    pub id_key: SecretKey,
    /// The key of the gear table that cuts chunks.
    pub gear: GearKey,
    /// Master keys of the seals, by generation; new seals use the last one. Empty in a store
    /// without encryption.
    pub seals: Vec<SecretKey>,
}

impl Keys {
    /// Makes fresh secrets for a new store without encryption.
    ///
    /// # Errors
    /// Fails when the system provides no randomness.
    pub fn generate(store: StoreId) -> Result<Self> {
        let gear = GearKey::Seed(u64::from_le_bytes(random()?));
        Ok(Keys { store, id_key: fresh()?, gear, seals: Vec::new() })
    }

    /// Makes fresh secrets for a new store with encryption.
    ///
    /// # Errors
    /// Fails when the system provides no randomness.
    pub fn generate_sealing(store: StoreId) -> Result<Self> {
        let gear = GearKey::Table(fresh()?);
        Ok(Keys { store, id_key: fresh()?, gear, seals: vec![fresh()?] })
    }

    /// Names a chunk.
    pub fn chunk_id(&self, content: &[u8]) -> ChunkId {
        ChunkId(*blake3::keyed_hash(&self.id_key, content).as_bytes())
    }

    /// Encodes the framed object in which a store without encryption keeps its keys.
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
    /// Fails with the errors of [`envelope::open_version`], or with
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

    /// Encodes what the seal of a ring encloses: the keys, and those settings of the label that an
    /// attacker could use against them.
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

    /// Decodes what the seal of a ring encloses: the keys, and the settings for which the ring was
    /// made.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for anything that
    /// `encode_ring` does not write.
    pub fn decode_ring(plain: &[u8]) -> Result<(Self, (Encryption, Chunker, Padding))> {
        let mut reader = Reader::new(plain, "key ring");
        let store = StoreId(reader.array()?);
        let settings = (
            Encryption::from_byte(reader.u8()?),
            Chunker::from_byte(reader.u8()?),
            Padding::from_byte(reader.u8()?),
        );
        let (Some(encryption), Some(chunker), Some(padding)) = settings else {
            return Err(reader.corrupt("the key ring has an unknown setting"));
        };
        let id_key = key(&mut reader)?;
        let gear = GearKey::Table(key(&mut reader)?);
        let count = reader.count(32)?;
        if count == 0 || count > GENERATIONS_MAX {
            return Err(reader.corrupt("the key ring has an impossible number of seal keys"));
        }
        let seals = (0..count).map(|_| key(&mut reader)).collect::<Result<_>>()?;
        reader.finish()?;
        Ok((Keys { store, id_key, gear, seals }, (encryption, chunker, padding)))
    }
}

/// Makes a random key.
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
