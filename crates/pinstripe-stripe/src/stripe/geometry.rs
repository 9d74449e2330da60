//! The place of every byte of a stripe set: pure arithmetic, no bytes touched.
//!
//! The logical run is cut into rows of D strips; a row adds P parity strips and distributes its N =
//! D + P strips over N slots, one extent each, by a permutation of its own, drawn from the set id
//! and the row number. So a sequential read loads all extents alike, and no stride through the run
//! can stay on one of them. Each slot has exactly one strip of each row, at `header + row * strip
//! size`.
//!
//! The last row is cut, not padded: of its L bytes each data strip gets `ceil(L / D)` rounded up
//! to 64, as long as there are bytes left, so the last strips may be short or empty.
//!
//! Words: a *position* is a strip's place in its row (0..D data in logical order, then P, Q); a
//! *slot* is its place after the permutation, on a member that this module does not choose; a
//! *column* is a byte range within a strip.

use std::ops::Range;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::random::splitmix64;
pub use pinstripe_member::stripe_set::Geometry;
use pinstripe_member::stripe_set::{HEADER_BYTES, LOGICAL_BYTES_MAX, MEMBERS_MAX};

/// Strips of a short row are a multiple of this many bytes: one cache line.
const SHORT_STRIP_UNIT_BYTES: u64 = 64;

/// Which slot holds which position of one row.
#[derive(Clone, PartialEq, Eq)]
pub struct Permutation {
    slots: [u8; MEMBERS_MAX],
    count: usize,
}

impl Permutation {
    /// The permutation of row `row` of a set over `count` slots (at most 255).
    ///
    /// Part of the format: SplitMix64, whose state starts as the first eight bytes of the set id
    /// (little-endian) XOR `row * 0xd1342543de82ef95`, drives a Fisher-Yates shuffle of 0..N from
    /// the last place down; the place to swap with is the high half of `draw * (place + 1)`. The
    /// factor is not SplitMix64's own increment, or rows would be shifted copies of each other.
    pub fn new(set: SetId, row: u64, count: usize) -> Self {
        let mut slots = [0; MEMBERS_MAX];
        for (number, place) in slots[..count].iter_mut().enumerate() {
            *place = number as u8;
        }
        let seed: [u8; 8] = *set.0.first_chunk().expect("a set id has 16 bytes");
        let mut state = u64::from_le_bytes(seed) ^ row.wrapping_mul(0xd134_2543_de82_ef95);
        for place in (1..count).rev() {
            let draw = u128::from(splitmix64(&mut state));
            slots.swap(place, ((draw * (place as u128 + 1)) >> 64) as usize);
        }
        Permutation { slots, count }
    }

    /// The slot that holds a position.
    pub fn slot(&self, position: usize) -> usize {
        self.slots().nth(position).expect("a position is below D + P")
    }

    /// The position that a slot holds.
    pub fn position(&self, slot: usize) -> usize {
        self.slots().position(|held_by| held_by == slot).expect("a slot is below D + P")
    }

    /// The slots in the order of their positions.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.slots[..self.count].iter().map(|&slot| slot.into())
    }
}

/// The logical bytes of one row and how long its strips are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowShape {
    /// The part of the logical run that the row holds.
    pub logical: Range<u64>,
    /// Bytes of each parity strip, and of each data strip that is not cut.
    pub strip_bytes: u32,
    /// Data strips, D.
    data: u32,
}

impl RowShape {
    /// The shape of a row that begins at `start` and is offered `left` bytes, at least one.
    pub fn new(geometry: Geometry, start: u64, left: u64) -> Self {
        let bytes = left.min(geometry.row_bytes());
        let data = geometry.data() as u32;
        let strip = bytes.div_ceil(data.into()).next_multiple_of(SHORT_STRIP_UNIT_BYTES);
        // At most the full strip size, which is a multiple of the unit.
        RowShape { logical: start..start + bytes, strip_bytes: strip as u32, data }
    }

    /// The logical bytes that the strip at a data position holds; empty at a parity position.
    pub fn strip_logical(&self, position: usize) -> Range<u64> {
        let edge = |position: usize| {
            let bytes = position.min(self.data as usize) as u64 * u64::from(self.strip_bytes);
            self.logical.end.min(self.logical.start + bytes)
        };
        edge(position)..edge(position + 1)
    }

    /// Length of the strip at a position in bytes.
    pub fn strip_len(&self, position: usize) -> u32 {
        if position >= self.data as usize {
            return self.strip_bytes;
        }
        let logical = self.strip_logical(position);
        (logical.end - logical.start) as u32
    }
}

/// A part of the logical run that is in one strip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripPiece {
    /// The row.
    pub row: u64,
    /// The data strip in the row.
    pub position: usize,
    /// The slot that holds the strip.
    pub slot: usize,
    /// The start of the piece in the slot's extent.
    pub extent_offset: u64,
    /// The bytes of the strip that it is.
    pub column: Range<u32>,
    /// The bytes of the logical run that it is.
    pub logical: Range<u64>,
}

/// The places of all parts of one finished set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetLayout {
    geometry: Geometry,
    set: SetId,
    logical_bytes: u64,
}

impl SetLayout {
    /// The layout of a run of `logical_bytes` bytes.
    ///
    /// # Errors
    /// [`Kind::Usage`] beyond [`LOGICAL_BYTES_MAX`].
    pub fn new(geometry: Geometry, set: SetId, logical_bytes: u64) -> Result<Self> {
        if logical_bytes > LOGICAL_BYTES_MAX {
            return Err(Error::new(Kind::Usage, "a stripe set holds at most 64 PiB"));
        }
        Ok(SetLayout { geometry, set, logical_bytes })
    }

    /// The set's geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Bytes of the logical run.
    pub fn logical_bytes(&self) -> u64 {
        self.logical_bytes
    }

    /// Rows, the last one possibly short.
    pub fn rows(&self) -> u64 {
        self.geometry.rows(self.logical_bytes)
    }

    /// The rows that hold any byte of a range.
    pub fn rows_of(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        let row_bytes = self.geometry.row_bytes();
        range.start / row_bytes..range.end.min(self.logical_bytes).div_ceil(row_bytes)
    }

    /// The shape of a row below [`rows`](Self::rows).
    pub fn row_shape(&self, row: u64) -> RowShape {
        let start = row * self.geometry.row_bytes();
        RowShape::new(self.geometry, start, self.logical_bytes - start)
    }

    /// Which slot holds which position of a row.
    pub fn permutation(&self, row: u64) -> Permutation {
        Permutation::new(self.set, row, self.geometry.members())
    }

    /// The start of the strip of a row in every slot's extent.
    pub fn strip_offset(&self, row: u64) -> u64 {
        HEADER_BYTES as u64 + row * u64::from(self.geometry.strip_bytes())
    }

    /// The start of the trailer in a slot's extent.
    pub fn trailer_offset(&self, slot: usize) -> u64 {
        let Some(last) = self.rows().checked_sub(1) else {
            return HEADER_BYTES as u64;
        };
        let position = self.permutation(last).position(slot);
        self.strip_offset(last) + u64::from(self.row_shape(last).strip_len(position))
    }

    /// Length of a slot's whole extent in bytes.
    pub fn extent_bytes(&self, slot: usize) -> u64 {
        self.trailer_offset(slot) + self.geometry.tail_bytes(self.rows())
    }

    /// Cuts a range of the logical run into parts that are in one strip each, in logical order.
    /// Bytes beyond the end of the run are skipped.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = StripPiece> + use<> {
        let layout = *self;
        self.rows_of(&range).flat_map(move |row| layout.row_pieces(row, range.clone()))
    }

    /// Returns the pieces of a range that are in one row.
    pub fn row_pieces(
        &self,
        row: u64,
        range: Range<u64>,
    ) -> impl Iterator<Item = StripPiece> + use<> {
        let shape = self.row_shape(row);
        let permutation = self.permutation(row);
        let strip_offset = self.strip_offset(row);
        (0..self.geometry.data()).filter_map(move |position| {
            let strip = shape.strip_logical(position);
            let logical = strip.start.max(range.start)..strip.end.min(range.end);
            if logical.is_empty() {
                return None;
            }
            let column = (logical.start - strip.start) as u32..(logical.end - strip.start) as u32;
            Some(StripPiece {
                row,
                position,
                slot: permutation.slot(position),
                extent_offset: strip_offset + u64::from(column.start),
                column,
                logical,
            })
        })
    }
}

#[cfg(test)]
mod tests;
