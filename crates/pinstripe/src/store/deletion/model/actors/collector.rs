//! A gc: it settles what dead collectors left, determines roots and plan, and takes the steps of
//! deletion or withdraws.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::{Chunks, Flaw, World, set};
use super::{Actor, Next};
use crate::store::deletion::decide::{
    CaseAction, Go, Need, doomed, judge, last_look, need, remaining, roots, silent,
};
use crate::store::forgotten::Marks;
use pinstripe_base::id::{CondemnationId, SessionId, SetId, SnapshotId};
use pinstripe_member::gc::{Lists, reaping_name};
use pinstripe_member::session::{Session, Work};

/// Deletes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Collector {
    id: SessionId,
    case: CondemnationId,
    /// Which of several copies the gc chooses to keep.
    is_mirrored: bool,
    repack: Option<SetId>,
    at: At,
    /// The condemnation in progress, the gc's own or that of a dead gc.
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

    pub(crate) fn repacking(number: u8) -> Self {
        Collector { repack: Some(set(220 + number)), ..Collector::new(number) }
    }

    pub(super) fn steps(&self, world: &World) -> Next {
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
            // A collector may stop waiting at any time.
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

    /// Looks for what dead gcs left.
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
                CaseAction::Leave => {}
                CaseAction::Clear => return At::ClearCondemned,
                CaseAction::Withdraw => return At::WithdrawReaping,
                CaseAction::Resume => {
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
            // A place that no collector condemned, or else any: nothing needed is condemned.
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

    /// Acknowledgements are read before sessions, and sessions before snapshots. A writer that
    /// began after the first read has seen the condemned object.
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
