//! Finds the batches of a finished log through its indexes.

use super::log::Log;
use crate::format::{BatchPlace, FRAME_BYTES, Frame, FrameKind, LogEnd, LogIndex, Tag};
use pinstripe_base::error::{Error, Kind, Result};

/// Follows the index parts of a log backwards from the last one.
pub(super) fn indexed(log: &dyn Log, tag: Tag, end: &LogEnd) -> Result<Vec<BatchPlace>> {
    let (mut parts, mut next) = (Vec::new(), end.last_index);
    while let Some(position) = next {
        let index = read_index(log, tag, position, false)
            .or_else(|_| read_index(log, tag, position, true))?;
        // Backwards only, or damage could lead in a circle.
        next = index.previous.filter(|previous| *previous < position);
        parts.push(index.rows);
    }
    let places: Vec<BatchPlace> = parts.into_iter().rev().flatten().collect();
    match places.len() as u64 == end.batches {
        true => Ok(places),
        false => Err(Error::new(Kind::Corrupt, "the index of the output is incomplete")
            .expected(end.batches, places.len())),
    }
}

fn read_index(log: &dyn Log, tag: Tag, position: u64, heal: bool) -> Result<LogIndex> {
    let read = |at: u64, bytes: usize, out: &mut Vec<u8>| match heal {
        false => log.read(at, bytes, out),
        true => log.read_healed(at, bytes, out),
    };
    let mut bytes = Vec::new();
    read(position, FRAME_BYTES, &mut bytes)?;
    let frame = Frame::decode(bytes.first_chunk().expect("a read is whole"), tag)?;
    if frame.kind != FrameKind::Index {
        return Err(Error::new(Kind::Corrupt, "the output has no index at the expected offset"));
    }
    bytes.clear();
    read(position + FRAME_BYTES as u64, frame.stored_bytes as usize, &mut bytes)?;
    frame.verify(&bytes)?;
    LogIndex::decode(&bytes)
}
