//! The content of batch, index and manifest frames.
//!
//! ```text
//! batch:     log bytes 8 | flags 1 | zero 7 | chaining value 32
//! index:     place of the index before 8 | batches up to it 8 | count 4 | zero 4 | rows of 32:
//!            offset 8, raw bytes 8, place in the log 8, log bytes 8
//! manifest:  source bytes 8 | BLAKE3-256 32 | zero bytes 8 | hole bytes 8 | logs 2 | uses 1 | zero 5
//!            per log:  place of its last index 8, batches 8, log bytes before the manifest 8
//!            per use:  codec 1, level 1, zero 6, blocks 8, raw bytes 8, stored bytes 8
//! ```
//!
//! The chaining value is that of BLAKE3 for the unit as a subtree at its place in the source (the
//! BLAKE3 paper, sections 2.1 and 6.2). A batch has none if it is a hole, or if the source is a
//! single unit, whose hash is in the manifest.

use pinstripe_base::error::Result;
use pinstripe_base::wire::{Reader, Writer};

/// The value that stands for a missing place.
const NOWHERE: u64 = u64::MAX;
const ROW_BYTES: usize = 32;
const LOG_BYTES: usize = 24;
const USE_BYTES: usize = 32;

/// The fields of a batch frame except its place in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchExtent {
    /// Bytes of the complete batch in the log, counted from the head of this frame.
    pub log_bytes: u64,
    /// BLAKE3's chaining value of the unit that the batch holds.
    pub chaining_value: Option<[u8; 32]>,
}

impl BatchExtent {
    /// Bytes of the encoded value.
    pub const BYTES: usize = 48;

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        Writer::new(&mut out)
            .u64(self.log_bytes)
            .u8(self.chaining_value.is_some().into())
            .zeros(7)
            .raw(&self.chaining_value.unwrap_or_default());
        out
    }

    /// Reads the bytes back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when the bytes are not
    /// those of a batch.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes, "batch");
        let (log_bytes, flag) = (r.u64()?, r.u8()?);
        let zeros = r.array::<7>()?;
        let value = r.array()?;
        if flag > 1 || zeros != [0; 7] || (flag == 0 && value != [0; 32]) {
            return Err(r.corrupt("unknown flags"));
        }
        r.finish()?;
        Ok(BatchExtent { log_bytes, chaining_value: (flag == 1).then_some(value) })
    }
}

/// The place of a batch in the source and in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlace {
    /// The start of the batch's unit in the source.
    pub offset: u64,
    /// The number of bytes of the source in the batch.
    pub raw_bytes: u64,
    /// The start of the batch in its log.
    pub position: u64,
    /// The bytes there.
    pub log_bytes: u64,
}

impl BatchPlace {
    /// Whether a unit can be at this place: it begins at a multiple of the unit and is not empty.
    pub fn is_of(&self, unit_bytes: u32) -> bool {
        self.raw_bytes > 0 && self.offset.is_multiple_of(unit_bytes.into())
    }
}

/// One part of the index of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogIndex {
    /// The place of the previous part in the log.
    pub previous: Option<u64>,
    /// The number of batches in this log that earlier parts list.
    pub batches_before: u64,
    /// The batches of this part, in the order of the log.
    pub rows: Vec<BatchPlace>,
}

impl LogIndex {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.rows.len() * ROW_BYTES);
        let mut w = Writer::new(&mut out);
        w.u64(self.previous.unwrap_or(NOWHERE)).u64(self.batches_before);
        w.u32(self.rows.len() as u32).zeros(4);
        for row in &self.rows {
            w.u64(row.offset).u64(row.raw_bytes).u64(row.position).u64(row.log_bytes);
        }
        out
    }

    /// Reads the bytes back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when the bytes are not
    /// those of an index.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes, "index");
        let (previous, batches_before) = (r.u64()?, r.u64()?);
        let (count, zero) = (r.u32()? as usize, r.u32()?);
        if zero != 0 || r.remaining() != count.saturating_mul(ROW_BYTES) {
            return Err(
                r.corrupt("the length of the index of a split does not match its number of rows")
            );
        }
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let (offset, raw_bytes) = (r.u64()?, r.u64()?);
            let (position, log_bytes) = (r.u64()?, r.u64()?);
            if offset.checked_add(raw_bytes).is_none() || position.checked_add(log_bytes).is_none()
            {
                return Err(r.corrupt("a row of the index of a split has impossible values"));
            }
            rows.push(BatchPlace { offset, raw_bytes, position, log_bytes });
        }
        Ok(LogIndex { previous: place(previous), batches_before, rows })
    }
}

fn place(value: u64) -> Option<u64> {
    (value != NOWHERE).then_some(value)
}

/// How much one codec was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Use {
    /// [`Codec::id`](pinstripe_stripe::Codec::id).
    pub codec: u8,
    /// The compression level, if the codec has levels; otherwise 0.
    pub level: i8,
    /// Blocks.
    pub blocks: u64,
    /// The bytes of the source that were compressed with the codec.
    pub raw_bytes: u64,
    /// The compressed bytes, without frame heads.
    pub stored_bytes: u64,
}

/// The end of one log: its last index part, its number of batches and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The place of the last part of the log's index.
    pub last_index: Option<u64>,
    /// Batches in it.
    pub batches: u64,
    /// The length of the log before the manifest.
    pub log_bytes: u64,
}

/// The summary of a whole split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Bytes of the source.
    pub source_bytes: u64,
    /// BLAKE3-256 of the source.
    pub blake3: [u8; 32],
    /// The number of bytes in blocks that are all zeros.
    pub zero_bytes: u64,
    /// Bytes of holes.
    pub hole_bytes: u64,
    /// By log.
    pub logs: Vec<LogEnd>,
    /// The use of codecs, by codec and level.
    pub uses: Vec<Use>,
}

impl Manifest {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.u64(self.source_bytes).raw(&self.blake3).u64(self.zero_bytes).u64(self.hole_bytes);
        w.u16(self.logs.len() as u16).u8(self.uses.len() as u8).zeros(5);
        for log in &self.logs {
            w.u64(log.last_index.unwrap_or(NOWHERE)).u64(log.batches).u64(log.log_bytes);
        }
        for used in &self.uses {
            w.u8(used.codec).u8(used.level as u8).zeros(6);
            w.u64(used.blocks).u64(used.raw_bytes).u64(used.stored_bytes);
        }
        out
    }

    /// Reads the bytes back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`](pinstripe_base::error::Kind::Corrupt) when the bytes are not
    /// those of a manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes, "manifest");
        let (source_bytes, blake3) = (r.u64()?, r.array()?);
        let (zero_bytes, hole_bytes) = (r.u64()?, r.u64()?);
        let (logs, uses, zeros) = (r.u16()? as usize, r.u8()? as usize, r.array::<5>()?);
        if zeros != [0; 5] || r.remaining() != logs * LOG_BYTES + uses * USE_BYTES {
            return Err(
                r.corrupt("the length of the index of a split does not match its number of rows")
            );
        }
        let mut manifest = Manifest {
            source_bytes,
            blake3,
            zero_bytes,
            hole_bytes,
            logs: Vec::with_capacity(logs),
            uses: Vec::with_capacity(uses),
        };
        for _ in 0..logs {
            let (last_index, batches, log_bytes) = (place(r.u64()?), r.u64()?, r.u64()?);
            manifest.logs.push(LogEnd { last_index, batches, log_bytes });
        }
        for _ in 0..uses {
            let (codec, level) = (r.u8()?, r.u8()? as i8);
            if r.array::<6>()? != [0; 6] {
                return Err(r.corrupt("unknown flags"));
            }
            let (blocks, raw_bytes, stored_bytes) = (r.u64()?, r.u64()?, r.u64()?);
            manifest.uses.push(Use { codec, level, blocks, raw_bytes, stored_bytes });
        }
        r.finish()?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_come_back() {
        for chaining_value in [None, Some([7; 32])] {
            let batch = BatchExtent { log_bytes: 8192, chaining_value };
            assert_eq!(batch.encode().len(), BatchExtent::BYTES);
            assert_eq!(BatchExtent::decode(&batch.encode()).unwrap(), batch);
        }
        let row = BatchPlace { offset: 4 << 20, raw_bytes: 4 << 20, position: 8192, log_bytes: 99 };
        for previous in [None, Some(0)] {
            let index = LogIndex { previous, batches_before: 7, rows: vec![row; 3] };
            assert_eq!(LogIndex::decode(&index.encode()).unwrap(), index);
        }
        let manifest = Manifest {
            source_bytes: 10,
            blake3: [3; 32],
            zero_bytes: 1,
            hole_bytes: 2,
            logs: vec![LogEnd { last_index: Some(5), batches: 1, log_bytes: 6 }; 2],
            uses: vec![Use { codec: 1, level: -5, blocks: 1, raw_bytes: 2, stored_bytes: 3 }],
        };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn rows_that_would_wrap_are_refused() {
        let row = BatchPlace { offset: u64::MAX, raw_bytes: 1, position: 0, log_bytes: 0 };
        let index = LogIndex { previous: None, batches_before: 0, rows: vec![row] };
        assert!(LogIndex::decode(&index.encode()).is_err());
    }
}
