//! Makes and opens key slots and key rings.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

use super::cipher::Cipher;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::random;
use pinstripe_member::key_ring::{KdfCosts, KeyRing, KeySlot, SlotWay, WRAPPED_BYTES};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Format, StoreConfig};
use pinstripe_member::{SecretBytes, SecretKey};

const ROOT_COMMITMENT: &str = "pinstripe 2026 commitment to a root key";
const ROOT_KEY: &str = "pinstripe 2026 key of a ring's seal";
/// A ring of format version 2 may replace a ring of version 1 with the same root key: since each
/// version derives a key of its own, the nonce, which is always 0, is used only once with each key.
const CHAINED_ROOT_KEY: &str = "pinstripe 2026 key of a chained ring's seal";
const CHAIN_KEY: &str = "pinstripe 2026 key of the chain of key rings";
const SLOT_COMMITMENT: &str = "pinstripe 2026 commitment to a slot's key";
const SLOT_KEY: &str = "pinstripe 2026 key that wraps a root key";

/// Length of the key in a key file.
pub(crate) const KEY_FILE_KEY_BYTES: usize = 32;

/// What a user opens a store with.
#[derive(Clone)]
pub enum Credential {
    /// A password.
    Password(SecretBytes),
    /// The content of a key file.
    KeyFile(SecretKey),
}

impl Credential {
    /// A password.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an empty password.
    pub fn password(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let mut bytes = Zeroizing::new(bytes.into());
        if bytes.is_empty() {
            return Err(Error::new(Kind::Usage, "the password is empty"));
        }
        Ok(Credential::Password(SecretBytes::take(&mut bytes)))
    }

    /// Makes a fresh key for a key file.
    ///
    /// # Errors
    /// Fails when the system provides no randomness.
    pub fn generate() -> Result<Self> {
        random().map(|key: [u8; 32]| Credential::KeyFile(key.into()))
    }

    /// Parses the text of a key file: 64 hex digits, which may be surrounded by spaces and line
    /// ends.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for any other text; the error does not repeat the text.
    pub fn of_key_file(text: &[u8]) -> Result<Self> {
        let refused = || {
            Error::new(Kind::Usage, "this is not a key file")
                .expected("64 hex digits", "something else")
                .advice(
                    "give a file that 'pinstripe key add --new-key-file' or 'pinstripe init' \
                     created",
                )
        };
        let text = text.trim_ascii();
        let mut key = Zeroizing::new([0; KEY_FILE_KEY_BYTES]);
        if text.len() != 2 * KEY_FILE_KEY_BYTES {
            return Err(refused());
        }
        for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |at: u8| (at as char).to_digit(16).ok_or_else(refused);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Credential::KeyFile((*key).into()))
    }

    /// Returns the text of a key file, or `None` for a password.
    pub fn key_file_text(&self) -> Option<Zeroizing<String>> {
        let Credential::KeyFile(key) = self else { return None };
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_FILE_KEY_BYTES + 1));
        for byte in key.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("four bits are a digit"));
            }
        }
        text.push('\n');
        Some(text)
    }

    /// Whether this kind of credential can open a slot of this kind.
    pub fn fits(&self, way: SlotWay) -> bool {
        matches!(
            (self, way),
            (Credential::Password(_), SlotWay::Password(_))
                | (Credential::KeyFile(_), SlotWay::KeyFile)
        )
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credential::Password(_) => "Credential(password, secret)",
            Credential::KeyFile(_) => "Credential(key file, secret)",
        })
    }
}

/// The key that opens one ring; wiped from memory when dropped.
#[derive(Clone)]
pub struct RootKey(SecretKey);

impl RootKey {
    /// Makes a fresh root key, for a new ring.
    ///
    /// # Errors
    /// Fails when the system provides no randomness.
    pub fn generate() -> Result<Self> {
        random().map(|key: [u8; 32]| RootKey(key.into()))
    }

    /// Identifies this root key without revealing it.
    pub fn commitment(&self) -> [u8; 32] {
        blake3::derive_key(ROOT_COMMITMENT, &*self.0)
    }

    /// Seals the secrets of a store. A root key seals at most one ring of each format version, so
    /// that its nonce is used once with each key.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when the cipher refuses.
    pub fn seal(&self, keys: &Keys, config: &StoreConfig, format: Format) -> Result<KeyRing> {
        let mut ring = KeyRing {
            store: config.store,
            generation: (keys.seals.len() - 1) as u32,
            seal: config.encryption,
            commitment: self.commitment(),
            chain: None,
            sealed: Vec::new(),
        };
        if format > Format::V1 {
            let earlier = &keys.seals[..ring.generation as usize];
            ring.chain = Some(earlier.iter().map(|master| link(master, &ring)).collect());
        }
        let mut plain = keys.encode_ring(config);
        let tag = self.cipher(&ring)?.seal(0, &ring.context(), &mut plain)?;
        ring.sealed = [plain.as_slice(), &tag].concat();
        Ok(ring)
    }

    /// Opens a ring. The settings in the ring must equal those of the label: otherwise a process
    /// that can write labels could turn off encryption for the next backup.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the ring does not open or does not fit the store.
    pub fn open(&self, ring: &KeyRing, config: &StoreConfig) -> Result<Keys> {
        let wrong = |what: &str| Error::new(Kind::Corrupt, what);
        let mut sealed = Zeroizing::new(ring.sealed.clone());
        let plain = self.cipher(ring)?;
        let plain = plain.open(0, &ring.context(), &mut sealed);
        let plain = plain.ok_or_else(|| wrong("the key ring was changed after it was sealed"))?;
        let (keys, (encryption, chunker, padding)) = Keys::decode_ring(plain)?;
        if keys.store != config.store || keys.seals.len() != ring.generation as usize + 1 {
            return Err(wrong("the key ring contains the keys of another store"));
        }
        if (encryption, chunker, padding) != (config.encryption, config.chunker, config.padding) {
            return Err(wrong("the label and the keys have different encryption settings")
                .expected(
                    format!("encryption {encryption}, chunker {chunker}, padding {padding}"),
                    format!(
                        "encryption {}, chunker {}, padding {}",
                        config.encryption, config.chunker, config.padding
                    ),
                )
                .advice(
                    "the label of this member was changed: open the store through another member",
                ));
        }
        Ok(keys)
    }

    fn cipher(&self, ring: &KeyRing) -> Result<Cipher> {
        let context = if ring.chain.is_some() { CHAINED_ROOT_KEY } else { ROOT_KEY };
        Cipher::new(ring.seal, &Zeroizing::new(blake3::derive_key(context, &*self.0)))
    }
}

/// Returns the MAC for a ring's chain, made with the master key of an earlier generation.
fn link(master: &[u8; 32], ring: &KeyRing) -> [u8; 32] {
    let key = Zeroizing::new(blake3::derive_key(CHAIN_KEY, master));
    *blake3::keyed_hash(&key, &ring.identity()).as_bytes()
}

/// Whether a holder of these keys made the ring, which is of a later generation.
pub fn succeeds(ring: &KeyRing, keys: &Keys) -> bool {
    let Some((newest, master)) = keys.seals.iter().enumerate().next_back() else { return false };
    let mac = ring.chain.as_ref().and_then(|chain| chain.get(newest));
    // BLAKE3's own comparison takes the same time wherever bytes differ.
    mac.is_some_and(|mac| {
        blake3::Hash::from_bytes(*mac) == blake3::Hash::from_bytes(link(master, ring))
    })
}

/// What a new slot is made from.
#[derive(Debug, Clone)]
pub struct NewSlot {
    /// The credential that will open the slot.
    pub credential: Credential,
    /// The cost of trying one password.
    pub costs: KdfCosts,
    /// The name of the slot, for people.
    pub label: String,
    /// Seconds since 1970.
    pub now_seconds: i64,
}

impl NewSlot {
    /// Makes a slot that wraps a root key.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for impossible costs or a label that is too long.
    pub fn wrap(&self, root: &RootKey, ring: &KeyRing) -> Result<KeySlot> {
        use pinstripe_member::key_ring::SLOT_LABEL_MAX_BYTES;
        if self.label.len() > SLOT_LABEL_MAX_BYTES {
            return Err(Error::new(Kind::Usage, "the label of a key slot is too long")
                .expected(format!("at most {SLOT_LABEL_MAX_BYTES} bytes"), self.label.len()));
        }
        let way = match self.credential {
            Credential::Password(_) => SlotWay::Password(self.costs.validate()?),
            Credential::KeyFile(_) => SlotWay::KeyFile,
        };
        let mut slot = KeySlot {
            store: ring.store,
            id: random()?,
            generation: ring.generation,
            ring_commitment: root.commitment(),
            created_seconds: self.now_seconds,
            seal: ring.seal,
            way,
            salt: random()?,
            label: self.label.clone(),
            commitment: [0; 32],
            wrapped: [0; WRAPPED_BYTES],
        };
        let key = slot_key(&self.credential, &slot)?;
        slot.commitment = blake3::derive_key(SLOT_COMMITMENT, &*key);
        let mut plain = Zeroizing::new(*root.0);
        let tag = wrapping(&key, &slot)?.seal(0, &slot.context(), &mut *plain)?;
        slot.wrapped[..32].copy_from_slice(&*plain);
        slot.wrapped[32..].copy_from_slice(&tag);
        Ok(slot)
    }
}

/// Tries a credential on a slot: returns the root key, or `None` when the slot belongs to another
/// credential.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] when the slot is damaged although its checksum matches, or with
/// [`Kind::Io`] when there is not enough memory for the trial.
pub fn unwrap_key(slot: &KeySlot, credential: &Credential) -> Result<Option<RootKey>> {
    if !credential.fits(slot.way) {
        return Ok(None);
    }
    let key = slot_key(credential, slot)?;
    let commitment = blake3::derive_key(SLOT_COMMITMENT, &*key);
    if aws_lc_rs::constant_time::verify_slices_are_equal(&commitment, &slot.commitment).is_err() {
        return Ok(None);
    }
    let mut wrapped = Zeroizing::new(slot.wrapped);
    let opened = wrapping(&key, slot)?.open(0, &slot.context(), &mut *wrapped).is_some();
    let plain: &[u8; 32] = wrapped.first_chunk().expect("a wrapped key is longer than a key");
    let root = RootKey((*plain).into());
    if !opened || root.commitment() != slot.ring_commitment {
        return Err(Error::new(Kind::Corrupt, "this key slot was changed after it was created"));
    }
    Ok(Some(root))
}

/// Derives the key that wraps a slot's root key; for passwords this is slow on purpose.
fn slot_key(credential: &Credential, slot: &KeySlot) -> Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    match (credential, slot.way) {
        (Credential::Password(password), SlotWay::Password(costs)) => {
            let refused = |why| Error::new(Kind::Io, format!("cannot try a password: {why}"));
            let params = Params::new(costs.memory_kib, costs.passes, costs.lanes, Some(32))
                .map_err(|why| refused(why.to_string()))?;
            Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
                .hash_password_into(password, &slot.salt, &mut *key)
                .map_err(|why| refused(why.to_string()))?;
        }
        (Credential::KeyFile(bytes), _) => {
            let mut hasher = blake3::Hasher::new_keyed(bytes);
            key.copy_from_slice(hasher.update(&slot.salt).finalize().as_bytes());
        }
        (Credential::Password(_), SlotWay::KeyFile) => {
            return Err(Error::new(
                Kind::Usage,
                "a password cannot open a key slot that needs a key file",
            ));
        }
    }
    Ok(key)
}

fn wrapping(key: &[u8; 32], slot: &KeySlot) -> Result<Cipher> {
    Cipher::new(slot.seal, &Zeroizing::new(blake3::derive_key(SLOT_KEY, key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::id::StoreId;
    use pinstripe_member::label::{Chunker, Encryption, Padding};

    const CHEAP: KdfCosts = KdfCosts { memory_kib: 64, passes: 1, lanes: 1 };

    fn config() -> StoreConfig {
        StoreConfig {
            store: StoreId([7; 16]),
            parity: 0,
            strip_bytes: 4096,
            chunking: "64K".into(),
            codec: "raw".into(),
            created_seconds: 0,
            encryption: Encryption::Aes256Gcm,
            chunker: Chunker::Keyed,
            padding: Padding::None,
        }
    }

    fn new(credential: Credential) -> NewSlot {
        NewSlot { credential, costs: CHEAP, label: "mine".into(), now_seconds: 1 }
    }

    #[test]
    fn what_a_slot_wraps_opens_the_ring_and_nothing_else_does() {
        let config = config();
        let keys = Keys::generate_sealing(config.store).unwrap();
        let root = RootKey::generate().unwrap();
        let ring = root.seal(&keys, &config, Format::V2).unwrap();
        let [right, wrong] = ["right", "wrong"].map(|text| Credential::password(text).unwrap());
        let [file, other] = [0; 2].map(|_| Credential::generate().unwrap());
        for (credential, wrong) in [(&right, &wrong), (&file, &other), (&right, &file)] {
            let slot = new(credential.clone()).wrap(&root, &ring).unwrap();
            let opened = unwrap_key(&slot, credential).unwrap().unwrap();
            assert_eq!(opened.open(&ring, &config).unwrap(), keys);
            assert!(unwrap_key(&slot, wrong).unwrap().is_none());
            // A change under a right checksum is seen by a holder of the credential.
            let mut forged = slot.clone();
            forged.label = "yours".into();
            assert_eq!(unwrap_key(&forged, credential).err().unwrap().kind(), Kind::Corrupt);
        }
        let stranger = RootKey::generate().unwrap();
        assert_eq!(stranger.open(&ring, &config).unwrap_err().kind(), Kind::Corrupt);
        let downgraded = StoreConfig { padding: Padding::Padme, ..config };
        let error = root.open(&ring, &downgraded).unwrap_err();
        assert!(error.to_string().contains("padding padme"), "{error}");
    }

    #[test]
    fn a_ring_succeeds_those_whose_keys_it_was_made_with() {
        let config = config();
        let first = Keys::generate_sealing(config.store).unwrap();
        let mut second = first.clone();
        second.seals.push(random::<32>().unwrap().into());
        let mut third = second.clone();
        third.seals.push(random::<32>().unwrap().into());
        let ring =
            |keys: &Keys, format| RootKey::generate().unwrap().seal(keys, &config, format).unwrap();
        let [one, two] = [&second, &third].map(|keys| ring(keys, Format::V2));
        assert!(succeeds(&one, &first) && succeeds(&two, &first) && succeeds(&two, &second));
        assert!(!succeeds(&one, &second), "it is of the same generation");
        let mut stranger = Keys::generate_sealing(config.store).unwrap();
        stranger.seals.push(random::<32>().unwrap().into());
        assert!(!succeeds(&ring(&stranger, Format::V2), &first));
        assert!(!succeeds(&ring(&second, Format::V1), &first), "it has no chain");
        let mut moved = one;
        moved.generation += 1;
        assert!(!succeeds(&moved, &first), "the generation is vouched for");
    }

    #[test]
    fn key_files_are_text_that_comes_back() {
        let key = Credential::generate().unwrap();
        let text = key.key_file_text().unwrap();
        assert_eq!(text.len(), 65);
        let again = Credential::of_key_file(text.as_bytes()).unwrap();
        assert_eq!(again.key_file_text(), Some(text));
        assert!(Credential::password("x").unwrap().key_file_text().is_none());
        for wrong in [&b""[..], b"00", &[b'0'; 63], &[b'x'; 64], &[b'0'; 66]] {
            let error = Credential::of_key_file(wrong).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
        }
        assert!(Credential::password("").is_err());
        assert_eq!(format!("{key:?}"), "Credential(key file, secret)");
    }

    /// RFC 9106, section 5.3, has a secret and associated data, which no slot has: so this vector
    /// is of the reference implementation's command `argon2 somesalt -id -t 2 -k 256 -p 1`.
    #[test]
    fn the_derivation_is_argon2id() {
        let mut key = [0; 32];
        let params = Params::new(256, 2, 1, Some(32)).unwrap();
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(b"password", b"somesalt", &mut key)
            .unwrap();
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe");
    }
}
