//! Stories of pairs: what is done to a store by several processes at once, from a seed alone.
//!
//! A story is literal data: what `{:?}` prints of one is what `found.rs` takes.

use pinstripe_member::ExtentKind;

use super::verb::{Class, Verb};
use pinstripe_sim::{Cut, Dice, End, SHAPES};

/// Where the store of a story comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Made by this version, with some snapshots.
    New,
    /// Made by format version 1.
    Old,
    /// Divided in two, where each half has a snapshot of its own.
    Divided,
}

/// A store before its story begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub origin: Origin,
    pub members: usize,
    pub parity: u8,
    pub is_sealed: bool,
}

/// What a story puts on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Junk {
    Empty,
    Short,
    Noise,
}

/// What is wrong with members during a scene. Members are numbers that wrap around; `at` is a call
/// of the verb that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Nothing,
    /// A member is away during the scene, and returns after it.
    Away {
        member: usize,
    },
    /// A member is away when the scene begins, and returns at a call.
    Returns {
        member: usize,
        at: u64,
    },
    /// A member goes away at a call, for those that open the store later, and returns after the scene.
    Leaves {
        member: usize,
        at: u64,
    },
    /// Every call on a member fails, from a call on.
    Fails {
        member: usize,
        after: u64,
    },
    /// No call on a member returns, from a call on.
    Hangs {
        member: usize,
        after: u64,
    },
    /// A member has room for so many bytes more.
    Full {
        member: usize,
        bytes: u64,
    },
    /// An older copy of a member comes in its place, at a call.
    Stale {
        member: usize,
        at: u64,
    },
    /// One member has a foreign object, or all members have it, from a call on.
    Junk {
        member: usize,
        is_on_all: bool,
        kind: ExtentKind,
        junk: Junk,
        at: u64,
    },
    /// Extents of packs of a member are damaged.
    Rot {
        member: usize,
        seed: u64,
    },
    /// A member is lost for ever.
    Dies {
        member: usize,
    },
    /// A member is lost, and a strip of another one is damaged: more than parity replaces.
    DiesBesideRot {
        member: usize,
        rotten: usize,
        seed: u64,
    },
}

/// A verb in a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    pub verb: Verb,
    /// Chooses the verb's objects: snapshot, source, member, key.
    pub pick: u64,
    /// The call of the first verb, after it opened the store, at which this one begins.
    pub begins: u64,
}

/// Verbs at work at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scene {
    pub trouble: Trouble,
    pub acts: Vec<Act>,
    pub end: End,
    /// The act that a kill ends.
    pub killed: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    pub seed: u64,
    pub shape: Shape,
    pub scenes: Vec<Scene>,
}

/// Calls of the first verb before which another one begins: most verbs make between 50 and 500.
const BEGINS: &[usize] = &[1, 10, 40, 150, 500];
/// Steps after which a verb is cut off.
const STEPS: &[usize] = &[10, 40, 150];
/// Names that a verb changes of one kind, roughly.
const NAMES: usize = 8;

/// Verbs of triples and of later scenes, those that decide about data more often.
const WEIGHTED: &[Verb] = &[
    Verb::Backup,
    Verb::Backup,
    Verb::Gc,
    Verb::Gc,
    Verb::Undelete,
    Verb::Undelete,
    Verb::Forget,
    Verb::Repair,
    Verb::Repair,
    Verb::KeyRotate,
    Verb::KeyRotate,
    Verb::KeyAdd,
    Verb::ReplaceLiving,
    Verb::ReplaceDead,
    Verb::MemberAdd,
    Verb::Scrub,
];

/// The story of a seed. The first seeds, as many as there are pairs, and every second run of as many,
/// play the pair of their number; the others draw verbs, triples among them.
pub fn story(seed: u64) -> Story {
    let mut dice = Dice::new(seed ^ 0x7061_6972);
    let acts = if (seed / Verb::PAIRS).is_multiple_of(2) {
        Verb::pair(seed).to_vec()
    } else {
        let count = *dice.pick(&[1, 2, 3, 3]);
        (0..count).map(|_| any(&mut dice)).collect()
    };
    let shape = shape(&mut dice, &acts);
    let mut scenes = Vec::new();
    if dice.below(4) == 0 {
        scenes.push(single(&mut dice));
    }
    scenes.push(scene(&mut dice, &acts));
    scenes.extend(later(&mut dice));
    Story { seed, shape, scenes }
}

fn any(dice: &mut Dice) -> Verb {
    if dice.below(4) == 0 { *dice.pick(Verb::ALL) } else { *dice.pick(WEIGHTED) }
}

fn shape(dice: &mut Dice, acts: &[Verb]) -> Shape {
    // Verbs of keys are refused at once in a store that is not sealed.
    let of_keys = acts.iter().any(|verb| verb.class() == Class::Key);
    let is_sealed = dice.below(if of_keys { 8 } else { 2 }) != 1;
    if acts.contains(&Verb::Merge) && dice.below(4) > 0 {
        return Shape { origin: Origin::Divided, members: 2, parity: 1, is_sealed };
    }
    if acts.contains(&Verb::Upgrade) && dice.below(4) > 0 {
        return Shape { origin: Origin::Old, members: 3, parity: 1, is_sealed };
    }
    let &(members, parity) = dice.pick(SHAPES);
    Shape { origin: Origin::New, members, parity, is_sealed }
}

fn act(dice: &mut Dice, verb: Verb) -> Act {
    let begins = *dice.pick(BEGINS);
    Act { verb, pick: dice.next(), begins: dice.below(begins) as u64 }
}

fn scene(dice: &mut Dice, verbs: &[Verb]) -> Scene {
    let acts: Vec<Act> = verbs.iter().map(|verb| act(dice, *verb)).collect();
    let trouble = if dice.below(2) == 0 { Trouble::Nothing } else { trouble(dice, verbs) };
    Scene { trouble, killed: dice.below(acts.len()), acts, end: end(dice) }
}

fn single(dice: &mut Dice) -> Scene {
    let verb = any(dice);
    scene(dice, &[verb])
}

/// Some verbs that follow: members that die one after the other, or whatever.
fn later(dice: &mut Dice) -> Vec<Scene> {
    match dice.below(4) {
        0 => {
            let first = dice.below(8);
            (0..1 + dice.below(2)).map(|number| replaced(dice, first + number)).collect()
        }
        1 => (0..1 + dice.below(2)).map(|_| single(dice)).collect(),
        2 if dice.below(2) == 0 => vec![alone(dice, Verb::MemberAdd)],
        _ => Vec::new(),
    }
}

fn replaced(dice: &mut Dice, member: usize) -> Scene {
    Scene { trouble: Trouble::Dies { member }, ..alone(dice, Verb::ReplaceDead) }
}

fn alone(dice: &mut Dice, verb: Verb) -> Scene {
    let acts = vec![act(dice, verb)];
    Scene { trouble: Trouble::Nothing, acts, end: End::Whole, killed: 0 }
}

fn trouble(dice: &mut Dice, verbs: &[Verb]) -> Trouble {
    let (member, calls) = (dice.below(8), *dice.pick(BEGINS));
    let at = dice.below(calls) as u64;
    if verbs.contains(&Verb::ReplaceDead) && dice.below(4) > 0 {
        return match dice.below(4) {
            0 => Trouble::DiesBesideRot { member, rotten: dice.below(8), seed: dice.next() },
            _ => Trouble::Dies { member },
        };
    }
    match dice.below(12) {
        0 | 1 => Trouble::Away { member },
        2 => Trouble::Returns { member, at },
        3 => Trouble::Leaves { member, at },
        4 => Trouble::Fails { member, after: at },
        5 => Trouble::Hangs { member, after: at },
        6 | 7 => {
            let most = *dice.pick(&[1_000, 10_000, 60_000, 200_000]);
            Trouble::Full { member, bytes: dice.below(most) as u64 }
        }
        8 => Trouble::Stale { member, at },
        9 | 10 => junk(dice, member, at),
        _ => Trouble::Rot { member, seed: dice.next() },
    }
}

/// All members have a foreign object only among kinds that hold no data.
fn junk(dice: &mut Dice, member: usize, at: u64) -> Trouble {
    let junk = *dice.pick(&[Junk::Empty, Junk::Empty, Junk::Short, Junk::Noise]);
    if dice.below(3) == 0 {
        let kind = *dice.pick(&[ExtentKind::Gc, ExtentKind::Sessions]);
        return Trouble::Junk { member, is_on_all: true, kind, junk, at };
    }
    let kind = *dice.pick(&ExtentKind::ALL);
    Trouble::Junk { member, is_on_all: false, kind, junk, at }
}

fn end(dice: &mut Dice) -> End {
    match dice.below(8) {
        0 => End::Killed(cut(dice)),
        1 => End::PowerCut(cut(dice), dice.next()),
        _ => End::Whole,
    }
}

fn cut(dice: &mut Dice) -> Cut {
    if dice.below(2) == 0 {
        let steps = *dice.pick(STEPS);
        return Cut::after(dice.below(steps) as u64);
    }
    let kind = *dice.pick(&ExtentKind::ALL);
    Cut::within(kind, dice.below(NAMES) as u64)
}

impl Trouble {
    /// Whether a member's directory goes away or comes back.
    pub fn moves_away(&self) -> bool {
        use Trouble::{Away, Leaves, Returns, Stale};
        matches!(self, Away { .. } | Leaves { .. } | Returns { .. } | Stale { .. })
    }

    /// Whether a member ends calls with errors, or does not answer.
    pub fn fails(&self) -> bool {
        matches!(self, Trouble::Fails { .. } | Trouble::Hangs { .. })
    }
}

impl Story {
    /// Stories with less in them, from which a shorter one that fails is chosen.
    pub fn shorter(&self) -> Vec<Story> {
        let mut shorter = Vec::new();
        for at in 0..self.scenes.len() {
            let mut without = self.clone();
            without.scenes.remove(at);
            shorter.push(without);
            shorter.extend(self.scenes[at].shorter().into_iter().map(|scene| {
                let mut with = self.clone();
                with.scenes[at] = scene;
                with
            }));
        }
        shorter
    }
}

impl Scene {
    fn shorter(&self) -> Vec<Scene> {
        let mut shorter = Vec::new();
        for at in 0..self.acts.len() {
            if self.acts.len() > 1 {
                let mut without = self.clone();
                without.acts.remove(at);
                without.killed = without.killed.min(without.acts.len() - 1);
                shorter.push(without);
            }
            if self.acts[at].begins > 0 {
                let mut sooner = self.clone();
                sooner.acts[at].begins /= 2;
                shorter.push(sooner);
            }
        }
        if self.trouble != Trouble::Nothing {
            shorter.push(Scene { trouble: Trouble::Nothing, ..self.clone() });
        }
        if self.end != End::Whole {
            shorter.push(Scene { end: End::Whole, ..self.clone() });
        }
        shorter
    }

    /// Whether one of these verbs is at work.
    pub fn has(&self, is_it: impl Fn(Verb) -> bool) -> bool {
        self.acts.iter().any(|act| is_it(act.verb))
    }

    /// Whether another verb than this act's is at work, of one of these classes.
    pub fn has_beside(&self, own: usize, classes: &[Class]) -> bool {
        let mut others = self.acts.iter().enumerate().filter(|(at, _)| *at != own);
        others.any(|(_, act)| classes.contains(&act.verb.class()))
    }
}
