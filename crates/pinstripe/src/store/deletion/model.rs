//! Tests the protocol with every order of events, using the real decision functions.
//!
//! A world has the objects of one member and a few actors; one step of an actor is one atomic
//! operation on the objects, or its death. All worlds that can be reached are visited. In each
//! world, every wanted snapshot must find all its chunks, and what was reported as done must exist.
//! To prove that the model can fail, each of the protocol's steps is left out in turn.

mod actors;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use twox_hash::XxHash3_128;

use actors::{Actor, Collector, Fence, Undelete, Writer};

use super::{Case, Cases};
use crate::store::forgotten::Marks;
use pinstripe_base::id::{CondemnationId, SessionId, SetId, SnapshotId, StoreId};
use pinstripe_member::session::{Process, Session, Work};

type Chunks = BTreeSet<u8>;

/// A step of the protocol that is left out, to prove that it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Flaw {
    None,
    /// The collector deletes without waiting for answers.
    NoWait,
    /// A writer answers before it flags the condemned packs.
    AnswerFirst,
    /// A writer does not read the condemned objects when it begins.
    LateReader,
    /// A writer does not flag what was deleted since it loaded the index.
    NoTombstones,
    /// A writer does not check whether its parent is forgotten.
    AnyParent,
    /// Condemnations of other collectors are ignored.
    Alone,
    /// A collector does not check again after it put the reaping object.
    NoLastLook,
    /// Sessions are read only once, after the marks, and chunks that only packs condemned by others
    /// have are condemned as well.
    FirstPlan,
    /// A collector does not determine the needed chunks again after the answers.
    NoSecondReading,
    /// An undelete does not check whether it is too late.
    Careless,
    /// A session that is ended from outside is only removed, without a void.
    NoVoid,
    /// A collector that finds the reaping object of a dead one continues without the last check.
    BlindHeir,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    flaw: Flaw,
    marks: Marks,
    sessions: BTreeMap<SessionId, Session>,
    dead: BTreeSet<SessionId>,
    voids: BTreeSet<[u8; 16]>,
    snapshots: BTreeMap<SnapshotId, Chunks>,
    packs: BTreeMap<SetId, Chunks>,
    cases: Cases,
    /// Snapshots that were reported to an actor as existing.
    promised: BTreeSet<SnapshotId>,
    /// The number of actors that may still die.
    deaths: u8,
    /// Worlds in which an actor has the same state share it.
    actors: Vec<Rc<Actor>>,
}

const fn snap(n: u8) -> SnapshotId {
    SnapshotId([n; 16])
}

const fn set(n: u8) -> SetId {
    SetId([n; 16])
}

impl World {
    fn new(actors: Vec<Actor>) -> Self {
        World {
            flaw: Flaw::None,
            marks: Marks::default(),
            sessions: BTreeMap::new(),
            dead: BTreeSet::new(),
            voids: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            packs: BTreeMap::new(),
            cases: Cases::default(),
            promised: BTreeSet::new(),
            deaths: 1,
            actors: actors.into_iter().map(Rc::new).collect(),
        }
    }

    fn pack(mut self, name: u8, chunks: &[u8]) -> Self {
        self.packs.insert(set(name), chunks.iter().copied().collect());
        self
    }

    fn snapshot(mut self, name: u8, chunks: &[u8], is_forgotten: bool) -> Self {
        self.snapshots.insert(snap(name), chunks.iter().copied().collect());
        if is_forgotten {
            self.marks.add(snap(name), 1);
        } else {
            self.promised.insert(snap(name));
        }
        self
    }

    /// Returns the world in which a session's process has died, if it may die.
    fn after_death(&self, session: SessionId) -> Option<World> {
        let deaths = self.deaths.checked_sub(1)?;
        let mut world = World { deaths, ..self.clone() };
        world.dead.insert(session);
        Some(world)
    }

    fn begin(&mut self, id: SessionId, work: Work, commit: [u8; 16], parents: Vec<SnapshotId>) {
        let (store, process) = (StoreId([0; 16]), Process::default());
        self.sessions.insert(id, Session { store, id, work, commit, parents, process });
    }

    /// Returns the sessions whose process may be running.
    fn sessions(&self) -> Vec<Session> {
        let lives = |it: &&Session| !self.dead.contains(&it.id);
        self.sessions.values().filter(lives).cloned().collect()
    }

    fn is_at_work(&self, session: Option<SessionId>) -> bool {
        session.is_some_and(|id| self.sessions.contains_key(&id) && !self.dead.contains(&id))
    }

    fn case(&mut self, id: CondemnationId) -> &mut Case {
        self.cases.0.entry(id).or_default()
    }

    fn tidy(&mut self) {
        self.cases.0.retain(|_, case| *case != Case { by: case.by, ..Case::default() });
    }

    fn problem(&self) -> Option<String> {
        for (id, chunks) in &self.snapshots {
            if self.marks.is_forgotten(*id) {
                continue;
            }
            for chunk in chunks {
                if !self.packs.values().any(|pack| pack.contains(chunk)) {
                    return Some(format!("{id} lost chunk {chunk}"));
                }
            }
        }
        let gone = self
            .promised
            .iter()
            .find(|id| !self.marks.is_forgotten(**id) && !self.snapshots.contains_key(id));
        gone.map(|id| format!("{id} is gone"))
    }

    /// Returns all worlds that one more step leads to.
    fn next(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        for (at, actor) in self.actors.iter().enumerate() {
            for (mut next, moved) in actor.steps(self) {
                next.actors[at] = Rc::new(moved);
                next.tidy();
                worlds.push(next);
            }
        }
        worlds
    }
}

/// Collects the bytes that a value hashes, to hash them all at once, which is fast even in a build
/// without optimisation.
#[derive(Default)]
struct Hashed(Vec<u8>);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("its bytes are taken")
    }
}

/// Visits every world that can be reached; returns their number, or the first problem.
fn visit(start: World) -> Result<usize, String> {
    let mut hashed = Hashed::default();
    let mut key = |world: &World| {
        hashed.0.clear();
        world.hash(&mut hashed);
        XxHash3_128::oneshot(&hashed.0)
    };
    let mut seen = HashSet::from([key(&start)]);
    let mut ahead = vec![start];
    while let Some(world) = ahead.pop() {
        if let Some(problem) = world.problem() {
            return Err(format!("{problem} in {world:#?}"));
        }
        for next in world.next() {
            if seen.insert(key(&next)) {
                ahead.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// Follows `walks` random orders of events, chosen by a seed; returns the first problem.
fn wander(start: &World, walks: u64) -> Result<usize, String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut steps = 0;
    for _ in 0..walks {
        let mut world = start.clone();
        loop {
            if let Some(problem) = world.problem() {
                return Err(format!("{problem} in {world:#?}"));
            }
            let mut next = world.next();
            if next.is_empty() || steps > 400 * walks as usize {
                break;
            }
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            world = next.swap_remove((state >> 11) as usize % next.len());
            steps += 1;
        }
    }
    Ok(steps)
}

/// Three or more actors have millions of worlds: an optimised build visits all of them, any other
/// build tries many orders of events.
#[track_caller]
fn assert_safe_among_many(world: &World) {
    let walks = u64::from(pinstripe_testing::cases(1_000));
    if cfg!(debug_assertions) {
        wander(world, walks).unwrap_or_else(|problem| panic!("{problem}"));
    } else {
        assert_safe(world, 10_000);
    }
}

#[track_caller]
fn assert_safe(world: &World, at_least: usize) {
    match visit(world.clone()) {
        Ok(worlds) => assert!(worlds >= at_least, "only {worlds} worlds"),
        Err(problem) => panic!("{problem}"),
    }
}

#[track_caller]
fn assert_needed(world: &World, flaw: Flaw) {
    let flawed = World { flaw, ..world.clone() };
    assert!(visit(flawed).is_err(), "{flaw:?} goes unnoticed");
}

fn one_writer() -> World {
    World::new(vec![Actor::Writer(Writer::new(1, 1, None)), Actor::Collector(Collector::new(1))])
        .pack(1, &[1])
        .snapshot(1, &[1], true)
}

#[test]
fn a_writer_beside_a_gc() {
    let world = one_writer();
    assert_safe(&world, 500);
    assert_needed(&world, Flaw::NoWait);
    assert_needed(&world, Flaw::AnswerFirst);
    assert_needed(&world, Flaw::LateReader);
    assert_needed(&world, Flaw::NoTombstones);
    assert_needed(&world, Flaw::NoSecondReading);
}

#[test]
fn a_writer_with_a_parent_that_is_being_forgotten() {
    let writer = Writer::new(1, 1, Some(snap(1)));
    let actors = vec![
        Actor::Writer(writer),
        Actor::Forget(snap(1), false),
        Actor::Collector(Collector::new(1)),
    ];
    let world = World::new(actors).pack(1, &[1]).snapshot(1, &[1], false);
    assert_safe(&world, 1000);
    assert_needed(&world, Flaw::AnyParent);
}

#[test]
fn two_gcs_and_a_chunk_in_two_packs() {
    let actors =
        vec![Actor::Collector(Collector::new(1)), Actor::Collector(Collector::mirrored(2))];
    let world = World::new(actors).pack(1, &[1]).pack(2, &[1]).snapshot(1, &[1], false);
    assert_safe(&world, 500);
    assert_needed(&world, Flaw::Alone);
}

#[test]
fn two_gcs_that_repack() {
    let actors =
        vec![Actor::Collector(Collector::repacking(1)), Actor::Collector(Collector::repacking(2))];
    let world = World::new(actors).pack(1, &[1, 2]).snapshot(1, &[1], false);
    assert_safe(&world, 500);
}

#[test]
fn a_writer_beside_two_gcs_of_which_one_may_die() {
    let actors = vec![
        Actor::Writer(Writer::new(1, 1, None)),
        Actor::Collector(Collector::new(1)),
        Actor::Collector(Collector::new(2)),
    ];
    let world = World::new(actors).pack(1, &[1]).snapshot(1, &[1], true);
    assert_safe_among_many(&world);
}

#[test]
fn a_writer_that_uses_the_pack_of_another() {
    let actors = vec![
        Actor::Writer(Writer::new(1, 1, None)),
        Actor::Writer(Writer::new(2, 1, None)),
        Actor::Collector(Collector::new(1)),
    ];
    assert_safe_among_many(&World::new(actors));
}

#[test]
fn an_undelete_beside_a_gc_and_its_heir() {
    let actors = vec![
        Actor::Undelete(Undelete::new(1, snap(1))),
        Actor::Collector(Collector::new(1)),
        Actor::Collector(Collector::new(2)),
    ];
    let world = World::new(actors).pack(1, &[1]).snapshot(1, &[1], true);
    assert_safe_among_many(&world);
    assert_needed(&world, Flaw::NoLastLook);
    assert_needed(&world, Flaw::Careless);
    assert_needed(&world, Flaw::BlindHeir);
    assert_needed(&world, Flaw::FirstPlan);
}

#[test]
fn an_undelete_and_a_forget_again_beside_two_gcs() {
    let actors = vec![
        Actor::Undelete(Undelete::new(1, snap(1))),
        Actor::Forget(snap(1), false),
        Actor::Collector(Collector::new(1)),
        Actor::Collector(Collector::new(2)),
    ];
    let world = World::new(actors).pack(1, &[1]).snapshot(1, &[1], true);
    assert_safe_among_many(&world);
}

#[test]
fn a_session_ended_from_outside() {
    let writer = Writer::deaf(1, 1);
    let actors = vec![
        Actor::Writer(writer),
        Actor::Fence(Fence::of_writer(1)),
        Actor::Collector(Collector::new(1)),
    ];
    let world = World::new(actors).pack(1, &[1]).snapshot(1, &[1], true);
    assert_safe(&world, 500);
    assert_needed(&world, Flaw::NoVoid);
}

/// A gc whose host is considered dead loses its session at any point, even after its point of no
/// return, and continues concurrently with its heir.
#[test]
fn a_gc_taken_for_dead_that_goes_on_beside_its_heir_and_an_undelete() {
    let actors = vec![
        Actor::Collector(Collector::new(1)),
        Actor::Fence(Fence::of_collector(1)),
        Actor::Collector(Collector::new(2)),
        Actor::Undelete(Undelete::new(1, snap(1))),
    ];
    let world = World::new(actors).pack(1, &[1]).snapshot(1, &[1], true);
    assert_safe_among_many(&world);
    assert_needed(&World { deaths: 0, ..world }, Flaw::BlindHeir);
}

#[test]
fn a_gc_ended_from_outside_while_it_works() {
    let actors = vec![
        Actor::Collector(Collector::new(1)),
        Actor::Fence(Fence::of_collector(1)),
        Actor::Collector(Collector::new(2)),
        Actor::Writer(Writer::new(1, 1, None)),
    ];
    let world = World::new(actors).pack(1, &[1]).snapshot(1, &[1], true);
    assert_safe_among_many(&world);
}
