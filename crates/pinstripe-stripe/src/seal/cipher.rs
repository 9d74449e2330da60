//! The ciphers, and the keys that they use.

use aws_lc_rs::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use zeroize::Zeroizing;

use super::TAG_BYTES;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::Encryption;

/// Length of the random salt from which a run's subkey is derived.
pub(crate) const SALT_BYTES: usize = 16;

const SUBKEY_CONTEXT: &str = "pinstripe 2026 subkey of a run's seals";

/// A cipher together with its key.
pub(crate) struct Cipher(LessSafeKey);

impl Cipher {
    /// Makes the cipher with a key that nothing else uses.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for [`Encryption::None`].
    pub fn new(encryption: Encryption, key: &[u8; 32]) -> Result<Self> {
        let algorithm: &'static Algorithm = match encryption {
            Encryption::Aes256Gcm => &AES_256_GCM,
            Encryption::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Encryption::None => {
                return Err(Error::new(Kind::Usage, "data cannot be sealed without a cipher"));
            }
        };
        let key = UnboundKey::new(algorithm, key)
            .map_err(|_| Error::new(Kind::Io, format!("cannot set up the cipher {encryption}")))?;
        Ok(Cipher(LessSafeKey::new(key)))
    }

    /// Makes the cipher of one run: its key is derived from a master key and the run's salt.
    ///
    /// # Errors
    /// Fails with the errors of [`new`](Self::new).
    pub fn of_run(
        encryption: Encryption,
        master: &[u8; 32],
        salt: &[u8; SALT_BYTES],
    ) -> Result<Self> {
        let mut hasher = blake3::Hasher::new_derive_key(SUBKEY_CONTEXT);
        hasher.update(master).update(salt).update(&[encryption as u8]);
        let key = Zeroizing::new(*hasher.finalize().as_bytes());
        Self::new(encryption, &key)
    }

    /// Seals `bytes` in place with a nonce that was never used with this key; `aad` is
    /// authenticated but not encrypted.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when the cipher refuses, for example more bytes than it can seal.
    pub fn seal(&self, nonce: u64, aad: &[u8], bytes: &mut [u8]) -> Result<[u8; TAG_BYTES]> {
        let tag = self.0.seal_in_place_separate_tag(full_nonce(nonce), Aad::from(aad), bytes);
        let tag = tag.map_err(|_| {
            Error::new(Kind::Io, format!("the cipher cannot seal {} bytes", bytes.len()))
        })?;
        Ok(tag.as_ref().try_into().expect("both ciphers have tags of this length"))
    }

    /// Opens ciphertext and tag in place; the first bytes are then the plaintext. Returns `None`
    /// when the bytes are not what this key sealed with this nonce and `aad`.
    pub fn open<'a>(&self, nonce: u64, aad: &[u8], bytes: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.0.open_in_place(full_nonce(nonce), Aad::from(aad), bytes).ok()
    }
}

fn full_nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}
