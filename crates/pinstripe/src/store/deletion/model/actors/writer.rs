//! A backup: it puts a session, determines the chunks on which it may rely, stores one chunk, and
//! puts a snapshot; concurrently it watches for condemnations.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Chunks, Flaw, World, set, snap};
use super::{Actor, Next};
use crate::store::deletion::Case;
use pinstripe_base::id::{CondemnationId, SessionId, SetId, SnapshotId};
use pinstripe_member::session::Work;

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
    LoadIndex,
    ReadCases,
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

    /// Makes a writer that never answers.
    pub fn deaf(number: u8, chunk: u8) -> Self {
        Writer { is_deaf: true, ..Writer::new(number, chunk, None) }
    }

    pub(super) fn steps(&self, world: &World) -> Next {
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
            WriterAt::Begin | WriterAt::ReadMarks | WriterAt::LoadIndex | WriterAt::ReadCases
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
                    WriterAt::LoadIndex
                }
            }
            WriterAt::LoadIndex => {
                self.index = world.packs.clone();
                WriterAt::ReadCases
            }
            WriterAt::ReadCases => {
                self.condemned = match world.flaw {
                    Flaw::LateReader => BTreeSet::new(),
                    Flaw::NoTombstones => world.cases.condemned(None).into_iter().collect(),
                    _ => world.cases.lost_to_others(None).into_iter().collect(),
                };
                // The chunk is in the parent: it is reused and never looked up.
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

    /// Takes one of the two steps of an answer: it flags the condemned packs, or reports the packs
    /// that it uses.
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
