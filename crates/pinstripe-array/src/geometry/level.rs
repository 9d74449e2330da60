//! The levels, with md's numbers and mdadm's words.

use std::fmt;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind, Result};

/// The RAID level: the way an array spreads data over its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Striped, nothing redundant.
    Raid0,
    /// Mirrored: every member has all of the data.
    Raid1,
    /// Striped, with P on one fixed member.
    Raid4,
    /// Striped, with P on each member in turn.
    Raid5,
    /// Striped, with P and Q on each member in turn.
    Raid6,
    /// Striped copies.
    Raid10,
}

/// Each level with its number and its other names.
const LEVELS: [(Level, i32, &[&str]); 6] = [
    (Level::Raid0, 0, &["raid0", "stripe"]),
    (Level::Raid1, 1, &["raid1", "mirror"]),
    (Level::Raid4, 4, &["raid4"]),
    (Level::Raid5, 5, &["raid5"]),
    (Level::Raid6, 6, &["raid6"]),
    (Level::Raid10, 10, &["raid10"]),
];

impl Level {
    /// All of them.
    pub const ALL: [Level; 6] =
        [Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10];

    /// md's number of the level, which is also its usual name.
    pub fn number(self) -> i32 {
        LEVELS.iter().find(|(level, ..)| *level == self).map_or(0, |(_, number, _)| *number)
    }

    /// The level with this number (md's).
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] for linear (-1), multipath (-4) and every other number.
    pub fn from_number(number: i32) -> Result<Self> {
        let found = LEVELS.iter().find(|(_, theirs, _)| *theirs == number);
        found.map(|(level, ..)| *level).ok_or_else(|| {
            let name = match number {
                -1 => "linear (-1)".to_owned(),
                -4 => "multipath (-4)".to_owned(),
                -5 => "faulty (-5)".to_owned(),
                -10 => "container of a firmware RAID (-10)".to_owned(),
                number => number.to_string(),
            };
            Error::new(Kind::Unsupported, format!("level {name} is not supported"))
                .expected("level 0, 1, 4, 5, 6 or 10", number)
        })
    }

    /// The number of parity shards in each row.
    pub const fn parity(self) -> usize {
        match self {
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
        }
    }

    /// Whether a row consists of copies of one chunk.
    pub const fn mirrors(self) -> bool {
        matches!(self, Level::Raid1 | Level::Raid10)
    }

    /// The fewest members of an array of this level, the same as md's.
    pub(crate) const fn members_min(self) -> usize {
        match self {
            Level::Raid0 | Level::Raid1 => 1,
            Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
            Level::Raid6 => 4,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "raid{}", self.number())
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = LEVELS
            .iter()
            .find(|(_, number, words)| words.contains(&text) || number.to_string() == text);
        found.map(|(level, ..)| *level).ok_or_else(|| {
            Error::new(Kind::Usage, format!("'{text}' is not a RAID level"))
                .expected("level 0, 1, 4, 5, 6, 10, stripe or mirror", text)
        })
    }
}
