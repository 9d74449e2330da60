//! Short stories from a seed: few operations, and of few kinds each, so that what takes several of
//! one kind in a row comes about.

use pinstripe_member::ExtentKind;

use pinstripe_sim::{
    BESIDE, Cut, Dice, End, KEY_WORKS, Operation, PARTNERS, PARTS, SHAPES, Story, TROUBLES, WASTE,
};

/// Operations of one story.
const FEWEST: usize = 6;
const MORE: usize = 13;
/// The frequency of a kind of operation in a story: most kinds come in few of them.
const WEIGHTS: &[usize] = &[0, 0, 0, 1, 3];
/// Changes and backups come in each, and in some hardly anything else: runs of the index are
/// merged after four backups.
const WEIGHTS_OF_BACKUPS: &[usize] = &[4, 12, 40];
/// Steps after which the longest operations of these stores have ended, and those of short ones.
const STEPS: &[usize] = &[40, 120, 300];
/// Names that the longest operations change of one kind, roughly.
const NAMES: usize = 12;

/// One of so many stories is of index runs that are merged.
const MERGED_ONE_OF: usize = 8;

type Draw = fn(&mut Dice) -> Operation;

/// The kinds that come in every story.
const ALWAYS: &[Draw] = &[
    |dice| Operation::Change { source: dice.below(2), seed: dice.next() },
    |dice| {
        let is_whole = dice.below(2) == 0;
        let end = if is_whole { End::Whole } else { end(dice) };
        Operation::Backup { source: dice.below(2), end }
    },
];

/// The kinds that come in some.
const SOMETIMES: &[Draw] = &[
    |dice| {
        let trouble = *dice.pick(&TROUBLES);
        let (source, member, after) = (dice.below(2), dice.below(16), dice.below(12));
        Operation::TroubledBackup { source, member, trouble, after }
    },
    |dice| Operation::Damage { member: dice.below(16), seed: dice.next() },
    |dice| Operation::Together { beside: *dice.pick(&BESIDE), end: end(dice) },
    |dice| match dice.below(4) {
        0 | 1 => Operation::Lose { member: dice.below(16) },
        _ => Operation::Return { member: dice.below(16) },
    },
    |dice| match dice.below(2) {
        0 => Operation::Destroy { member: dice.below(16) },
        _ => Operation::Replace { end: end(dice) },
    },
    |dice| Operation::Repair { end: end(dice) },
    |dice| Operation::Scrub { part: *dice.pick(PARTS), end: end(dice) },
    |dice| {
        let (snapshot, member, seed) = (dice.below(64), dice.below(16), dice.next());
        Operation::TroubledRestore { snapshot, member, seed }
    },
    |dice| match dice.below(4) {
        0 => Operation::ForgetByRule { last: 1 + dice.below(3) as u64, end: end(dice) },
        1 => Operation::Undelete { snapshot: dice.below(64), end: end(dice) },
        _ => Operation::Forget { snapshot: dice.below(64), end: end(dice) },
    },
    |dice| Operation::Collect { waste: *dice.pick(WASTE), end: end(dice) },
    collect_beside,
    |dice| Operation::AddMember { end: end(dice) },
    |dice| match dice.below(3) {
        0 => Operation::KeepMember,
        _ => Operation::RemoveMember { member: dice.below(16), end: end(dice) },
    },
    |dice| Operation::SwapMember { member: dice.below(16), end: end(dice) },
    |dice| Operation::Rebalance { end: end(dice) },
    |dice| {
        let work = *dice.pick(&KEY_WORKS);
        Operation::Keys { work, end: end(dice) }
    },
];

/// The story of a seed.
pub fn story(seed: u64) -> Story {
    let mut dice = Dice::new(seed);
    let &(members, parity) = dice.pick(SHAPES);
    if dice.below(MERGED_ONE_OF) == 0 {
        return Story { seed, members, parity, operations: merges(&mut dice) };
    }
    let mut kinds: Vec<Draw> = ALWAYS.repeat(*dice.pick(WEIGHTS_OF_BACKUPS));
    for kind in SOMETIMES {
        kinds.extend(vec![*kind; *dice.pick(WEIGHTS)]);
    }
    let count = FEWEST + dice.below(MORE);
    let operations = (0..count).map(|_| dice.pick(&kinds)(&mut dice)).collect();
    Story { seed, members, parity, operations }
}

/// Backups of one source until their index runs are merged, a member in trouble at some point, and
/// a backup that dies when it may be merging, with one that ends well after it.
fn merges(dice: &mut Dice) -> Vec<Operation> {
    let source = dice.below(2);
    let change = |dice: &mut Dice| Operation::Change { source, seed: dice.next() };
    let mut operations = Vec::new();
    for _ in 0..4 + dice.below(3) {
        operations.extend([change(dice), Operation::Backup { source, end: End::Whole }]);
    }
    let trouble = SOMETIMES[dice.below(2)](dice);
    operations.insert(dice.below(operations.len()), trouble);
    let cut = match dice.below(3) {
        0 => cut(dice),
        1 => Cut::after(20 + dice.below(150) as u64),
        _ => Cut::within(ExtentKind::Index, dice.below(NAMES) as u64),
    };
    let end = if dice.below(2) == 0 { End::Killed(cut) } else { End::PowerCut(cut, dice.next()) };
    operations.extend([change(dice), Operation::Backup { source, end }]);
    operations.push(Operation::Backup { source: 1 - source, end: End::Whole });
    operations
}

fn end(dice: &mut Dice) -> End {
    match dice.below(5) {
        0 => End::Killed(cut(dice)),
        1 | 2 => End::PowerCut(cut(dice), dice.next()),
        _ => End::Whole,
    }
}

/// Half of the cuts are drawn from all steps, half from those that change names of one kind: most
/// steps are of packs, and what decides is done in few.
fn cut(dice: &mut Dice) -> Cut {
    if dice.below(2) == 0 {
        let steps = *dice.pick(STEPS);
        return Cut::after(dice.below(steps) as u64);
    }
    let kind = *dice.pick(&ExtentKind::ALL);
    Cut::within(kind, dice.below(NAMES) as u64)
}

fn collect_beside(dice: &mut Dice) -> Operation {
    let partner = *dice.pick(&PARTNERS);
    let (snapshot, of_partner) = (dice.below(64), dice.below(2) == 0);
    let waste = *dice.pick(WASTE);
    Operation::CollectBeside { partner, snapshot, waste, end: end(dice), of_partner }
}
