//! A worker: it turns units of the source into batches.

use crossbeam_channel::Sender;

use super::tally::{BlockTally, Stage};
use super::{CodecChoice, Shared, Unit};
use crate::format::{ALIGN_BYTES, SplitLayout};
use crate::outputs::UnitHash;
use crate::outputs::batch::{BatchWriter, StoredBlock, hole};
use crate::source::{SourcePiece, Units};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::sync::lock;
use pinstripe_io::device::AlignedBuf;
use pinstripe_stripe::{Codec, Encoded, EncoderSet};

pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    units: &'a [Units],
    senders: Vec<Sender<Unit>>,
    /// The number of the source that the worker asks next.
    turn: usize,
    encoders: EncoderSet,
    packed: Vec<u8>,
    tally: BlockTally,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        shared: &'a Shared<'a>,
        units: &'a [Units],
        senders: Vec<Sender<Unit>>,
        first: usize,
    ) -> Self {
        Worker {
            shared,
            units,
            senders,
            turn: first % units.len(),
            encoders: EncoderSet::default(),
            packed: Vec::new(),
            tally: BlockTally::default(),
        }
    }

    pub(super) fn run(mut self) -> Result<()> {
        let mut is_over = vec![false; self.units.len()];
        let unit_bytes = self.shared.head.unit_bytes() as usize;
        let stages = &self.shared.stages;
        while is_over.contains(&false) && !self.shared.abort.is_raised() {
            let from = self.turn;
            self.turn = (from + 1) % self.units.len();
            if is_over[from] {
                continue;
            }
            let mut raw = stages.time(Stage::Wait, || self.shared.raw.take());
            raw.set_len(unit_bytes);
            let piece = stages.time(Stage::Read, || self.units[from].next(&mut raw))?;
            let Some(piece) = piece else {
                is_over[from] = true;
                continue;
            };
            if !self.unit(from, piece, raw)? {
                break;
            }
        }
        let mut tally = lock(&self.shared.tally);
        tally.add(self.tally);
        Ok(())
    }

    /// Makes a batch of a piece and sends it on; returns `false` when the receiver has ended.
    fn unit(&mut self, from: usize, piece: SourcePiece, mut raw: AlignedBuf) -> Result<bool> {
        let stages = &self.shared.stages;
        let SourcePiece { offset, bytes, is_hole } = piece;
        if !is_hole {
            raw.set_len(bytes as usize);
        }
        let chaining_value = stages.time(Stage::Hash, || self.hash(&piece, &raw));
        let mut frames = stages.time(Stage::Wait, || self.shared.frames.take());
        let has_data = stages.time(Stage::Code, || match is_hole {
            true => {
                self.tally.hole(bytes);
                let range = offset..offset + bytes;
                hole(&mut frames, self.shared.head.tag(), range, self.align());
                Ok(false)
            }
            false => self.batch(offset, &raw, chaining_value, &mut frames),
        })?;
        self.shared.monitor.add(Counter::ReadBytes, bytes);
        let plain = (self.is_plain() && has_data).then_some(raw);
        let unit = Unit { frames, plain, offset, raw_bytes: bytes };
        Ok(stages.time(Stage::Wait, || self.senders[from].send(unit)).is_ok())
    }

    fn is_plain(&self) -> bool {
        self.shared.head.layout == SplitLayout::Plain
    }

    fn align(&self) -> u64 {
        if self.shared.head.layout == SplitLayout::Stripes { 1 } else { ALIGN_BYTES }
    }

    /// Adds the hash of a piece to the hash of the source. Returns the subtree hash that the
    /// piece's batch stores.
    fn hash(&self, piece: &SourcePiece, raw: &[u8]) -> Option<[u8; 32]> {
        let unit = u64::from(self.shared.head.unit_bytes());
        let take = |offset: u64, bytes: &[u8]| {
            let part = UnitHash::from_bytes(offset, bytes);
            let mut hash = lock(&self.shared.hash);
            hash.take(offset / unit, part);
            part.chaining_value
        };
        if !piece.is_hole {
            return Some(take(piece.offset, raw));
        }
        let zeros = vec![0; unit.min(piece.bytes) as usize];
        let end = piece.offset + piece.bytes;
        for offset in (piece.offset..end).step_by(unit as usize) {
            if self.shared.abort.is_raised() {
                break;
            }
            take(offset, &zeros[..unit.min(end - offset) as usize]);
        }
        None
    }

    /// Writes the frames of a unit; returns whether any of it is data.
    fn batch(
        &mut self,
        offset: u64,
        raw: &[u8],
        chaining_value: Option<[u8; 32]>,
        frames: &mut AlignedBuf,
    ) -> Result<bool> {
        let codec = self.codec();
        let is_plain = self.is_plain();
        let mut has_data = false;
        let mut batch = BatchWriter::begin(frames, self.shared.head.tag(), offset);
        for block in raw.chunks(self.shared.head.block_bytes as usize) {
            let raw_bytes = block.len() as u64;
            if is_zero(block) {
                self.tally.zeros(raw_bytes);
                batch.zeros(raw_bytes);
                continue;
            }
            has_data = true;
            if is_plain {
                self.tally.block(Codec::Raw, raw_bytes, raw_bytes);
                batch.block(raw_bytes, StoredBlock::Beside(block));
                continue;
            }
            let encoded = match codec {
                Codec::Raw => Encoded::Raw,
                _ => self.encoders.get(codec)?.encode(block, &mut self.packed)?,
            };
            let stored = encoded.stored(block, &self.packed);
            let used = if encoded == Encoded::Raw { Codec::Raw } else { codec };
            self.tally.block(used, raw_bytes, stored.len() as u64);
            self.shared.monitor.add(Counter::CompressedBytes, stored.len() as u64);
            batch.block(raw_bytes, StoredBlock::Here(encoded.codec_id(), stored));
        }
        batch.finish(chaining_value, self.align());
        Ok(has_data)
    }

    fn codec(&self) -> Codec {
        match self.shared.codec {
            CodecChoice::Fixed(codec) => codec,
            CodecChoice::Auto => self.shared.governor.decide(self.shared.fill()),
        }
    }
}

/// Whether a block is all zeros. Most blocks that are not all zeros differ in the first bytes.
fn is_zero(block: &[u8]) -> bool {
    let (queues, rest) = block.as_chunks::<64>();
    queues.iter().all(|queue| queue.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}
