//! Hands out a source in units, in order, to any number of readers.
//!
//! A unit is an aligned range of a fixed length; the last one may be shorter. Units that are
//! completely a hole are handed out as one piece and not read; a unit that is partly a hole is
//! read. Units that are done already are skipped; in a stream they must be read, and are discarded.

use std::ops::Range;
use std::sync::Mutex;

use super::ByteSource;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;

/// The number of bytes that the disk is asked to read ahead of the readers: more than a handful of
/// readers process at once.
const AHEAD_BYTES: u64 = 32 << 20;

/// A piece of the source that was handed out to one reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePiece {
    /// The piece's offset in the source, a multiple of the unit length.
    pub offset: u64,
    /// The piece's length: at most one unit, unless it is a hole. Never 0.
    pub bytes: u64,
    /// Whether the piece is a hole, which was not read. For a hole, the buffer keeps its former
    /// content.
    pub is_hole: bool,
}

/// A source that is being handed out.
pub struct Units {
    source: Box<dyn ByteSource>,
    unit_bytes: u64,
    done: Vec<Range<u64>>,
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    /// Everything below this offset is handed out or done.
    next: u64,
    /// There is data from `next` at least up to this offset; a value below `next` means that this
    /// is not known.
    data_end: u64,
    /// Everything below this offset was announced to the source.
    announced: u64,
    /// The stream has reached its end.
    is_over: bool,
}

impl Units {
    /// Hands out `source` in units of `unit_bytes`, without the ranges in `done`: these are in
    /// order, do not overlap, and consist of complete units, except that the last unit of the
    /// source may be shorter.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a unit length of 0 and for ranges that break these rules.
    pub fn new(
        source: Box<dyn ByteSource>,
        unit_bytes: u64,
        done: Vec<Range<u64>>,
    ) -> Result<Self> {
        let bad = |what: String| Error::new(Kind::Usage, what).at(source.place());
        if unit_bytes == 0 {
            return Err(bad("a unit must have at least one byte".to_owned()));
        }
        let mut end = 0;
        for (number, range) in done.iter().enumerate() {
            let is_last = number + 1 == done.len();
            let ends_well = range.end.is_multiple_of(unit_bytes)
                || is_last && source.length().is_none_or(|length| length == range.end);
            let is_within = source.length().is_none_or(|length| range.end <= length);
            let begins_well = range.start.is_multiple_of(unit_bytes) && range.start >= end;
            if !begins_well || !ends_well || !is_within || range.is_empty() {
                let Range { start, end } = range;
                return Err(bad(format!(
                    "the bytes {start} to {end} cannot be the finished part of a source with units \
                     of {unit_bytes} bytes"
                )));
            }
            end = range.end;
        }
        Ok(Units { source, unit_bytes, done, turn: Mutex::default() })
    }

    /// The source.
    pub fn source(&self) -> &dyn ByteSource {
        &*self.source
    }

    /// Takes the next piece and, unless it is a hole, reads it to the beginning of `buffer`;
    /// returns `None` when nothing is left. Readers of a file read concurrently, readers of a
    /// stream one after the other. After an error the piece is lost, but other pieces may still be
    /// handed out.
    ///
    /// # Errors
    /// Fails with the errors of [`ByteSource::extent`] and [`ByteSource::read_at`], or with
    /// [`Kind::Changed`] when a stream ends within its finished part or continues after its former
    /// end.
    ///
    /// # Panics
    /// Panics when the buffer is shorter than a unit.
    pub fn next(&self, buffer: &mut [u8]) -> Result<Option<SourcePiece>> {
        assert!(buffer.len() as u64 >= self.unit_bytes, "a buffer holds a unit");
        match self.source.length() {
            Some(length) => self.next_by_place(length, buffer),
            None => self.next_of_stream(buffer),
        }
    }

    fn next_by_place(&self, length: u64, buffer: &mut [u8]) -> Result<Option<SourcePiece>> {
        let (piece, ahead) = {
            let mut turn = self.turn();
            let Some(piece) = self.claim(&mut turn, length)? else { return Ok(None) };
            (piece, self.announce(&mut turn, length))
        };
        // The disk is asked only for known data.
        if !ahead.is_empty() {
            self.source.readahead(ahead);
        }
        if !piece.is_hole {
            let read = self.source.read_at(piece.offset, &mut buffer[..piece.bytes as usize])?;
            debug_assert_eq!(
                read as u64, piece.bytes,
                "a source of known length is read completely"
            );
        }
        Ok(Some(piece))
    }

    /// Moves `next` past a piece, which the caller must then take.
    fn claim(&self, turn: &mut Turn, length: u64) -> Result<Option<SourcePiece>> {
        let (offset, limit) = self.undone(turn.next, length);
        if offset >= length {
            return Ok(None);
        }
        let unit = self.unit_bytes;
        if offset >= turn.data_end {
            let extent = self.source.extent(offset)?;
            // The last unit is complete at any length.
            let whole = if extent.end >= length { length } else { extent.end / unit * unit };
            let end = whole.min(limit);
            if extent.is_hole && end > offset {
                turn.next = end;
                return Ok(Some(SourcePiece { offset, bytes: end - offset, is_hole: true }));
            }
            turn.data_end = if extent.is_hole { offset + unit } else { extent.end };
        }
        turn.next = offset.saturating_add(unit).min(limit);
        Ok(Some(SourcePiece { offset, bytes: turn.next - offset, is_hole: false }))
    }

    /// Returns the first offset from `at` on that is not done, and where the next finished range
    /// begins, or `length` if there is none.
    fn undone(&self, mut at: u64, length: u64) -> (u64, u64) {
        let mut number = self.done.partition_point(|range| range.end <= at);
        while let Some(range) = self.done.get(number).filter(|range| range.start <= at) {
            at = range.end;
            number += 1;
        }
        (at, self.done.get(number).map_or(length, |range| range.start))
    }

    /// Returns the data after `next` that should be announced now.
    fn announce(&self, turn: &mut Turn, length: u64) -> Range<u64> {
        let (_, limit) = self.undone(turn.next, length);
        let start = turn.announced.max(turn.next);
        let end = turn.next.saturating_add(AHEAD_BYTES).min(turn.data_end).min(limit);
        turn.announced = start.max(end);
        start..end
    }

    fn next_of_stream(&self, buffer: &mut [u8]) -> Result<Option<SourcePiece>> {
        let mut turn = self.turn();
        let unit = &mut buffer[..self.unit_bytes as usize];
        loop {
            let (undone, _) = self.undone(turn.next, u64::MAX);
            if turn.is_over {
                return Ok(None);
            }
            let offset = turn.next;
            let skipped = undone - offset;
            let wanted = if skipped > 0 { skipped.min(self.unit_bytes) } else { self.unit_bytes };
            let read = self.source.read_at(offset, &mut unit[..wanted as usize])? as u64;
            turn.next += read;
            turn.is_over = read < wanted;
            if skipped > 0 {
                if turn.is_over {
                    return Err(self.other_stream(undone, turn.next));
                }
                continue;
            }
            if read > 0 && !offset.is_multiple_of(self.unit_bytes) {
                // The finished part ends within a unit, so it was the end of the stream then.
                return Err(self.other_stream(offset, turn.next));
            }
            let piece = SourcePiece { offset, bytes: read, is_hole: false };
            return Ok((read > 0).then_some(piece));
        }
    }

    fn other_stream(&self, expected: u64, found: u64) -> Error {
        Error::new(
            Kind::Changed,
            "this stream differs from the stream whose first part is already split",
        )
        .at(self.source.place())
        .expected(format!("{expected} bytes"), format!("{found}"))
        .advice("send the same bytes again, beginning with the first byte")
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, Turn> {
        lock(&self.turn)
    }
}
