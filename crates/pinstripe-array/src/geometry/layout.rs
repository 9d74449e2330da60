//! The layouts of every level, with md's numbers (`drivers/md/raid5.h`, `raid10.c`) and mdadm's
//! words.

use std::fmt;

use super::Level;
use pinstripe_base::error::{Error, Kind, Result};

/// The order of shards on the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Levels 0 and 1 and 4, where nothing can be chosen.
    Fixed,
    /// Levels 5 and 6.
    Parity(Rotation),
    /// Level 10.
    Copies(Copies),
}

/// The places of P and Q, and the order of data around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rotation {
    /// P from the last member down, data from the first one up.
    LeftAsymmetric,
    /// P from the first member up, data from the first one up.
    RightAsymmetric,
    /// P from the last member down, data from the one after the parity on. The usual one.
    LeftSymmetric,
    /// P from the first member up, data from the one after the parity on.
    RightSymmetric,
    /// Parity on the first members.
    ParityFirst,
    /// Parity on the last members, as in level 4.
    ParityLast,
    /// Level 6 as DDF has it: right-asymmetric, coefficients by member.
    DdfZeroRestart,
    /// Level 6 as DDF has it: left-asymmetric, a row ahead, coefficients by member.
    DdfNRestart,
    /// Level 6 as DDF has it: left-symmetric with Q before P, coefficients by member.
    DdfNContinue,
    /// Level 5's left-asymmetric, with Q on a further member.
    LeftAsymmetric6,
    /// Level 5's right-asymmetric, with Q on a further member.
    RightAsymmetric6,
    /// Level 5's left-symmetric, with Q on a further member.
    LeftSymmetric6,
    /// Level 5's right-symmetric, with Q on a further member.
    RightSymmetric6,
    /// P on the first member, Q on the last one.
    ParityFirst6,
}

/// Each with its number, its name, and the short word for it.
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

/// The number and places of the copies of level 10: `near * far` of each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Copies {
    /// Copies on neighbouring members, at least 1.
    pub near: u8,
    /// Copies far away on the members, at least 1.
    pub far: u8,
    /// The far ones are not far away but in the next chunk of the next member.
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

    /// Whether a level has it: level 5 has the first six.
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

    /// Reads `n2`, `f2`, `o2`, and both kinds at once, `n2f2`.
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
    /// The one that a level has when nothing is said: mdadm's.
    pub const fn default_of(level: Level) -> Layout {
        match level {
            Level::Raid0 | Level::Raid1 | Level::Raid4 => Layout::Fixed,
            Level::Raid5 | Level::Raid6 => Layout::Parity(Rotation::LeftSymmetric),
            Level::Raid10 => Layout::Copies(Copies { near: 2, far: 1, offset: false }),
        }
    }

    /// The layout a level means by md's number. Levels 0, 1 and 4 mean nothing by it.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a number that the level does not have, or that only device
    /// mapper's sets have (level 10 in sets of members).
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

    /// md's number for it.
    pub fn number(self) -> u32 {
        match self {
            Layout::Fixed => 0,
            Layout::Parity(rotation) => rotation.row().1,
            Layout::Copies(copies) => {
                u32::from_le_bytes([copies.near, copies.far, u8::from(copies.offset), 0])
            }
        }
    }

    /// Reads mdadm's words: `ls`, `left-symmetric`, `parity-first`, `n2`, `f2`, `o3`, `default`.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a word that the level has no layout for.
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
                let words = "la, ra, ls, rs, parity-first, parity-last, or a DDF layout for level \
                             6";
                rotation.map(Layout::Parity).ok_or_else(|| bad(words))
            }
            Level::Raid10 => Copies::parse(text)
                .map(Layout::Copies)
                .ok_or_else(|| bad("n2, f2, o2 or another number of copies")),
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
