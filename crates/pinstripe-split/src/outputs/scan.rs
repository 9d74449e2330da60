//! Walks a log from frame to frame, for a split that was not finished.

use std::ops::Range;

use crate::format::{BatchExtent, BatchPlace, FRAME_BYTES, Frame, FrameKind, Tag};
use pinstripe_base::error::{Kind, Result};

use super::log::Log;

/// The content of a log, found by walking its frames.
#[derive(Debug, Default)]
pub struct Scan {
    /// The batches in the order of the log, each with the content of its batch frame.
    pub batches: Vec<(BatchPlace, BatchExtent)>,
    /// The positions of the index parts.
    pub indexes: Vec<Range<u64>>,
    /// The position after the last intact frame.
    pub end: u64,
}

/// Walks the log until no intact frame follows. Blocks are not read: the reader of a batch verifies
/// their bytes.
///
/// # Errors
/// Fails with [`Kind::Unsupported`] for frames of a newer version.
pub fn scan(log: &dyn Log, tag: Tag) -> Result<Scan> {
    let (mut found, mut position) = (Scan::default(), 0);
    loop {
        let ScanStep { next, batch, is_index } = match step(log, tag, position) {
            Ok(step) => step,
            Err(error) if error.kind() == Kind::Unsupported => return Err(error),
            Err(_) => match log.resume_at(position) {
                Some(next) => {
                    position = next;
                    continue;
                }
                None => return Ok(found),
            },
        };
        if let Some(anew) = begun_anew(log, tag, position..next) {
            position = anew;
            continue;
        }
        if next > log.len() {
            return Ok(found);
        }
        found.batches.extend(batch);
        if is_index {
            found.indexes.push(position..next);
        }
        (position, found.end) = (next, next);
    }
}

/// Returns the place within a batch at which another batch begins, because the split was
/// interrupted in the middle of the first one and resumed there.
fn begun_anew(log: &dyn Log, tag: Tag, range: Range<u64>) -> Option<u64> {
    let mut place = log.resume_at(range.start).filter(|place| *place < range.end);
    while let Some(at) = place {
        let begun = step(log, tag, at);
        if begun.is_ok_and(|step| step.batch.is_some() || step.is_index) {
            return Some(at);
        }
        place = log.resume_at(at).filter(|place| *place < range.end);
    }
    None
}

struct ScanStep {
    next: u64,
    batch: Option<(BatchPlace, BatchExtent)>,
    is_index: bool,
}

fn step(log: &dyn Log, tag: Tag, position: u64) -> Result<ScanStep> {
    let mut bytes = Vec::with_capacity(FRAME_BYTES + BatchExtent::BYTES);
    log.read(position, FRAME_BYTES, &mut bytes)?;
    let head = bytes.first_chunk().expect("a read is whole or an error");
    let frame = Frame::decode(head, tag)?;
    let end = position.saturating_add(frame.log_bytes());
    let is_index = frame.kind == FrameKind::Index;
    if !is_index && frame.kind != FrameKind::Batch {
        return Ok(ScanStep { next: end, batch: None, is_index });
    }
    bytes.clear();
    log.read(position + FRAME_BYTES as u64, frame.stored_bytes as usize, &mut bytes)?;
    frame.verify(&bytes)?;
    if is_index {
        return Ok(ScanStep { next: end, batch: None, is_index });
    }
    let batch = BatchExtent::decode(&bytes)?;
    let next = position.saturating_add(batch.log_bytes.max(frame.log_bytes()));
    let (offset, raw_bytes) = (frame.offset, frame.raw_bytes);
    let place = BatchPlace { offset, raw_bytes, position, log_bytes: batch.log_bytes };
    Ok(ScanStep { next, batch: Some((place, batch)), is_index })
}
