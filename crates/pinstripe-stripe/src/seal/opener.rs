//! Reads what any run sealed, with any generation of the keys.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::cipher::{Cipher, SALT_BYTES};
use super::{BLOB_HEAD_BYTES, TAG_BYTES, keys_changed, locked};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_base::wire::Reader;
use pinstripe_member::SecretKey;
use pinstripe_member::envelope::{Object, is_of};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::Encryption;
use pinstripe_member::record::{RECORD_SEALED_HEAD_BYTES, RecordHead, parse_clear, parse_inner};
use pinstripe_member::snapshot::{
    Parsed, Snapshot, SnapshotContent, checkpoint_context, parse, parse_checkpoint, seal_context,
};

/// The largest number of subkeys kept at once: there is one for each run whose records are read.
const SUBKEYS_MAX: usize = 1024;

/// Opens sealed objects; shared by threads.
pub struct Opener {
    state: OpenerState,
    subkeys: Mutex<HashMap<SubkeyName, Arc<Cipher>>>,
}

/// Cipher, generation and salt: together with the master key, they determine a subkey.
type SubkeyName = (Encryption, u32, [u8; SALT_BYTES]);

enum OpenerState {
    /// The store is not encrypted.
    Clear,
    /// The store is encrypted, and its keys were not given.
    Locked,
    /// Master keys, by generation.
    Open(Vec<SecretKey>),
}

/// A record that was opened in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedRecord {
    /// The content.
    pub head: RecordHead,
    /// The range of the compressed bytes, counted from the beginning of the record.
    pub stored: Range<usize>,
    /// Length of the whole record.
    pub bytes: usize,
}

impl Opener {
    /// Makes an opener for a store without encryption.
    pub fn clear() -> Self {
        Opener { state: OpenerState::Clear, subkeys: Mutex::default() }
    }

    /// Makes an opener for an encrypted store without its keys: opening anything sealed fails with
    /// [`Kind::Locked`].
    pub fn locked() -> Self {
        Opener { state: OpenerState::Locked, subkeys: Mutex::default() }
    }

    /// Makes an opener for an encrypted store with its keys.
    pub fn new(keys: &Keys) -> Self {
        Opener { state: OpenerState::Open(keys.seals.clone()), subkeys: Mutex::default() }
    }

    /// Verifies the record at the beginning of `bytes` and opens it in place.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when anything does not match or is not sealed as the store
    /// requires, with [`Kind::Locked`] without the keys or when they were rotated since, or with
    /// [`Kind::Unsupported`] for a newer version.
    pub fn record(&self, bytes: &mut [u8]) -> Result<OpenedRecord> {
        let clear = parse_clear(bytes)?;
        let total = clear.stored.end;
        if !self.is_sealed(clear.seal, "record")? {
            return Ok(OpenedRecord { head: clear.head, stored: clear.stored, bytes: total });
        }
        let (head, stored) = bytes[..total].split_at_mut(clear.stored.start);
        let plain = self.open(clear.seal, &head[..RECORD_SEALED_HEAD_BYTES], stored)?;
        let (head, inner) = parse_inner(clear.head.kind, plain)?;
        let start = clear.stored.start + BLOB_HEAD_BYTES;
        Ok(OpenedRecord { head, stored: start + inner.start..start + inner.end, bytes: total })
    }

    /// Reads a snapshot object.
    ///
    /// # Errors
    /// Fails with the errors of [`record`](Self::record).
    pub fn snapshot(&self, bytes: &[u8]) -> Result<Snapshot> {
        let parsed = parse(bytes)?;
        let context = seal_context(parsed.store, parsed.id);
        self.fields(parsed, &context)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// Fails with the errors of [`record`](Self::record).
    pub fn checkpoint(&self, bytes: &[u8]) -> Result<Snapshot> {
        if is_of(Object::Snapshot, bytes) {
            return self.snapshot(bytes);
        }
        let parsed = parse_checkpoint(bytes)?;
        let context = checkpoint_context(parsed.store, parsed.id);
        self.fields(parsed, &context)
    }

    fn fields(&self, parsed: Parsed<'_>, context: &[u8]) -> Result<Snapshot> {
        match parsed.content {
            SnapshotContent::Clear(snapshot) => {
                self.is_sealed(Encryption::None, "snapshot")?;
                Ok(*snapshot)
            }
            SnapshotContent::Sealed(seal, blob) => {
                self.is_sealed(seal, "snapshot")?;
                let mut blob = blob.to_vec();
                let plain = self.open(seal, context, &mut blob)?;
                Snapshot::decode_fields(parsed.store, parsed.id, plain)
            }
        }
    }

    /// Opens a blob that [`Sealer::blob`](super::Sealer::blob) made with this context and the
    /// cipher `seal`; bytes that are not sealed are returned unchanged.
    ///
    /// # Errors
    /// Fails with the errors of [`record`](Self::record).
    pub fn blob(&self, seal: Encryption, context: &[u8], bytes: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        if !self.is_sealed(seal, "object")? {
            return Ok(bytes);
        }
        Ok(self.open(seal, context, &mut bytes)?.to_vec())
    }

    /// Whether something with this seal must be opened, and can be.
    fn is_sealed(&self, seal: Encryption, what: &str) -> Result<bool> {
        let wrong = |text: &str| Err(Error::new(Kind::Corrupt, format!("{text} {what}")));
        match (&self.state, seal) {
            (OpenerState::Clear, Encryption::None) => Ok(false),
            (OpenerState::Clear, _) => wrong("an unencrypted store contains a sealed"),
            // A process that can write to members must not be able to pass off its own objects.
            (_, Encryption::None) => wrong("an encrypted store contains an unsealed"),
            (OpenerState::Locked, _) => Err(locked()),
            (OpenerState::Open(_), _) => Ok(true),
        }
    }

    fn open<'a>(&self, seal: Encryption, aad: &[u8], blob: &'a mut [u8]) -> Result<&'a [u8]> {
        let mut reader = Reader::new(blob, "sealed blob");
        let generation = reader.u32()?;
        let salt = reader.array()?;
        let counter = reader.u64()?;
        if reader.remaining() < TAG_BYTES {
            return Err(reader.corrupt("the bytes end too early"));
        }
        let cipher = self.cipher(seal, generation, salt)?;
        let plain = cipher.open(counter, aad, &mut blob[BLOB_HEAD_BYTES..]);
        plain.map(|plain| &*plain).ok_or_else(|| {
            Error::new(Kind::Corrupt, "sealed data was changed, because its seal does not verify")
        })
    }

    fn cipher(
        &self,
        seal: Encryption,
        generation: u32,
        salt: [u8; SALT_BYTES],
    ) -> Result<Arc<Cipher>> {
        let OpenerState::Open(masters) = &self.state else { return Err(locked()) };
        let name = (seal, generation, salt);
        if let Some(cipher) = lock(&self.subkeys).get(&name) {
            return Ok(Arc::clone(cipher));
        }
        let master = masters.get(generation as usize).ok_or_else(|| {
            keys_changed().expected(
                format!("a generation number of the keys between 0 and {}", masters.len() - 1),
                generation,
            )
        })?;
        let cipher = Arc::new(Cipher::of_run(seal, master, &salt)?);
        let mut subkeys = lock(&self.subkeys);
        if subkeys.len() >= SUBKEYS_MAX {
            subkeys.clear();
        }
        Ok(Arc::clone(subkeys.entry(name).or_insert(cipher)))
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.state {
            OpenerState::Clear => "Opener(clear)",
            OpenerState::Locked => "Opener(locked)",
            OpenerState::Open(_) => "Opener(secret)",
        })
    }
}
