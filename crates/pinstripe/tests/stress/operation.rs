//! What may happen to a store, and which of it happens in which order: from a seed alone.
//!
//! An operation whose conditions do not hold when its turn comes is left out by the world, so any
//! part of a list is a list: that is what makes shrinking simple.

use std::fmt;

/// Numbers that look random and follow a seed alone.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// How an operation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    /// The process dies after so many steps; what it wrote stays as it is.
    Killed(u64),
    /// The power goes after so many steps; the number chooses what the disks kept.
    PowerCut(u64, u64),
}

/// What a member does during a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It gives errors from some call on.
    Fails,
    /// It says that it wrote, and did not.
    Loses,
    /// It writes the beginning only, and says that it wrote all.
    Tears,
    /// What it writes has wrong bits.
    Flips,
}

/// What goes on beside two backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    Check,
    Scrub,
    ThirdBackup,
}

/// One thing that happens. Members and sources are numbers; what is too large wraps around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The source tree changes.
    Change {
        source: usize,
        seed: u64,
    },
    Backup {
        source: usize,
        end: End,
    },
    /// A backup while a member is in trouble.
    TroubledBackup {
        source: usize,
        member: usize,
        trouble: Trouble,
        after: usize,
    },
    /// Both sources are backed up at once. The end is that of the first, or of the whole machine.
    Together {
        beside: Beside,
        end: End,
    },
    /// A member is detached.
    Lose {
        member: usize,
    },
    /// A detached member comes back as it was.
    Return {
        member: usize,
    },
    /// A member is destroyed.
    Destroy {
        member: usize,
    },
    /// A destroyed member is made anew in an empty directory.
    Replace {
        end: End,
    },
    /// Some files of a member are damaged, shortened or gone.
    Damage {
        member: usize,
        seed: u64,
    },
    Repair {
        end: End,
    },
    /// Of so many hundredths of the store.
    Scrub {
        part: u64,
        end: End,
    },
    Check,
    /// A restore while a member lies or fails.
    TroubledRestore {
        snapshot: usize,
        member: usize,
        seed: u64,
    },
}

const BESIDE: [Beside; 4] = [Beside::Nothing, Beside::Check, Beside::Scrub, Beside::ThirdBackup];

/// Operations of one list.
const FEWEST: usize = 24;
const MORE: usize = 24;
/// Steps after which the longest operations of these stores have ended.
const STEPS: usize = 200;
/// Numbers of members and parity that are tried.
const SHAPES: &[(usize, u8)] = &[(3, 1), (4, 1), (4, 2), (5, 2), (2, 1), (1, 0)];

/// One seed's story.
#[derive(Debug, Clone)]
pub struct Story {
    pub members: usize,
    pub parity: u8,
    pub operations: Vec<Operation>,
}

impl Story {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let &(members, parity) = dice.pick(SHAPES);
        let count = FEWEST + dice.below(MORE);
        let operations = (0..count).map(|_| operation(&mut dice)).collect();
        Story { members, parity, operations }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} members, parity {}", self.members, self.parity)?;
        for (number, operation) in self.operations.iter().enumerate() {
            writeln!(f, "  {number:>2} {operation:?}")?;
        }
        Ok(())
    }
}

fn end(dice: &mut Dice) -> End {
    match dice.below(5) {
        0 => End::Killed(dice.below(STEPS) as u64),
        1 | 2 => End::PowerCut(dice.below(STEPS) as u64, dice.next()),
        _ => End::Whole,
    }
}

fn operation(dice: &mut Dice) -> Operation {
    let (source, member, seed) = (dice.below(2), dice.below(16), dice.next());
    match dice.below(39) {
        0..8 => Operation::Change { source, seed },
        8..14 => Operation::Backup { source, end: end(dice) },
        14..17 => {
            let trouble =
                *dice.pick(&[Trouble::Fails, Trouble::Loses, Trouble::Tears, Trouble::Flips]);
            Operation::TroubledBackup { source, member, trouble, after: dice.below(12) }
        }
        17..20 => {
            let beside = *dice.pick(&BESIDE);
            Operation::Together { beside, end: end(dice) }
        }
        20..22 => Operation::Lose { member },
        22..25 => Operation::Return { member },
        25 => Operation::Destroy { member },
        26..28 => Operation::Replace { end: end(dice) },
        28..30 => Operation::Damage { member, seed },
        30..33 => Operation::Repair { end: end(dice) },
        33 => Operation::Check,
        34..37 => Operation::Scrub { part: *dice.pick(&[5, 30, 100, 100]), end: end(dice) },
        _ => Operation::TroubledRestore { snapshot: dice.below(64), member, seed },
    }
}
