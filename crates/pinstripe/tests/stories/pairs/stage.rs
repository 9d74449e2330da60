//! One scene: each verb in a process of its own, interleaved at the calls of the member seam, and
//! the story's own hand, which does to members what disks and people do.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pinstripe_base::error::Result;
use pinstripe_member::{ExtentKind, ExtentName, PowerCut, Steps};
use pinstripe_sim::Who;
use pinstripe_sim::cut_off;

use super::actor::{Actor, Done, Target};
use super::story::{Act, Junk, Scene, Trouble};
use super::verb::Class;
use super::world::{Seat, Where, World};
use crate::process::Life;
use pinstripe_sim::{Cut, Dice, End};
use pinstripe_sim::{Ledger, NoWait, read_files};

/// Longer than any member is waited for.
const HANGS: &str = "delay=7200s";
/// The names of processes in the trace.
const NAMES: [&str; 3] = ["first", "second", "third"];

/// What came of a verb.
pub struct Outcome {
    pub act: Act,
    pub target: Target,
    pub done: Result<Done>,
    /// Whether its end had come when it returned.
    pub is_cut: bool,
    pub ledger: Ledger,
    /// Calls of the member seam after it had opened the store.
    pub calls: u64,
}

/// What the hand does at a call of the first verb.
enum Deed {
    Rename(PathBuf, PathBuf),
    /// Files of a directory are these from now on.
    Replace(PathBuf, Vec<(PathBuf, Vec<u8>)>),
    Write(Vec<(PathBuf, Vec<u8>)>),
}

impl Deed {
    fn carry_out(&self) {
        match self {
            Deed::Rename(from, to) => fs::rename(from, to).unwrap(),
            Deed::Replace(place, files) => {
                if fs::remove_dir_all(place).is_ok() {
                    ExtentKind::ALL.iter().for_each(|kind| {
                        fs::create_dir_all(place.join(kind.dir())).unwrap();
                    });
                    fs::create_dir_all(place.join("tmp")).unwrap();
                    write(files);
                }
            }
            Deed::Write(files) => write(files),
        }
    }
}

fn write(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        // The member may have been removed.
        if fs::create_dir_all(path.parent().unwrap()).is_ok() {
            let _ = fs::write(path, bytes);
        }
    }
}

/// The trouble of a scene, as it was begun.
#[derive(Default)]
struct Begun {
    faults: String,
    has_patience: bool,
    deed: Option<(u64, Deed)>,
}

/// The ends of the processes of a scene.
struct Ends {
    end: End,
    power: Arc<PowerCut>,
    killed: usize,
}

impl Ends {
    fn of(scene: &Scene) -> Self {
        // What a power cut leaves of a directory that was replaced meanwhile is not modelled.
        let end = match (scene.end, scene.trouble) {
            (End::PowerCut(cut, _), Trouble::Stale { .. }) => End::Killed(cut),
            (end, _) => end,
        };
        let cut = match end {
            End::Killed(cut) | End::PowerCut(cut, _) => cut,
            End::Whole => Cut::after(u64::MAX),
        };
        Ends { end, power: Arc::new(cut.power()), killed: scene.killed }
    }

    fn is_of(&self, act: usize) -> bool {
        match self.end {
            End::Whole => false,
            End::Killed(_) => act == self.killed,
            End::PowerCut(..) => true,
        }
    }

    fn steps(&self, act: usize) -> Arc<dyn Steps> {
        if self.is_of(act) { Arc::clone(&self.power) as Arc<dyn Steps> } else { Arc::new(NoWait) }
    }
}

impl World {
    /// Plays a scene; says what came of each verb.
    pub fn play(&mut self, scene: &Scene) -> Vec<Outcome> {
        self.note(&format!("{scene:?}"));
        let writes = scene.has(|verb| verb.class() != Class::Reader);
        let begun = self.begin(scene, writes);
        self.has_older_table |= self.absent() > 0 && scene.has(|verb| verb.class() == Class::Mover);
        for (source, act) in [0, 1].into_iter().zip(scene.acts.iter().cycle()) {
            self.sources.put(source, (act.pick >> 32) as usize % 7);
        }
        self.sources.put(super::template::INTERRUPTED, 0);
        let targets: Vec<Target> =
            scene.acts.iter().map(|act| Target::choose(self, *act)).collect();
        self.announce(scene, &targets);
        self.new_places.extend(targets.iter().map(|target| target.new_place.clone()));
        let ends = Ends::of(scene);
        let outcomes = self.together(scene, targets, &begun, &ends);
        for at in 0..self.seats.len() {
            self.meet_place(at);
            self.bring_back(at);
        }
        cut_off(ends.end, &ends.power);
        self.is_untidy |= outcomes.iter().any(|outcome| outcome.is_cut || outcome.done.is_err());
        outcomes
    }

    /// New keys are known to whoever opens the store from now on.
    fn announce(&self, scene: &Scene, targets: &[Target]) {
        use super::verb::Verb::{KeyAdd, KeyRotate};
        let mut keys = self.keys.lock().unwrap();
        for (act, target) in scene.acts.iter().zip(targets) {
            if self.shape.is_sealed && matches!(act.verb, KeyAdd | KeyRotate) {
                let mut key = target.new_key.clone();
                key.opens = super::keys::Opens::Unsure;
                keys.push(key);
            }
        }
    }

    fn together(
        &self,
        scene: &Scene,
        targets: Vec<Target>,
        begun: &Begun,
        ends: &Ends,
    ) -> Vec<Outcome> {
        pinstripe_schedule::forget_processes();
        std::thread::scope(|scope| {
            let pairs = scene.acts.iter().zip(targets).enumerate();
            let started: Vec<_> = pairs
                .map(|(number, (act, target))| {
                    scope.spawn(move || self.act(number, *act, target, begun, ends))
                })
                .collect();
            let hand = begun.deed.as_ref().map(|(at, deed)| {
                scope.spawn(move || {
                    pinstripe_schedule::await_calls(0, *at);
                    pinstripe_schedule::aside(|| deed.carry_out());
                })
            });
            let outcomes = started
                .into_iter()
                .map(|it| it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let outcomes = outcomes.collect();
            if let Some(hand) = hand {
                hand.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            outcomes
        })
    }

    fn act(&self, number: usize, act: Act, target: Target, begun: &Begun, ends: &Ends) -> Outcome {
        pinstripe_schedule::take_part(number);
        // However this ends, others do not wait for ever.
        let leaving = Leaving(number);
        if number > 0 {
            pinstripe_schedule::await_calls(0, act.begins);
        }
        let life = Life::begin();
        let silent: Arc<Mutex<BTreeSet<PathBuf>>> = Arc::default();
        let actor = Actor {
            world: self,
            number,
            act,
            target,
            who: Who::new(NAMES[number], ends.steps(number), life.process()),
            faults: begun.faults.clone(),
            has_patience: begun.has_patience,
            ledger: Ledger::new(),
            silent,
        };
        let done = actor.run();
        let is_cut = ends.is_of(number) && ends.power.is_off();
        self.note(&match &done {
            Ok(_) => format!("   {} ends", NAMES[number]),
            Err(error) => format!("   {} ends with {:?}: {error}", NAMES[number], error.kind()),
        });
        drop(life);
        let calls = leaving.leave();
        let Actor { target, ledger, .. } = actor;
        Outcome { act, target, done, is_cut, ledger, calls }
    }

    /// Begins what is wrong with members in a scene.
    fn begin(&mut self, scene: &Scene, writes: bool) -> Begun {
        let wrap = |member: usize| member % self.seats.len();
        let mut begun = Begun::default();
        match scene.trouble {
            Trouble::Nothing => {}
            Trouble::Away { member } => {
                self.leave(wrap(member), writes);
            }
            Trouble::Returns { member, at } => {
                let member = wrap(member);
                if self.leave(member, writes) {
                    let seat = &self.seats[member];
                    let deed = Deed::Rename(seat.aside(), seat.place.clone());
                    begun.deed = Some((at, deed));
                }
            }
            Trouble::Leaves { member, at } => {
                let member = wrap(member);
                if self.bears(member) && self.seats.len() > 1 {
                    self.seats[member].is_hurt |= writes;
                    let seat = &self.seats[member];
                    begun.deed = Some((at, Deed::Rename(seat.place.clone(), seat.aside())));
                }
            }
            Trouble::Fails { member, after } => {
                begun.faults = self.fail(wrap(member), after, "error=EIO", writes)
            }
            Trouble::Hangs { member, after } => {
                begun.faults = self.fail(wrap(member), after, HANGS, writes);
                begun.has_patience = true;
            }
            Trouble::Full { member, bytes } => {
                let place = self.seats[wrap(member)].place.clone();
                if self.seats[wrap(member)].is_here() {
                    self.quota.limit(&place, bytes);
                }
            }
            Trouble::Stale { member, at } => {
                begun.deed = self.stale(wrap(member)).map(|it| (at, it))
            }
            Trouble::Junk { member, is_on_all, kind, junk, at } => {
                let member = (!is_on_all).then(|| wrap(member));
                if is_on_all {
                    self.junk.insert(kind);
                }
                begun.deed = self.junk(member, kind, junk, at).map(|it| (at, it));
            }
            Trouble::Rot { member, seed } => {
                if self.bears(wrap(member)) {
                    self.rot(wrap(member), seed);
                }
            }
            Trouble::Dies { member } => drop(self.die(wrap(member))),
            Trouble::DiesBesideRot { member, rotten, seed } => {
                let (member, rotten) = (wrap(member), wrap(rotten));
                let is_one_more = member != rotten && self.seats[rotten].is_here();
                if is_one_more && self.parity() == 1 && self.die(member) {
                    self.rot(rotten, seed);
                    self.may_lose = true;
                }
            }
        }
        if writes && scene.trouble.moves_away() {
            self.leave_out_unseen();
        }
        begun
    }

    /// Members that no label leads to while others are away, as an addition that was cut off leaves
    /// them, lack what is written meanwhile.
    fn leave_out_unseen(&mut self) {
        let Ok(store) = self.open() else { return };
        let is_seen = |seat: &Seat| {
            let mut slots = store.member_slots.iter();
            slots.any(|slot| slot.row.is_some() && slot.place == seat.place)
        };
        for seat in self.seats.iter_mut().filter(|seat| seat.is_here()) {
            seat.is_hurt |= !is_seen(seat);
        }
    }

    /// Whether something may go wrong with this member now, within what parity replaces.
    fn bears(&self, at: usize) -> bool {
        let is_other = |other: &usize| *other != at;
        let wrong = (0..self.seats.len()).filter(is_other).filter(|other| {
            let seat = &self.seats[*other];
            seat.is_hurt || !seat.is_here()
        });
        let mut beyond: Vec<usize> = wrong.clone().collect();
        beyond.push(at);
        self.seats[at].is_here()
            && wrong.count() + self.unseen_losses() < self.parity()
            && !self.is_beyond_what_was_stated(&beyond)
    }

    /// A member is away: while enough others are there, what is written has all its parity on them.
    fn leave(&mut self, at: usize, writes: bool) -> bool {
        if !self.bears(at) {
            return false;
        }
        self.take_away(at);
        let left = self.seats.len() - self.absent();
        self.seats[at].is_hurt |= writes && left <= self.parity();
        true
    }

    fn fail(&mut self, at: usize, after: u64, effect: &str, writes: bool) -> String {
        if !self.bears(at) {
            return String::new();
        }
        // A pack that was open lacks a part until the next repair.
        self.seats[at].is_hurt |= writes;
        format!("member={},after={after},{effect}", self.seats[at].number)
    }

    fn die(&mut self, at: usize) -> bool {
        if !self.bears(at) || self.seats.len() < 2 {
            return false;
        }
        fs::remove_dir_all(&self.seats[at].place).unwrap();
        self.seats[at].is = Where::Dead;
        self.quota.lift(&self.seats[at].place);
        true
    }

    /// Changes bytes in the middle of an extent of a pack.
    fn rot(&mut self, at: usize, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut files = std::collections::BTreeMap::new();
        read_files(&self.seats[at].place.join(ExtentKind::Packs.dir()), &mut files);
        // Junk may be empty.
        let files: Vec<_> = files.into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        if files.is_empty() {
            return;
        }
        for _ in 0..=dice.below(2) {
            let (path, bytes) = dice.pick(&files);
            let mut bytes = bytes.clone();
            let place = dice.below(bytes.len());
            bytes[place..].iter_mut().take(16).for_each(|byte| *byte ^= 0x5a);
            fs::write(path, bytes).unwrap();
        }
        self.seats[at].is_hurt = true;
    }

    fn stale(&mut self, at: usize) -> Option<Deed> {
        let place = self.seats[at].place.clone();
        let old = self.template.old.0.iter().filter(|(path, _)| path.starts_with(&place));
        let old: Vec<_> = old.map(|(path, bytes)| (path.clone(), bytes.clone())).collect();
        // Another member with an older table is one more that is wrong.
        if !self.bears(at) || old.is_empty() || self.has_older_table {
            return None;
        }
        self.seats[at].is_hurt = true;
        self.has_stale = true;
        Some(Deed::Replace(place, old))
    }

    fn junk(&mut self, at: Option<usize>, kind: ExtentKind, junk: Junk, seed: u64) -> Option<Deed> {
        // Without parity one object that cannot be read is a loss.
        if self.parity() == 0 && at.is_some() {
            return None;
        }
        let mut dice = Dice::new(seed ^ 0x6a75_6e6b);
        let id: Vec<u8> = (0..16).map(|_| dice.below(256) as u8).collect();
        let name = ExtentName::In(kind, id.try_into().unwrap());
        let bytes = match junk {
            Junk::Empty => Vec::new(),
            Junk::Short => b"junk!".to_vec(),
            Junk::Noise => pinstripe_sim::noise(seed, 300),
        };
        let seats =
            self.seats.iter().enumerate().filter(|(number, _)| at.is_none_or(|at| at == *number));
        let seats = seats.filter(|(_, seat)| seat.is_here());
        let files = seats.map(|(_, seat)| (seat.place.join(name.path()), bytes.clone()));
        Some(Deed::Write(files.collect()))
    }

    /// Sees whether the hand has moved a member's directory.
    fn meet_place(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        match seat.is {
            Where::Here if seat.aside().exists() => seat.is = Where::Away,
            Where::Away if !seat.aside().exists() => seat.is = Where::Here,
            _ => {}
        }
    }
}

/// Says that a process has ended, also when it panics.
struct Leaving(usize);

impl Leaving {
    fn leave(self) -> u64 {
        let calls = pinstripe_schedule::leave(self.0);
        std::mem::forget(self);
        calls
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        pinstripe_schedule::leave(self.0);
    }
}
