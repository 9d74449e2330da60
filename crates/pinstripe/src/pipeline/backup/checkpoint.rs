//! Checkpoints: from time to time, the finished part of a backup becomes durable under a name, so
//! that an interrupted backup can be resumed.
//!
//! No stage stops for it. When one is due, the assembler closes a copy of its tree and calls for
//! everything that its entries may refer to: each worker and the assembler itself close the record
//! that they fill and put a ticket behind it. A packer that has the tickets of all its feeders that
//! have not left seals its pack and marks that point for the members. One thread waits for both
//! packers' marks and then puts the object.
//!
//! Invariants: everything that the partial tree names was claimed before the call, so it lies in a
//! record before a ticket or in a pack already; the object is put when all that is durable; the one
//! before it is removed when the new one is durable; one checkpoint is under way at a time. A round
//! has as many tickets as its packer has feeders, and is always answered: a worker that leaves says
//! so to the packer, and the assembler feeds both packers tickets of its own, so that they notice
//! when all workers have left.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::format::snapshot::TreeRoot;
use crate::member::ExtentName;
use crate::pipeline::abort::Abort;
use crate::pipeline::member_writers::{Barrier, MemberWriters};
use crate::pipeline::pack::{SealTicket, ToPacker};
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;

/// The rounds in which one packer is asked to make durable what it was fed. Every thread that feeds
/// the packer has a [`Feeder`] of these rounds; all are made before the first round is begun.
#[derive(Default)]
pub struct SealRounds {
    /// Counts the rounds, so that a feeder sees a new one without taking the lock.
    begun: AtomicU64,
    /// The number of feeders that were made.
    feeders: AtomicUsize,
    durable: Mutex<Option<Sender<Barrier>>>,
}

impl SealRounds {
    /// One more feeder of the packer.
    pub fn feeder(&self) -> Feeder<'_> {
        self.feeders.fetch_add(1, Ordering::Relaxed);
        Feeder { rounds: self, answered: 0 }
    }

    /// Ends the round that is open: no feeder is left to answer it.
    pub fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender<Barrier>>> {
        lock(&self.durable)
    }

    fn ticket(&self, round: u64, durable: Sender<Barrier>) -> SealTicket {
        SealTicket { round, feeders: self.feeders.load(Ordering::Relaxed), durable }
    }
}

/// One thread's part in the rounds of the packer that it feeds.
pub struct Feeder<'a> {
    rounds: &'a SealRounds,
    /// The last round that it answered; 0 is none.
    answered: u64,
}

impl Feeder<'_> {
    /// The ticket for the open round, unless this feeder has answered it.
    pub fn ticket(&mut self) -> Option<SealTicket> {
        let begun = self.rounds.begun.load(Ordering::Acquire);
        if begun == self.answered {
            return None;
        }
        self.answered = begun;
        let durable = self.rounds.lock().clone()?;
        Some(self.rounds.ticket(begun, durable))
    }

    /// Begins the next round. Returns this feeder's own ticket, and what gets the barrier behind
    /// which all is durable.
    fn begin_round(&mut self) -> (SealTicket, Receiver<Barrier>) {
        let (durable, received) = bounded(1);
        *self.rounds.lock() = Some(durable.clone());
        self.answered = self.rounds.begun.fetch_add(1, Ordering::Release) + 1;
        (self.rounds.ticket(self.answered, durable), received)
    }

    /// Leaves; returns the last round that it answered, for the packer.
    pub fn leave(self) -> u64 {
        self.answered
    }
}

/// A partial tree on its way to becoming durable.
pub struct Partial {
    root: TreeRoot,
    /// By packer: gets the barrier behind which its part is durable.
    durable: [Receiver<Barrier>; 2],
}

/// The assembler's side.
pub struct Checkpoints<'a> {
    /// Whether it is time; asked after each job while none is under way.
    pub due: &'a (dyn Fn() -> bool + Sync),
    /// The assembler's part in the rounds of the packer that the workers feed.
    pub data_feeder: Feeder<'a>,
    /// Its part in the rounds of the packer that it alone feeds.
    pub tree_feeder: Feeder<'a>,
    /// One is under way.
    pub busy: &'a AtomicBool,
    /// To the thread that completes them.
    pub partials: Sender<Partial>,
    /// To the packer that the workers feed.
    pub data: Sender<ToPacker>,
    /// The assembler waits until each is durable: slow, and the same in every run.
    pub waits: bool,
}

impl Checkpoints<'_> {
    /// Whether a checkpoint should be set now.
    pub fn is_due(&self) -> bool {
        !self.busy.load(Ordering::Acquire) && (self.due)()
    }

    /// Waits for the checkpoint under way, where that was asked for.
    pub fn settle(&self, abort: &Abort) {
        while self.waits && self.busy.load(Ordering::Acquire) && !abort.is_raised() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Calls for all that the tree below `root` may need; returns the ticket for the packer that
    /// only the assembler feeds.
    pub fn begin(&mut self, root: TreeRoot) -> SealTicket {
        self.busy.store(true, Ordering::Release);
        let (for_data, data_durable) = self.data_feeder.begin_round();
        let (for_trees, trees_durable) = self.tree_feeder.begin_round();
        // The packers and the thread that completes checkpoints outlive the assembler.
        let _ = self.data.send(ToPacker::Seal(for_data));
        let _ = self.partials.send(Partial { root, durable: [data_durable, trees_durable] });
        for_trees
    }
}

/// Completes checkpoints until no more can come. `object` names and frames one; `last` is the one
/// that stands now, if any. An error of `object` ends the run; when the members fail, it ends by
/// itself.
pub fn complete(
    partials: &Receiver<Partial>,
    writers: &MemberWriters<'_>,
    abort: &Abort,
    busy: &AtomicBool,
    object: &(dyn Fn(TreeRoot) -> Result<(ExtentName, Vec<u8>)> + Sync),
    last: &mut Option<ExtentName>,
) {
    for Partial { root, durable } in partials {
        if !wait(&durable, abort) {
            continue;
        }
        let (name, bytes) = match object(root) {
            Ok(object) => object,
            Err(error) => {
                abort.raise(error);
                continue;
            }
        };
        writers.put(name, bytes);
        if writers.barrier().is_err() {
            continue;
        }
        if let Some(old) = last.replace(name) {
            writers.delete(old);
        }
        busy.store(false, Ordering::Release);
    }
}

/// Waits until the parts of all packers are durable; `false` when they never will be.
fn wait(durable: &[Receiver<Barrier>], abort: &Abort) -> bool {
    let mut barriers = Vec::with_capacity(durable.len());
    for durable in durable {
        loop {
            match durable.recv_timeout(Duration::from_millis(100)) {
                Ok(barrier) => break barriers.push(barrier),
                Err(RecvTimeoutError::Timeout) if !abort.is_raised() => {}
                Err(_) => return false,
            }
        }
    }
    barriers.into_iter().for_each(Barrier::wait);
    !abort.is_raised()
}
