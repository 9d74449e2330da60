//! One writer thread per member, fed through a bounded queue; a member that is far away has lanes
//! beside it, which seal extents.
//!
//! Invariants: commands for one member are carried out in the order given, but for seals, of which
//! a far member carries out several at once: whatever is no extent waits for them; a member that fails is
//! left out from then on: open sets stay without it, later ones are laid over the rest; the run
//! goes on as long as no more have failed or are absent than parity replaces; a full member counts
//! as failed, and one that is full already takes nothing from the start; a failed fsync is never
//! retried: the member is given up.

mod lanes;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded};

use self::lanes::Lanes;
use self::writer::Writer;
use super::abort::Abort;
use super::limits::{EXTENT_ROOM_BYTES, FAR_STRIPS_QUEUED, LANE_SHARE, PACK_BYTES};
use super::scratch_pool::ScratchPool;
use crate::format::label::StoreConfig;
use crate::member::{ExtentName, Far, SharedMember};
use crate::store::{Store, attach_or_replace, geometry_over, snapshots};
use crate::stripe::{Geometry, StripSink};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;

/// The advice for a full member.
const FULL: &str = "free space on it with 'pinstripe forget' and 'pinstripe gc', which also work \
     on a full disk, or replace it with a larger disk: pinstripe member replace N --to DIR; \
     earlier snapshots are unaffected";

/// The members that hold a stripe set, by slot, and how it is cut.
#[derive(Clone)]
pub struct SetMembers {
    /// The geometry of the set.
    pub geometry: Geometry,
    /// The length of the logical run of a pack over them.
    pub pack_bytes: u64,
    members: Arc<Vec<usize>>,
}

enum Command {
    Begin(ExtentName),
    Append(ExtentName, Vec<u8>),
    Seal(ExtentName),
    Put(ExtentName, Arc<Vec<u8>>),
    Delete(ExtentName),
    Barrier(Sender<()>),
}

/// A point in what the members were told to write.
pub struct Barrier(Receiver<()>);

impl Barrier {
    /// Waits until all said before is durable on every member that has not failed. Whether too
    /// many have is the run's matter.
    pub fn wait(self) {
        while self.0.recv().is_ok() {}
    }
}

/// The members being written to.
pub struct MemberWriters<'a> {
    queues: Vec<Option<Sender<Command>>>,
    /// By member number: whether it takes stripe sets.
    takes: Vec<bool>,
    /// By member number: the length of its extents, if it is far away.
    extent_bytes: Vec<Option<u64>>,
    config: &'a StoreConfig,
    shared: Shared<'a>,
}

#[derive(Clone)]
struct Shared<'a> {
    failures: Arc<Mutex<Vec<Option<Error>>>>,
    parity: usize,
    abort: &'a Abort,
    monitor: &'a Monitor,
    /// Buffers of strips.
    strips: Arc<ScratchPool>,
}

impl<'a> MemberWriters<'a> {
    /// Starts a writer for each member that is there, each with a queue of `strips_queued`. They
    /// end when the writers are dropped.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        store: &'a Store,
        strips_queued: usize,
        abort: &'a Abort,
        monitor: &'a Monitor,
    ) -> Self
    where
        'a: 'scope,
    {
        let members = store.members();
        let caps = |member: &Option<SharedMember>| member.as_ref()?.caps().far;
        let far: Vec<_> = members.iter().map(caps).collect();
        let queue =
            |far: &Option<Far>| far.map_or(strips_queued, |_| strips_queued.min(FAR_STRIPS_QUEUED));
        let queued: Vec<_> = far.iter().map(queue).collect();
        let mut failures: Vec<_> = members.iter().map(|_| None).collect();
        for absent in store.absent() {
            failures[absent] = Some(Error::new(Kind::NotFound, "the member is absent"));
        }
        for (number, member) in full_members(store) {
            let error = full(&member);
            failures[number] = Some(error.duplicate());
            monitor.degraded(member.place(), error);
        }
        let shared = Shared {
            failures: Arc::new(Mutex::new(failures)),
            parity: usize::from(store.config.parity),
            abort,
            monitor,
            strips: Arc::new(ScratchPool::new(queued.iter().sum())),
        };
        let start = |(number, member): (usize, &Option<SharedMember>)| {
            let member = member.clone()?;
            let (sender, receiver) = bounded(queued[number]);
            let writer = Writer::new(number, member, shared.clone());
            let lanes = far[number].map(|far| {
                let queue_bytes = strips_queued as u64 * u64::from(store.config.strip_bytes);
                let share = LANE_SHARE.min(members.len() as u64);
                let affordable = share * queue_bytes / far.extent_bytes.max(1);
                let lanes = affordable.clamp(1, far.lanes.max(1) as u64) as usize;
                Lanes::start(scope, lanes, number, &writer.member, &shared)
            });
            scope.spawn(move || writer.run(&receiver, lanes));
            Some(sender)
        };
        let queues = members.iter().enumerate().map(start).collect();
        let extent_bytes = far.iter().map(|far| far.map(|far| far.extent_bytes)).collect();
        let takes = store.takers().iter().map(Option::is_some).collect();
        MemberWriters { queues, takes, extent_bytes, config: &store.config, shared }
    }

    fn send(&self, member: usize, command: Command) {
        if let Some(queue) = &self.queues[member] {
            // A writer that panicked has closed its queue; the scope passes the panic on.
            let _ = queue.send(command);
        }
    }

    /// Begins a stripe set over all members that take one and have not failed.
    ///
    /// # Errors
    /// As [`geometry_over`], when too few are left.
    pub fn begin(&self, name: ExtentName) -> Result<SetMembers> {
        let (geometry, members) = self.fit()?;
        Ok(self.set_members(name, geometry, members))
    }

    /// Begins a stripe set that one member has whole: which one, `turn` decides among those that
    /// take one and have not failed.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn begin_on_one(&self, name: ExtentName, turn: usize) -> Result<SetMembers> {
        let (_, members) = self.fit()?;
        let geometry = Geometry::new(1, 0, self.config.strip_bytes)?;
        Ok(self.set_members(name, geometry, vec![members[turn % members.len()]]))
    }

    /// The members for a new stripe set, and how it is cut over all of them.
    fn fit(&self) -> Result<(Geometry, Vec<usize>)> {
        let fit = |member: &usize| self.takes[*member] && !self.shared.has_failed(*member);
        let mut members: Vec<_> = (0..self.queues.len()).filter(fit).collect();
        // Report the member failures themselves, not an error caused by them.
        self.shared.abort.check()?;
        let geometry = geometry_over(self.config, members.len())?;
        members.truncate(geometry.members());
        Ok((geometry, members))
    }

    fn set_members(&self, name: ExtentName, geometry: Geometry, members: Vec<usize>) -> SetMembers {
        for &member in &members {
            self.send(member, Command::Begin(name));
        }
        // Short extents, where all are to be held until they are sealed.
        let longest = members.iter().map(|member| self.extent_bytes[*member]).min().flatten();
        let room = |bytes: u64| bytes.saturating_sub(EXTENT_ROOM_BYTES).max(bytes / 2);
        let far = longest.map_or(PACK_BYTES, |bytes| room(bytes) * geometry.data() as u64);
        let pack_bytes = far.min(PACK_BYTES);
        SetMembers { geometry, pack_bytes, members: Arc::new(members) }
    }

    /// Seals a stripe set on all members that hold it.
    pub fn seal(&self, name: ExtentName, set_members: &SetMembers) {
        set_members.members.iter().for_each(|&member| self.send(member, Command::Seal(name)));
    }

    /// Writes a small object on every member.
    pub fn put(&self, name: ExtentName, bytes: Vec<u8>) {
        let bytes = Arc::new(bytes);
        (0..self.queues.len())
            .for_each(|member| self.send(member, Command::Put(name, Arc::clone(&bytes))));
    }

    /// Puts the object that says that a run is done, on one member after the other, so that of two
    /// processes that put different objects under this name the first member decides. Durable on
    /// return. To be called behind a barrier.
    ///
    /// # Errors
    /// [`Kind::Busy`] when another object has the name: this run was ended from outside. The run's
    /// fatal error.
    pub fn commit(&self, store: &Store, name: ExtentName, bytes: &[u8]) -> Result<()> {
        let takers = || store.present().filter(|(number, _)| !self.shared.has_failed(*number));
        for (at, (number, member)) in takers().enumerate() {
            let put = member.put(name, bytes);
            if at == 0 && put.is_ok() {
                // The first has decided: the others are asked side by side.
                takers().skip(1).for_each(|(_, member)| member.put_ahead(name, bytes));
            }
            match put {
                Ok(()) => self.shared.monitor.add(Counter::WrittenBytes, bytes.len() as u64),
                Err(error)
                    if error.kind() == Kind::Exists
                        && snapshots::is_void_on(store, member, name) =>
                {
                    return Err(Error::new(
                        Kind::Busy,
                        "this backup was fenced by another process",
                    )
                    .at(member.place().join(name.path()))
                    .advice("it made no snapshot; run it again"));
                }
                Err(error) => self.shared.fail(number, member, error),
            }
            self.shared.abort.check()?;
        }
        Ok(())
    }

    /// Removes a small object from every member. A leftover of one that cannot be removed does no
    /// harm.
    pub fn delete(&self, name: ExtentName) {
        (0..self.queues.len()).for_each(|member| self.send(member, Command::Delete(name)));
    }

    /// Marks this point of the commands, for waiting later.
    pub fn begin_barrier(&self) -> Barrier {
        let (sender, receiver) = bounded(self.queues.len());
        for member in 0..self.queues.len() {
            self.send(member, Command::Barrier(sender.clone()));
        }
        Barrier(receiver)
    }

    /// Waits until everything said so far is durable on every member that has not failed.
    ///
    /// # Errors
    /// The run's fatal error: too many members failed, or one is full.
    pub fn barrier(&self) -> Result<()> {
        self.begin_barrier().wait();
        self.shared.abort.check()
    }

    /// A sink that lays one stripe set's strips over the members that hold it.
    pub fn sink(&self, name: ExtentName, set_members: &SetMembers) -> MemberSink<'_, 'a> {
        MemberSink { writers: self, name, members: Arc::clone(&set_members.members) }
    }
}

/// Members with no room for more than deleting takes, if the others suffice without them.
fn full_members(store: &Store) -> Vec<(usize, SharedMember)> {
    let is_full = |(_, member): &(usize, &SharedMember)| member.caps().is_full;
    let full = store.present().filter(is_full).map(|(number, member)| (number, member.clone()));
    let full: Vec<_> = full.collect();
    let without = store.absent().count() + full.len();
    if without > usize::from(store.config.parity) { Vec::new() } else { full }
}

fn full(member: &SharedMember) -> Error {
    Error::new(Kind::NoSpace, "no space is left on this member: nothing is written there")
        .at(member.place())
        .advice(FULL)
}

/// Lays the strips of one stripe set over the members.
pub struct MemberSink<'f, 'a> {
    writers: &'f MemberWriters<'a>,
    name: ExtentName,
    members: Arc<Vec<usize>>,
}

impl StripSink for MemberSink<'_, '_> {
    fn append(&mut self, slot: usize, bytes: Vec<u8>) -> Result<()> {
        self.writers.send(self.members[slot], Command::Append(self.name, bytes));
        Ok(())
    }

    fn buffer(&mut self, capacity: usize) -> Vec<u8> {
        let mut buffer = self.writers.shared.strips.take();
        buffer.clear();
        buffer.reserve_exact(capacity);
        buffer
    }
}

impl Shared<'_> {
    fn failures(&self) -> MutexGuard<'_, Vec<Option<Error>>> {
        lock(&self.failures)
    }

    fn has_failed(&self, member: usize) -> bool {
        self.failures()[member].is_some()
    }

    /// Gives a member up; raises the fatal error when the run cannot go on without it.
    fn fail(&self, number: usize, member: &SharedMember, error: Error) {
        let mut failures = self.failures();
        failures[number] = Some(error.duplicate());
        let failed = failures.iter().flatten().count();
        // Raised under the lock, before any other thread can see the failure and fail because of
        // it.
        if failed > self.parity {
            let advice = if error.kind() == Kind::NoSpace {
                FULL
            } else if self.parity == 0 {
                "this store has no parity; create a store with --parity 1 to survive the loss of a \
                    member"
            } else {
                "more members failed than parity can replace; earlier snapshots are unaffected"
            };
            self.abort.raise(error.at(member.place()).advice(advice));
        } else {
            drop(failures);
            let advice = match error.kind() {
                Kind::NoSpace => FULL.to_owned(),
                _ => attach_or_replace(number),
            };
            self.monitor.degraded(member.place(), error.advice(advice));
        }
    }
}
