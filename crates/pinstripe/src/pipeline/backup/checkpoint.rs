//! Checkpoints: from time to time, the finished part of a backup is made durable under a name, so
//! that an interrupted backup can be resumed.
//!
//! No stage stops for a checkpoint. When one is due, the assembler closes a copy of its tree and
//! calls for everything that its entries may refer to: each worker and the assembler itself close
//! the record that they are filling and send a ticket after it. A packer that has the tickets of
//! all its active feeders seals its pack and sets a barrier for the members' writes. One thread
//! waits for the barriers of both packers and then puts the checkpoint object.
//!
//! Invariants: everything that the partial tree names was claimed before the call, so it is in a
//! record before a ticket or in a pack already. The checkpoint object is put when everything that
//! its tree names is durable. The previous checkpoint is removed when the new one is durable. Only
//! one checkpoint is in progress at a time. A round has as many tickets as its packer has feeders,
//! and is always answered: a worker that ends tells the packer, and the assembler sends its own
//! tickets to both packers, so that they notice when all workers have ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::pipeline::member_writers::{Barrier, MemberWriters};
use crate::pipeline::pack::{SealTicket, ToPacker};
use pinstripe_base::error::Result;
use pinstripe_base::sync::lock;
use pinstripe_member::ExtentName;
use pinstripe_member::snapshot::TreeRoot;
use pinstripe_stripe::Abort;

/// The rounds in which one packer is asked to make everything durable that it has received. Every
/// thread that sends records to the packer has a [`Feeder`] of these rounds; all feeders are made
/// before the first round begins.
#[derive(Default)]
pub(crate) struct SealRounds {
    /// The number of rounds begun, so that a feeder sees a new round without taking the lock.
    begun: AtomicU64,
    state: Mutex<RoundState>,
}

#[derive(Default)]
struct RoundState {
    /// Receives the barrier of the open round.
    durable: Option<Sender<Barrier>>,
    /// For each feeder, the channel that wakes it when a round begins.
    calls: Vec<Sender<()>>,
}

impl SealRounds {
    /// Makes one more feeder of the packer.
    pub fn feeder(&self) -> Feeder<'_> {
        let (call, calls) = bounded(1);
        self.lock().calls.push(call);
        Feeder { rounds: self, calls, answered: 0 }
    }

    /// Ends the open round, because no feeder is left to answer it.
    pub fn close(&self) {
        self.lock().durable = None;
    }

    fn lock(&self) -> MutexGuard<'_, RoundState> {
        lock(&self.state)
    }
}

impl RoundState {
    /// Returns a ticket for the open round, unless the round was closed.
    fn ticket(&self, round: u64) -> Option<SealTicket> {
        let durable = self.durable.clone()?;
        Some(SealTicket { round, feeders: self.calls.len(), durable })
    }
}

/// One thread's part in the rounds of the packer to which it sends records.
pub(crate) struct Feeder<'a> {
    rounds: &'a SealRounds,
    /// Has a token once a round has begun, even if that round has been answered since.
    calls: Receiver<()>,
    /// The last round that this feeder answered; 0 if it answered none.
    answered: u64,
}

impl Feeder<'_> {
    /// Returns the ticket for the open round, unless this feeder has answered it already.
    pub(crate) fn ticket(&mut self) -> Option<SealTicket> {
        let begun = self.rounds.begun.load(Ordering::Acquire);
        if begun == self.answered {
            return None;
        }
        self.answered = begun;
        self.rounds.lock().ticket(begun)
    }

    /// Returns the channel that wakes this feeder when a round begins, for waiting. [`ticket`]
    /// tells whether there is a round to answer.
    ///
    /// [`ticket`]: Self::ticket
    pub fn calls(&self) -> &Receiver<()> {
        &self.calls
    }

    /// Begins the next round. Returns this feeder's own ticket, and the channel that receives the
    /// barrier after which everything is durable.
    fn begin_round(&mut self) -> (SealTicket, Receiver<Barrier>) {
        let (durable, received) = bounded(1);
        let mut state = self.rounds.lock();
        state.durable = Some(durable.clone());
        // Before the calls, so that a feeder that is woken finds the round.
        self.answered = self.rounds.begun.fetch_add(1, Ordering::Release) + 1;
        for call in &state.calls {
            // A feeder that has a token already is awake or will be; one that has left needs none.
            let _ = call.try_send(());
        }
        (SealTicket { round: self.answered, feeders: state.calls.len(), durable }, received)
    }

    /// Ends this feeder; returns the last round that it answered, for the packer.
    pub fn leave(self) -> u64 {
        self.answered
    }
}

/// A partial tree that is not durable yet.
pub struct Partial {
    root: TreeRoot,
    /// For each packer, the channel that receives the barrier after which its part is durable.
    durable: [Receiver<Barrier>; 2],
}

/// The assembler's side.
pub struct Checkpoints<'a> {
    /// Whether a checkpoint is due; asked after each job while no checkpoint is in progress.
    due: &'a (dyn Fn() -> bool + Sync),
    /// The assembler's feeder of the packer to which the workers send records.
    data_feeder: Feeder<'a>,
    /// The assembler's feeder of the packer that only the assembler uses.
    tree_feeder: Feeder<'a>,
    /// Whether a checkpoint is in progress, as far as the assembler has noticed.
    is_under_way: bool,
    /// Sends partial trees to the thread that completes checkpoints.
    partials: Sender<Partial>,
    /// Receives a message from the thread that completes checkpoints when the checkpoint in
    /// progress is durable.
    completed: Receiver<()>,
    /// Sends to the packer that the workers use.
    data: Sender<ToPacker>,
    /// Whether the assembler waits until each checkpoint is durable: slow, but reproducible.
    waits: bool,
}

impl<'a> Checkpoints<'a> {
    /// Makes checkpoints when `due` returns true. The feeders are the assembler's: one of the
    /// packer that the workers use through `data`, and one of the packer that only the assembler
    /// uses. `partials` leads to the thread that completes checkpoints, and `completed` receives
    /// its messages. With `waits`, the assembler continues only when a checkpoint is durable.
    pub fn new(
        due: &'a (dyn Fn() -> bool + Sync),
        [data_feeder, tree_feeder]: [Feeder<'a>; 2],
        partials: Sender<Partial>,
        completed: Receiver<()>,
        data: Sender<ToPacker>,
        waits: bool,
    ) -> Self {
        let is_under_way = false;
        Checkpoints {
            due,
            data_feeder,
            tree_feeder,
            is_under_way,
            partials,
            completed,
            data,
            waits,
        }
    }

    /// Whether a checkpoint should be made now.
    pub fn is_due(&mut self) -> bool {
        if self.is_under_way && self.completed.try_recv().is_ok() {
            self.is_under_way = false;
        }
        !self.is_under_way && (self.due)()
    }

    /// Waits for the checkpoint in progress, if that was requested.
    pub fn settle(&mut self, abort: &Abort) {
        if self.waits && self.is_under_way && abort.recv(&self.completed).is_ok() {
            self.is_under_way = false;
        }
    }

    /// Calls for everything that the tree below `root` may need; returns the ticket for the packer
    /// that only the assembler uses.
    pub fn begin(&mut self, root: TreeRoot) -> SealTicket {
        self.is_under_way = true;
        let (for_data, data_durable) = self.data_feeder.begin_round();
        let (for_trees, trees_durable) = self.tree_feeder.begin_round();
        // The packers and the thread that completes checkpoints outlive the assembler.
        let _ = self.data.send(ToPacker::Seal(for_data));
        let _ = self.partials.send(Partial { root, durable: [data_durable, trees_durable] });
        for_trees
    }
}

/// Completes checkpoints until no more can come, and notifies `completed` of each. `object` names
/// and frames a checkpoint; `last` is the name of the present one, if any. An error of `object`
/// ends the run; if the members fail, the run ends anyway.
pub fn complete(
    partials: &Receiver<Partial>,
    writers: &MemberWriters<'_>,
    abort: &Abort,
    completed: &Sender<()>,
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
        // It has room for one, and one is in progress at a time.
        let _ = completed.try_send(());
    }
}

/// Waits until the parts of all packers are durable; returns `false` if they never will be.
fn wait(durable: &[Receiver<Barrier>], abort: &Abort) -> bool {
    let mut barriers = Vec::with_capacity(durable.len());
    for durable in durable {
        let Ok(barrier) = abort.recv(durable) else { return false };
        barriers.push(barrier);
    }
    barriers.into_iter().for_each(Barrier::wait);
    !abort.is_raised()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::error::{Error, Kind};

    fn broken() -> Error {
        Error::new(Kind::Corrupt, "broken on purpose")
    }

    /// As in the other tests here, the wait has no timeout: a feeder that is not woken would hang
    /// the test.
    #[test]
    fn a_round_wakes_each_feeder_that_waits() {
        let rounds = SealRounds::default();
        let mut own = rounds.feeder();
        let feeders = [rounds.feeder(), rounds.feeder()];
        std::thread::scope(|scope| {
            let answer = |mut feeder: Feeder<'_>| {
                assert!(feeder.ticket().is_none_or(|it| it.round == 1));
                feeder.calls().recv().unwrap();
                // Each round is answered once, whether it was seen before the call or after.
                feeder.ticket();
                assert!(feeder.ticket().is_none());
                feeder.leave()
            };
            let waiting = feeders.map(|feeder| scope.spawn(move || answer(feeder)));
            let (ticket, _durable) = own.begin_round();
            assert_eq!((ticket.round, ticket.feeders), (1, 3));
            assert_eq!(waiting.map(|it| it.join().unwrap()), [1, 1]);
        });
        // A feeder that has left needs no call, and a round that is closed gives no ticket.
        own.begin_round();
        let mut late = Feeder { rounds: &rounds, calls: bounded(1).1, answered: 1 };
        rounds.close();
        assert!(late.ticket().is_none());
    }

    #[test]
    fn a_raised_abort_wakes_what_waits_for_durable_packs() {
        let abort = Abort::default();
        let (senders, durable): (Vec<_>, Vec<_>) = [bounded(1), bounded(1)].into_iter().unzip();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&durable, &abort));
            abort.raise(broken());
            assert!(!waiting.join().unwrap());
        });
        drop(senders);
    }

    #[test]
    fn a_completed_checkpoint_or_a_raised_abort_wakes_the_assembler_that_waits_for_it() {
        let abort = Abort::default();
        let (data_rounds, tree_rounds) = (SealRounds::default(), SealRounds::default());
        let ((partials, partial_queue), (data, _data)) = (bounded(2), bounded(2));
        let (completes, completed) = bounded(1);
        let feeders = [data_rounds.feeder(), tree_rounds.feeder()];
        let mut checkpoints = Checkpoints::new(&|| true, feeders, partials, completed, data, true);
        let root = TreeRoot { id: pinstripe_base::id::ChunkId([0; 32]), height: 0, entries: 0 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                partial_queue.recv().unwrap();
                completes.send(()).unwrap();
                partial_queue.recv().unwrap();
                abort.raise(broken());
            });
            assert!(checkpoints.is_due());
            checkpoints.begin(root);
            checkpoints.settle(&abort);
            assert!(checkpoints.is_due(), "it was completed");
            checkpoints.begin(root);
            checkpoints.settle(&abort);
            assert!(!checkpoints.is_due(), "it was not");
        });
    }
}
