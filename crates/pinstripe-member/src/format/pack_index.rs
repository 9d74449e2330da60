//! The index of a pack, which lists its chunks and their places: the body of a record of kind
//! `PackIndex`.
//!
//! The same bytes are at the end of the pack that they describe and, as a copy, in an index run of
//! the first format; with such a run, opening a store does not read every pack. Body:
//!
//! ```text
//! set id 16, record count varint, then per record:
//!   offset varint   from the end of the record before (0 when they touch)
//!   length varint   head, table and stored bytes
//!   kind 1, raw bytes varint, chunk count varint, then per chunk: id 32, raw bytes varint
//! ```

use super::record::{CHUNK_ROW_BYTES, RECORD_HEAD_BYTES, RECORD_MAX_CHUNKS, RecordKind};
use super::record::{ChunkRow, RECORD_MAX_RAW_BYTES, longest};
use pinstripe_base::error::Result;
use pinstripe_base::id::{ChunkId, SetId};
use pinstripe_base::wire::{Reader, Writer};

/// One record of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedRecord {
    /// The start of the record in the pack's logical run.
    pub offset: u64,
    /// Length of head, chunk table and stored bytes.
    pub bytes: u32,
    /// The kind of the record's chunks.
    pub kind: RecordKind,
    /// Length of the record's chunks together.
    pub raw_bytes: u32,
    /// The chunks, in the order in which their bytes follow each other.
    pub chunks: Vec<ChunkRow>,
}

/// The list of all records of one pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackIndex {
    /// The pack.
    pub set: SetId,
    /// The records, in the order of their offsets.
    pub records: Vec<IndexedRecord>,
}

impl PackIndex {
    /// Writes the body.
    pub fn encode(&self) -> Vec<u8> {
        let chunks: usize = self.records.iter().map(|record| record.chunks.len()).sum();
        let mut out = Vec::with_capacity(32 + self.records.len() * 16 + chunks * CHUNK_ROW_BYTES);
        let mut writer = Writer::new(&mut out);
        writer.raw(&self.set.0).varint(self.records.len() as u64);
        let mut end = 0;
        for record in &self.records {
            writer
                .varint(record.offset - end)
                .varint(u64::from(record.bytes))
                .u8(record.kind as u8)
                .varint(u64::from(record.raw_bytes))
                .varint(record.chunks.len() as u64);
            for chunk in &record.chunks {
                writer.raw(&chunk.id.0).varint(u64::from(chunk.raw_bytes));
            }
            end = record.offset + u64::from(record.bytes);
        }
        out
    }

    /// Reads a body back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) for anything that
    /// `encode` does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "pack index");
        let set = SetId(reader.array()?);
        let count = reader.count(5)?;
        let mut records = Vec::with_capacity(count);
        let mut end: u64 = 0;
        for _ in 0..count {
            let gap = reader.varint()?;
            let length = reader.varint()?;
            let kind = match reader.u8()? {
                1 => RecordKind::Data,
                2 => RecordKind::Tree,
                other => return Err(reader.corrupt(format!("the record kind {other} is unknown"))),
            };
            let raw_bytes = reader.varint()?;
            let chunk_count = reader.count(ChunkId::LEN + 1)?;
            let offset = end.checked_add(gap);
            let next_end = offset.and_then(|offset| offset.checked_add(length));
            let (Some(offset), Some(next_end)) = (offset, next_end) else {
                return Err(reader.corrupt("an offset exceeds 64 bits"));
            };
            // Stored bytes are never more than raw ones, so a reader allocates no more than this.
            let shortest = (RECORD_HEAD_BYTES + chunk_count * CHUNK_ROW_BYTES) as u64;
            let longest = longest(raw_bytes.min(u64::from(u32::MAX)), chunk_count as u64);
            if raw_bytes > u64::from(RECORD_MAX_RAW_BYTES)
                || chunk_count > RECORD_MAX_CHUNKS as usize
                || !(shortest..=longest).contains(&length)
            {
                return Err(reader.corrupt("impossible lengths"));
            }
            let mut chunks = Vec::with_capacity(chunk_count);
            let mut sum = 0;
            for _ in 0..chunk_count {
                let id = ChunkId(reader.array()?);
                let bytes = reader.varint()?.min(u64::from(u32::MAX));
                sum += bytes;
                chunks.push(ChunkRow { id, raw_bytes: bytes as u32 });
            }
            if sum != raw_bytes {
                return Err(reader
                    .corrupt("the lengths of the chunks do not add up to the length of the record")
                    .expected(raw_bytes, sum));
            }
            end = next_end;
            let (bytes, raw_bytes) = (length as u32, raw_bytes as u32);
            records.push(IndexedRecord { offset, bytes, kind, raw_bytes, chunks });
        }
        reader.finish()?;
        Ok(PackIndex { set, records })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index() -> impl Strategy<Value = PackIndex> {
        let chunk = (any::<[u8; 32]>(), 0u32..5000);
        let record = (0u64..100, any::<u32>(), any::<bool>(), prop::collection::vec(chunk, 0..9));
        (any::<[u8; 16]>(), prop::collection::vec(record, 0..20)).prop_map(|(set, records)| {
            let mut end = 0;
            let records = records
                .into_iter()
                .map(|(gap, stored, data, chunks)| {
                    let chunks: Vec<_> = chunks
                        .into_iter()
                        .map(|(id, raw_bytes)| ChunkRow { id: ChunkId(id), raw_bytes })
                        .collect();
                    let raw_bytes = chunks.iter().map(|chunk| chunk.raw_bytes).sum();
                    let head = (RECORD_HEAD_BYTES + chunks.len() * CHUNK_ROW_BYTES) as u32;
                    let bytes = head + stored % (raw_bytes + 1);
                    let offset = end + gap;
                    end = offset + u64::from(bytes);
                    let kind = if data { RecordKind::Data } else { RecordKind::Tree };
                    IndexedRecord { offset, bytes, kind, raw_bytes, chunks }
                })
                .collect();
            PackIndex { set: SetId(set), records }
        })
    }

    #[test]
    fn a_record_longer_than_its_chunks_is_refused() {
        let chunks = vec![ChunkRow { id: ChunkId([1; 32]), raw_bytes: 10 }];
        let record = |bytes| IndexedRecord {
            offset: 0,
            bytes,
            kind: RecordKind::Data,
            raw_bytes: 10,
            chunks: chunks.clone(),
        };
        let decoded = |bytes| {
            PackIndex::decode(
                &PackIndex { set: SetId([2; 16]), records: vec![record(bytes)] }.encode(),
            )
        };
        let most = longest(10, 1) as u32;
        assert!(decoded(100).is_ok() && decoded(most).is_ok());
        assert!(decoded(99).is_err() && decoded(most + 1).is_err() && decoded(u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn an_index_comes_back(index in index(), cut in any::<prop::sample::Index>()) {
            let bytes = index.encode();
            prop_assert_eq!(&PackIndex::decode(&bytes).unwrap(), &index);
            prop_assert!(PackIndex::decode(&bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = PackIndex::decode(&bytes);
        }
    }
}
