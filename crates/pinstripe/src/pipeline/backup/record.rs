//! Collects new chunks into records, compresses and seals them.

use crossbeam_channel::Sender;

use super::checkpoint::Feeder;
use super::shared::Writing;
use crate::pipeline::limits::{RECORD_RAW_BYTES, TREE_RECORD_RAW_BYTES};
use crate::pipeline::pack::{FinishedRecord, SealTicket, ToPacker};
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_base::monitor::Counter;
use pinstripe_member::record::{ChunkRow, RECORD_MAX_CHUNKS, RecordKind};
use pinstripe_member::tree::PAGE_MAX_BYTES;
use pinstripe_stripe::Encoder;

/// Fills records with new chunks and passes them on, compressed.
pub(crate) struct RecordBuilder<'a> {
    shared: &'a Writing<'a>,
    kind: RecordKind,
    full_bytes: usize,
    raw: Vec<u8>,
    filled: usize,
    rows: Vec<ChunkRow>,
    encoder: Encoder,
    records: Sender<ToPacker>,
}

impl<'a> RecordBuilder<'a> {
    /// Makes a builder that closes records at `full_bytes`, with a buffer of `room_bytes`.
    ///
    /// # Errors
    /// Fails when the compressor cannot be set up.
    pub fn new(
        shared: &'a Writing<'a>,
        kind: RecordKind,
        full_bytes: usize,
        room_bytes: usize,
        records: Sender<ToPacker>,
    ) -> Result<Self> {
        Ok(RecordBuilder {
            shared,
            kind,
            full_bytes,
            raw: vec![0; room_bytes],
            filled: 0,
            rows: Vec::new(),
            encoder: Encoder::new(shared.codec)?,
            records,
        })
    }

    /// Makes a builder with the usual record lengths of backups, for chunks that come one by one.
    ///
    /// # Errors
    /// Fails with the errors of [`new`](Self::new).
    pub fn of_kind(
        shared: &'a Writing<'a>,
        kind: RecordKind,
        records: Sender<ToPacker>,
    ) -> Result<Self> {
        let full_bytes = match kind {
            RecordKind::Tree => TREE_RECORD_RAW_BYTES,
            _ => RECORD_RAW_BYTES,
        };
        RecordBuilder::new(shared, kind, full_bytes, full_bytes + 2 * PAGE_MAX_BYTES, records)
    }

    /// Returns a buffer of `bytes` bytes after the chunks of the record being filled, for a chunk
    /// that [`keep_room`](Self::keep_room) may add to it.
    ///
    /// # Errors
    /// Fails with the errors of the compressor, when the record had to be closed first.
    pub fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
        if self.filled + bytes > self.raw.len() {
            self.flush()?;
            let most = self.raw.len().max(bytes);
            self.raw.resize(most, 0);
        }
        Ok(&mut self.raw[self.filled..self.filled + bytes])
    }

    /// Adds the first `bytes` bytes of that buffer as a chunk, which is stored only if it is new.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn keep_room(&mut self, bytes: usize) -> Result<ChunkRow> {
        let chunk = &self.raw[self.filled..self.filled + bytes];
        let row = ChunkRow { id: self.shared.keys.chunk_id(chunk), raw_bytes: bytes as u32 };
        if self.claim(row.id, bytes)? {
            self.filled += bytes;
            self.rows.push(row);
            self.flush_if_full()?;
        }
        Ok(row)
    }

    /// Adds a chunk from another buffer, which is stored only if it is new.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn add(&mut self, chunk: &[u8]) -> Result<ChunkRow> {
        let (row, is_new) = self.claim_row(chunk)?;
        if is_new {
            self.add_claimed(chunk, vec![row])?;
        }
        Ok(row)
    }

    /// Computes the id of a chunk and claims it; if the chunk is new, it must be passed to
    /// [`add_claimed`](Self::add_claimed).
    ///
    /// # Errors
    /// Fails when the index cannot be read.
    pub(crate) fn claim_row(&self, chunk: &[u8]) -> Result<(ChunkRow, bool)> {
        let row = ChunkRow { id: self.shared.keys.chunk_id(chunk), raw_bytes: chunk.len() as u32 };
        Ok((row, self.claim(row.id, chunk.len())?))
    }

    /// Stores new chunks that follow each other in `raw`.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub(crate) fn add_claimed(&mut self, raw: &[u8], rows: Vec<ChunkRow>) -> Result<()> {
        // A chunk that fills a record alone is sent as it is; smaller ones are gathered.
        if raw.len() >= self.full_bytes {
            return self.send(raw, rows);
        }
        self.room(raw.len())?.copy_from_slice(raw);
        self.filled += raw.len();
        self.rows.extend(rows);
        self.flush_if_full()
    }

    fn claim(&self, id: ChunkId, bytes: usize) -> Result<bool> {
        let is_new = self.shared.claim(&id)?;
        let monitor = self.shared.monitor;
        monitor.add(if is_new { Counter::NewChunks } else { Counter::KnownChunks }, 1);
        if is_new && self.kind == RecordKind::Data {
            monitor.add(Counter::DedupedBytes, bytes as u64);
        }
        Ok(is_new)
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.filled >= self.full_bytes || self.rows.len() >= RECORD_MAX_CHUNKS as usize {
            self.flush()?;
        }
        Ok(())
    }

    /// Closes the record being filled, if there is one.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn flush(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let raw = std::mem::take(&mut self.raw);
        let sent = self.send(&raw[..self.filled], rows);
        self.raw = raw;
        self.filled = 0;
        sent
    }

    /// Closes the record being filled and asks the packer to make everything durable that it has
    /// received.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn seal(&mut self, ticket: SealTicket) -> Result<()> {
        self.flush()?;
        let _ = self.records.send(ToPacker::Seal(ticket));
        Ok(())
    }

    /// Closes the record being filled and reports that this feeder sends nothing more.
    ///
    /// # Errors
    /// Fails with the errors of the compressor.
    pub fn leave(mut self, feeder: Feeder<'_>) -> Result<()> {
        let flushed = self.flush();
        let _ = self.records.send(ToPacker::Left { answered: feeder.leave() });
        flushed
    }

    fn send(&mut self, raw: &[u8], chunks: Vec<ChunkRow>) -> Result<()> {
        let sealer = self.shared.sealer;
        let mut bytes = self.shared.records.take();
        sealer.begin(&mut bytes, &chunks);
        let codec = self.encoder.append(raw, &mut bytes)?.codec_id();
        let head = sealer.close(&mut bytes, self.kind, codec, chunks, raw.len() as u32)?;
        if self.kind == RecordKind::Data {
            self.shared.monitor.add(Counter::CompressedBytes, u64::from(head.stored_bytes));
        }
        // The packer is there until all builders are gone, except when it panicked.
        let _ = self.records.send(ToPacker::Record(FinishedRecord { head, bytes }));
        Ok(())
    }
}
