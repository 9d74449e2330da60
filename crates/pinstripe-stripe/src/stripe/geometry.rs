//! Computes where every byte of a stripe set is, without touching any bytes.
//!
//! The logical run is divided into rows of D strips; a row adds P parity strips and distributes its
//! N = D + P strips over N slots, one extent each, by a permutation of its own that is derived from
//! the set id and the row number. So a sequential read loads all extents equally, and reads at any
//! fixed stride use all of them. Each slot has exactly one strip of each row, at `header + row *
//! strip size`.
//!
//! The last row is shortened, not padded: of its L bytes each data strip gets `ceil(L / D)` rounded
//! up to a multiple of 64, as long as bytes are left, so the last strips may be short or empty.
//!
//! Terms: a *position* is a strip's number in its row (0..D data in logical order, then P, Q); a
//! *slot* is its number after the permutation, and this module does not know which member has it; a
//! *column* is a byte range within a strip.

use std::ops::Range;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SetId;
use pinstripe_base::random::splitmix64;
pub use pinstripe_member::stripe_set::Geometry;
use pinstripe_member::stripe_set::{HEADER_BYTES, LOGICAL_BYTES_MAX, MEMBERS_MAX};

/// Strips of a short row are a multiple of this many bytes: one cache line.
const SHORT_STRIP_UNIT_BYTES: u64 = 64;

/// Which position of one row each slot holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Permutation {
    slots: [u8; MEMBERS_MAX],
    count: usize,
}

impl Permutation {
    /// Returns the permutation of row `row` of a set over `count` slots (at most 255).
    ///
    /// Part of the format: SplitMix64, whose state starts as the first eight bytes of the set id
    /// (little-endian) XOR `row * 0xd1342543de82ef95`, drives a Fisher-Yates shuffle of 0..N from
    /// the last index down; the index to swap with is the high half of `draw * (place + 1)`. The
    /// factor must not be SplitMix64's own increment: the permutations of rows would be shifted
    /// copies of each other.
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

    /// Returns the slot that holds a position.
    pub fn slot(&self, position: usize) -> usize {
        self.slots().nth(position).expect("a position is below D + P")
    }

    /// Returns the position that a slot holds.
    pub fn position(&self, slot: usize) -> usize {
        self.slots().position(|held_by| held_by == slot).expect("a slot is below D + P")
    }

    /// The slots in the order of their positions.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.slots[..self.count].iter().map(|&slot| slot.into())
    }
}

/// The logical bytes of one row, and the length of its strips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowShape {
    /// The part of the logical run that the row holds.
    pub logical: Range<u64>,
    /// Length of each parity strip, and of each data strip that is not shortened.
    pub strip_bytes: u32,
    /// Data strips, D.
    data: u32,
}

impl RowShape {
    /// Returns the shape of a row that begins at `start` when `left` bytes follow, which must be at
    /// least one.
    pub fn new(geometry: Geometry, start: u64, left: u64) -> Self {
        let bytes = left.min(geometry.row_bytes());
        let data = geometry.data() as u32;
        let strip = bytes.div_ceil(data.into()).next_multiple_of(SHORT_STRIP_UNIT_BYTES);
        // At most the full strip size, which is a multiple of the unit.
        RowShape { logical: start..start + bytes, strip_bytes: strip as u32, data }
    }

    /// Returns the logical bytes in the strip at a data position; empty for a parity position.
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

/// A part of the logical run that is within one strip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripPiece {
    /// The row.
    pub row: u64,
    /// The position of the data strip in its row.
    pub position: usize,
    /// The slot that holds the strip.
    pub slot: usize,
    /// The offset of the piece in the slot's extent.
    pub extent_offset: u64,
    /// The range of bytes within the strip.
    pub column: Range<u32>,
    /// The range of bytes within the logical run.
    pub logical: Range<u64>,
}

/// Where all parts of one finished set are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetLayout {
    geometry: Geometry,
    set: SetId,
    logical_bytes: u64,
}

impl SetLayout {
    /// Computes the layout of a run of `logical_bytes` bytes.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] beyond [`LOGICAL_BYTES_MAX`].
    pub fn new(geometry: Geometry, set: SetId, logical_bytes: u64) -> Result<Self> {
        if logical_bytes > LOGICAL_BYTES_MAX {
            return Err(Error::new(Kind::Usage, "a stripe set can contain at most 64 PiB"));
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

    /// The number of rows; the last row may be short.
    pub fn rows(&self) -> u64 {
        self.geometry.rows(self.logical_bytes)
    }

    /// Returns the rows that contain any byte of a range.
    pub fn rows_of(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        let row_bytes = self.geometry.row_bytes();
        range.start / row_bytes..range.end.min(self.logical_bytes).div_ceil(row_bytes)
    }

    /// Returns the shape of a row, whose number must be below [`rows`](Self::rows).
    pub fn row_shape(&self, row: u64) -> RowShape {
        let start = row * self.geometry.row_bytes();
        RowShape::new(self.geometry, start, self.logical_bytes - start)
    }

    /// Returns the slots and positions of a row's strips.
    pub fn permutation(&self, row: u64) -> Permutation {
        Permutation::new(self.set, row, self.geometry.members())
    }

    /// Returns the offset of a row's strips, which is the same in every slot's extent.
    pub fn strip_offset(&self, row: u64) -> u64 {
        HEADER_BYTES as u64 + row * u64::from(self.geometry.strip_bytes())
    }

    /// Returns the offset of the trailer in a slot's extent.
    pub fn trailer_offset(&self, slot: usize) -> u64 {
        let Some(last) = self.rows().checked_sub(1) else {
            return HEADER_BYTES as u64;
        };
        let position = self.permutation(last).position(slot);
        self.strip_offset(last) + u64::from(self.row_shape(last).strip_len(position))
    }

    /// Returns the length of a slot's complete extent in bytes.
    pub fn extent_bytes(&self, slot: usize) -> u64 {
        self.trailer_offset(slot) + self.geometry.tail_bytes(self.rows())
    }

    /// Divides a range of the logical run into parts that are within one strip each, in logical
    /// order. Bytes beyond the end of the run are skipped.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = StripPiece> + use<> {
        let layout = *self;
        self.rows_of(&range).flat_map(move |row| layout.row_pieces(row, range.clone()))
    }

    /// Returns the pieces of a range that are within one row.
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
