//! Who acts in the model: writers, collectors, undelete, forget, and whoever ends a session.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{Chunks, Flaw, World, set, snap};
use crate::format::gc::{Lists, reaping_name};
use crate::format::session::{Session, Work};
use crate::id::{CondemnationId, SessionId, SetId, SnapshotId};
use crate::store::deletion::Case;
use crate::store::deletion::decide::{
    self, Found, Go, Need, doomed, is_too_late, judge, last_look, need, remaining, roots, silent,
};
use crate::store::forgotten::Marks;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    Writer(Writer),
    Collector(Collector),
    Undelete(Undelete),
    /// Forgets a snapshot; whether it has.
    Forget(SnapshotId, bool),
    Fence(Fence),
}

type Next = Vec<(World, Actor)>;

impl Actor {
    pub fn steps(&mut self, world: &mut World) -> Next {
        match self {
            Actor::Writer(writer) => writer.steps(world),
            Actor::Collector(collector) => collector.steps(world),
            Actor::Undelete(undelete) => undelete.steps(world),
            Actor::Forget(_, true) => Vec::new(),
            Actor::Forget(id, _) => {
                let mut next = world.clone();
                if !next.marks.is_forgotten(*id) {
                    next.marks.add(*id, next.marks.generation(*id) + 1);
                }
                vec![(next, Actor::Forget(*id, true))]
            }
            Actor::Fence(fence) => fence.steps(world),
        }
    }
}

/// Backs up one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Writer {
    id: SessionId,
    snapshot: SnapshotId,
    chunk: u8,
    parent: Option<SnapshotId>,
    is_deaf: bool,
    at: WriterAt,
    index: BTreeMap<SetId, Chunks>,
    condemned: BTreeSet<SetId>,
    used: BTreeSet<SetId>,
    own: SetId,
    answered: BTreeSet<CondemnationId>,
    answering: Option<(CondemnationId, Vec<SetId>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum WriterAt {
    Begin,
    ReadMarks,
    ReadCases,
    LoadIndex,
    Find,
    Found(SetId),
    Store,
    Commit,
    End,
    Done,
}

impl Writer {
    pub fn new(number: u8, chunk: u8, parent: Option<SnapshotId>) -> Self {
        Writer {
            id: SessionId([number; 16]),
            snapshot: snap(100 + number),
            chunk,
            parent,
            is_deaf: false,
            at: WriterAt::Begin,
            index: BTreeMap::new(),
            condemned: BTreeSet::new(),
            used: BTreeSet::new(),
            own: set(200 + number),
            answered: BTreeSet::new(),
            answering: None,
        }
    }

    /// One that never answers.
    pub fn deaf(number: u8, chunk: u8) -> Self {
        Writer { is_deaf: true, ..Writer::new(number, chunk, None) }
    }

    fn steps(&self, world: &World) -> Next {
        let mut next = Vec::new();
        if self.at == WriterAt::Done {
            return next;
        }
        let (mut ahead, mut writer) = (world.clone(), self.clone());
        writer.step(&mut ahead);
        next.push((ahead, Actor::Writer(writer)));
        if self.at != WriterAt::Begin
            && let Some(ahead) = world.after_death(self.id)
        {
            let dead = Writer { at: WriterAt::Done, ..self.clone() };
            next.push((ahead, Actor::Writer(dead)));
        }
        let watches = !matches!(
            self.at,
            WriterAt::Begin | WriterAt::ReadMarks | WriterAt::ReadCases | WriterAt::LoadIndex
        );
        if watches && !self.is_deaf {
            next.extend(self.watch(world));
        }
        next
    }

    fn step(&mut self, world: &mut World) {
        self.at = match self.at {
            WriterAt::Begin => {
                let parents = self.parent.into_iter().collect();
                world.begin(self.id, Work::Backup, self.snapshot.0, parents);
                WriterAt::ReadMarks
            }
            WriterAt::ReadMarks => {
                let is_forgotten = |id: &SnapshotId| {
                    world.marks.is_forgotten(*id) || !world.snapshots.contains_key(id)
                };
                if world.flaw != Flaw::AnyParent && self.parent.as_ref().is_some_and(is_forgotten) {
                    world.sessions.remove(&self.id);
                    self.parent = None;
                    WriterAt::Begin
                } else {
                    WriterAt::ReadCases
                }
            }
            WriterAt::ReadCases => {
                if world.flaw != Flaw::LateReader {
                    self.condemned = world.cases.condemned(None).into_iter().collect();
                }
                WriterAt::LoadIndex
            }
            WriterAt::LoadIndex => {
                self.index = world.packs.clone();
                // The chunk is in the parent: it is taken over and never looked up.
                if self.parent.is_some() { WriterAt::Commit } else { WriterAt::Find }
            }
            WriterAt::Find => {
                let has = |(_, pack): &(&SetId, &Chunks)| pack.contains(&self.chunk);
                match self.index.iter().find(has) {
                    Some((&found, _)) => {
                        self.used.insert(found);
                        WriterAt::Found(found)
                    }
                    None => WriterAt::Store,
                }
            }
            WriterAt::Found(found) if self.condemned.contains(&found) => WriterAt::Store,
            WriterAt::Found(_) => WriterAt::Commit,
            WriterAt::Store => {
                world.packs.insert(self.own, BTreeSet::from([self.chunk]));
                self.used.insert(self.own);
                WriterAt::Commit
            }
            WriterAt::Commit => {
                if world.voids.contains(&self.snapshot.0) {
                    world.sessions.remove(&self.id);
                    WriterAt::Done
                } else {
                    world.snapshots.insert(self.snapshot, BTreeSet::from([self.chunk]));
                    world.promised.insert(self.snapshot);
                    WriterAt::End
                }
            }
            WriterAt::End => {
                world.sessions.remove(&self.id);
                WriterAt::Done
            }
            WriterAt::Done => WriterAt::Done,
        }
    }

    /// One half of an answer: what is condemned is flagged, or what was used is told.
    fn watch(&self, world: &World) -> Option<(World, Actor)> {
        let answer_first = world.flaw == Flaw::AnswerFirst;
        let (mut ahead, mut writer) = (world.clone(), self.clone());
        if let Some((id, packs)) = writer.answering.take() {
            if answer_first {
                writer.condemned.extend(packs);
            } else {
                writer.answer(&mut ahead, id, &packs);
            }
            writer.answered.insert(id);
            return Some((ahead, Actor::Writer(writer)));
        }
        let is_new = |(id, _): &(&CondemnationId, &Case)| !self.answered.contains(id);
        let mut cases = world.cases.0.iter().filter(is_new);
        let (&id, packs) =
            cases.find_map(|(id, case)| Some((id, &case.condemned.as_ref()?.packs)))?;
        if answer_first {
            writer.answer(&mut ahead, id, packs);
        } else {
            writer.condemned.extend(packs);
        }
        writer.answering = Some((id, packs.clone()));
        Some((ahead, Actor::Writer(writer)))
    }

    fn answer(&self, world: &mut World, id: CondemnationId, condemned: &[SetId]) {
        let relied = |set: &&SetId| self.used.contains(set) || self.own == **set;
        let packs = condemned.iter().filter(relied).copied().collect();
        world.case(id).acks.insert(self.id, packs);
    }
}

/// Deletes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collector {
    id: SessionId,
    case: CondemnationId,
    /// Which of several copies it takes for the one to keep.
    is_mirrored: bool,
    repack: Option<SetId>,
    at: At,
    /// The condemnation at work on, own or a dead one's.
    target: CondemnationId,
    lists: Lists,
    marks: Marks,
    sessions: Vec<Session>,
    asked: Option<Vec<Session>>,
    roots: BTreeSet<SnapshotId>,
    answered: BTreeMap<SessionId, Vec<SetId>>,
    others: BTreeSet<SetId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Begin,
    Inherit,
    Before,
    Marks,
    Sessions,
    Snapshots,
    Plan,
    Repack,
    Condemn,
    Acks,
    Answers,
    Over,
    BeforeAgain,
    MarksAgain,
    SessionsAgain,
    SnapshotsAgain,
    CasesAgain,
    PacksAgain,
    Reap,
    LookSessions,
    LookMarks,
    LookStands,
    Delete,
    Tombstone,
    ClearCondemned,
    Clear,
    WithdrawReaping,
    WithdrawCondemned,
    End,
    Done,
}

impl Collector {
    pub fn new(number: u8) -> Self {
        let case = CondemnationId([number; 16]);
        Collector {
            id: SessionId([50 + number; 16]),
            case,
            is_mirrored: false,
            repack: None,
            at: At::Begin,
            target: case,
            lists: Lists::default(),
            marks: Marks::default(),
            sessions: Vec::new(),
            asked: None,
            roots: BTreeSet::new(),
            answered: BTreeMap::new(),
            others: BTreeSet::new(),
        }
    }

    pub fn mirrored(number: u8) -> Self {
        Collector { is_mirrored: true, ..Collector::new(number) }
    }

    pub fn repacking(number: u8) -> Self {
        Collector { repack: Some(set(220 + number)), ..Collector::new(number) }
    }

    fn steps(&self, world: &World) -> Next {
        if self.at == At::Done {
            return Vec::new();
        }
        let (mut ahead, mut collector) = (world.clone(), self.clone());
        collector.at = collector.step(&mut ahead);
        let mut next = vec![(ahead, Actor::Collector(collector))];
        if self.at != At::Begin
            && let Some(ahead) = world.after_death(self.id)
        {
            let dead = Collector { at: At::Done, ..self.clone() };
            next.push((ahead, Actor::Collector(dead)));
        }
        if self.at == At::Acks {
            // Nobody waits for ever.
            let given_up = Collector { at: At::WithdrawReaping, ..self.clone() };
            next.push((world.clone(), Actor::Collector(given_up)));
        }
        next
    }

    fn step(&mut self, world: &mut World) -> At {
        match self.at {
            At::Begin => {
                world.begin(self.id, Work::Collect, reaping_name(self.case), Vec::new());
                At::Inherit
            }
            At::Inherit => self.inherit(world),
            At::Before | At::BeforeAgain => {
                self.sessions =
                    if world.flaw == Flaw::FirstPlan { Vec::new() } else { world.sessions() };
                if self.at == At::Before { At::Marks } else { At::MarksAgain }
            }
            At::Marks | At::MarksAgain => {
                self.marks = world.marks.clone();
                if self.at == At::Marks { At::Sessions } else { At::SessionsAgain }
            }
            At::Sessions | At::SessionsAgain => {
                self.sessions.extend(world.sessions());
                if self.at == At::Sessions { At::Snapshots } else { At::SnapshotsAgain }
            }
            At::Snapshots => {
                let snapshots = world.snapshots.keys().copied().collect();
                self.roots = roots(&self.marks, &self.sessions, &snapshots);
                self.lists.snapshots = doomed(&self.marks, &self.roots, &snapshots);
                At::Plan
            }
            At::Plan => self.plan(world),
            At::Repack => {
                let chunks = self.needed(world);
                world.packs.insert(self.repack.expect("it repacks"), chunks);
                At::Condemn
            }
            At::Condemn => {
                let by = Some(self.id);
                let case = world.case(self.case);
                (case.by, case.condemned) = (by, Some(self.lists.clone()));
                At::Acks
            }
            At::Acks | At::Answers | At::Over => self.wait(world),
            At::SnapshotsAgain => {
                if world.flaw != Flaw::NoSecondReading {
                    let snapshots = world.snapshots.keys().copied().collect();
                    self.roots = roots(&self.marks, &self.sessions, &snapshots);
                }
                At::CasesAgain
            }
            At::CasesAgain => {
                if world.flaw != Flaw::Alone {
                    self.others = world.cases.condemned(Some(self.case)).into_iter().collect();
                }
                let acks = world.cases.0.get(&self.case).map(|case| case.acks.clone());
                self.answered = acks.unwrap_or_default();
                At::PacksAgain
            }
            At::PacksAgain => {
                let rescued = self.rescued(world);
                self.lists = remaining(&self.lists, &rescued, &self.roots);
                At::Reap
            }
            At::Reap => {
                if world.voids.contains(&reaping_name(self.case)) {
                    return At::WithdrawCondemned;
                }
                let (by, lists) = (Some(self.id), self.lists.clone());
                let case = world.case(self.case);
                (case.by, case.reaping) = (by, Some(lists));
                if world.flaw == Flaw::NoLastLook { At::Delete } else { At::LookSessions }
            }
            At::LookSessions => {
                self.sessions = world.sessions();
                At::LookMarks
            }
            At::LookMarks => {
                self.marks = world.marks.clone();
                At::LookStands
            }
            At::LookStands => {
                let case = world.cases.0.get(&self.target);
                let stands = case.is_some_and(|case| case.condemned.is_some());
                match last_look(&self.lists, &self.sessions, &self.marks, stands) {
                    Go::Reap => At::Delete,
                    Go::Wait => At::End,
                    Go::Withdraw => At::WithdrawReaping,
                }
            }
            At::Delete => self.delete(world),
            At::Tombstone => {
                world.case(self.target).tombstone = Some(self.lists.clone());
                At::ClearCondemned
            }
            At::ClearCondemned => {
                world.case(self.target).condemned = None;
                At::Clear
            }
            At::Clear | At::WithdrawCondemned => {
                let case = world.case(self.target);
                (case.reaping, case.condemned) = (None, None);
                case.acks.clear();
                if self.target == self.case { At::End } else { At::Inherit }
            }
            At::WithdrawReaping => {
                world.case(self.target).reaping = None;
                At::WithdrawCondemned
            }
            At::End => {
                world.sessions.remove(&self.id);
                At::Done
            }
            At::Done => At::Done,
        }
    }

    /// Looks for what dead ones left.
    fn inherit(&mut self, world: &World) -> At {
        for (id, case) in &world.cases.0 {
            let is_left = case.condemned.is_some() || case.reaping.is_some();
            let found = judge(
                case.condemned.is_some(),
                case.reaping.is_some(),
                case.tombstone.is_some(),
                world.is_at_work(case.by),
            );
            self.target = *id;
            match found {
                _ if !is_left => {}
                Found::Leave => {}
                Found::Clear => return At::ClearCondemned,
                Found::Withdraw => return At::WithdrawReaping,
                Found::Resume => {
                    self.lists = case.reaping.clone().expect("it is resumed from there");
                    let is_blind = world.flaw == Flaw::BlindHeir;
                    return if is_blind { At::Delete } else { At::LookSessions };
                }
            }
        }
        self.target = self.case;
        self.lists = Lists::default();
        At::Before
    }

    fn needed(&self, world: &World) -> Chunks {
        let roots = self.roots.iter().filter_map(|id| world.snapshots.get(id));
        roots.flatten().copied().collect()
    }

    fn plan(&mut self, world: &World) -> At {
        let others = world.cases.condemned(None);
        let mut kept: BTreeSet<SetId> = BTreeSet::new();
        for chunk in self.needed(world) {
            // A place that nobody condemned, or else any: nothing that is needed is condemned.
            let has = |(_, pack): &(&SetId, &Chunks)| pack.contains(&chunk);
            let mut places: Vec<_> = world.packs.iter().filter(has).map(|(set, _)| *set).collect();
            if self.is_mirrored {
                places.reverse();
            }
            let stands = |set: &&SetId| world.flaw == Flaw::Alone || !others.contains(set);
            let any = places.first().filter(|_| world.flaw != Flaw::FirstPlan);
            kept.extend(places.iter().find(stands).or(any));
        }
        if self.repack.is_some() {
            kept.clear();
        }
        self.lists.packs = world.packs.keys().filter(|set| !kept.contains(set)).copied().collect();
        match (self.lists.packs.is_empty() && self.lists.snapshots.is_empty(), self.repack) {
            (true, _) => At::End,
            (false, Some(_)) => At::Repack,
            (false, None) => At::Condemn,
        }
    }

    /// Acknowledgements are read before sessions, sessions before snapshots. Whoever began later
    /// than those asked first has seen the condemned object.
    fn wait(&mut self, world: &World) -> At {
        match self.at {
            _ if world.flaw == Flaw::NoWait => At::BeforeAgain,
            At::Acks => {
                let acks = world.cases.0.get(&self.case).map(|case| case.acks.clone());
                self.answered = acks.unwrap_or_default();
                At::Answers
            }
            At::Answers => {
                self.sessions = world.sessions();
                let asked = self.asked.get_or_insert_with(|| self.sessions.clone());
                asked.retain(|session| self.sessions.iter().any(|it| it.id == session.id));
                At::Over
            }
            _ => {
                let snapshots = world.snapshots.keys().copied().collect();
                let answered = self.answered.keys().copied().collect();
                let asked = self.asked.as_deref().unwrap_or_default();
                if silent(asked, &answered, &snapshots).is_empty() {
                    At::BeforeAgain
                } else {
                    At::Acks
                }
            }
        }
    }

    fn rescued(&self, world: &World) -> HashSet<SetId> {
        let ours: HashSet<_> = self.lists.packs.iter().copied().collect();
        let others: HashSet<_> = self.others.iter().copied().collect();
        let mut rescued: HashSet<_> = self.answered.values().flatten().copied().collect();
        for chunk in self.needed(world) {
            let has = |(_, pack): &(&SetId, &Chunks)| pack.contains(&chunk);
            let places = world.packs.iter().filter(has).map(|(set, _)| *set);
            if let Need::Rescue(set) = need(places, &ours, &others) {
                rescued.insert(set);
            }
        }
        rescued
    }

    fn delete(&self, world: &mut World) -> At {
        let packs = &self.lists.packs;
        if let Some(there) = packs.iter().find(|set| world.packs.contains_key(set)) {
            world.packs.remove(there);
            return At::Delete;
        }
        for (id, _) in &self.lists.snapshots {
            world.snapshots.remove(id);
        }
        At::Tombstone
    }
}

/// Takes back that a snapshot was forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Undelete {
    id: SessionId,
    snapshot: SnapshotId,
    /// Steps done.
    at: u8,
    generation: u32,
}

impl Undelete {
    pub fn new(number: u8, snapshot: SnapshotId) -> Self {
        Undelete { id: SessionId([80 + number; 16]), snapshot, at: 0, generation: 0 }
    }

    fn steps(&self, world: &World) -> Next {
        const END: u8 = 5;
        let mut next = Vec::new();
        if self.at > END {
            return next;
        }
        let (mut ahead, mut undelete) = (world.clone(), self.clone());
        undelete.at += 1;
        match self.at {
            0 => undelete.generation = world.marks.generation(self.snapshot),
            1 => ahead.begin(self.id, Work::Undelete, [99; 16], vec![self.snapshot]),
            2 => {
                let (reaping, tombstones) = (world.cases.reaping(), world.cases.tombstones());
                let is_late = is_too_late(self.snapshot, reaping, tombstones);
                if is_late && world.flaw != Flaw::Careless {
                    undelete.at = END;
                }
            }
            3 => {
                if !world.snapshots.contains_key(&self.snapshot) {
                    undelete.at = END;
                }
            }
            4 => {
                ahead.marks.add(self.snapshot, self.generation + 1);
                ahead.promised.insert(self.snapshot);
            }
            _ => drop(ahead.sessions.remove(&self.id)),
        }
        next.push((ahead, Actor::Undelete(undelete)));
        if self.at > 1
            && let Some(ahead) = world.after_death(self.id)
        {
            let dead = Undelete { at: END + 1, ..self.clone() };
            next.push((ahead, Actor::Undelete(dead)));
        }
        next
    }
}

/// Ends a session from outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fence {
    session: SessionId,
    is_done: bool,
}

impl Fence {
    pub fn of_writer(number: u8) -> Self {
        Fence { session: SessionId([number; 16]), is_done: false }
    }

    pub fn of_collector(number: u8) -> Self {
        Fence { session: SessionId([50 + number; 16]), is_done: false }
    }

    /// The void is put and the session removed as two steps; when what the session was for is
    /// there already, nothing happens.
    fn steps(&self, world: &World) -> Next {
        let Some(session) = world.sessions.get(&self.session).filter(|_| !self.is_done) else {
            return Vec::new();
        };
        let (mut ahead, mut fence) = (world.clone(), self.clone());
        let name = session.commit;
        let is_late = match session.work {
            Work::Backup => decide::is_over(session, &world.snapshots.keys().copied().collect()),
            _ => world
                .cases
                .0
                .iter()
                .any(|(id, case)| reaping_name(*id) == name && case.reaping.is_some()),
        };
        if is_late {
            fence.is_done = true;
        } else if world.voids.contains(&name) || world.flaw == Flaw::NoVoid {
            ahead.sessions.remove(&self.session);
            fence.is_done = true;
        } else {
            ahead.voids.insert(name);
        }
        vec![(ahead, Actor::Fence(fence))]
    }
}
