//! Reads one batch back: takes its frames apart, verifies and decodes them.

use std::ops::Range;

use crate::format::{
    BLOCK_BYTES_MAX, BatchExtent, BatchPlace, FRAME_BYTES, Frame, FrameKind, Head, Tag,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{AlignedBuf, SharedDevice};
use pinstripe_stripe::Decoder;

use super::batch::batch_bytes_max;
use super::log::Log;

/// The content of one batch. A damaged frame loses the block that it holds, and no other block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// The ranges of the source in this batch that could not be read, ascending, as offsets in the
    /// source.
    pub lost: Vec<Range<u64>>,
    /// The ranges of zeros and holes, ascending; adjacent ranges are merged.
    pub zeros: Vec<Range<u64>>,
    /// Some frames were damaged at first, and all were rebuilt.
    pub is_healed: bool,
    /// Some frames are damaged, whether or not part of the source is lost with them.
    pub is_damaged: bool,
    /// The chaining value that is stored in the batch's own frame.
    pub chaining_value: Option<[u8; 32]>,
}

impl Unit {
    /// Returns a unit with all of its bytes lost.
    pub(super) fn lost(range: Range<u64>) -> Self {
        Unit { lost: std::iter::once(range).collect(), is_damaged: true, ..Unit::default() }
    }
}

/// Reads one batch after the other, and keeps the buffers for it.
#[derive(Default)]
pub struct UnitReader {
    log: Vec<u8>,
    block: Vec<u8>,
    decoder: Decoder,
}

/// The log that holds the batches, and what is needed to read them.
#[derive(Clone, Copy)]
pub struct UnitSource<'a> {
    /// The log.
    pub log: &'a dyn Log,
    /// The tag that the frames of this split carry.
    pub tag: Tag,
    /// The output with the bytes, if they are not in the log.
    pub sidecar: Option<&'a RawSidecar<'a>>,
}

/// A plain output, which holds the bytes that are not in the log.
pub struct RawSidecar<'a> {
    /// The output.
    pub device: &'a SharedDevice,
    /// The offset in the source of the output's first byte.
    pub first_byte: u64,
}

/// The number of bytes that are compared with zero at a time.
const PIECE_BYTES: usize = 1 << 20;

impl RawSidecar<'_> {
    /// Whether a range of the source can be read from the plain output and is all zeros.
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

/// Returns a buffer that holds any batch of a split.
pub fn buffer(head: &Head) -> AlignedBuf {
    AlignedBuf::new(head.unit_bytes() as usize)
}

impl UnitReader {
    /// Reads a batch into `out`, whose length becomes the number of source bytes in the batch; lost
    /// blocks read as zeros. A batch that consists only of zeros or a hole leaves `out` empty.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for frames of a newer version. A loss is not an error.
    pub fn read(
        &mut self,
        source: UnitSource<'_>,
        place: &BatchPlace,
        out: &mut AlignedBuf,
    ) -> Result<Unit> {
        let mut log = std::mem::take(&mut self.log);
        let fetched = fetch(source.log, place, &mut log).then_some(&*log);
        let unit = self.read_fetched(fetched, source, place, out);
        self.log = log;
        unit
    }

    /// Like [`read`](Self::read), for a batch whose bytes in the log were [`fetch`]ed; `None` if
    /// fetching failed.
    ///
    /// # Errors
    /// Fails with the errors of [`read`](Self::read).
    pub(crate) fn read_fetched(
        &mut self,
        fetched: Option<&[u8]>,
        source: UnitSource<'_>,
        place: &BatchPlace,
        out: &mut AlignedBuf,
    ) -> Result<Unit> {
        let first = self.assemble(fetched, source, place, out)?;
        if first.lost.is_empty() || !source.log.has_strips() {
            return Ok(first);
        }
        let mut log = Vec::new();
        let read = |at, bytes, out: &mut Vec<u8>| source.log.read_healed(at, bytes, out);
        let fetched = fetch_with(place, &mut log, read).then_some(&*log);
        let second = self.assemble(fetched, source, place, out)?;
        Ok(Unit { is_healed: second.lost.is_empty(), is_damaged: true, ..second })
    }

    /// Decodes the blocks of the fetched batch into `out`.
    fn assemble(
        &mut self,
        fetched: Option<&[u8]>,
        source: UnitSource<'_>,
        place: &BatchPlace,
        out: &mut AlignedBuf,
    ) -> Result<Unit> {
        out.clear();
        let whole = place.offset..place.offset + place.raw_bytes;
        let Some(log) = fetched else { return Ok(Unit::lost(whole)) };
        let UnitReader { block, decoder, .. } = self;
        let mut walk = FrameWalk { bytes: log, at: 0, tag: source.tag, has_skipped: false };
        let mut assembly = BatchAssembly { next: whole.start, whole, unit: Unit::default(), out };
        while let Some((frame, stored)) = walk.next()? {
            assembly.take(&frame, stored, |out| {
                raw_block(&frame, stored, source.sidecar, block, decoder, out)
            });
        }
        Ok(assembly.finish(walk.has_skipped))
    }
}

/// Reads a batch's bytes from the log into `out`; returns whether the read succeeded.
pub fn fetch(log: &dyn Log, place: &BatchPlace, out: &mut Vec<u8>) -> bool {
    fetch_with(place, out, |at, bytes, out| log.read(at, bytes, out))
}

fn fetch_with(
    place: &BatchPlace,
    out: &mut Vec<u8>,
    read: impl FnOnce(u64, usize, &mut Vec<u8>) -> Result<()>,
) -> bool {
    out.clear();
    place.log_bytes <= MAX_LOG_BYTES && read(place.position, place.log_bytes as usize, out).is_ok()
}

/// A batch that is assembled from its blocks, one after the other.
struct BatchAssembly<'o> {
    /// The range of the source that the batch covers.
    whole: Range<u64>,
    /// The end of the range that was assembled so far.
    next: u64,
    unit: Unit,
    out: &'o mut AlignedBuf,
}

impl BatchAssembly<'_> {
    /// Adds one frame; `decode` produces a block's raw bytes.
    fn take(&mut self, frame: &Frame, stored: &[u8], decode: impl FnOnce(&mut [u8]) -> Result<()>) {
        match frame.kind {
            FrameKind::Batch => {
                let batch = frame.verify(stored).and_then(|()| BatchExtent::decode(stored));
                self.unit.is_damaged |= batch.is_err();
                self.unit.chaining_value = batch.ok().and_then(|batch| batch.chaining_value);
            }
            FrameKind::Index | FrameKind::Manifest | FrameKind::Pad => {
                self.unit.is_damaged |= frame.verify(stored).is_err();
            }
            FrameKind::Data | FrameKind::Beside => {
                let range = frame.offset..frame.offset + frame.raw_bytes;
                // Only what is a hole reaches further than a unit.
                let is_fit = range.end.saturating_sub(self.whole.start) <= self.room();
                if is_fit && self.pass_to(&range) {
                    self.block(range, decode);
                }
            }
            FrameKind::Zeros | FrameKind::Hole => {
                let range = frame.offset..frame.offset + frame.raw_bytes;
                if self.pass_to(&range) {
                    add_range(&mut self.unit.zeros, range);
                }
            }
        }
    }

    fn room(&self) -> u64 {
        self.out.capacity() as u64
    }

    /// Counts the gap between the last range and this one as lost; returns `false` for a range that
    /// is out of order or beyond the batch.
    fn pass_to(&mut self, range: &Range<u64>) -> bool {
        if range.start < self.next || range.end > self.whole.end {
            return false;
        }
        add_range(&mut self.unit.lost, self.next..range.start);
        self.next = range.end;
        true
    }

    fn block(&mut self, range: Range<u64>, decode: impl FnOnce(&mut [u8]) -> Result<()>) {
        let from = (range.start - self.whole.start) as usize;
        // Skipped bytes read as zeros.
        self.out.resize(from);
        self.out.set_len((range.end - self.whole.start) as usize);
        if decode(&mut self.out[from..]).is_err() {
            self.out[from..].fill(0);
            add_range(&mut self.unit.lost, range);
        }
    }

    fn finish(mut self, has_skipped: bool) -> Unit {
        add_range(&mut self.unit.lost, self.next..self.whole.end);
        self.unit.is_damaged |= has_skipped || !self.unit.lost.is_empty();
        if self.out.is_empty() {
            return self.unit;
        }
        let bytes = self.whole.end - self.whole.start;
        if bytes > self.room() {
            self.out.clear();
            return Unit::lost(self.whole);
        }
        self.out.resize(bytes as usize);
        self.unit
    }
}

/// A length that no batch exceeds, whatever its blocks are.
const MAX_LOG_BYTES: u64 = 2 * BLOCK_BYTES_MAX as u64;
const _: () = assert!(batch_bytes_max(BLOCK_BYTES_MAX) as u64 <= MAX_LOG_BYTES);

/// Adds a range to a list of ranges.
fn add_range(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    match list.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => list.push(range),
    }
}

/// Fills `out` with the raw bytes of a block, if it is intact.
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
            return Err(Error::new(
                Kind::NotFound,
                "the output that contains these bytes is missing",
            ));
        };
        let Some(at) = frame.offset.checked_sub(beside.first_byte) else {
            return Err(Error::new(
                Kind::Corrupt,
                "a block refers to an offset before the first byte of its output",
            ));
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

/// The intact frames of a batch; after a damaged frame the walk continues at the next intact one.
struct FrameWalk<'a> {
    bytes: &'a [u8],
    at: usize,
    tag: Tag,
    /// Bytes that are not an intact frame were skipped.
    has_skipped: bool,
}

impl<'a> FrameWalk<'a> {
    fn next(&mut self) -> Result<Option<(Frame, &'a [u8])>> {
        // Megabytes may have to be skipped: only a possible head is decoded.
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
