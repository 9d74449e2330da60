//! Builds a batch: the frames of one unit, one after the other in one buffer.
//!
//! Invariants: blocks arrive in the order of the source. Adjacent blocks of zeros become one frame.
//! The batch's own frame comes first and is filled in last, when its length and hash are known.

use std::ops::Range;

use crate::format::{
    ALIGN_BYTES, BatchExtent, FRAME_BYTES, Frame, FrameKind, Tag, UNIT_BYTES, unit_bytes,
};
use pinstripe_io::device::AlignedBuf;

/// The largest length of a batch: all blocks uncompressed, each with a frame head.
pub(crate) const fn batch_bytes_max(block_bytes: u32) -> usize {
    let unit = unit_bytes(block_bytes);
    let frames = (unit / block_bytes) as usize + 2;
    let bytes = unit as usize + frames * FRAME_BYTES + BatchExtent::BYTES + ALIGN_BYTES as usize;
    bytes.next_multiple_of(ALIGN_BYTES as usize)
}

const _: () = assert!(UNIT_BYTES.is_power_of_two());

/// How a block is stored.
pub(crate) enum StoredBlock<'a> {
    /// The block is stored in the log, as these bytes in the format of this codec.
    Here(u8, &'a [u8]),
    /// The block is stored in the plain output, uncompressed.
    Beside(&'a [u8]),
}

/// A batch being built.
pub(crate) struct BatchWriter<'b> {
    out: &'b mut AlignedBuf,
    tag: Tag,
    start: u64,
    /// The end of the source range that is in the batch so far.
    position: u64,
    /// The range of zeros for which no frame was written yet.
    zeros: Range<u64>,
}

impl<'b> BatchWriter<'b> {
    /// Begins the batch of the unit at `start` in an empty buffer.
    pub fn begin(out: &'b mut AlignedBuf, tag: Tag, start: u64) -> Self {
        out.clear();
        out.set_len(FRAME_BYTES + BatchExtent::BYTES);
        BatchWriter { out, tag, start, position: start, zeros: start..start }
    }

    /// Adds a block of zeros.
    pub fn zeros(&mut self, raw_bytes: u64) {
        self.position += raw_bytes;
        self.zeros.end = self.position;
    }

    /// Adds a block.
    pub fn block(&mut self, raw_bytes: u64, stored: StoredBlock<'_>) {
        self.end_zeros();
        let place = self.position..self.position + raw_bytes;
        let (kind, codec, bytes) = match stored {
            StoredBlock::Here(codec, bytes) => (FrameKind::Data, codec, bytes),
            StoredBlock::Beside(bytes) => (FrameKind::Beside, 0, bytes),
        };
        let frame = Frame::over(kind, codec, place, bytes);
        self.out.extend_from_slice(&frame.encode(self.tag));
        if kind == FrameKind::Data {
            self.out.extend_from_slice(bytes);
        }
        self.advance(raw_bytes);
    }

    fn advance(&mut self, raw_bytes: u64) {
        self.position += raw_bytes;
        self.zeros = self.position..self.position;
    }

    fn end_zeros(&mut self) {
        if !self.zeros.is_empty() {
            let frame = Frame::over(FrameKind::Zeros, 0, self.zeros.clone(), &[]);
            self.out.extend_from_slice(&frame.encode(self.tag));
            self.zeros = self.position..self.position;
        }
    }

    /// Ends the batch and pads it to a multiple of `align` bytes.
    pub fn finish(mut self, chaining_value: Option<[u8; 32]>, align: u64) {
        self.end_zeros();
        let raw = self.start..self.position;
        close(self.out, self.tag, raw, chaining_value, align);
    }
}

/// Writes the batch for a run of units that are a hole.
pub fn hole(out: &mut AlignedBuf, tag: Tag, range: Range<u64>, align: u64) {
    out.clear();
    out.set_len(FRAME_BYTES + BatchExtent::BYTES);
    let frame = Frame::over(FrameKind::Hole, 0, range.clone(), &[]);
    out.extend_from_slice(&frame.encode(tag));
    close(out, tag, range, None, align);
}

/// Fills in the batch's own frame, which comes first.
fn close(
    out: &mut AlignedBuf,
    tag: Tag,
    raw: Range<u64>,
    chaining_value: Option<[u8; 32]>,
    align: u64,
) {
    pad(out, tag, align);
    let batch = BatchExtent { log_bytes: out.len() as u64, chaining_value }.encode();
    let frame = Frame::over(FrameKind::Batch, 0, raw, &batch);
    out[..FRAME_BYTES].copy_from_slice(&frame.encode(tag));
    out[FRAME_BYTES..FRAME_BYTES + BatchExtent::BYTES].copy_from_slice(&batch);
}

/// Appends one frame that is not a batch, padded to a multiple of `align` bytes.
pub fn single(out: &mut Vec<u8>, tag: Tag, kind: FrameKind, stored: &[u8], align: u64) {
    out.extend_from_slice(&Frame::over(kind, 0, 0..0, stored).encode(tag));
    out.extend_from_slice(stored);
    if let Some(pad) = pad_frame(out.len(), tag, align) {
        out.extend_from_slice(&pad.0);
        out.resize(out.len() + pad.1, 0);
    }
}

fn pad(out: &mut AlignedBuf, tag: Tag, align: u64) {
    if let Some((head, zeros)) = pad_frame(out.len(), tag, align) {
        out.extend_from_slice(&head);
        let start = out.len();
        out.set_len(start + zeros);
        out[start..].fill(0);
    }
}

/// Returns the head of a pad frame and its length up to the next multiple of `align` that has space
/// for the head.
fn pad_frame(len: usize, tag: Tag, align: u64) -> Option<([u8; FRAME_BYTES], usize)> {
    let align = align as usize;
    if len.is_multiple_of(align) {
        return None;
    }
    let zeros = (len + FRAME_BYTES).next_multiple_of(align) - len - FRAME_BYTES;
    let stored = [0; ALIGN_BYTES as usize];
    let frame = Frame::over(FrameKind::Pad, 0, 0..0, &stored[..zeros]);
    Some((frame.encode(tag), zeros))
}
