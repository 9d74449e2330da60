//! Key rings and key slots: the store's secrets, sealed, and the objects that open them.
//!
//! A ring holds the secrets ([`Keys`](super::keys::Keys)) sealed under a random root key. There is
//! one ring per generation, and its name follows from the generation, so that one of two concurrent
//! rotations wins. A slot holds a root key wrapped under a password or a key file. A ring counts
//! only if a slot names it: the slots are put first, and putting the ring is the commit.
//!
//! ```text
//! ring (object of kind 2, version 3)          slot (object of kind 4)
//! store id                        16          store id                        16
//! generation, from 0               4          slot id, its name               16
//! seal                             1          generation of its ring           4
//! commitment to the root key      32          commitment to the root key      32
//! chain, by generation          32 each       when it was made, seconds        8
//! sealed secrets and tag                      seal                             1
//!                                             way: 1 password, 2 key file      1
//!                                             memory KiB, passes, lanes  4, 4, 4
//!                                             salt                            16
//!                                             label, bytes behind a length
//!                                             commitment to its own key       32
//!                                             wrapped root key and tag        48
//! ```
//!
//! The *chain* has a MAC for each earlier generation, under a key of that generation: so a program
//! that has opened an earlier ring can distinguish a later ring that a holder of its keys made from
//! a forged one. A ring of version 2, in stores of format version 1, has no chain.
//!
//! Not in this module: ciphers and derivations (seal/), and finding rings and slots on members
//! (store/).

use super::envelope::{self, Object};
use super::keys::GENERATIONS_MAX;
use super::label::{Encryption, Format, text};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::wire::{Reader, Writer};

/// Length of a wrapped root key with its tag.
pub const WRAPPED_BYTES: usize = 48;
/// Longest label of a slot, in bytes.
pub const SLOT_LABEL_MAX_BYTES: usize = 256;
/// Returns the object name of the ring of a generation.
const NAME_CONTEXT: &str = "pinstripe 2026 name of a key ring";

/// The cost of trying one password with Argon2id (RFC 9106).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KdfCosts {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl KdfCosts {
    /// The second option that RFC 9106 recommends: 64 MiB, three passes, four lanes.
    pub const DEFAULT: KdfCosts = KdfCosts { memory_kib: 64 << 10, passes: 3, lanes: 4 };
    /// The least and the most memory, in KiB; the upper limit bounds what a hostile slot can make
    /// us allocate.
    pub(crate) const MEMORY_KIB_RANGE: std::ops::RangeInclusive<u32> = 64..=4 << 20;

    /// Fails for costs that Argon2 does not allow, or that would take too long.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`].
    pub fn validate(self) -> Result<Self> {
        let sound = Self::MEMORY_KIB_RANGE.contains(&self.memory_kib)
            && (1..=100).contains(&self.passes)
            && (1..=64).contains(&self.lanes)
            && self.memory_kib >= 8 * self.lanes;
        if sound {
            return Ok(self);
        }
        Err(Error::new(
            Kind::Usage,
            "the cost parameters for deriving a key from the password are out of range",
        )
        .expected(
            "64K to 4G of memory, 1 to 100 passes and 1 to 64 lanes",
            format!(
                "{} KiB of memory, {} passes and {} lanes",
                self.memory_kib, self.passes, self.lanes
            ),
        ))
    }
}

/// The way to open a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotWay {
    /// The slot opens with a password, at these costs.
    Password(KdfCosts),
    /// The slot opens with a file of 32 random bytes.
    KeyFile,
}

/// The secrets, sealed under a root key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRing {
    /// The store that the secrets belong to.
    pub store: StoreId,
    /// The newest generation of seal keys in the ring.
    pub generation: u32,
    /// The cipher of the seal.
    pub seal: Encryption,
    /// Identifies the root key that opens the ring.
    pub commitment: [u8; 32],
    /// One MAC per earlier generation; `None` in a store of format version 1.
    pub chain: Option<Vec<[u8; 32]>>,
    /// The secrets, with the tag.
    pub sealed: Vec<u8>,
}

impl KeyRing {
    /// The version of the store format for which the ring was made.
    pub fn format(&self) -> Format {
        if self.chain.is_some() { Format::V2 } else { Format::V1 }
    }

    /// The bytes that the chain's MACs cover.
    pub fn identity(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Writer::new(&mut out)
            .raw(&self.store.0)
            .u32(self.generation)
            .u8(self.seal as u8)
            .raw(&self.commitment);
        out
    }

    /// Returns the object name of the ring of a generation.
    pub fn name(store: StoreId, generation: u32) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_derive_key(NAME_CONTEXT);
        hasher.update(&store.0).update(&generation.to_le_bytes());
        let mut name = [0; 16];
        name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        name
    }

    /// The bytes that the seal authenticates in addition to the secrets.
    pub fn context(&self) -> Vec<u8> {
        let mut out = self.identity();
        self.chain.iter().flatten().for_each(|mac| out.extend_from_slice(mac));
        out
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.context();
        body.extend_from_slice(&self.sealed);
        let version = if self.chain.is_some() { Object::Keys.version() } else { 2 };
        envelope::close_version(Object::Keys, version, &body)
    }

    /// Reads a framed ring.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open_version`], or with [`Kind::Corrupt`] for keys in
    /// the clear.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (version, body) = envelope::open_version(Object::Keys, bytes)?;
        let mut reader = Reader::new(body, "key ring");
        if version == 1 {
            return Err(
                reader.corrupt("the object has unencrypted keys instead of a sealed key ring")
            );
        }
        let store = StoreId(reader.array()?);
        let generation = reader.u32()?;
        let seal = seal(&mut reader)?;
        let commitment = reader.array()?;
        if generation as usize >= GENERATIONS_MAX {
            return Err(reader.corrupt("the key ring has an impossible generation number"));
        }
        let chain = match version {
            2 => None,
            _ => Some((0..generation).map(|_| reader.array()).collect::<Result<_>>()?),
        };
        Ok(KeyRing { store, generation, seal, commitment, chain, sealed: reader.rest().to_vec() })
    }
}

/// One way to open a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySlot {
    /// The store.
    pub store: StoreId,
    /// The name.
    pub id: [u8; 16],
    /// Generation of the ring that the slot opens.
    pub generation: u32,
    /// Identifies the root key that the slot wraps.
    pub ring_commitment: [u8; 32],
    /// When the slot was made, in seconds since 1970; only for people.
    pub created_seconds: i64,
    /// The cipher that wraps the root key.
    pub seal: Encryption,
    /// The way to open the slot.
    pub way: SlotWay,
    /// The salt: equal passwords give different keys.
    pub salt: [u8; 16],
    /// The name of the slot, for people.
    pub label: String,
    /// Identifies the key that unwraps the root key, so that a wrong password is recognized with
    /// certainty.
    pub commitment: [u8; 32],
    /// The root key, wrapped, with the tag.
    pub wrapped: [u8; WRAPPED_BYTES],
}

impl KeySlot {
    /// The bytes that the wrapping authenticates in addition to the root key: all fields before it.
    pub fn context(&self) -> Vec<u8> {
        let (way, costs) = match self.way {
            SlotWay::Password(costs) => (1, costs),
            SlotWay::KeyFile => (2, KdfCosts { memory_kib: 0, passes: 0, lanes: 0 }),
        };
        let mut out = Vec::new();
        Writer::new(&mut out)
            .raw(&self.store.0)
            .raw(&self.id)
            .u32(self.generation)
            .raw(&self.ring_commitment)
            .i64(self.created_seconds)
            .u8(self.seal as u8)
            .u8(way)
            .u32(costs.memory_kib)
            .u32(costs.passes)
            .u32(costs.lanes)
            .raw(&self.salt)
            .bytes(self.label.as_bytes())
            .raw(&self.commitment);
        out
    }

    /// The framed object.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.context();
        body.extend_from_slice(&self.wrapped);
        envelope::close(Object::KeySlot, &body)
    }

    /// Reads a framed slot.
    ///
    /// # Errors
    /// Fails with the errors of [`envelope::open`], or with [`Kind::Corrupt`] for costs out of
    /// range.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(envelope::open(Object::KeySlot, bytes)?, "key slot");
        let store = StoreId(reader.array()?);
        let id = reader.array()?;
        let generation = reader.u32()?;
        let ring_commitment = reader.array()?;
        let created_seconds = reader.i64()?;
        let seal = seal(&mut reader)?;
        let way = reader.u8()?;
        let costs =
            KdfCosts { memory_kib: reader.u32()?, passes: reader.u32()?, lanes: reader.u32()? };
        let way = match (way, [costs.memory_kib, costs.passes, costs.lanes]) {
            (1, _) if costs.validate().is_ok() => SlotWay::Password(costs),
            (2, [0, 0, 0]) => SlotWay::KeyFile,
            _ => return Err(reader.corrupt("the key slot is opened by an unknown method")),
        };
        let salt = reader.array()?;
        let label = text(&mut reader)?;
        if label.len() > SLOT_LABEL_MAX_BYTES {
            return Err(reader.corrupt("the label of the key slot is too long"));
        }
        let (commitment, wrapped) = (reader.array()?, reader.array()?);
        reader.finish()?;
        Ok(KeySlot {
            store,
            id,
            generation,
            ring_commitment,
            created_seconds,
            seal,
            way,
            salt,
            label,
            commitment,
            wrapped,
        })
    }
}

fn seal(reader: &mut Reader<'_>) -> Result<Encryption> {
    let byte = reader.u8()?;
    match Encryption::from_byte(byte) {
        Some(Encryption::None) => {
            Err(reader.corrupt("the object is marked as sealed, but has no cipher"))
        }
        Some(seal) => Ok(seal),
        None => Err(envelope::newer("seal of the keys", byte.into(), 2, 0)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn slot(way: SlotWay) -> KeySlot {
        KeySlot {
            store: StoreId([1; 16]),
            id: [2; 16],
            generation: 3,
            ring_commitment: [4; 32],
            created_seconds: 5,
            seal: Encryption::Aes256Gcm,
            way,
            salt: [6; 16],
            label: "key file".into(),
            commitment: [7; 32],
            wrapped: [8; WRAPPED_BYTES],
        }
    }

    #[test]
    fn slots_and_rings_come_back() {
        for way in [SlotWay::KeyFile, SlotWay::Password(KdfCosts::DEFAULT)] {
            let slot = slot(way);
            assert_eq!(KeySlot::decode(&slot.encode()).unwrap(), slot);
        }
        for chain in [None, Some(vec![[5; 32]; 3])] {
            let ring = KeyRing {
                store: StoreId([1; 16]),
                generation: 3,
                seal: Encryption::ChaCha20Poly1305,
                commitment: [2; 32],
                chain,
                sealed: vec![3; 99],
            };
            assert_eq!(KeyRing::decode(&ring.encode()).unwrap(), ring);
        }
        let store = StoreId([1; 16]);
        assert_ne!(KeyRing::name(store, 0), KeyRing::name(store, 1));
    }

    #[test]
    fn costs_that_would_stall_a_machine_are_refused() {
        let costs = KdfCosts::DEFAULT;
        for costs in [
            KdfCosts { memory_kib: u32::MAX, ..costs },
            KdfCosts { memory_kib: 8, ..costs },
            KdfCosts { passes: 0, ..costs },
            KdfCosts { passes: u32::MAX, ..costs },
            KdfCosts { lanes: 0, ..costs },
            KdfCosts { lanes: 65, ..costs },
        ] {
            assert_eq!(costs.validate().unwrap_err().kind(), Kind::Usage);
            let slot = slot(SlotWay::Password(costs));
            assert_eq!(KeySlot::decode(&slot.encode()).unwrap_err().kind(), Kind::Corrupt);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_never_panic(body: Vec<u8>) {
            let _ = KeySlot::decode(&envelope::close(Object::KeySlot, &body));
            let _ = KeyRing::decode(&envelope::close(Object::Keys, &body));
        }
    }
}
