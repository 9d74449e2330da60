//! One writer thread per member, which gets commands through a bounded queue. A remote member also
//! has threads, which seal several extents at once.
//!
//! Invariants: commands for one member are carried out in the order given, except that a remote
//! member carries out several seals at once, and all commands other than those for extents wait for
//! them. A member that fails is not used any more: later sets are striped over the other members.
//! The run continues as long as no more members have failed, are absent or ran out of space than
//! parity replaces. A failed fsync is never retried: the member counts as failed.
//!
//! A set is begun only on members with space for its extent ([`room`]): a pack is shorter where
//! space is short, and a member without space gets no set, but still gets small objects. A set that
//! lost an extent while it was open counts as *short* ([`MemberWriters::is_short`]), so that it can
//! be written again before anything refers to it.

mod free_space;
mod runs;
mod seal_threads;
mod writer;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded};

use self::free_space::FreeSpace;
use self::runs::{OpenRun, RunFiller, RunRoom, RunThreads};
use self::seal_threads::SealThreads;
use self::writer::Writer;
use super::limits::{EXTENT_ROOM_BYTES, FAR_STRIPS_QUEUED, LANE_SHARE, PACK_BYTES};
use super::scratch_pool::ScratchPool;
use crate::store::{Store, attach_or_replace, geometry_over, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_base::sync::lock;
use pinstripe_member::label::StoreConfig;
use pinstripe_member::{ExtentName, Far, PlannedStep, SharedMember, server_of};
use pinstripe_stripe::{Abort, Geometry, RunSink, StripSink};

/// The advice for a full member.
fn free_space(number: usize) -> String {
    format!(
        "free space with 'pinstripe forget' and 'pinstripe gc' (both work on a full disk), or move \
         the member to a larger disk with 'pinstripe member replace {number} --to DIR'; earlier \
         snapshots are unaffected"
    )
}

/// The members that hold a stripe set, by slot, and the geometry of the set.
#[derive(Clone)]
pub struct SetMembers {
    /// The geometry of the set.
    pub geometry: Geometry,
    /// The length of the logical run of a pack on these members.
    pub pack_bytes: u64,
    members: Arc<Vec<usize>>,
    /// The logical run, if a server lays the set.
    run: Option<Arc<OpenRun>>,
}

enum WriterCommand {
    /// Includes the number of bytes that are reserved for the extent.
    Begin(ExtentName, u64),
    Append(ExtentName, Vec<u8>),
    Seal(ExtentName),
    Put(ExtentName, Arc<Vec<u8>>),
    Delete(ExtentName),
    Barrier(Sender<()>),
}

/// A point in the sequence of writes to the members.
pub struct Barrier(Receiver<()>);

impl Barrier {
    /// Waits until everything before the barrier is durable on every member that has not failed.
    /// Whether too many members have failed is decided elsewhere.
    pub fn wait(self) {
        while self.0.recv().is_ok() {}
    }
}

/// The members being written to.
pub struct MemberWriters<'a> {
    queues: Vec<Option<Sender<WriterCommand>>>,
    /// By member number: whether the member gets stripe sets.
    takes: Vec<bool>,
    /// By member number.
    rooms: Vec<Option<FreeSpace>>,
    /// The threads that send complete sets, if one server has all members that get sets.
    runs: Option<RunThreads>,
    config: &'a StoreConfig,
    shared: WritersShared<'a>,
    has_written: AtomicBool,
}

/// Whether a member can take part in this run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberStanding {
    Fit,
    /// The member has no space for another extent; small objects are still written to it.
    Full,
    /// The member ran out of space while sets were open: their extents on it are lost. As full
    /// otherwise.
    CutShort,
    /// The member is absent or has failed: nothing more is written to it.
    Failed,
}

#[derive(Clone)]
struct WritersShared<'a> {
    standings: Arc<Mutex<Vec<MemberStanding>>>,
    /// Sets that should have been sealed on a member but were not.
    short: Arc<Mutex<HashSet<ExtentName>>>,
    parity: usize,
    abort: &'a Abort,
    monitor: &'a Monitor,
    /// Buffers of strips.
    strips: Arc<ScratchPool>,
}

impl<'a> MemberWriters<'a> {
    /// Starts a writer for each present member, each with a queue for `strips_queued` strips. The
    /// threads end when the [`MemberWriters`] is dropped.
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
        let mut standings = vec![MemberStanding::Fit; members.len()];
        store.absent().for_each(|absent| standings[absent] = MemberStanding::Failed);
        let shared = WritersShared {
            standings: Arc::new(Mutex::new(standings)),
            short: Arc::default(),
            parity: usize::from(store.config.parity),
            abort,
            monitor,
            strips: Arc::new(ScratchPool::new(queued.iter().sum())),
        };
        let rooms: Vec<_> = members.iter().map(|it| Some(FreeSpace::new(it.clone()?))).collect();
        let start = |(number, member): (usize, &Option<SharedMember>)| {
            let member = member.clone()?;
            let (sender, receiver) = bounded(queued[number]);
            let writer = Writer::new(number, member, rooms[number].clone()?, shared.clone());
            let seal_threads = far[number].map(|far| {
                let queue_bytes = strips_queued as u64 * u64::from(store.config.strip_bytes);
                let share = LANE_SHARE.min(members.len() as u64);
                let affordable = share * queue_bytes / far.extent_bytes.max(1);
                let seal_threads = affordable.clamp(1, far.seals.max(1) as u64) as usize;
                SealThreads::start(scope, seal_threads, number, &writer.member, &shared)
            });
            scope.spawn(move || writer.run(&receiver, seal_threads));
            Some(sender)
        };
        let queues = members.iter().enumerate().map(start).collect();
        let takers = store.takers();
        let takes = takers.iter().map(Option::is_some).collect();
        let queues_bytes = members.len() as u64 * strips_queued as u64;
        let queues_bytes = queues_bytes * u64::from(store.config.strip_bytes);
        let first_far = far.iter().flatten().next();
        let runs = first_far
            .filter(|_| server_of(takers.iter().flatten().map(|it| &**it)).is_some())
            .map(|far| RunThreads::start(scope, *far, queues_bytes, &shared));
        let writers = MemberWriters {
            queues,
            takes,
            rooms,
            runs,
            config: &store.config,
            shared,
            has_written: AtomicBool::new(false),
        };
        // Reports members that are full already, also where nothing is written.
        writers.fit_members();
        writers
    }

    fn send(&self, member: usize, command: WriterCommand) {
        if !matches!(command, WriterCommand::Barrier(_)) {
            self.has_written.store(true, Ordering::Relaxed);
        }
        if let Some(queue) = &self.queues[member] {
            // A writer that panicked has closed its queue; the scope passes the panic on.
            let _ = queue.send(command);
        }
    }

    /// Whether nothing was written to any member so far.
    pub(crate) fn has_written_nothing(&self) -> bool {
        !self.has_written.load(Ordering::Relaxed)
    }

    /// Begins a stripe set over all members that get sets and have not failed.
    ///
    /// # Errors
    /// Fails with the errors of [`geometry_over`], when too few members are left.
    pub fn begin(&self, name: ExtentName) -> Result<SetMembers> {
        let (geometry, members) = self.fit()?;
        Ok(self.set_members(name, geometry, members))
    }

    /// Begins a stripe set that is complete on one member, which `turn` selects among those that
    /// get sets and have not failed.
    ///
    /// # Errors
    /// Fails with the errors of [`begin`](Self::begin).
    pub(crate) fn begin_on_one(&self, name: ExtentName, turn: usize) -> Result<SetMembers> {
        let (_, members) = self.fit()?;
        let geometry = Geometry::new(1, 0, self.config.strip_bytes)?;
        Ok(self.set_members(name, geometry, vec![members[turn % members.len()]]))
    }

    /// Returns the members for a new stripe set, and its geometry over them.
    fn fit(&self) -> Result<(Geometry, Vec<usize>)> {
        let mut members = self.fit_members();
        // Report the member failures themselves, not an error caused by them.
        self.shared.abort.check()?;
        let geometry = geometry_over(self.config, members.len()).map_err(|error| {
            match self.shared.first_full() {
                Some(number) => self.full(number),
                None => error,
            }
        })?;
        members.truncate(geometry.members());
        Ok((geometry, members))
    }

    /// Returns the members that get sets and have space for one. A member that has run out of space
    /// is reported.
    fn fit_members(&self) -> Vec<usize> {
        let mut fit = Vec::new();
        for number in 0..self.queues.len() {
            let Some(room) = self.rooms[number].as_ref().filter(|_| self.takes[number]) else {
                continue;
            };
            if !self.shared.is(number, MemberStanding::Fit) {
                continue;
            }
            if room.has_some() {
                fit.push(number);
            } else if self.shared.becomes_full(number) {
                self.shared.monitor.degraded(room.member.place(), self.full(number));
            }
        }
        fit
    }

    fn full(&self, number: usize) -> Error {
        let what = "this member has no free space, so no new packs are written to it";
        let error = Error::new(Kind::NoSpace, what).advice(free_space(number));
        match &self.rooms[number] {
            Some(room) => error.at(room.member.place()),
            None => error,
        }
    }

    fn set_members(&self, name: ExtentName, geometry: Geometry, members: Vec<usize>) -> SetMembers {
        let rooms = || members.iter().filter_map(|number| self.rooms[*number].as_ref());
        let server = server_of(rooms().map(|room| &*room.member));
        let sent = self.runs.as_ref().zip(server);
        // Short extents, if all must be held until they are sealed, or if room is short.
        let longest = rooms().filter_map(FreeSpace::extent_bytes).min();
        let content = |bytes: u64| bytes.saturating_sub(EXTENT_ROOM_BYTES).max(bytes / 2);
        let most = longest.map_or(PACK_BYTES, |bytes| content(bytes) * geometry.data() as u64);
        let run_bytes = sent.as_ref().map_or(PACK_BYTES, |(runs, _)| content(runs.run_bytes));
        let pack_bytes = most.min(PACK_BYTES).min(run_bytes);
        let extent_bytes = pack_bytes.div_ceil(geometry.data() as u64) + EXTENT_ROOM_BYTES;
        let extent_bytes = longest.map_or(extent_bytes, |longest| longest.min(extent_bytes));
        rooms().for_each(|room| room.set_aside(extent_bytes));
        let run = sent.map(|(_, server)| {
            let members = members.iter().copied().zip(rooms().cloned()).collect();
            let room = RunRoom { members, bytes: extent_bytes };
            OpenRun::begin(server, name, geometry, room)
        });
        if run.is_none() {
            let begin = |&member: &usize| {
                self.send(member, WriterCommand::Begin(name, extent_bytes));
            };
            members.iter().for_each(begin);
        }
        SetMembers { geometry, pack_bytes, members: Arc::new(members), run }
    }

    /// Whether a set lacks an extent on a member that should have one, because that member failed
    /// or ran out of space before the extent was sealed. The caller must have waited for a barrier
    /// before.
    pub(crate) fn is_short(&self, name: ExtentName) -> bool {
        lock(&self.shared.short).contains(&name)
    }

    /// Whether another set can be begun.
    pub(crate) fn can_begin(&self) -> bool {
        self.fit().is_ok()
    }

    /// Returns the members that are absent or have failed. A member that is merely full is not
    /// among them and keeps its data.
    pub(crate) fn failed(&self) -> Vec<usize> {
        (0..self.queues.len())
            .filter(|number| self.shared.is(*number, MemberStanding::Failed))
            .collect()
    }

    /// Seals a stripe set on all members that hold it.
    pub fn seal(&self, name: ExtentName, set_members: &SetMembers) {
        if let Some((runs, run)) = self.runs.as_ref().zip(set_members.run.as_ref()) {
            self.has_written.store(true, Ordering::Relaxed);
            runs.seal(run);
            return;
        }
        set_members.members.iter().for_each(|&member| self.send(member, WriterCommand::Seal(name)));
    }

    /// Writes a small object on every member.
    pub fn put(&self, name: ExtentName, bytes: Vec<u8>) {
        let bytes = Arc::new(bytes);
        (0..self.queues.len())
            .for_each(|member| self.send(member, WriterCommand::Put(name, Arc::clone(&bytes))));
    }

    /// Puts the object that commits a run, on one member after the other, so that of two processes
    /// that put different objects under this name the first member decides. Durable on return. The
    /// caller must have waited for a barrier. If the commit ends the session `ends`, a server may
    /// remove the session in the same request; the caller removes it in any case.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when another object has the name, because this run was ended from
    /// outside. Fails with the run's fatal error.
    pub(crate) fn commit(
        &self,
        store: &Store,
        name: ExtentName,
        bytes: &[u8],
        ends: Option<ExtentName>,
    ) -> Result<()> {
        let has_failed = |number: usize| self.shared.is(number, MemberStanding::Failed);
        let takers = || store.present().filter(|(number, _)| !has_failed(*number));
        let mut steps = vec![PlannedStep::Put(name, bytes.to_vec())];
        let (all, taking) = (store.present().count(), takers().count());
        steps.extend(ends.filter(|_| taking == all).map(PlannedStep::Delete));
        takers().for_each(|(_, member)| member.plan(&steps, taking));
        for (at, (number, member)) in takers().enumerate() {
            let put = member.put(name, bytes);
            if at == 0 && put.is_ok() {
                // The first has decided: the others are written in parallel.
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
                        "another process ended the session of this backup with 'pinstripe gc \
                         --fence'",
                    )
                    .at(member.place().join(name.path()))
                    .advice("the backup made no snapshot; run the backup again"));
                }
                // Another process has carried it here, or brought it in the same merge.
                Err(error)
                    if error.kind() == Kind::Exists && snapshots::is_on(store, member, name) => {}
                Err(error) => self.shared.fail(number, member, error, MemberStanding::Failed),
            }
            self.shared.abort.check()?;
        }
        self.report_left(store)
    }

    /// Reports a member that was removed while the commit object was put: the member that took its
    /// place may lack the object. A store with several remote members is not checked, since the
    /// copies on the other members are enough.
    fn report_left(&self, store: &Store) -> Result<()> {
        if store.is_far() && store.present().count() > 1 {
            return Ok(());
        }
        if let Some(number) = store.left_meanwhile()? {
            let what =
                "this member was removed from the store while the snapshot was being written to it";
            let advice =
                "run 'pinstripe repair': the member that replaced it may lack the snapshot";
            let place = &store.member_slots[number].place;
            self.shared.monitor.degraded(place, Error::new(Kind::Changed, what).advice(advice));
        }
        Ok(())
    }

    /// Removes a small object from every member. A copy that cannot be removed does no harm.
    pub fn delete(&self, name: ExtentName) {
        (0..self.queues.len()).for_each(|member| self.send(member, WriterCommand::Delete(name)));
    }

    /// Marks this point in the sequence of commands, so that the caller can wait for it later.
    pub fn begin_barrier(&self) -> Barrier {
        let (sender, receiver) = bounded(self.queues.len());
        self.runs.iter().for_each(|runs| runs.hold(&sender));
        for member in 0..self.queues.len() {
            self.send(member, WriterCommand::Barrier(sender.clone()));
        }
        Barrier(receiver)
    }

    /// Waits until everything up to now is durable on every member that has not failed.
    ///
    /// # Errors
    /// Fails with the run's fatal error: too many members have failed, or one is full.
    pub fn barrier(&self) -> Result<()> {
        self.begin_barrier().wait();
        self.shared.abort.check()
    }

    /// Returns a sink that writes one stripe set's strips to the members that hold it.
    pub fn sink(&self, name: ExtentName, set_members: &SetMembers) -> MemberSink<'_, 'a> {
        let run = set_members.run.as_ref().map(|run| RunFiller(Arc::clone(run)));
        MemberSink { writers: self, name, members: Arc::clone(&set_members.members), run }
    }
}

/// Distributes the strips of one stripe set over the members.
pub struct MemberSink<'f, 'a> {
    writers: &'f MemberWriters<'a>,
    name: ExtentName,
    members: Arc<Vec<usize>>,
    run: Option<RunFiller>,
}

impl StripSink for MemberSink<'_, '_> {
    fn run(&mut self) -> Option<&mut dyn RunSink> {
        self.run.as_mut().map(|run| run as &mut dyn RunSink)
    }

    fn append(&mut self, slot: usize, bytes: Vec<u8>) -> Result<()> {
        self.writers.send(self.members[slot], WriterCommand::Append(self.name, bytes));
        Ok(())
    }

    fn buffer(&mut self, capacity: usize) -> Vec<u8> {
        let mut buffer = self.writers.shared.strips.take();
        buffer.clear();
        buffer.reserve_exact(capacity);
        buffer
    }
}

impl WritersShared<'_> {
    fn standings(&self) -> MutexGuard<'_, Vec<MemberStanding>> {
        lock(&self.standings)
    }

    fn is(&self, member: usize, standing: MemberStanding) -> bool {
        self.standings()[member] == standing
    }

    /// Whether the extents on a member count as lost.
    fn has_lost_extents(&self, member: usize) -> bool {
        matches!(self.standings()[member], MemberStanding::CutShort | MemberStanding::Failed)
    }

    fn first_full(&self) -> Option<usize> {
        let is_full =
            |it: &MemberStanding| matches!(it, MemberStanding::Full | MemberStanding::CutShort);
        self.standings().iter().position(is_full)
    }

    /// Marks a usable member as full; returns `false` if the member is not usable any more.
    fn becomes_full(&self, member: usize) -> bool {
        let standing = &mut self.standings()[member];
        let was_fit = *standing == MemberStanding::Fit;
        if was_fit {
            *standing = MemberStanding::Full;
        }
        was_fit
    }

    fn note_short(&self, name: ExtentName) {
        lock(&self.short).insert(name);
    }

    /// Marks a member as failed, or only the sets that are open on it as lost if it ran out of
    /// space; raises the fatal error when the run cannot continue without it.
    fn fail(&self, number: usize, member: &SharedMember, error: Error, to: MemberStanding) {
        let mut standings = self.standings();
        // Several sets that were sealed at once fail together.
        if standings[number] == to || standings[number] == MemberStanding::Failed {
            return;
        }
        let was_told = standings[number] == MemberStanding::Full;
        standings[number] = to;
        let is_lost =
            |it: &&MemberStanding| matches!(it, MemberStanding::CutShort | MemberStanding::Failed);
        let lost = standings.iter().filter(is_lost).count();
        let is_full = error.kind() == Kind::NoSpace;
        // Raised under the lock, before any other thread can see the failure and fail because of
        // it.
        if lost > self.parity {
            let advice = if is_full {
                free_space(number)
            } else if self.parity == 0 {
                "this store has no parity; a store created with --parity 1 survives the loss of a \
                 member"
                    .to_owned()
            } else {
                "more members failed than parity can replace; earlier snapshots are unaffected"
                    .to_owned()
            };
            self.abort.raise(error.at(member.place()).advice(advice));
            return;
        }
        drop(standings);
        if is_full && was_told {
            return;
        }
        let advice = if is_full { free_space(number) } else { attach_or_replace(number) };
        self.monitor.degraded(member.place(), error.advice(advice));
    }
}
