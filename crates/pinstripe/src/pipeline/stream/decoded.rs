//! A record, decoded, with each of its chunks checked.

use std::sync::Mutex;

use crate::codec::Decoder;
use crate::format::keys::Keys;
use crate::format::record::ChunkRow;
use crate::store::index::Index;
use crate::store::packs::{PackReader, RecordPlace, wrong_place};
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::sync::lock;

/// The bytes of a record.
pub struct DecodedRecord {
    raw: Vec<u8>,
    /// Offset, id and length of each chunk; `None` for the id when the bytes are not what it says.
    chunks: Vec<(u32, Option<ChunkId>, u32)>,
}

impl DecodedRecord {
    /// Reads a record and decodes it.
    ///
    /// # Errors
    /// Those of reading it; [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for bytes that
    /// are no record. A chunk that is not what its id says is an error of that chunk alone.
    pub(super) fn read(
        packs: &PackReader<'_>,
        index: &Index<'_>,
        keys: &Keys,
        place: RecordPlace,
        decoder: &mut Decoder,
    ) -> Result<Self> {
        let record = packs.fetch_place(index, place)?;
        let head = &record.head;
        let mut raw = Vec::new();
        decoder.decode(head.codec, record.stored(), head.raw_bytes as usize, &mut raw)?;
        let mut at = 0;
        let mut chunks = Vec::with_capacity(head.chunks.len());
        for row in &head.chunks {
            let bytes = raw.get(at as usize..at as usize + row.raw_bytes as usize);
            let is_sound = bytes.is_some_and(|bytes| keys.chunk_id(bytes) == row.id);
            // An empty chunk shares its offset with the next one, and is never asked for.
            if row.raw_bytes > 0 {
                chunks.push((at, is_sound.then_some(row.id), row.raw_bytes));
            }
            at += row.raw_bytes;
        }
        Ok(DecodedRecord { raw, chunks })
    }

    /// One of its chunks.
    ///
    /// # Errors
    /// [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when it is not there, or not sound.
    pub fn chunk(&self, raw_offset: u32, row: &ChunkRow) -> Result<&[u8]> {
        let at = self.chunks.binary_search_by_key(&raw_offset, |(offset, ..)| *offset);
        match at.map(|at| &self.chunks[at]) {
            Ok((_, Some(id), bytes)) if *id == row.id && *bytes == row.raw_bytes => {
                Ok(&self.raw[raw_offset as usize..][..row.raw_bytes as usize])
            }
            _ => Err(wrong_place(&row.id)),
        }
    }
}

/// Decoders for threads that come and go.
#[derive(Default)]
pub struct DecoderPool(Mutex<Vec<Decoder>>);

impl DecoderPool {
    /// Reads a record and decodes it.
    ///
    /// # Errors
    /// As reading a record.
    pub fn decode(
        &self,
        packs: &PackReader<'_>,
        index: &Index<'_>,
        keys: &Keys,
        place: RecordPlace,
    ) -> Result<DecodedRecord> {
        let decoder = lock(&self.0).pop();
        let mut decoder = decoder.unwrap_or_default();
        let decoded = DecodedRecord::read(packs, index, keys, place, &mut decoder);
        lock(&self.0).push(decoder);
        decoded
    }
}
