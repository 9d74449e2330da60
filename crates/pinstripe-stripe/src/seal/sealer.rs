//! Makes sealed records and blobs; in a store without encryption, plain records.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cipher::{Cipher, SALT_BYTES};
use super::padding::padded_bytes;
use super::{BLOB_HEAD_BYTES, TAG_BYTES};
use pinstripe_base::checksum::checksum;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::random;
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Padding};
use pinstripe_member::record::{
    CHUNK_ROW_BYTES, ChunkRow, INNER_HEAD_BYTES, RECORD_HEAD_BYTES, RECORD_SEALED_HEAD_BYTES,
    RecordHead, RecordKind, clear_head, fill_sums, inner_head, write_table,
};
use pinstripe_member::snapshot::{
    Snapshot, checkpoint_context, frame_checkpoint, frame_sealed, seal_context,
};

/// The offset of the plaintext in a sealed record.
const PLAIN_AT: usize = RECORD_HEAD_BYTES + BLOB_HEAD_BYTES;

/// Seals everything that one run writes; shared by the run's threads.
pub struct Sealer {
    run: Option<SealRun>,
    padding: Padding,
}

/// A run's subkey, and the number of times that it was used.
struct SealRun {
    encryption: Encryption,
    generation: u32,
    salt: [u8; SALT_BYTES],
    cipher: Cipher,
    next: AtomicU64,
}

impl Sealer {
    /// Seals nothing.
    pub fn none() -> Self {
        Sealer { run: None, padding: Padding::None }
    }

    /// Makes a sealer for one run, with a salt of its own.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when `keys` have no seal key, or with [`Kind::Io`] if the
    /// system provides no randomness.
    pub fn new(encryption: Encryption, padding: Padding, keys: &Keys) -> Result<Self> {
        if encryption == Encryption::None {
            return Ok(Self::none());
        }
        let master = keys.seals.last().ok_or_else(|| {
            Error::new(Kind::Corrupt, "the keys of this store do not include an encryption key")
        })?;
        let salt = random()?;
        let cipher = Cipher::of_run(encryption, master, &salt)?;
        let generation = (keys.seals.len() - 1) as u32;
        let run = SealRun { encryption, generation, salt, cipher, next: AtomicU64::new(0) };
        Ok(Sealer { run: Some(run), padding })
    }

    /// Begins a record in `out`, whose old content is dropped: leaves room for the heads and writes
    /// the chunk table. The caller appends the compressed chunks and then [`close`](Self::close)s.
    pub fn begin(&self, out: &mut Vec<u8>, chunks: &[ChunkRow]) {
        out.clear();
        let heads = match self.run {
            None => RECORD_HEAD_BYTES,
            Some(_) => PLAIN_AT + INNER_HEAD_BYTES,
        };
        out.resize(heads, 0);
        write_table(out, chunks);
    }

    /// Finishes the record in `record`, which [`begin`](Self::begin) began with the same chunks;
    /// afterwards it has its stored form.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when the cipher refuses.
    pub fn close(
        &self,
        record: &mut Vec<u8>,
        kind: RecordKind,
        codec: u8,
        chunks: Vec<ChunkRow>,
        raw_bytes: u32,
    ) -> Result<RecordHead> {
        let table_bytes = chunks.len() * CHUNK_ROW_BYTES;
        let mut head = RecordHead { kind, codec, raw_bytes, stored_bytes: 0, chunks };
        let Some(run) = &self.run else {
            let (before, stored) = record.split_at_mut(RECORD_HEAD_BYTES + table_bytes);
            head.stored_bytes = stored.len() as u32;
            before[..RECORD_SEALED_HEAD_BYTES]
                .copy_from_slice(&clear_head(&head, Encryption::None));
            fill_sums(before, checksum(stored));
            return Ok(head);
        };
        head.stored_bytes = (record.len() - PLAIN_AT - INNER_HEAD_BYTES - table_bytes) as u32;
        record[PLAIN_AT..PLAIN_AT + INNER_HEAD_BYTES].copy_from_slice(&inner_head(&head));
        let plain_bytes = padded_bytes(self.padding, record.len() - PLAIN_AT);
        record.reserve(plain_bytes + PLAIN_AT + TAG_BYTES - record.len());
        record.resize(PLAIN_AT + plain_bytes, 0);
        let sealed_bytes = (BLOB_HEAD_BYTES + plain_bytes + TAG_BYTES) as u32;
        let compressed_bytes = std::mem::replace(&mut head.stored_bytes, sealed_bytes);
        let clear = clear_head(&head, run.encryption);
        head.stored_bytes = compressed_bytes;
        run.seal(&clear, record, RECORD_HEAD_BYTES)?;
        let (before, stored) = record.split_at_mut(RECORD_HEAD_BYTES);
        before[..RECORD_SEALED_HEAD_BYTES].copy_from_slice(&clear);
        fill_sums(before, checksum(stored));
        Ok(head)
    }

    /// Makes a complete record from bytes that are compressed already.
    ///
    /// # Errors
    /// Fails with the errors of [`close`](Self::close).
    pub fn record(
        &self,
        kind: RecordKind,
        codec: u8,
        chunks: &[ChunkRow],
        raw_bytes: u32,
        stored: &[u8],
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.begin(&mut out, chunks);
        out.extend_from_slice(stored);
        self.close(&mut out, kind, codec, chunks.to_vec(), raw_bytes)?;
        Ok(out)
    }

    /// Returns a snapshot as the object that is stored.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when the cipher refuses.
    pub fn snapshot(&self, snapshot: &Snapshot) -> Result<Vec<u8>> {
        let Some(run) = &self.run else { return Ok(snapshot.encode()) };
        let context = seal_context(snapshot.store, snapshot.id);
        let blob = self.blob(&context, &snapshot.encode_fields())?;
        let name = (snapshot.store, snapshot.id);
        Ok(frame_sealed(name, !snapshot.comment.is_empty(), run.encryption, &blob))
    }

    /// Returns a checkpoint as the object that is stored in a store of format version 2.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when the cipher refuses.
    pub fn checkpoint(&self, checkpoint: &Snapshot) -> Result<Vec<u8>> {
        let Snapshot { store, id, .. } = *checkpoint;
        let fields = self.blob(&checkpoint_context(store, id), &checkpoint.encode_fields())?;
        Ok(frame_checkpoint(store, id, self.encryption(), &fields))
    }

    /// Seals some bytes; `context` says what they are, and is authenticated. In a store without
    /// encryption the bytes are returned unchanged.
    ///
    /// # Errors
    /// Fails with [`Kind::Io`] when the cipher refuses.
    pub fn blob(&self, context: &[u8], plain: &[u8]) -> Result<Vec<u8>> {
        let Some(run) = &self.run else { return Ok(plain.to_vec()) };
        let mut out = Vec::with_capacity(BLOB_HEAD_BYTES + plain.len() + TAG_BYTES);
        out.resize(BLOB_HEAD_BYTES, 0);
        out.extend_from_slice(plain);
        run.seal(context, &mut out, 0)?;
        Ok(out)
    }

    /// The cipher of this sealer.
    pub fn encryption(&self) -> Encryption {
        self.run.as_ref().map_or(Encryption::None, |run| run.encryption)
    }
}

impl SealRun {
    /// Encrypts the blob that begins at `start`, and fills in its head.
    fn seal(&self, aad: &[u8], bytes: &mut Vec<u8>, start: usize) -> Result<()> {
        // At a billion records per second the counter lasts for centuries.
        let counter = self.next.fetch_add(1, Ordering::Relaxed);
        let (head, plain) = bytes[start..].split_at_mut(BLOB_HEAD_BYTES);
        head[..4].copy_from_slice(&self.generation.to_le_bytes());
        head[4..20].copy_from_slice(&self.salt);
        head[20..].copy_from_slice(&counter.to_le_bytes());
        let tag = self.cipher.seal(counter, aad, plain)?;
        bytes.extend_from_slice(&tag);
        Ok(())
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({}, secret)", self.encryption())
    }
}
