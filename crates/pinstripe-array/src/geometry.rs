//! The place of every byte of an array: pure arithmetic, in md's convention, so that members of md
//! arrays are read by the same rules.
//!
//! User bytes are cut into chunks, chunks into *rows*, the unit of planning:
//! - levels 4, 5, 6: as many chunks as there are members without parity, and P (and Q), all at one
//!   member offset: the stripe of md;
//! - level 0: a chunk on each member;
//! - levels 1 and 10: **one** chunk with its copies, which depends on no other chunk. The copies of
//!   a chunk are on different members; with far and offset layouts they are at different member
//!   offsets.
//!
//! Member offsets count from the start of a member's data; the areas before it belong to the
//! on-disk format.

mod layout;
mod level;
mod row;
mod shape;
mod takeover;

use std::ops::Range;

pub use layout::{Copies, Layout, Rotation};
pub use level::Level;
#[cfg(test)]
pub(crate) use row::Place;
pub use row::RowMap;
pub use shape::Shape;
pub use takeover::LastSlot;

use super::set::{MemberSet, SET_MAX};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{KIB, MIB, format_size};

/// The smallest chunk.
pub(crate) const CHUNK_BYTES_MIN: u64 = 4 * KIB;
/// The largest chunk.
pub(crate) const CHUNK_BYTES_MAX: u64 = 64 * MIB;

/// The geometry of an array on its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayGeometry {
    level: Level,
    layout: Layout,
    members: u8,
    chunk_shift: u32,
    member_bytes: u64,
    rows: u64,
    capacity: u64,
    /// The distance in chunks from a copy to the next far copy; 0 if there are no far copies.
    stride: u64,
}

/// The place of a user byte within the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The row.
    pub row: u64,
    /// The number of the data chunk in the row.
    pub data: usize,
    /// The offset of the byte in the chunk.
    pub offset: u32,
}

/// A run of user bytes within one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The row.
    pub row: u64,
    /// The number of the data chunk in the row.
    pub data: usize,
    /// The bytes of the chunk.
    pub column: Range<u32>,
    /// The bytes of the array.
    pub user: Range<u64>,
}

/// The content at an offset of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The row.
    pub row: u64,
    /// The shard that is stored at this place.
    pub shard: usize,
    /// The offset of the byte in the chunk.
    pub offset: u32,
}

impl ArrayGeometry {
    /// The geometry of an array of `members` members with at least `member_bytes` bytes for data
    /// each.
    ///
    /// `chunk_bytes` is a power of two from 4 KiB to 64 MiB. Level 1 has no chunks of its own:
    /// there the size only determines how much is planned at once.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`], with advice, for too few members for the level or its copies,
    /// too many members, an invalid chunk or layout, or members that are smaller than one chunk.
    pub fn new(
        level: Level,
        members: usize,
        chunk_bytes: u64,
        layout: Layout,
        member_bytes: u64,
    ) -> Result<Self> {
        let usable = CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX;
        if !chunk_bytes.is_power_of_two() || !usable.contains(&chunk_bytes) {
            return Err(Error::new(Kind::Usage, "this chunk size is not supported")
                .expected("a power of two from 4K to 64M", format_size(chunk_bytes)));
        }
        Self::cut(level, members, chunk_bytes, layout, member_bytes)
    }

    /// Like [`new`](Self::new), for chunks of any power of two: tests with tiny chunks can be
    /// exhaustive.
    pub(super) fn cut(
        level: Level,
        members: usize,
        chunk_bytes: u64,
        layout: Layout,
        member_bytes: u64,
    ) -> Result<Self> {
        check_members(level, members, layout)?;
        let chunk_shift = chunk_bytes.trailing_zeros();
        if member_bytes < chunk_bytes || member_bytes > i64::MAX as u64 {
            return Err(Error::new(Kind::Usage, "the members are too small for one chunk")
                .expected(format_size(chunk_bytes), format_size(member_bytes))
                .advice("choose larger members or a smaller chunk"));
        }
        let members = members as u8;
        let rows = member_bytes >> chunk_shift;
        let mut geometry = ArrayGeometry {
            level,
            layout,
            members,
            chunk_shift,
            member_bytes,
            rows,
            capacity: 0,
            stride: 0,
        };
        if let Layout::Copies(copies) = layout {
            (geometry.rows, geometry.stride) = copied_rows(copies, members, rows)?;
        }
        let chunks = geometry.rows.checked_mul(geometry.data() as u64);
        let capacity = chunks.and_then(|chunks| chunks.checked_mul(chunk_bytes));
        geometry.capacity =
            capacity.filter(|&bytes| bytes <= i64::MAX as u64).ok_or_else(|| {
                Error::new(Kind::Usage, "the array would exceed 8 EiB")
                    .advice("choose fewer members")
            })?;
        if level == Level::Raid1 {
            // Nothing is rounded: md's mirrors have no chunks, and end where their members end.
            geometry.capacity = member_bytes;
            geometry.rows = member_bytes.div_ceil(chunk_bytes);
        }
        Ok(geometry)
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The number of members, including absent ones.
    pub fn members(&self) -> usize {
        self.members.into()
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        1 << self.chunk_shift
    }

    /// Bytes for data that each member must have.
    pub fn member_bytes(&self) -> u64 {
        self.member_bytes
    }

    /// Chunks of user data in a row.
    pub fn data(&self) -> usize {
        if self.level.mirrors() { 1 } else { self.members() - self.level.parity() }
    }

    /// Data and parity shards in a row, or copies.
    pub fn shards(&self) -> usize {
        match self.layout {
            Layout::Copies(copies) => copies.count(),
            _ => self.members(),
        }
    }

    /// User bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        (self.data() as u64) << self.chunk_shift
    }

    /// Whether the other geometry has all content of this one at the same places: the two may
    /// differ in the length of members, but not in the distance of far copies.
    pub(crate) fn lies_as_in(&self, other: &ArrayGeometry) -> bool {
        let alike = ArrayGeometry {
            member_bytes: self.member_bytes,
            rows: self.rows,
            capacity: self.capacity,
            ..*other
        };
        alike == *self && self.rows <= other.rows
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// User bytes of the array.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of each chunk of a row: a full chunk, except in the last row of a mirror.
    pub(super) fn row_len(&self, row: u64) -> u32 {
        let left = self.capacity.saturating_sub(row.saturating_mul(self.row_bytes()));
        left.min(self.chunk_bytes().into()) as u32
    }

    /// The place of a user byte.
    ///
    /// # Panics
    /// Panics in debug builds if the byte is beyond the capacity; so do the other functions of this
    /// file.
    pub fn locate(&self, byte: u64) -> Spot {
        debug_assert!(byte < self.capacity, "byte {byte} is beyond the end of the array");
        let chunk = byte >> self.chunk_shift;
        let data = self.data() as u64;
        let offset = (byte & u64::from(self.chunk_bytes() - 1)) as u32;
        Spot { row: chunk / data, data: (chunk % data) as usize, offset }
    }

    /// The user byte at a spot: the inverse of [`locate`](Self::locate).
    pub(crate) fn user_byte(&self, spot: Spot) -> u64 {
        let chunk = spot.row * self.data() as u64 + spot.data as u64;
        (chunk << self.chunk_shift) + u64::from(spot.offset)
    }

    /// The rows that hold any byte of a range.
    pub fn rows_of(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        let row_bytes = self.row_bytes();
        range.start / row_bytes..range.end.min(self.capacity).div_ceil(row_bytes)
    }

    /// Splits a range of user bytes at chunk boundaries, in order. Bytes beyond the capacity are
    /// ignored.
    pub fn spans(&self, range: Range<u64>) -> impl Iterator<Item = Span> + use<> {
        let geometry = *self;
        let end = range.end.min(self.capacity);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let Spot { row, data, offset } = geometry.locate(at);
            let len = u64::from(geometry.chunk_bytes() - offset).min(end - at);
            let user = at..at + len;
            at = user.end;
            Some(Span { row, data, column: offset..offset + len as u32, user })
        })
    }

    /// The placement of the shards of a row.
    pub fn map(&self, row: u64) -> RowMap {
        debug_assert!(row < self.rows, "the array has no row {row}");
        RowMap::new(self, row)
    }

    /// The content at an offset of a member's data; `None` after the last row, and in the gaps that
    /// level 10 may leave there.
    pub fn held(&self, member: usize, member_offset: u64) -> Option<Held> {
        let chunk = member_offset >> self.chunk_shift;
        let offset = (member_offset & u64::from(self.chunk_bytes() - 1)) as u32;
        let row = match self.layout {
            Layout::Copies(copies) => self.copied_row(copies, member, chunk)?,
            _ => chunk,
        };
        if row >= self.rows || offset >= self.row_len(row) {
            return None;
        }
        let shard = self.map(row).shard_on(member)?;
        Some(Held { row, shard, offset })
    }

    /// The row that has a copy in a chunk of a member.
    fn copied_row(&self, copies: Copies, member: usize, chunk: u64) -> Option<u64> {
        let (members, near) = (self.members(), usize::from(copies.near));
        let far = u64::from(copies.far);
        let (copy, chunk) = match copies.offset {
            true => (chunk % far, chunk / far),
            false if far == 1 => (0, chunk),
            false => (chunk / self.stride, chunk % self.stride),
        };
        if copy >= far {
            return None;
        }
        let shift = copy as usize * near % members;
        let column = (member + members - shift) % members;
        Some((chunk * members as u64 + column as u64) / near as u64)
    }

    /// Whether all data can still be read without these members.
    pub fn survives(&self, absent: MemberSet) -> bool {
        let absent = absent.and(MemberSet::below(self.members()));
        match self.layout {
            // The positions of rows repeat after as many rows as there are members.
            Layout::Copies(_) => (0..self.rows.min(u64::from(self.members)))
                .all(|row| self.map(row).shards_on(absent).len() < self.shards()),
            _ if self.level == Level::Raid1 => absent.len() < self.members(),
            _ => absent.len() <= self.level.parity(),
        }
    }
}

fn check_members(level: Level, members: usize, layout: Layout) -> Result<()> {
    let suits = match layout {
        Layout::Fixed => matches!(level, Level::Raid0 | Level::Raid1 | Level::Raid4),
        Layout::Parity(rotation) => rotation.suits(level),
        Layout::Copies(copies) => level == Level::Raid10 && copies.near > 0 && copies.far > 0,
    };
    if !suits {
        return Err(Error::new(Kind::Usage, format!("{level} has no layout {layout}"))
            .advice(format!("leave the layout at {}", Layout::default_of(level))));
    }
    if members < level.members_min() || members > SET_MAX {
        return Err(Error::new(
            Kind::Usage,
            format!("a {level} array cannot have this number of members"),
        )
        .expected(format!("{} to {SET_MAX} members", level.members_min()), members));
    }
    if let Layout::Copies(copies) = layout
        && !(2..=members).contains(&copies.count())
    {
        return Err(Error::new(
            Kind::Usage,
            "an array with this number of members cannot have this number of copies",
        )
        .expected(format!("2 to {members} copies"), copies.count())
        .advice("choose fewer copies or more members"));
    }
    if let Layout::Copies(Copies { near, far, offset: true }) = layout
        && far > 1
        && !members.is_multiple_of(near.into())
    {
        // Near copies that continue after the last member would overlap the offset copies of their
        // row.
        return Err(Error::new(
            Kind::Usage,
            format!("with this number of members, the copies of layout {layout} would overlap"),
        )
        .expected(format!("a multiple of {near} members"), members)
        .advice("choose another number of members, or far copies"));
    }
    Ok(())
}

/// The number of rows and the stride of level 10 on members of `member_chunks` chunks, computed as
/// in `calc_sectors` and `raid10_size` of drivers/md/raid10.c.
fn copied_rows(copies: Copies, members: u8, member_chunks: u64) -> Result<(u64, u64)> {
    let (near, far) = (u64::from(copies.near), u64::from(copies.far));
    let members = u64::from(members);
    let fitting = |chunks: u64| (chunks / far).checked_mul(members).map(|total| total / near);
    let too_large = || Error::new(Kind::Usage, "the array would exceed 8 EiB");
    let chunks = fitting(member_chunks).ok_or_else(too_large)?;
    let used = chunks.checked_mul(near * far).ok_or_else(too_large)?.div_ceil(members);
    let rows = fitting(used).ok_or_else(too_large)?;
    if rows == 0 {
        return Err(Error::new(
            Kind::Usage,
            "the members are too small for all copies of one chunk",
        )
        .expected(pinstripe_base::units::counted(far, "chunk", "chunks"), member_chunks)
        .advice("choose larger members, a smaller chunk or fewer copies"));
    }
    let stride = match (far, copies.offset) {
        (1, _) => 0,
        (_, true) => 1,
        (_, false) => used / far,
    };
    Ok((rows, stride))
}

#[cfg(test)]
mod tests;
