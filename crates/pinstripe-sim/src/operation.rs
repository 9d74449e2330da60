//! The operations on a store and their order, determined by a seed alone.
//!
//! An operation whose conditions are not met at its turn is skipped, so any part of a list of
//! operations is a valid list; this makes shrinking simple.

use std::fmt;
use std::path::Path;

use pinstripe_base::random::splitmix64;
use pinstripe_member::{DiskStep, ExtentKind, PowerCut};

/// Pseudorandom numbers that depend only on a seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// Returns a number in `0..end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// The step before which an operation is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The number of counted steps that are made before the interruption.
    pub after: u64,
    /// The kind in which a step must change names to be counted; `None` if all steps are counted.
    pub kind: Option<ExtentKind>,
}

impl Cut {
    pub const fn after(after: u64) -> Self {
        Cut { after, kind: None }
    }

    pub const fn within(kind: ExtentKind, after: u64) -> Self {
        Cut { after, kind: Some(kind) }
    }

    pub fn power(self) -> PowerCut {
        let Some(kind) = self.kind else { return PowerCut::new(self.after) };
        let is_in = move |path: &Path| path.components().any(|it| it.as_os_str() == kind.dir());
        PowerCut::counting(self.after, move |step| match step {
            DiskStep::Rename { to, .. } => is_in(to),
            DiskStep::Unlink(path) => is_in(path),
            _ => false,
        })
    }
}

/// How an operation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    /// The process is killed; what it wrote stays unchanged.
    Killed(Cut),
    /// The power fails; the number determines what the disks kept.
    PowerCut(Cut, u64),
}

/// How a member misbehaves during a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The member returns errors from some call on.
    Fails,
    /// The member reports writes as done, but drops them.
    Loses,
    /// The member writes only the beginning, but reports that it wrote all.
    Tears,
    /// The member writes wrong bits.
    Flips,
}

/// The operation that runs in parallel with two backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    Check,
    Scrub,
    ThirdBackup,
    Collect,
}

/// The operation that runs in parallel with a gc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partner {
    Backup,
    Collect,
    Restore,
    Forget,
    Undelete,
    Check,
}

/// The change to the keys of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyWork {
    Add,
    Remove,
    Rotate,
}

/// One operation of a story. Members and sources are given by numbers, which are taken modulo their
/// count.
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
    /// A backup while a member misbehaves.
    TroubledBackup {
        source: usize,
        member: usize,
        trouble: Trouble,
        after: usize,
    },
    /// Both sources are backed up at the same time. A kill ends the first backup; a power cut ends
    /// both.
    Together {
        beside: Beside,
        end: End,
    },
    /// A member is detached.
    Lose {
        member: usize,
    },
    /// A detached member returns unchanged.
    Return {
        member: usize,
    },
    /// A member is destroyed.
    Destroy {
        member: usize,
    },
    /// A destroyed member is replaced in a new, empty directory.
    Replace {
        end: End,
    },
    /// Some files of a member are damaged, truncated or removed.
    Damage {
        member: usize,
        seed: u64,
    },
    Repair {
        end: End,
    },
    /// A scrub of this percentage of the store.
    Scrub {
        part: u64,
        end: End,
    },
    Check,
    /// A restore while a member returns wrong data or errors.
    TroubledRestore {
        snapshot: usize,
        member: usize,
        seed: u64,
    },
    /// One snapshot is forgotten, by name.
    Forget {
        snapshot: usize,
        end: End,
    },
    /// All snapshots of each source except the newest ones are forgotten.
    ForgetByRule {
        last: u64,
        end: End,
    },
    Undelete {
        snapshot: usize,
        end: End,
    },
    /// A gc that permits this percentage of waste.
    Collect {
        waste: u64,
        end: End,
    },
    /// A gc in parallel with another operation. A kill ends the gc, or the other operation.
    CollectBeside {
        partner: Partner,
        snapshot: usize,
        waste: u64,
        end: End,
        of_partner: bool,
    },
    /// A backup of another host hangs before a step until gc considers it dead; then it continues,
    /// or is killed.
    Silent {
        source: usize,
        after: u64,
        wakes: bool,
        waste: u64,
    },
    AddMember {
        end: End,
    },
    /// A member is removed, or an interrupted removal is continued.
    RemoveMember {
        member: usize,
        end: End,
    },
    /// A member whose removal was interrupted is kept after all.
    KeepMember,
    /// A new member replaces one that is available or absent.
    SwapMember {
        member: usize,
        end: End,
    },
    Rebalance {
        end: End,
    },
    Keys {
        work: KeyWork,
        end: End,
    },
}

pub const BESIDE: [Beside; 5] =
    [Beside::Nothing, Beside::Check, Beside::Scrub, Beside::ThirdBackup, Beside::Collect];
pub const PARTNERS: [Partner; 8] = [
    Partner::Backup,
    Partner::Backup,
    Partner::Backup,
    Partner::Collect,
    Partner::Restore,
    Partner::Forget,
    Partner::Undelete,
    Partner::Check,
];
pub const WASTE: &[u64] = &[0, 0, 10, 50, 100];
pub const TROUBLES: [Trouble; 4] = [Trouble::Fails, Trouble::Loses, Trouble::Tears, Trouble::Flips];
pub const KEY_WORKS: [KeyWork; 3] = [KeyWork::Add, KeyWork::Remove, KeyWork::Rotate];
/// The percentages of a store that are scrubbed.
pub const PARTS: &[u64] = &[5, 30, 100, 100];

/// The smallest number of operations in a list.
const FEWEST: usize = 40;
const MORE: usize = 60;
/// The number of steps within which the longest operations of these stores end.
const STEPS: usize = 200;
/// The tested numbers of members and parity.
pub const SHAPES: &[(usize, u8)] = &[(3, 1), (4, 1), (4, 2), (5, 2), (2, 1), (1, 0)];

/// One seed's story.
#[derive(Debug, Clone)]
pub struct Story {
    pub seed: u64,
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
        Story { seed, members, parity, operations }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} members, parity {}", self.seed, self.members, self.parity)?;
        for (number, operation) in self.operations.iter().enumerate() {
            writeln!(f, "  {number:>2} {operation:?}")?;
        }
        Ok(())
    }
}

fn end(dice: &mut Dice) -> End {
    match dice.below(5) {
        0 => End::Killed(Cut::after(dice.below(STEPS) as u64)),
        1 | 2 => End::PowerCut(Cut::after(dice.below(STEPS) as u64), dice.next()),
        _ => End::Whole,
    }
}

fn operation(dice: &mut Dice) -> Operation {
    let (source, member, seed) = (dice.below(2), dice.below(16), dice.next());
    match dice.below(62) {
        0..9 => Operation::Change { source, seed },
        9..15 => Operation::Backup { source, end: end(dice) },
        15..18 => {
            let trouble = *dice.pick(&TROUBLES);
            Operation::TroubledBackup { source, member, trouble, after: dice.below(12) }
        }
        18..21 => {
            let beside = *dice.pick(&BESIDE);
            Operation::Together { beside, end: end(dice) }
        }
        21..23 => Operation::Lose { member },
        23..26 => Operation::Return { member },
        26 => Operation::Destroy { member },
        27..29 => Operation::Replace { end: end(dice) },
        29..31 => Operation::Damage { member, seed },
        31..34 => Operation::Repair { end: end(dice) },
        34 => Operation::Check,
        35..37 => Operation::Scrub { part: *dice.pick(PARTS), end: end(dice) },
        37 => Operation::TroubledRestore { snapshot: dice.below(64), member, seed },
        38..52 => deletion(dice),
        52..59 => members(dice, member),
        _ => {
            let work = *dice.pick(&KEY_WORKS);
            Operation::Keys { work, end: end(dice) }
        }
    }
}

fn deletion(dice: &mut Dice) -> Operation {
    let (snapshot, waste) = (dice.below(64), *dice.pick(WASTE));
    match dice.below(17) {
        0..3 => Operation::Forget { snapshot, end: end(dice) },
        3 => Operation::ForgetByRule { last: 1 + dice.below(3) as u64, end: end(dice) },
        4..6 => Operation::Undelete { snapshot, end: end(dice) },
        6..10 => Operation::Collect { waste, end: end(dice) },
        10..13 => {
            let (source, after) = (dice.below(2), dice.below(STEPS) as u64);
            Operation::Silent { source, after, wakes: dice.below(3) > 0, waste }
        }
        _ => {
            let partner = *dice.pick(&PARTNERS);
            let of_partner = dice.below(2) == 0;
            Operation::CollectBeside { partner, snapshot, waste, end: end(dice), of_partner }
        }
    }
}

fn members(dice: &mut Dice, member: usize) -> Operation {
    match dice.below(7) {
        0..2 => Operation::AddMember { end: end(dice) },
        2..4 => Operation::RemoveMember { member, end: end(dice) },
        4 => Operation::KeepMember,
        5 => Operation::SwapMember { member, end: end(dice) },
        _ => Operation::Rebalance { end: end(dice) },
    }
}
