//! Changes of the level that move no data, as md's takeovers: each data shard keeps its place, and
//! so does the parity that the new level keeps. At most, the last member is added or dropped.

use super::{ArrayGeometry, Layout, Level, Rotation};
use pinstripe_base::error::{Error, Kind, Result};

/// The change of the last slot that a takeover needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastSlot {
    /// All members stay.
    Stays,
    /// A member is added after the others, and is filled with parity.
    IsAdded,
    /// The last member, which has only parity, is no longer needed.
    IsDropped,
}

/// Each rotation of level 5 with the rotation of level 6 that is the same but has Q on an
/// additional member.
const WITH_Q: [(Rotation, Rotation); 6] = [
    (Rotation::LeftAsymmetric, Rotation::LeftAsymmetric6),
    (Rotation::RightAsymmetric, Rotation::RightAsymmetric6),
    (Rotation::LeftSymmetric, Rotation::LeftSymmetric6),
    (Rotation::RightSymmetric, Rotation::RightSymmetric6),
    (Rotation::ParityFirst, Rotation::ParityFirst6),
    (Rotation::ParityLast, Rotation::ParityLast),
];

impl ArrayGeometry {
    /// The geometry of this array under another level, and the change of the last slot.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if the array already has this level; with [`Kind::Unsupported`]
    /// where data would have to move; with the errors of [`ArrayGeometry::new`].
    pub fn taken_over(&self, level: Level) -> Result<(ArrayGeometry, LastSlot)> {
        if level == self.level {
            return Err(Error::new(Kind::Usage, format!("the array already has level {level}")));
        }
        let (layout, last) = self.layout_for(level).ok_or_else(|| self.cannot_become(level))?;
        let members = match last {
            LastSlot::Stays => self.members(),
            LastSlot::IsAdded => self.members() + 1,
            LastSlot::IsDropped => self.members() - 1,
        };
        let chunk_bytes = self.chunk_bytes().into();
        let taken = Self::cut(level, members, chunk_bytes, layout, self.member_bytes)?;
        // Only a mirror may end within a chunk.
        match taken.capacity == self.capacity {
            true => Ok((taken, last)),
            false => Err(self.cannot_become(level)),
        }
    }

    /// The layout with which another level leaves all data in place, and the change of the last
    /// slot.
    fn layout_for(&self, level: Level) -> Option<(Layout, LastSlot)> {
        use LastSlot::{IsAdded, IsDropped, Stays};
        let rotated = |rotation| Layout::Parity(rotation);
        let last = rotated(Rotation::ParityLast);
        match (self.level, self.layout, level) {
            (Level::Raid0, _, Level::Raid4) => Some((Layout::Fixed, IsAdded)),
            (Level::Raid0, _, Level::Raid5) => Some((last, IsAdded)),
            (Level::Raid4, _, Level::Raid0) => Some((Layout::Fixed, IsDropped)),
            (Level::Raid4, _, Level::Raid5) => Some((last, Stays)),
            (Level::Raid4, _, Level::Raid6) => Some((last, IsAdded)),
            (Level::Raid5, layout, Level::Raid0) if layout == last => {
                Some((Layout::Fixed, IsDropped))
            }
            (Level::Raid5, layout, Level::Raid4) if layout == last => Some((Layout::Fixed, Stays)),
            // The parity of one chunk is the chunk.
            (Level::Raid1, _, Level::Raid5) if self.members == 2 => {
                Some((rotated(Rotation::LeftSymmetric), Stays))
            }
            (Level::Raid5, _, Level::Raid1) if self.members == 2 => Some((Layout::Fixed, Stays)),
            (Level::Raid5, Layout::Parity(five), Level::Raid6) => {
                let six = WITH_Q.iter().find(|(it, _)| *it == five)?.1;
                Some((rotated(six), IsAdded))
            }
            (Level::Raid6, Layout::Parity(six), Level::Raid5) => {
                let five = WITH_Q.iter().find(|(_, it)| *it == six)?.0;
                Some((rotated(five), IsDropped))
            }
            _ => None,
        }
    }

    fn cannot_become(&self, level: Level) -> Error {
        let what = match self.layout {
            Layout::Fixed => format!("{} of {} members", self.level, self.members),
            layout => format!("{} {layout} of {} members", self.level, self.members),
        };
        let what = format!("an array with {what} cannot change to {level} without moving data");
        Error::new(Kind::Unsupported, what).advice(
            "level 0 can change to 4 or 5; levels 4 and 5 can change to 6; level 6 with a -6 \
             layout or parity-last can change to 5; levels 4 and 5 with parity-last can change to \
             0; level 1 with two members can change to 5. For any other change, copy the data to a \
             new array",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Copies;

    const CHUNK: u64 = 4;

    fn all() -> impl Iterator<Item = ArrayGeometry> {
        let layouts = |level: Level| -> Vec<Layout> {
            let rotations =
                || Rotation::all().filter(move |it| it.suits(level)).map(Layout::Parity);
            match level {
                Level::Raid5 | Level::Raid6 => rotations().collect(),
                Level::Raid10 => vec![Layout::Copies(Copies { near: 2, far: 1, offset: false })],
                _ => vec![Layout::Fixed],
            }
        };
        let cut = |level, members, layout| {
            ArrayGeometry::cut(level, members, CHUNK, layout, 60 * CHUNK).ok()
        };
        Level::ALL.into_iter().flat_map(move |level| {
            layouts(level).into_iter().flat_map(move |layout| {
                (1..8).filter_map(move |members| cut(level, members, layout))
            })
        })
    }

    /// Every user byte and every shard of kept parity lies where it lay, and parity that counts
    /// data by coefficients counts it as before.
    #[test]
    fn nothing_moves() {
        let mut seen = 0;
        for before in all() {
            for level in Level::ALL {
                let Ok((after, last)) = before.taken_over(level) else { continue };
                seen += 1;
                assert_eq!(after.capacity(), before.capacity(), "{before:?} {level}");
                assert_eq!((after.rows(), after.data()), (before.rows(), before.data()));
                let kept = before.level().parity().min(after.level().parity());
                for row in 0..before.rows() {
                    let (old, new) = (before.map(row), after.map(row));
                    let copies = old.mirrors() || new.mirrors();
                    let shards = if copies { 0..1 } else { 0..before.data() + kept };
                    for shard in shards.filter(|_| !copies) {
                        assert_eq!(old.place(shard), new.place(shard), "{before:?} {level} {row}");
                    }
                    let gone = before.members().max(after.members()) - 1;
                    let wide = if last == LastSlot::IsAdded { &new } else { &old };
                    if last != LastSlot::Stays {
                        assert!(wide.shard_on(gone).unwrap() >= wide.data(), "it has parity only");
                    }
                }
            }
        }
        assert!(seen > 60, "{seen}");
    }

    #[test]
    fn a_takeover_and_its_reverse_give_the_same_array() {
        for before in all().filter(|it| matches!(it.level(), Level::Raid0 | Level::Raid5)) {
            for level in [Level::Raid5, Level::Raid6] {
                let Ok((after, LastSlot::IsAdded)) = before.taken_over(level) else { continue };
                let (again, last) = after.taken_over(before.level()).unwrap();
                assert_eq!((again, last), (before, LastSlot::IsDropped));
            }
        }
    }

    #[test]
    fn other_changes_are_refused() {
        let cut = |level, members, layout| {
            ArrayGeometry::cut(level, members, CHUNK, layout, 60 * CHUNK).unwrap()
        };
        let rotating = Layout::Parity(Rotation::LeftSymmetric);
        for (before, level) in [
            (cut(Level::Raid5, 4, rotating), Level::Raid0),
            (cut(Level::Raid5, 4, rotating), Level::Raid4),
            (cut(Level::Raid6, 5, rotating), Level::Raid5),
            (cut(Level::Raid1, 3, Layout::Fixed), Level::Raid5),
            (cut(Level::Raid0, 4, Layout::Fixed), Level::Raid6),
        ] {
            assert_eq!(before.taken_over(level).unwrap_err().kind(), Kind::Unsupported);
        }
        let same = cut(Level::Raid5, 4, rotating).taken_over(Level::Raid5);
        assert_eq!(same.unwrap_err().kind(), Kind::Usage);
    }
}
