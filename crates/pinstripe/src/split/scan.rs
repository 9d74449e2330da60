//! Walking a log from frame to frame, for a split that never came to its end.

use crate::error::{Kind, Result};
use crate::format::split::{Batch, BatchPlace, FRAME_BYTES, Frame, FrameKind, Tag};

use super::log::Log;

/// What a log holds, as far as its frames tell.
#[derive(Debug, Default)]
pub struct Scan {
    /// Batches in the order of the log, with what they say.
    pub batches: Vec<(BatchPlace, Batch)>,
    /// Where the last index begins.
    pub last_index: Option<u64>,
    /// Where the next frame would begin.
    pub end: u64,
}

/// Walks to where no frame is any more. Blocks are not read: whether theirs are the bytes that were
/// written is for whoever reads the batches.
///
/// # Errors
/// [`Kind::Unsupported`] for frames of a newer version.
pub fn scan(log: &dyn Log, tag: Tag) -> Result<Scan> {
    let (mut found, mut position) = (Scan::default(), 0);
    loop {
        match step(log, tag, position) {
            Ok(Step { next, batch, is_index }) => {
                let reaches = next <= log.len();
                if let Some((place, batch)) = batch.filter(|_| reaches) {
                    found.batches.push((place, batch));
                }
                if is_index && reaches {
                    found.last_index = Some(position);
                }
                if !reaches {
                    return Ok(found);
                }
                (position, found.end) = (next, next);
            }
            Err(error) if error.kind() == Kind::Unsupported => return Err(error),
            Err(_) => match log.resume_at(position) {
                Some(next) => position = next,
                None => return Ok(found),
            },
        }
    }
}

struct Step {
    next: u64,
    batch: Option<(BatchPlace, Batch)>,
    is_index: bool,
}

fn step(log: &dyn Log, tag: Tag, position: u64) -> Result<Step> {
    let mut bytes = Vec::with_capacity(FRAME_BYTES + Batch::BYTES);
    log.read(position, FRAME_BYTES, &mut bytes)?;
    let head = bytes.first_chunk().expect("a read is whole or an error");
    let frame = Frame::decode(head, tag)?;
    let end = position.saturating_add(frame.log_bytes());
    let is_index = frame.kind == FrameKind::Index;
    if frame.kind != FrameKind::Batch {
        return Ok(Step { next: end, batch: None, is_index });
    }
    bytes.clear();
    log.read(position + FRAME_BYTES as u64, frame.stored_bytes as usize, &mut bytes)?;
    frame.verify(&bytes)?;
    let batch = Batch::decode(&bytes)?;
    let next = position.saturating_add(batch.log_bytes.max(frame.log_bytes()));
    let (offset, raw_bytes) = (frame.offset, frame.raw_bytes);
    let place = BatchPlace { offset, raw_bytes, position, log_bytes: batch.log_bytes };
    Ok(Step { next, batch: Some((place, batch)), is_index })
}
