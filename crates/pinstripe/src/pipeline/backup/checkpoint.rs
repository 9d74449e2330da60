//! Checkpoints: from time to time, what a backup has done so far becomes durable under a name, so
//! that a backup that is cut off can be gone on with.
//!
//! Nothing stops for it. The assembler, when one is due, closes a copy of its tree and calls for
//! everything that its entries may refer to: each worker and the assembler itself close the record
//! that they fill and put a ticket behind it; a packer that has the tickets of all who feed it
//! seals its pack and marks that point for the members. One thread waits for both packers' marks
//! and then puts the object.
//!
//! Invariants: whatever the partial tree names was claimed before the call, so it lies in a record
//! before a ticket or in a pack already; the object is put when all that is durable; the one
//! before it is removed when the new one is durable; one checkpoint is under way at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::error::Result;
use crate::format::snapshot::TreeRoot;
use crate::member::ExtentName;
use crate::pipeline::abort::Abort;
use crate::pipeline::fleet::{Barrier, Fleet};
use crate::pipeline::pack::SealTicket;

/// Packers that must say that all is durable: one of data, one of trees.
const PACKERS: usize = 2;

/// The call that workers answer between two jobs.
pub struct SealCall {
    /// Counts the calls, so that a worker sees a new one without taking the lock.
    calls: AtomicU64,
    durable: Mutex<Option<Sender<Barrier>>>,
    workers: usize,
    /// A worker has come to its end and answers no more.
    is_over: AtomicBool,
}

impl SealCall {
    /// A call to so many workers that nobody has made yet.
    pub fn new(workers: usize) -> Self {
        let (calls, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        SealCall { calls, durable: Mutex::new(None), workers, is_over }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender<Barrier>>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, durable: Sender<Barrier>) {
        *self.lock() = Some(durable);
        self.calls.fetch_add(1, Ordering::Release);
    }

    /// The ticket of a worker that has not answered the present call; `answered` is its own count.
    pub fn ticket(&self, answered: &mut u64) -> Option<SealTicket> {
        let calls = self.calls.load(Ordering::Acquire);
        if calls == *answered {
            return None;
        }
        *answered = calls;
        let durable = self.lock().clone()?;
        Some(SealTicket { feeders: self.workers, durable })
    }

    /// Says that a worker answers no more: what is called for now comes to nothing.
    pub fn leave(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Ends the call: no worker is left to answer it.
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
    /// The assembler waits until each is durable: slow, and the same in every run.
    pub waits: bool,
}

impl Checkpoints<'_> {
    /// Whether a checkpoint should be set now.
    pub fn is_due(&self) -> bool {
        !self.busy.load(Ordering::Acquire) && (self.due)()
    }

    /// Waits for what is under way, where that was asked for.
    pub fn settle(&self, abort: &Abort) {
        let is_over = || self.call.is_over.load(Ordering::Acquire) || abort.is_raised();
        while self.waits && self.busy.load(Ordering::Acquire) && !is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Calls for all that the tree below `root` may need; the assembler's own ticket goes to what
    /// is returned.
    pub fn begin(&self, root: TreeRoot) -> Sender<Barrier> {
        self.busy.store(true, Ordering::Release);
        let (durable, received) = bounded(PACKERS);
        self.call.make(durable.clone());
        // Whoever completes them is there until the assembler is gone.
        let _ = self.partials.send(Partial { root, durable: received });
        durable
    }
}

/// Completes checkpoints until no more can come. `object` names and frames one; `last` is the one
/// that stands now, if any.
///
/// # Errors
/// Those of `object`. When the members fail, the run ends by itself.
pub fn complete(
    partials: &Receiver<Partial>,
    fleet: &Fleet<'_>,
    abort: &Abort,
    busy: &AtomicBool,
    object: &(dyn Fn(TreeRoot) -> Result<(ExtentName, Vec<u8>)> + Sync),
    last: &mut Option<ExtentName>,
) -> Result<()> {
    for Partial { root, durable } in partials {
        if !wait(&durable, abort) {
            continue;
        }
        let (name, bytes) = object(root)?;
        fleet.put(name, bytes);
        if fleet.barrier().is_err() {
            continue;
        }
        if let Some(old) = last.replace(name) {
            fleet.delete(old);
        }
        busy.store(false, Ordering::Release);
    }
    Ok(())
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
