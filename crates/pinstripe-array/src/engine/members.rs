//! The members of an array, its spares, and the superblock that all of them have.
//!
//! Superblocks are written in two steps, so that the lock is never held during a transfer: the list
//! of members to write is copied under the lock; the outcome is stored under the lock afterwards.
//!
//! Invariants:
//! - every present member has the newest generation, or the one before it while the newest is being
//!   written. A member on which the superblock could not be written is marked as failed, and the
//!   superblocks of the others record that;
//! - generations reach the disks in the order of their numbers: `newest` is locked from the choice
//!   of a number until the last member has it. This lock is the only one of an array that is held
//!   during transfers, and only changes of a superblock wait for it;
//! - the superblock that [`superblock`](Members::superblock) returns is durable on all present
//!   members, unless the array has lost too many members to make anything durable.

use std::path::PathBuf;
use std::sync::Arc;

use crate::executor::{Executor, SerialExecutor, TaskKind, each_of};
use crate::format::superblock::{Slot, Superblock, Work};
use crate::member::ArrayMember;
use crate::ranked::{Rank, RankedMutex, RankedRwLock};
use pinstripe_base::error::{Error, Kind, Result};

/// Members by slot; `None` where one is absent. The list is never changed: a change makes a new
/// list, so that a copy stays usable during a transfer.
pub(super) type MemberSlots = Arc<Vec<Option<Arc<ArrayMember>>>>;

/// Members, spares and superblock.
pub(super) struct Members {
    /// The newest superblock, already on the disks or being written to them.
    newest: RankedMutex<Superblock>,
    state: RankedRwLock<MembersState>,
}

struct MembersState {
    slots: MemberSlots,
    /// By slot, the path of its member, or of its last member if it has none now.
    paths: Vec<Option<PathBuf>>,
    /// By slot, why its last member failed; `None` while it has one, and if that is not known.
    reasons: Vec<Option<String>>,
    /// Spares, which wait for a member to fail.
    spares: Vec<Arc<ArrayMember>>,
    /// The newest superblock that all present members have.
    superblock: Superblock,
    /// Writes superblocks.
    executor: Arc<dyn Executor>,
}

impl Members {
    pub fn new(
        slots: Vec<Option<Arc<ArrayMember>>>,
        spares: Vec<Arc<ArrayMember>>,
        superblock: Superblock,
    ) -> Self {
        let path = |it: &Option<Arc<ArrayMember>>| Some(it.as_ref()?.path().to_owned());
        let newest = RankedMutex::new(Rank::Publishing, superblock.clone());
        let state = MembersState {
            paths: slots.iter().map(path).collect(),
            reasons: vec![None; slots.len()],
            slots: Arc::new(slots),
            spares,
            superblock,
            executor: Arc::new(SerialExecutor),
        };
        Members { newest, state: RankedRwLock::new(Rank::Members, state) }
    }

    /// Sets the executor that writes superblocks.
    pub(crate) fn set_executor(&self, executor: Arc<dyn Executor>) {
        self.state.write().executor = executor;
    }

    /// All slots.
    pub fn slots(&self) -> MemberSlots {
        Arc::clone(&self.state.read().slots)
    }

    /// The member in a slot; `None` if it is absent or the slot was dropped.
    pub fn get(&self, slot: usize) -> Option<Arc<ArrayMember>> {
        self.state.read().slots.get(slot)?.clone()
    }

    /// By slot, the path of its member, or of its last member if it has none now.
    pub fn paths(&self) -> Vec<Option<PathBuf>> {
        self.state.read().paths.clone()
    }

    /// By slot, why its last member failed, if that is known.
    pub fn reasons(&self) -> Vec<Option<String>> {
        self.state.read().reasons.clone()
    }

    /// The path of one slot's member, or of its last member if it has none now.
    pub fn path(&self, slot: usize) -> Option<PathBuf> {
        self.state.read().paths[slot].clone()
    }

    /// Forgets the path of a slot's last member.
    pub(crate) fn forget_path(&self, slot: usize) {
        self.state.write().paths[slot] = None;
    }

    /// Puts a member into a slot.
    pub fn put(&self, slot: usize, member: Arc<ArrayMember>) {
        let mut state = self.state.write();
        state.paths[slot] = Some(member.path().to_owned());
        state.reasons[slot] = None;
        Arc::make_mut(&mut state.slots)[slot] = Some(member);
    }

    /// Adds a slot.
    pub fn push(&self, member: Option<Arc<ArrayMember>>) {
        let mut state = self.state.write();
        state.paths.push(member.as_ref().map(|member| member.path().to_owned()));
        state.reasons.push(None);
        Arc::make_mut(&mut state.slots).push(member);
    }

    /// Drops the last slot. A reader that began earlier may still ask for this slot, and finds its
    /// member absent.
    pub fn pop(&self) -> Option<Arc<ArrayMember>> {
        let mut state = self.state.write();
        state.paths.pop();
        state.reasons.pop();
        Arc::make_mut(&mut state.slots).pop().flatten()
    }
}

/// Spares.
impl Members {
    /// All spares; the one that has waited longest is first.
    pub fn spares(&self) -> Vec<Arc<ArrayMember>> {
        self.state.read().spares.clone()
    }

    /// Whether there is a spare.
    pub(crate) fn has_spare(&self) -> bool {
        !self.state.read().spares.is_empty()
    }

    /// Adds a spare that has the newest superblock.
    pub fn add_spare(&self, spare: Arc<ArrayMember>) {
        self.state.write().spares.push(spare);
    }

    /// Removes and returns the first spare for which `is_such` is true.
    pub(crate) fn take_spare(
        &self,
        is_such: impl Fn(&ArrayMember) -> bool,
    ) -> Option<Arc<ArrayMember>> {
        let mut state = self.state.write();
        let number = state.spares.iter().position(|spare| is_such(spare))?;
        Some(state.spares.remove(number))
    }

    /// Removes and returns the spare that was added last.
    pub(crate) fn take_last_spare(&self) -> Option<Arc<ArrayMember>> {
        self.state.write().spares.pop()
    }
}

/// The superblock.
impl Members {
    /// A copy of the newest superblock that is durable.
    pub fn superblock(&self) -> Superblock {
        self.state.read().superblock.clone()
    }

    /// Calls `read` with the newest superblock that is durable. `read` may take only locks that
    /// come later in the lock order.
    pub(crate) fn with_superblock<T>(&self, read: impl FnOnce(&Superblock) -> T) -> T {
        read(&self.state.read().superblock)
    }

    /// Changes the superblock, durably on all present members. Members on which the superblock
    /// cannot be written are marked as failed. `survives` returns whether the array can do without
    /// the slots that are absent now.
    ///
    /// # Errors
    /// Fails with [`Kind::TooManyLosses`] when the array cannot do without the failed members.
    pub fn publish(
        &self,
        change: impl FnOnce(&mut Superblock),
        survives: impl Fn() -> bool,
    ) -> Result<()> {
        let mut newest = self.newest.lock();
        // All members that are present have this generation: notes that begin now name all that was
        // written since.
        let before = newest.generation;
        change(&mut newest);
        let published = self.write_until_taken(&mut newest, before, survives);
        self.end_publishing(&newest, published.is_ok());
        published
    }

    /// Replaces the member in a slot by its complete copy, durably on all present members. Returns
    /// false, and leaves the slot as it was, if the superblock could not be written to the copy:
    /// the caller then drops the replacement.
    ///
    /// # Errors
    /// Fails with the errors of [`publish`](Self::publish).
    pub fn succeed(
        &self,
        slot: usize,
        copy: &Arc<ArrayMember>,
        survives: impl Fn() -> bool,
    ) -> Result<bool> {
        let mut newest = self.newest.lock();
        let before = newest.generation;
        // The copy may hold this number although it reports an error: no other superblock gets it.
        newest.generation += 1;
        let mut next = newest.clone();
        next.work = Work::None;
        next.slots[slot] = Slot::Present(copy.id());
        if !has_taken(copy, &next) {
            return Ok(false);
        }
        self.put(slot, Arc::clone(copy));
        *newest = next;
        let published = match self.write_superblocks(&newest, Some(slot)) {
            failed if failed.is_empty() => Ok(()),
            failed => {
                failed.into_iter().for_each(|slot| self.mark_failed(slot, &mut newest));
                self.write_until_taken(&mut newest, before, survives)
            }
        };
        self.end_publishing(&newest, published.is_ok());
        published.map(|()| true)
    }

    fn end_publishing(&self, newest: &Superblock, is_published: bool) {
        if is_published {
            self.slots().iter().flatten().for_each(|member| member.published());
        }
        // Also where that failed: the status then names the members that failed last.
        self.state.write().superblock = newest.clone();
    }

    fn write_until_taken(
        &self,
        newest: &mut Superblock,
        before: u64,
        survives: impl Fn() -> bool,
    ) -> Result<()> {
        loop {
            newest.noted_since = match newest.is_any_away() {
                true if newest.noted_since == 0 => before,
                true => newest.noted_since,
                false => 0,
            };
            // An array that cannot continue writes nothing more, so that it can be assembled in the
            // state that it had.
            if !survives() {
                let what =
                    "more members failed than the parity or the copies of the array can replace";
                return Err(Error::new(Kind::TooManyLosses, format!("{what}{}", self.failures()))
                    .advice("attach the missing members, and assemble the array again"));
            }
            // A number of its own for each attempt: members with one generation and different
            // content would be taken for two histories, and refused (`newest` in `assemble`).
            newest.generation += 1;
            let failed = self.write_superblocks(newest, None);
            if failed.is_empty() {
                return Ok(());
            }
            failed.into_iter().for_each(|slot| self.mark_failed(slot, newest));
        }
    }

    /// The members that failed, with the reasons that are known.
    fn failures(&self) -> String {
        let state = self.state.read();
        let known = state.paths.iter().zip(&state.reasons);
        let known = known.filter_map(|(path, reason)| Some((path.as_ref()?, reason.as_ref()?)));
        known.map(|(path, reason)| format!("; {}: {reason}", path.display())).collect()
    }

    /// Writes the superblocks in parallel, durably, except to the slot in `has_it`. Returns the
    /// slots of members whose superblock could not be written.
    fn write_superblocks(&self, superblock: &Superblock, has_it: Option<usize>) -> Vec<usize> {
        let (spares, slots, executor) = {
            let state = self.state.read();
            (state.spares.clone(), Arc::clone(&state.slots), Arc::clone(&state.executor))
        };
        let there = slots.iter().enumerate();
        let there = there.filter_map(|(slot, member)| Some((Some(slot), member.as_ref()?)));
        let there = there.filter(|(slot, _)| *slot != has_it);
        let all: Vec<_> = spares.iter().map(|spare| (None, spare)).chain(there).collect();
        // A power cut leaves the new generation on any of them, and the one before on the others:
        // `assemble` takes both for one state.
        let taken = each_of(&*executor, TaskKind::Tables, all.len(), |number| {
            has_taken(all[number].1, superblock)
        });
        let refused = || all.iter().zip(&taken).filter(|(_, is_taken)| !**is_taken);
        // A spare that fails is dropped: nothing depends on its view of the others.
        if refused().any(|((slot, _), _)| slot.is_none()) {
            let is_refused = |spare: &Arc<ArrayMember>| {
                refused().any(|((_, member), _)| Arc::ptr_eq(member, spare))
            };
            self.state.write().spares.retain(|spare| !is_refused(spare));
        }
        refused().filter_map(|((slot, _), _)| *slot).collect()
    }

    /// Takes a member out of its slot and records that in `superblock`, which the caller publishes;
    /// if a replacement for the member can continue in its place, it takes the slot. From now on,
    /// the other members note the regions that the failed member misses.
    pub(crate) fn mark_failed(&self, slot: usize, superblock: &mut Superblock) {
        // Before the lock, since it waits until transfers to the replacement have ended. Only the
        // flusher writes to members, and it is here.
        let member = self.get(slot);
        let reason = member.as_ref().and_then(|member| member.failure().reason());
        let replacement = member.and_then(|member| member.replacement().set(None));
        superblock.slots[slot] = failed_slot(superblock.slots[slot], &superblock.work);
        let mut successor = None;
        match superblock.work {
            Work::Rebuild { slot: of, .. } if usize::from(of) == slot => {
                superblock.work = Work::None;
            }
            Work::Replace { slot: of, with, done_bytes } if usize::from(of) == slot => {
                superblock.work = Work::None;
                successor = replacement.filter(|it| it.id() == with);
                if let Some(successor) = &successor {
                    successor.set_filled(Some(done_bytes));
                    superblock.slots[slot] = Slot::Rebuilding(with);
                    superblock.work = Work::Rebuild { slot: of, done_bytes, only_behind: false };
                }
            }
            _ => {}
        }
        let slots = {
            let mut state = self.state.write();
            if let Some(successor) = &successor {
                state.paths[slot] = Some(successor.path().to_owned());
            }
            state.reasons[slot] = reason;
            Arc::make_mut(&mut state.slots)[slot] = successor;
            Arc::clone(&state.slots)
        };
        slots.iter().flatten().for_each(|member| member.note_changes(true));
    }
}

/// Writes a superblock durably. Returns whether the superblock was written to the member.
fn has_taken(member: &ArrayMember, superblock: &Superblock) -> bool {
    member.write_superblock(superblock).and_then(|()| member.sync()).is_ok()
}

/// The state of a slot whose member failed: `Failed` if the member may return and be brought up to
/// date.
pub(super) fn failed_slot(slot: Slot, work: &Work) -> Slot {
    match (slot, work) {
        // Growing moves the content at each offset, so the noted regions would not name what it
        // lacks.
        (_, Work::Grow { .. }) => Slot::Missing,
        (Slot::Present(member) | Slot::Failed(member), _) => Slot::Failed(member),
        // Half filled, it holds neither an old state of the array nor the present one.
        (Slot::Rebuilding(_) | Slot::Missing, _) => Slot::Missing,
    }
}
