//! The placement of an array on its members at one moment: usually by one geometry; while the array
//! grows by a member, the moved part follows the new geometry and the rest the old one.
//!
//! ```text
//! a member:  | moved: new geometry | dead: nothing lies there | not moved yet: old geometry |
//! ```
//!
//! A growing array moves by *stretches*: a stretch is the fewest chunks that fill whole rows of
//! both geometries, and whole chunks of all members. User bytes keep their offset within their
//! chunks.
//!
//! Invariant: a number belongs to one row only, and a byte of a member to one geometry only. Rows
//! of the old geometry that were moved have no number after the move.

use std::ops::Range;

use super::{ArrayGeometry, Held, Layout, RowMap, Span, Spot};
use crate::set::MemberSet;
use pinstripe_base::error::{Error, Kind, Result};

/// The placement of an array on its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    geometry: ArrayGeometry,
    growth: Option<Growth>,
}

/// The progress of a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Growth {
    before: ArrayGeometry,
    /// The number of stretches that were moved.
    moved: u64,
    /// Whether the next stretch is being moved in place: during that time its bytes have no known
    /// place.
    in_place: bool,
}

/// The sizes of a stretch, the unit that moves at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// The number of rows of the old geometry in a stretch.
    rows_before: u64,
    /// The number of rows of the new geometry in a stretch.
    rows: u64,
    /// The number of chunks of each member that a stretch takes in the old geometry.
    chunks_before: u64,
    /// The number of chunks of each member that a stretch takes in the new geometry.
    chunks: u64,
}

impl Shape {
    /// A shape with one geometry for all content.
    pub(crate) fn from_geometry(geometry: ArrayGeometry) -> Self {
        Shape { geometry, growth: None }
    }

    /// The shape of an array that begins to grow from `before`, a geometry with one member less and
    /// otherwise the same.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for copies in places where moving forward would overwrite
    /// content that is not moved yet.
    pub fn growing(before: ArrayGeometry, geometry: ArrayGeometry) -> Result<Self> {
        debug_assert_eq!(before.members() + 1, geometry.members());
        debug_assert_eq!(before.member_bytes(), geometry.member_bytes());
        let is_served = match before.layout() {
            Layout::Copies(copies) => copies.far == 1,
            _ => !before.level().mirrors(),
        };
        if !is_served {
            let what =
                format!("a {} array with layout {} cannot grow", before.level(), before.layout());
            return Err(Error::new(Kind::Unsupported, what).advice(
                "only near copies can be moved; create a new array, and copy the data to the new \
                 array",
            ));
        }
        Ok(Shape { geometry, growth: Some(Growth { before, moved: 0, in_place: false }) })
    }

    /// The same shape with this many stretches moved.
    #[must_use]
    pub(crate) fn moved_to(self, moved: u64) -> Self {
        let growth = self.growth.map(|it| Growth { moved, in_place: false, ..it });
        Shape { growth, ..self }
    }

    /// The same shape while the next stretch is moved in place.
    #[must_use]
    pub fn in_place(self) -> Self {
        let growth = self.growth.map(|it| Growth { in_place: true, ..it });
        Shape { growth, ..self }
    }

    /// The geometry of the array; while it grows, the geometry after the growth.
    pub fn geometry(&self) -> &ArrayGeometry {
        &self.geometry
    }

    /// The geometry before the growth; `None` if the array does not grow.
    pub fn before(&self) -> Option<&ArrayGeometry> {
        self.growth.as_ref().map(|growth| &growth.before)
    }

    /// User bytes. User bytes of the array; added bytes count only when everything has moved.
    pub fn capacity(&self) -> u64 {
        self.before().unwrap_or(&self.geometry).capacity()
    }

    /// The geometry of a row.
    fn of_row(&self, row: u64) -> &ArrayGeometry {
        match &self.growth {
            Some(growth) if row >= growth.moved * self.stretch(growth).rows => &growth.before,
            _ => &self.geometry,
        }
    }

    /// The placement of the shards of a row.
    pub fn map(&self, row: u64) -> RowMap {
        self.of_row(row).map(row)
    }

    /// Data chunks of a row.
    pub fn data(&self, row: u64) -> usize {
        self.of_row(row).data()
    }

    /// User bytes of a row.
    pub fn row_bytes(&self, row: u64) -> u64 {
        self.of_row(row).row_bytes()
    }

    /// The user byte at a spot.
    pub(crate) fn user_byte(&self, spot: Spot) -> u64 {
        self.of_row(spot.row).user_byte(spot)
    }

    /// All rows, in the order of their numbers, from `first` on.
    pub(crate) fn rows_from(&self, first: u64) -> impl Iterator<Item = u64> + use<> {
        let [moved, rest] = match &self.growth {
            None => [0..self.geometry.rows(), 0..0],
            Some(growth) => {
                let stretch = self.stretch(growth);
                let moved = (growth.moved * stretch.rows).min(self.geometry.rows());
                [0..moved, growth.moved * stretch.rows_before..growth.before.rows()]
            }
        };
        let behind = move |rows: Range<u64>| rows.start.max(first)..rows.end;
        behind(moved).chain(behind(rest))
    }

    /// Splits a range of user bytes at chunk boundaries, in order. Bytes beyond the capacity are
    /// ignored.
    pub fn spans(&self, range: Range<u64>) -> impl Iterator<Item = Span> + use<> {
        let end = range.end.min(self.capacity());
        let boundary = self.moved_bytes().clamp(range.start, end.max(range.start));
        let rest = *self.before().unwrap_or(&self.geometry);
        self.geometry.spans(range.start..boundary).chain(rest.spans(boundary..end))
    }

    /// The number of user bytes that were moved: below this offset the new geometry applies.
    fn moved_bytes(&self) -> u64 {
        match &self.growth {
            None => self.geometry.capacity(),
            Some(it) => it.moved * self.stretch(it).rows_before * it.before.row_bytes(),
        }
    }

    /// The user bytes that are being moved in place, whose place neither geometry gives.
    pub fn relocating(&self) -> Range<u64> {
        match &self.growth {
            Some(growth) if growth.in_place => {
                let start = self.moved_bytes();
                start..start + self.stretch(growth).rows_before * growth.before.row_bytes()
            }
            _ => 0..0,
        }
    }

    /// The content at an offset of a member's data; `None` if the offset holds none.
    pub fn held(&self, member: usize, offset: u64) -> Option<Held> {
        let Some(growth) = &self.growth else { return self.geometry.held(member, offset) };
        let stretch = self.stretch(growth);
        let chunk = offset / u64::from(self.geometry.chunk_bytes());
        match () {
            () if chunk < growth.moved * stretch.chunks => self.geometry.held(member, offset),
            () if chunk >= growth.moved * stretch.chunks_before => {
                growth.before.held(member, offset)
            }
            () => None,
        }
    }

    /// Whether all data can still be read without these members.
    pub fn survives(&self, absent: MemberSet) -> bool {
        self.geometry.survives(absent) && self.before().is_none_or(|it| it.survives(absent))
    }
}

/// The stretches that are still to be moved.
impl Shape {
    fn stretch(&self, growth: &Growth) -> Stretch {
        let before = &growth.before;
        let (few, many) = (before.data() as u64, self.geometry.data() as u64);
        match before.layout() {
            // As many chunks as all copies of them take whole chunks of all members in both.
            Layout::Copies(copies) => {
                let (members, near) = (before.members() as u64, u64::from(copies.near));
                let rows = members * (members + 1);
                let (chunks_before, chunks) = (near * (members + 1), near * members);
                Stretch { rows_before: rows, rows, chunks_before, chunks }
            }
            _ => Stretch { rows_before: many, rows: few, chunks_before: many, chunks: few },
        }
    }

    /// The number of moved stretches, and their total number; the last stretch may be short. `None`
    /// if the array does not grow.
    pub fn stretches(&self) -> Option<(u64, u64)> {
        let growth = self.growth.as_ref()?;
        let all = growth.before.rows().div_ceil(self.stretch(growth).rows_before);
        Some((growth.moved, all))
    }

    /// The rows of the new geometry that the next stretches fill. Some of these rows at the end may
    /// have no user bytes.
    pub(crate) fn next_rows(&self, stretches: u64) -> Range<u64> {
        let Some(growth) = &self.growth else { return 0..0 };
        let (rows, all) = (self.stretch(growth).rows, self.geometry.rows());
        (growth.moved * rows).min(all)..((growth.moved + stretches) * rows).min(all)
    }

    /// The bytes of a member that the next `stretches` stretches fill.
    pub(crate) fn next_place(&self, stretches: u64) -> Range<u64> {
        let Some(growth) = &self.growth else { return 0..0 };
        let bytes = self.stretch(growth).chunks * u64::from(self.geometry.chunk_bytes());
        let all = self.geometry.member_bytes();
        (growth.moved * bytes).min(all)..((growth.moved + stretches) * bytes).min(all)
    }

    /// The number of stretches that can move to free space now; 0 if none can.
    pub(crate) fn free_stretches(&self) -> u64 {
        let Some(growth) = &self.growth else { return 0 };
        let stretch = self.stretch(growth);
        growth.moved * (stretch.chunks_before - stretch.chunks) / stretch.chunks
    }

    /// Bytes of each member that a stretch takes in the old geometry.
    pub(crate) fn stretch_bytes(&self) -> u64 {
        let chunks = self.growth.as_ref().map_or(0, |it| self.stretch(it).chunks_before);
        chunks * u64::from(self.geometry.chunk_bytes())
    }

    /// The place, in the old geometry, of a data chunk of a row of the new geometry; `None` if the
    /// chunk has no user bytes yet.
    pub fn source(&self, row: u64, data: usize) -> Option<Spot> {
        let growth = self.growth.as_ref()?;
        let user = self.geometry.user_byte(Spot { row, data, offset: 0 });
        (user < growth.before.capacity()).then(|| growth.before.locate(user))
    }

    /// The map of a row of the old geometry.
    ///
    /// # Panics
    /// Panics if the array does not grow.
    pub(crate) fn map_before(&self, row: u64) -> RowMap {
        self.before().expect("an array that grows").map(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Copies, Level, Rotation};

    const CHUNK: u64 = 4;

    fn shapes() -> Vec<Shape> {
        let copies = |near| Layout::Copies(Copies { near, far: 1, offset: false });
        let kinds = [
            (Level::Raid0, 2, Layout::Fixed),
            (Level::Raid4, 3, Layout::Fixed),
            (Level::Raid5, 3, Layout::Parity(Rotation::LeftSymmetric)),
            (Level::Raid5, 4, Layout::Parity(Rotation::RightAsymmetric)),
            (Level::Raid6, 4, Layout::Parity(Rotation::LeftSymmetric)),
            (Level::Raid6, 5, Layout::Parity(Rotation::LeftSymmetric6)),
            (Level::Raid10, 4, copies(2)),
            (Level::Raid10, 3, copies(2)),
            (Level::Raid10, 4, copies(3)),
        ];
        let shape = |(level, members, layout): (Level, usize, Layout)| {
            [1, 7, 23, 40].map(|rows| {
                let cut = |members| ArrayGeometry::cut(level, members, CHUNK, layout, rows * CHUNK);
                Shape::growing(cut(members).unwrap(), cut(members + 1).unwrap()).unwrap()
            })
        };
        kinds.into_iter().flat_map(shape).collect()
    }

    fn each_step(act: impl Fn(&Shape)) {
        for shape in shapes() {
            let (_, all) = shape.stretches().unwrap();
            (0..=all).for_each(|moved| act(&shape.moved_to(moved)));
        }
    }

    #[test]
    fn user_bytes_lie_in_one_place_each_and_are_found_there() {
        each_step(|shape| {
            let mut places = std::collections::BTreeSet::new();
            let mut next = 0;
            for span in shape.spans(0..u64::MAX) {
                assert_eq!(span.user.start, next);
                next = span.user.end;
                assert!(shape.rows_from(0).any(|row| row == span.row), "{shape:?} {span:?}");
                let spot = Spot { row: span.row, data: span.data, offset: span.column.start };
                assert_eq!(shape.user_byte(spot), span.user.start);
                let map = shape.map(span.row);
                assert_eq!(map.data(), shape.data(span.row));
                let shards = if map.mirrors() { 0..map.shards() } else { span.data..span.data + 1 };
                for shard in shards {
                    let place = map.place(shard);
                    assert!(places.insert((place.member, place.start)), "{shape:?} {span:?}");
                    let held = shape.held(place.member, place.start).unwrap();
                    assert_eq!((held.row, held.shard), (span.row, shard), "{shape:?}");
                }
            }
            assert_eq!(next, shape.capacity());
        });
    }

    #[test]
    fn what_is_moved_is_taken_from_where_it_lies_and_only_free_places_are_free() {
        each_step(|shape| {
            let (moved, all) = shape.stretches().unwrap();
            let free = shape.free_stretches().min(all - moved);
            for row in shape.next_rows(all - moved) {
                let map = shape.geometry().map(row);
                let is_free = row < shape.next_rows(free).end;
                for shard in 0..map.shards() {
                    let place = map.place(shard);
                    if is_free {
                        assert_eq!(shape.held(place.member, place.start), None, "{shape:?} {row}");
                    }
                }
                for data in 0..shape.geometry().data() {
                    let Some(spot) = shape.source(row, data) else { continue };
                    let user = shape.before().unwrap().user_byte(spot);
                    let now = shape.spans(user..user + 1).next().unwrap();
                    assert_eq!((now.row, now.data), (spot.row, spot.data));
                }
            }
        });
    }

    /// The moved rows fill what `next_place` says of each member, and nothing else.
    #[test]
    fn the_next_rows_fill_the_next_place() {
        each_step(|shape| {
            let (moved, all) = shape.stretches().unwrap();
            for count in 0..=all - moved {
                let place = shape.next_place(count);
                let rows = shape.next_rows(count);
                for row in 0..shape.geometry().rows() {
                    let map = shape.geometry().map(row);
                    for shard in 0..map.shards() {
                        let at = map.place(shard).start;
                        assert_eq!(rows.contains(&row), place.contains(&at), "{shape:?} {row}");
                    }
                }
            }
        });
    }

    #[test]
    fn far_copies_and_mirrors_are_not_moved() {
        let cut = |level, members, layout| {
            ArrayGeometry::cut(level, members, CHUNK, layout, 40 * CHUNK).unwrap()
        };
        let far = Layout::Copies(Copies { near: 1, far: 2, offset: false });
        for (level, layout) in [(Level::Raid10, far), (Level::Raid1, Layout::Fixed)] {
            let grown = Shape::growing(cut(level, 4, layout), cut(level, 5, layout));
            assert_eq!(grown.unwrap_err().kind(), Kind::Unsupported);
        }
    }
}
