//! A decoded record, with each of its chunks verified.

use std::sync::Mutex;

use pinstripe_prefetch::FetchSource;

use crate::pipeline::limits::RECORD_RAW_BYTES;
use crate::store::index::{Index, Place};
use crate::store::packs::{PackReader, RecordPlace, wrong_place};
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::sync::lock;
use pinstripe_member::keys::Keys;
use pinstripe_member::record::ChunkRow;
use pinstripe_stripe::Decoder;

/// The decoded bytes of a record.
pub(crate) struct DecodedRecord {
    raw: Vec<u8>,
    /// Offset, id and length of each chunk; the id is `None` when the bytes do not match it.
    chunks: Vec<(u32, Option<ChunkId>, u32)>,
}

impl DecodedRecord {
    /// Reads a record and decodes it.
    ///
    /// # Errors
    /// Fails with the errors of reading it, or with
    /// [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for bytes that are not a record. A
    /// chunk that does not match its id causes an error for that chunk alone.
    fn read(
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

    /// Returns one of the record's chunks.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when the chunk is missing
    /// or damaged.
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

/// The records of a store in decoded form, as a source for the prefetcher.
pub(crate) struct DecodedRecords<'a> {
    /// Reads records.
    pub packs: &'a PackReader<'a>,
    /// The index, which finds chunks in packs.
    pub index: &'a Index<'a>,
    keys: &'a Keys,
    /// Decoders that no thread is using.
    decoders: Mutex<Vec<Decoder>>,
}

impl<'a> DecodedRecords<'a> {
    /// Makes a source of all records that the index has.
    pub fn new(packs: &'a PackReader<'a>, index: &'a Index<'a>, keys: &'a Keys) -> Self {
        DecodedRecords { packs, index, keys, decoders: Mutex::default() }
    }
}

impl FetchSource for DecodedRecords<'_> {
    type Key = RecordPlace;
    type Unit = DecodedRecord;

    fn fetch(&self, place: RecordPlace) -> Result<DecodedRecord> {
        let decoder = lock(&self.decoders).pop();
        let mut decoder = decoder.unwrap_or_default();
        let decoded = DecodedRecord::read(self.packs, self.index, self.keys, place, &mut decoder);
        lock(&self.decoders).push(decoder);
        decoded
    }

    fn bytes(&self, unit: &DecodedRecord) -> Option<u64> {
        Some(unit.raw.capacity() as u64)
    }
}

/// Returns the memory of a decoded record, estimated from its length and one of its chunks.
pub fn decoded_bytes(place: &Place) -> u64 {
    let raw_end = u64::from(place.raw_offset) + u64::from(place.raw_bytes);
    raw_end.max(place.record.bytes.into()).max(RECORD_RAW_BYTES as u64)
}
