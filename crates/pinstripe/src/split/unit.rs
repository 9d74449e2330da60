//! One batch read back: its frames taken apart, checked, and made raw.

use std::ops::Range;

use crate::codec::Decoder;
use crate::device::SharedDevice;
use crate::error::{Error, Kind, Result};
use crate::format::split::{Batch, BatchPlace, FRAME_BYTES, Frame, FrameKind, Tag};

use super::log::Log;

/// What one batch gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// Parts of the source that could not be read, in its own offsets, ascending.
    pub lost: Vec<Range<u64>>,
    /// Parts that are zeros or holes, ascending; adjacent ones are one.
    pub zeros: Vec<Range<u64>>,
    /// Frames were not sound at first and are now.
    pub is_healed: bool,
    /// What the batch says of its hash.
    pub chaining_value: Option<[u8; 32]>,
}

impl Unit {
    /// Nothing of it could be read.
    pub(super) fn lost(range: Range<u64>) -> Self {
        Unit { lost: std::iter::once(range).collect(), ..Unit::default() }
    }
}

/// Buffers of one reader.
#[derive(Default)]
pub struct Scratch {
    log: Vec<u8>,
    block: Vec<u8>,
    decoder: Decoder,
}

/// Where bytes stand that are not in the log.
pub struct Beside<'a> {
    /// The output.
    pub device: &'a SharedDevice,
    /// What of the source its first byte is.
    pub first_byte: u64,
}

/// Reads a batch of units into `out`, whose length becomes the batch's raw length; what is lost reads
/// as zeros. A batch that is a hole as a whole leaves `out` empty.
///
/// # Errors
/// [`Kind::Unsupported`] for frames of a newer version. What is lost is no error.
pub fn read(
    log: &dyn Log,
    tag: Tag,
    place: &BatchPlace,
    beside: Option<&Beside<'_>>,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<Unit> {
    let first = attempt(log, tag, place, beside, scratch, out, false)?;
    if first.lost.is_empty() || !log.has_parity() {
        return Ok(first);
    }
    let second = attempt(log, tag, place, beside, scratch, out, true)?;
    Ok(Unit { is_healed: second.lost.is_empty(), ..second })
}

fn attempt(
    log: &dyn Log,
    tag: Tag,
    place: &BatchPlace,
    beside: Option<&Beside<'_>>,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    heal: bool,
) -> Result<Unit> {
    out.clear();
    let whole = place.offset..place.offset + place.raw_bytes;
    let Scratch { log: bytes, block, decoder } = scratch;
    bytes.clear();
    let wanted = usize::try_from(place.log_bytes).unwrap_or(usize::MAX);
    let read = match heal {
        false => log.read(place.position, wanted, bytes),
        true => log.read_healed(place.position, wanted, bytes),
    };
    if read.is_err() {
        return Ok(Unit::lost(whole));
    }
    let mut unit = Unit::default();
    let mut walk = Walk { bytes, at: 0, tag };
    let mut next = place.offset;
    while let Some((frame, stored)) = walk.next()? {
        let Range { start, end } = frame.offset..frame.offset + frame.raw_bytes;
        let is_block = match frame.kind {
            FrameKind::Batch => {
                let batch = frame.verify(stored).and_then(|()| Batch::decode(stored));
                unit.chaining_value = batch.ok().and_then(|batch| batch.chaining_value);
                continue;
            }
            FrameKind::Index | FrameKind::Manifest | FrameKind::Pad => continue,
            FrameKind::Data | FrameKind::Beside => true,
            FrameKind::Zeros | FrameKind::Hole => false,
        };
        if start < next || end > whole.end || (is_block && frame.raw_bytes > MAX_BLOCK) {
            continue;
        }
        lose(&mut unit.lost, next..start);
        next = end;
        if !is_block {
            lose(&mut unit.zeros, start..end);
            continue;
        }
        fill(out, whole.start, start);
        if raw_block(&frame, stored, beside, block, decoder, out).is_err() {
            lose(&mut unit.lost, start..end);
        }
    }
    lose(&mut unit.lost, next..whole.end);
    if !(out.is_empty() && unit.lost.is_empty() && unit.zeros == [whole.clone()]) {
        fill(out, whole.start, whole.end);
    }
    Ok(unit)
}

const MAX_BLOCK: u64 = crate::format::split::BLOCK_BYTES_MAX as u64;

/// Zeros up to a place of the source.
fn fill(out: &mut Vec<u8>, start: u64, place: u64) {
    out.resize((place - start) as usize, 0);
}

/// Adds a range to a list of them.
fn lose(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    match list.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => list.push(range),
    }
}

/// Appends the raw bytes of a block; nothing when it is not sound.
fn raw_block(
    frame: &Frame,
    stored: &[u8],
    beside: Option<&Beside<'_>>,
    block: &mut Vec<u8>,
    decoder: &mut Decoder,
    out: &mut Vec<u8>,
) -> Result<()> {
    let raw_bytes = frame.raw_bytes as usize;
    if frame.kind == FrameKind::Beside {
        let Some(beside) = beside else {
            return Err(Error::new(Kind::NotFound, "the output with the bytes is missing"));
        };
        block.resize(raw_bytes, 0);
        beside.device.read_at(frame.offset - beside.first_byte, block)?;
        frame.verify(block)?;
        out.extend_from_slice(block);
        return Ok(());
    }
    frame.verify(stored)?;
    decoder.decode(frame.codec, stored, raw_bytes, block)?;
    out.extend_from_slice(block);
    Ok(())
}

/// The frames of a batch; after one that is damaged, from the next one that is sound.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    tag: Tag,
}

impl<'a> Walk<'a> {
    fn next(&mut self) -> Result<Option<(Frame, &'a [u8])>> {
        while let Some(head) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
            let rest = &self.bytes[self.at + FRAME_BYTES..];
            match Frame::decode(head, self.tag) {
                Ok(frame) if frame.stored_bytes as usize <= rest.len() => {
                    let stored = &rest[..frame.stored_bytes as usize];
                    self.at += FRAME_BYTES + stored.len();
                    return Ok(Some((frame, stored)));
                }
                Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                _ => self.at += 1,
            }
        }
        Ok(None)
    }
}
