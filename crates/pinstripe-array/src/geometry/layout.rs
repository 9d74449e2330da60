//! The layouts of every level, with md's numbers (`drivers/md/raid5.h`, `raid10.c`) and mdadm's
//! words.

use std::fmt;

use super::Level;
use pinstripe_base::error::{Error, Kind, Result};

/// The order of shards on the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The layout of levels 0, 1 and 4, which have only one.
    Fixed,
    /// The layouts of levels 5 and 6.
    Parity(Rotation),
    /// Level 10.
    Copies(Copies),
}

/// The layouts that determine the places of P and Q, and the order of data around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rotation {
    /// P moves from the last member down; data goes from the first member up.
    LeftAsymmetric,
    /// P moves from the first member up; data goes from the first member up.
    RightAsymmetric,
    /// P moves from the last member down; data starts at the member after the parity. The usual
    /// one.
    LeftSymmetric,
    /// P moves from the first member up; data starts at the member after the parity.
    RightSymmetric,
    /// Parity on the first members.
    ParityFirst,
    /// Parity on the last members, as in level 4.
    ParityLast,
    /// DDF's layout for level 6: right-asymmetric, with Q's coefficients numbered by member.
    DdfZeroRestart,
    /// DDF's layout for level 6: left-asymmetric, one row ahead, with Q's coefficients numbered by
    /// member.
    DdfNRestart,
    /// DDF's layout for level 6: left-symmetric with Q before P, with Q's coefficients numbered by
    /// member.
    DdfNContinue,
    /// Level 5's left-asymmetric layout, with Q on an additional member.
    LeftAsymmetric6,
    /// Level 5's right-asymmetric layout, with Q on an additional member.
    RightAsymmetric6,
    /// Level 5's left-symmetric layout, with Q on an additional member.
    LeftSymmetric6,
    /// Level 5's right-symmetric layout, with Q on an additional member.
    RightSymmetric6,
    /// P on the first member, Q on the last one.
    ParityFirst6,
}

/// Each rotation with md's number, its name, and its short name.
const ROTATIONS: [(Rotation, u32, &str, &str); 14] = [
    (Rotation::LeftAsymmetric, 0, "left-asymmetric", "la"),
    (Rotation::RightAsymmetric, 1, "right-asymmetric", "ra"),
    (Rotation::LeftSymmetric, 2, "left-symmetric", "ls"),
    (Rotation::RightSymmetric, 3, "right-symmetric", "rs"),
    (Rotation::ParityFirst, 4, "parity-first", "parity-first"),
    (Rotation::ParityLast, 5, "parity-last", "parity-last"),
    (Rotation::DdfZeroRestart, 8, "ddf-zero-restart", "ddf-zero-restart"),
    (Rotation::DdfNRestart, 9, "ddf-N-restart", "ddf-N-restart"),
    (Rotation::DdfNContinue, 10, "ddf-N-continue", "ddf-N-continue"),
    (Rotation::LeftAsymmetric6, 16, "left-asymmetric-6", "la-6"),
    (Rotation::RightAsymmetric6, 17, "right-asymmetric-6", "ra-6"),
    (Rotation::LeftSymmetric6, 18, "left-symmetric-6", "ls-6"),
    (Rotation::RightSymmetric6, 19, "right-symmetric-6", "rs-6"),
    (Rotation::ParityFirst6, 20, "parity-first-6", "parity-first-6"),
];

/// The number and places of the copies in level 10: each chunk has `near * far` copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Copies {
    /// The number of copies on neighbouring members, at least 1.
    pub near: u8,
    /// The number of copies at distant offsets of the members, at least 1.
    pub far: u8,
    /// Whether "far" copies are instead in the next chunk of the next member (md's offset layout).
    pub offset: bool,
}

impl Rotation {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Rotation> {
        ROTATIONS.iter().map(|(rotation, ..)| *rotation)
    }

    fn row(self) -> &'static (Rotation, u32, &'static str, &'static str) {
        let found = ROTATIONS.iter().find(|(rotation, ..)| *rotation == self);
        found.expect("every rotation is in the table")
    }

    /// Whether a level has this rotation: level 5 has the first six.
    pub fn suits(self, level: Level) -> bool {
        match level {
            Level::Raid5 => self.row().1 <= 5,
            Level::Raid6 => true,
            _ => false,
        }
    }
}

impl Copies {
    /// The number of copies of a chunk.
    pub const fn count(self) -> usize {
        self.near as usize * self.far as usize
    }

    /// Reads the name of a layout of level 10: `n2`, `f2`, `o2`, or near and far copies at once,
    /// `n2f2`.
    fn parse(text: &str) -> Option<Self> {
        let (mut near, mut far) = (None, None);
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let digits = rest.get(1..)?;
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let count: u8 = digits[..end].parse().ok().filter(|&count| count > 0)?;
            let twice = match letter {
                'n' => near.replace(count).is_some(),
                'f' | 'o' => far.replace((count, letter == 'o')).is_some(),
                _ => return None,
            };
            if twice {
                return None;
            }
            rest = &digits[end..];
        }
        if near.is_none() && far.is_none() {
            return None;
        }
        let (far, offset) = far.unwrap_or((1, false));
        Some(Copies { near: near.unwrap_or(1), far, offset })
    }
}

impl Layout {
    /// The default layout of a level, the same as mdadm's.
    pub const fn default_of(level: Level) -> Layout {
        match level {
            Level::Raid0 | Level::Raid1 | Level::Raid4 => Layout::Fixed,
            Level::Raid5 | Level::Raid6 => Layout::Parity(Rotation::LeftSymmetric),
            Level::Raid10 => Layout::Copies(Copies { near: 2, far: 1, offset: false }),
        }
    }

    /// The layout with this number (md's) at a level. Levels 0, 1 and 4 ignore the number.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for a number that the level does not have, or that only
    /// sets of the device mapper have (level 10 in sets of members).
    pub fn from_number(level: Level, number: u32) -> Result<Self> {
        let unknown = || {
            Error::new(Kind::Unsupported, format!("{level} has no layout {number:#x}")).advice(
                "examine the array with 'mdadm --examine': newer software may have created it",
            )
        };
        match level {
            Level::Raid0 | Level::Raid1 | Level::Raid4 => Ok(Layout::Fixed),
            Level::Raid5 | Level::Raid6 => {
                let found = ROTATIONS.iter().find(|(_, theirs, ..)| *theirs == number);
                let rotation = found.map(|(rotation, ..)| *rotation);
                let rotation = rotation.filter(|rotation| rotation.suits(level));
                rotation.map(Layout::Parity).ok_or_else(unknown)
            }
            Level::Raid10 => {
                let [near, far, flags, none] = number.to_le_bytes();
                if near == 0 || far == 0 || flags > 1 || none != 0 {
                    return Err(unknown());
                }
                Ok(Layout::Copies(Copies { near, far, offset: flags == 1 }))
            }
        }
    }

    /// md's number for the layout.
    pub fn number(self) -> u32 {
        match self {
            Layout::Fixed => 0,
            Layout::Parity(rotation) => rotation.row().1,
            Layout::Copies(copies) => {
                u32::from_le_bytes([copies.near, copies.far, u8::from(copies.offset), 0])
            }
        }
    }

    /// Reads mdadm's names of layouts: `ls`, `left-symmetric`, `parity-first`, `n2`, `f2`, `o3`,
    /// `default`.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a name of a layout that the level does not have.
    pub fn parse(level: Level, text: &str) -> Result<Self> {
        let bad = |expected: &str| {
            Error::new(Kind::Usage, format!("'{text}' is not a layout of {level}"))
                .expected(expected, text)
        };
        if text == "default" {
            return Ok(Layout::default_of(level));
        }
        match level {
            Level::Raid0 | Level::Raid1 | Level::Raid4 => Err(bad("none")),
            Level::Raid5 | Level::Raid6 => {
                let found =
                    ROTATIONS.iter().find(|(.., name, word)| text == *name || text == *word);
                let rotation = found.map(|(rotation, ..)| *rotation);
                let rotation = rotation.filter(|rotation| rotation.suits(level));
                let words =
                    "la, ra, ls, rs, parity-first or parity-last; for level 6, also a DDF layout";
                rotation.map(Layout::Parity).ok_or_else(|| bad(words))
            }
            Level::Raid10 => Copies::parse(text).map(Layout::Copies).ok_or_else(|| {
                bad("n, f or o (near, far or offset), and the number of copies, for example n2")
            }),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Fixed => f.write_str("default"),
            Layout::Parity(rotation) => f.write_str(rotation.row().2),
            Layout::Copies(Copies { near, far: 1, .. }) => write!(f, "n{near}"),
            Layout::Copies(Copies { near, far, offset }) => {
                if *near > 1 {
                    write!(f, "n{near}")?;
                }
                write!(f, "{}{far}", if *offset { 'o' } else { 'f' })
            }
        }
    }
}
