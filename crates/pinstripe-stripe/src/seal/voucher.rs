//! MACs of small objects: each proves that a holder of the store's keys wrote the object under its
//! name.
//!
//! The MAC is keyed BLAKE3 over the kind and name of the object and its framed bytes, which include
//! kind, version, body and generation; its key is derived from a generation's master key and the
//! store id. So verification fails for an object that was copied to another name, kind or store, or
//! was framed as another kind.
//!
//! Invariants: MACs are made with the newest generation and verified with any generation;
//! comparisons take constant time. Whether an older object still counts is not decided here: an old
//! object that an attacker put back has a valid MAC.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::keys::Keys;
use pinstripe_member::{ExtentKind, ExtentName, SecretKey, envelope};

const KEY: &str = "pinstripe 2026 key that vouches for small objects";

/// Makes and verifies MACs of small objects.
pub struct Voucher {
    /// By generation.
    keys: Vec<SecretKey>,
}

impl Voucher {
    /// Makes a voucher for an encrypted store, with its keys.
    pub fn new(keys: &Keys) -> Self {
        let key = |master: &SecretKey| {
            let mut hasher = blake3::Hasher::new_derive_key(KEY);
            hasher.update(&keys.store.0).update(&master[..]);
            SecretKey::from(*hasher.finalize().as_bytes())
        };
        Voucher { keys: keys.seals.iter().map(key).collect() }
    }

    /// Returns a framed object with a MAC for the name that it will have. The MAC of an object is
    /// always the same until the keys are rotated.
    pub fn vouch(&self, name: ExtentName, framed: &[u8]) -> Vec<u8> {
        let newest = self.keys.len() - 1;
        envelope::vouch(framed, newest as u32, |said| {
            *mac(&self.keys[newest], name, said).as_bytes()
        })
    }

    /// Verifies that a holder of the keys put this object under this name.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the object has no MAC or a wrong one, or with
    /// [`Kind::KeysChanged`] when these keys lack its generation, which is newer or forged.
    pub fn verify(&self, name: ExtentName, framed: &[u8]) -> Result<()> {
        let Some(vouched) = envelope::vouched(framed) else {
            return Err(Error::new(
                Kind::Corrupt,
                "this object was not written with the keys of the store, because it has no MAC",
            ));
        };
        let Some(key) = self.keys.get(vouched.generation as usize) else {
            return Err(super::keys_changed().expected(
                format!("a generation number of the keys between 0 and {}", self.keys.len() - 1),
                vouched.generation,
            ));
        };
        if mac(key, name, vouched.said) != blake3::Hash::from_bytes(vouched.mac) {
            return Err(Error::new(
                Kind::Corrupt,
                "this object was not written with the keys of the store under this name, because \
                 its MAC does not verify",
            ));
        }
        Ok(())
    }
}

fn mac(key: &[u8; 32], name: ExtentName, said: &[u8]) -> blake3::Hash {
    let (kind, id) = match name {
        ExtentName::Label => (u8::MAX, [0; 16]),
        ExtentName::In(kind, id) => (room_byte(kind), id),
    };
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&[kind]).update(&id).update(said);
    hasher.finalize()
}

/// The number of a kind in the input of a MAC; part of the format.
const fn room_byte(kind: ExtentKind) -> u8 {
    match kind {
        ExtentKind::Packs => 0,
        ExtentKind::Index => 1,
        ExtentKind::Snapshots => 2,
        ExtentKind::Keys => 3,
        ExtentKind::Sessions => 4,
        ExtentKind::Forgotten => 5,
        ExtentKind::Gc => 6,
        ExtentKind::Checkpoints => 7,
        ExtentKind::Scrub => 8,
        ExtentKind::Strays => 9,
        ExtentKind::Heartbeats => 10,
    }
}

impl std::fmt::Debug for Voucher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Voucher({} generations, secret)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::id::StoreId;
    use pinstripe_member::envelope::Object;

    fn name(kind: ExtentKind, byte: u8) -> ExtentName {
        ExtentName::In(kind, [byte; 16])
    }

    #[test]
    fn an_object_counts_under_its_own_name_kind_and_store_only() {
        let keys = Keys::generate_sealing(StoreId([1; 16])).unwrap();
        let voucher = Voucher::new(&keys);
        let here = name(ExtentKind::Gc, 1);
        let plain = envelope::close(Object::Gc, b"says something");
        let whole = voucher.vouch(here, &plain);
        voucher.verify(here, &whole).unwrap();
        assert_eq!(voucher.vouch(here, &plain), whole);
        for elsewhere in
            [name(ExtentKind::Gc, 2), name(ExtentKind::Forgotten, 1), ExtentName::Label]
        {
            assert_eq!(voucher.verify(elsewhere, &whole).unwrap_err().kind(), Kind::Corrupt);
        }
        assert!(voucher.verify(here, &plain).is_err(), "without a MAC");
        // The same body as another kind, with the MAC of the first.
        let mut other_kind = whole.clone();
        other_kind[8] = Object::Forgotten as u8;
        let sum_at = other_kind.len() - 32;
        let sum = blake3::hash(&other_kind[..sum_at]);
        other_kind[sum_at..].copy_from_slice(sum.as_bytes());
        assert!(envelope::open(Object::Forgotten, &other_kind).is_ok());
        assert!(voucher.verify(here, &other_kind).is_err(), "as another kind");
        let mut elsewhere = keys.clone();
        elsewhere.store = StoreId([2; 16]);
        assert!(Voucher::new(&elsewhere).verify(here, &whole).is_err(), "in another store");
    }

    #[test]
    fn the_newest_generation_vouches_and_earlier_ones_are_verified() {
        let mut keys = Keys::generate_sealing(StoreId([1; 16])).unwrap();
        let (before, here) = (Voucher::new(&keys), name(ExtentKind::Forgotten, 1));
        let old = before.vouch(here, &envelope::close(Object::Forgotten, b"x"));
        keys.seals.push(pinstripe_base::id::random::<32>().unwrap().into());
        let after = Voucher::new(&keys);
        after.verify(here, &old).unwrap();
        let new = after.vouch(here, &old);
        assert_eq!(envelope::vouched(&new).unwrap().generation, 1);
        let newer = before.verify(here, &new).unwrap_err();
        assert_eq!(newer.kind(), Kind::KeysChanged, "a newer object is not a damaged one");
    }
}
