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
//! before it is removed when the new one is durable; one checkpoint is under way at a time. A call
//! is always answered: a worker that leaves says so to the packer, and the assembler feeds both
//! packers tickets of its own, so that they notice when all workers have left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::format::snapshot::TreeRoot;
use crate::member::ExtentName;
use crate::pipeline::abort::Abort;
use crate::pipeline::member_writers::{Barrier, MemberWriters};
use crate::pipeline::pack::{SealTicket, ToPacker};
use pinstripe_base::error::Result;

/// Packers that must say that all is durable: one of data, one of trees.
const PACKERS: usize = 2;

/// The call that workers answer between two jobs.
pub struct SealCall {
    /// Counts the calls, so that a worker sees a new one without taking the lock.
    calls: AtomicU64,
    durable: Mutex<Option<Sender<Barrier>>>,
    /// The workers, and the assembler.
    feeders: usize,
}

impl SealCall {
    /// The state before the first call, for so many workers.
    pub fn new(workers: usize) -> Self {
        SealCall { calls: AtomicU64::new(0), durable: Mutex::new(None), feeders: workers + 1 }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender<Barrier>>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next call; returns the caller's own ticket.
    fn make(&self, durable: Sender<Barrier>) -> SealTicket {
        *self.lock() = Some(durable.clone());
        let round = self.calls.fetch_add(1, Ordering::Release) + 1;
        SealTicket { round, feeders: self.feeders, durable }
    }

    /// The ticket of a worker that has not answered the present call; `answered` is the last call
    /// that it answered.
    pub fn ticket(&self, answered: &mut u64) -> Option<SealTicket> {
        let calls = self.calls.load(Ordering::Acquire);
        if calls == *answered {
            return None;
        }
        *answered = calls;
        let durable = self.lock().clone()?;
        Some(SealTicket { round: calls, feeders: self.feeders, durable })
    }

    /// Ends the call: no feeder is left to answer it.
    pub fn close(&self) {
        *self.lock() = None;
    }
}

/// A partial tree on its way to becoming durable.
pub struct Partial {
    root: TreeRoot,
    durable: Receiver<Barrier>,
}

/// The assembler's side.
pub struct Checkpoints<'a> {
    /// Whether it is time; asked after each job while none is under way.
    pub due: &'a (dyn Fn() -> bool + Sync),
    /// Calls on the workers.
    pub call: &'a SealCall,
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
    pub fn begin(&self, root: TreeRoot) -> SealTicket {
        self.busy.store(true, Ordering::Release);
        let (durable, received) = bounded(PACKERS);
        let own = self.call.make(durable.clone());
        let for_trees = SealTicket { round: own.round, feeders: 1, durable };
        // The packers and the thread that completes checkpoints outlive the assembler.
        let _ = self.data.send(ToPacker::Seal(own));
        let _ = self.partials.send(Partial { root, durable: received });
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

/// Waits until both packers' marks are durable; `false` when they never will be.
fn wait(durable: &Receiver<Barrier>, abort: &Abort) -> bool {
    let mut marks = Vec::with_capacity(PACKERS);
    while marks.len() < PACKERS {
        match durable.recv_timeout(Duration::from_millis(100)) {
            Ok(mark) => marks.push(mark),
            Err(RecvTimeoutError::Timeout) if !abort.is_raised() => {}
            Err(_) => return false,
        }
    }
    marks.into_iter().for_each(Barrier::wait);
    !abort.is_raised()
}
