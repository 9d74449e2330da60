//! Reading one batch back: its frames are taken apart, checked, and decoded.

use std::ops::Range;

use crate::codec::Decoder;
use crate::format::split::{
    BLOCK_BYTES_MAX, BatchExtent, BatchPlace, FRAME_BYTES, Frame, FrameKind, Head, Tag,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{AlignedBuf, SharedDevice};

use super::batch::batch_bytes_max;
use super::log::Log;

/// The content of one batch. A damaged frame costs the block that it is of, and no other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// Parts of the source that could not be read, in its own offsets, ascending.
    pub lost: Vec<Range<u64>>,
    /// Parts that are zeros or holes, ascending; adjacent ones are one.
    pub zeros: Vec<Range<u64>>,
    /// Frames were not sound at first and are now.
    pub is_healed: bool,
    /// Frames are not sound, whether or not that costs a part of the source.
    pub is_damaged: bool,
    /// The chaining value in the batch's own frame.
    pub chaining_value: Option<[u8; 32]>,
}

impl Unit {
    /// Nothing of it could be read.
    pub(super) fn lost(range: Range<u64>) -> Self {
        Unit { lost: std::iter::once(range).collect(), is_damaged: true, ..Unit::default() }
    }
}

/// Buffers of one reader.
#[derive(Default)]
pub struct Scratch {
    log: Vec<u8>,
    block: Vec<u8>,
    decoder: Decoder,
}

/// The place of bytes that are not in the log.
pub struct RawSidecar<'a> {
    /// The output.
    pub device: &'a SharedDevice,
    /// The offset in the source of its first byte.
    pub first_byte: u64,
}

/// Bytes that are searched for zeros at a time.
const PIECE_BYTES: usize = 1 << 20;

impl RawSidecar<'_> {
    /// Whether a range of the source can be read there, and is zeros.
    pub(super) fn is_zeros(&self, range: &Range<u64>) -> bool {
        let mut piece = vec![0; PIECE_BYTES.min((range.end - range.start) as usize)];
        let mut places = (range.start..range.end).step_by(PIECE_BYTES);
        places.all(|start| {
            let piece = &mut piece[..PIECE_BYTES.min((range.end - start) as usize)];
            let at = start.checked_sub(self.first_byte);
            at.is_some_and(|at| self.device.read_at(at, piece).is_ok())
                && piece.iter().all(|byte| *byte == 0)
        })
    }
}

/// A buffer for a batch of a split.
pub fn buffer(head: &Head) -> AlignedBuf {
    AlignedBuf::new(head.unit_bytes() as usize)
}

/// Reads a batch of units into `out`, whose length becomes the batch's raw length; lost blocks read
/// as zeros. A batch without any blocks, be it zeros or a hole, leaves `out` empty, which has room
/// for a unit.
///
/// # Errors
/// [`Kind::Unsupported`] for frames of a newer version. A loss is no error.
pub fn read(
    log: &dyn Log,
    tag: Tag,
    place: &BatchPlace,
    beside: Option<&RawSidecar<'_>>,
    scratch: &mut Scratch,
    out: &mut AlignedBuf,
) -> Result<Unit> {
    let first = attempt(log, tag, place, beside, scratch, out, false)?;
    if first.lost.is_empty() || !log.has_strips() {
        return Ok(first);
    }
    let second = attempt(log, tag, place, beside, scratch, out, true)?;
    Ok(Unit { is_healed: second.lost.is_empty(), is_damaged: true, ..second })
}

fn attempt(
    log: &dyn Log,
    tag: Tag,
    place: &BatchPlace,
    beside: Option<&RawSidecar<'_>>,
    scratch: &mut Scratch,
    out: &mut AlignedBuf,
    heal: bool,
) -> Result<Unit> {
    out.clear();
    let whole = place.offset..place.offset + place.raw_bytes;
    let Scratch { log: bytes, block, decoder } = scratch;
    bytes.clear();
    if place.log_bytes > MAX_LOG_BYTES {
        return Ok(Unit::lost(whole));
    }
    let wanted = place.log_bytes as usize;
    let read = match heal {
        false => log.read(place.position, wanted, bytes),
        true => log.read_healed(place.position, wanted, bytes),
    };
    if read.is_err() {
        return Ok(Unit::lost(whole));
    }
    let mut unit = Unit::default();
    let mut walk = Walk { bytes, at: 0, tag, has_skipped: false };
    let (mut next, room) = (place.offset, out.capacity() as u64);
    while let Some((frame, stored)) = walk.next()? {
        let Range { start, end } = frame.offset..frame.offset + frame.raw_bytes;
        let is_block = match frame.kind {
            FrameKind::Batch => {
                let batch = frame.verify(stored).and_then(|()| BatchExtent::decode(stored));
                unit.is_damaged |= batch.is_err();
                unit.chaining_value = batch.ok().and_then(|batch| batch.chaining_value);
                continue;
            }
            FrameKind::Index | FrameKind::Manifest | FrameKind::Pad => {
                unit.is_damaged |= frame.verify(stored).is_err();
                continue;
            }
            kind => matches!(kind, FrameKind::Data | FrameKind::Beside),
        };
        // Only what is a hole reaches further than a unit.
        if start < next || end > whole.end || (is_block && end - whole.start > room) {
            continue;
        }
        lose(&mut unit.lost, next..start);
        next = end;
        if !is_block {
            lose(&mut unit.zeros, start..end);
            continue;
        }
        let (from, to) = ((start - whole.start) as usize, (end - whole.start) as usize);
        out.resize(from);
        out.set_len(to);
        if raw_block(&frame, stored, beside, block, decoder, &mut out[from..]).is_err() {
            out[from..].fill(0);
            lose(&mut unit.lost, start..end);
        }
    }
    lose(&mut unit.lost, next..whole.end);
    unit.is_damaged |= walk.has_skipped || !unit.lost.is_empty();
    if !out.is_empty() && whole.end - whole.start <= room {
        out.resize((whole.end - whole.start) as usize);
    } else if !out.is_empty() {
        out.clear();
        return Ok(Unit::lost(whole));
    }
    Ok(unit)
}

/// More than any batch takes, with any blocks.
const MAX_LOG_BYTES: u64 = 2 * BLOCK_BYTES_MAX as u64;
const _: () = assert!(batch_bytes_max(BLOCK_BYTES_MAX) as u64 <= MAX_LOG_BYTES);

/// Adds a range to a list of them.
fn lose(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    match list.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => list.push(range),
    }
}

/// Fills `out` with the raw bytes of a block, if it is sound.
fn raw_block(
    frame: &Frame,
    stored: &[u8],
    beside: Option<&RawSidecar<'_>>,
    block: &mut Vec<u8>,
    decoder: &mut Decoder,
    out: &mut [u8],
) -> Result<()> {
    if frame.kind == FrameKind::Beside {
        let Some(beside) = beside else {
            return Err(Error::new(Kind::NotFound, "the output with the bytes is missing"));
        };
        let Some(at) = frame.offset.checked_sub(beside.first_byte) else {
            return Err(Error::new(Kind::Corrupt, "a block before its output's range"));
        };
        beside.device.read_at(at, out)?;
        return frame.verify(out);
    }
    frame.verify(stored)?;
    // Codecs copy from what they wrote just before: in a block's cache lines, not in those of a
    // whole unit, which the disk reads at the same time. That halves the time, although all is
    // copied again.
    decoder.decode(frame.codec, stored, out.len(), block)?;
    out.copy_from_slice(block);
    Ok(())
}

/// The frames of a batch; after one that is damaged, from the next one that is sound.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    tag: Tag,
    /// Bytes were passed over that are no frame.
    has_skipped: bool,
}

impl<'a> Walk<'a> {
    fn next(&mut self) -> Result<Option<(Frame, &'a [u8])>> {
        // Megabytes may have to be passed over: only what looks like a head is decoded.
        while let Some(passed) = self.bytes.get(self.at..).and_then(Frame::find) {
            self.has_skipped |= passed > 0;
            self.at += passed;
            let Some((head, rest)) = self.bytes[self.at..].split_first_chunk() else { break };
            match Frame::decode(head, self.tag) {
                Ok(frame) if frame.stored_bytes as usize <= rest.len() => {
                    let stored = &rest[..frame.stored_bytes as usize];
                    self.at += FRAME_BYTES + stored.len();
                    return Ok(Some((frame, stored)));
                }
                Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                _ => {
                    self.at += 1;
                    self.has_skipped = true;
                }
            }
        }
        self.has_skipped |= self.at < self.bytes.len();
        Ok(None)
    }
}
