//! Threads that do one step for each of many files at once: syncs wait, and several of them in
//! flight wait for the disk together.

#![allow(clippy::disallowed_methods, reason = "the threads of a commit are started here")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Scope;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::sync::{lock, wait, wait_timeout};

use super::piece::Piece;

/// What is done for each file.
pub(super) type Step<'a> = &'a (dyn Fn(&Arc<Piece>) + Sync);

/// A step as its workers see it, for all of its files.
struct Round {
    pieces: Vec<Arc<Piece>>,
    next: AtomicUsize,
    /// The step. Only called while [`Crew::each`] waits, which holds what it borrows.
    step: *const (dyn Fn(&Arc<Piece>) + Sync),
}

// SAFETY: the step is `Sync`, and is only called while its owner waits for the round's end.
unsafe impl Send for Round {}
// SAFETY: as above.
unsafe impl Sync for Round {}

#[derive(Default)]
struct Shared {
    round: Option<Arc<Round>>,
    number: u64,
    working: usize,
    is_over: bool,
}

/// Threads that wait for a step.
#[derive(Default)]
pub(super) struct Crew {
    shared: Mutex<Shared>,
    /// There is a step to do, or none any more. Workers wait for it.
    begun: Condvar,
    /// All workers of a step are done. Only [`Crew::each`] waits for it: the workers, of which there
    /// may be hundreds, are not woken by each other.
    done: Condvar,
}

impl Crew {
    /// Starts `count` threads, each of which calls `begin` first and `end` after each round.
    pub fn start<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        count: usize,
        begin: &'env (dyn Fn() + Sync),
        end: &'env (dyn Fn() + Sync),
    ) {
        for _ in 0..count {
            scope.spawn(|| {
                begin();
                self.work(end);
            });
        }
    }

    fn work(&self, end: &(dyn Fn() + Sync)) {
        let mut seen = 0;
        loop {
            let round = {
                let mut shared = lock(&self.shared);
                while shared.number == seen && !shared.is_over {
                    shared = wait(&self.begun, shared);
                }
                if shared.is_over {
                    return;
                }
                seen = shared.number;
                let Some(round) = shared.round.clone() else { continue };
                shared.working += 1;
                round
            };
            while let Some(piece) = round.pieces.get(round.next.fetch_add(1, Ordering::Relaxed)) {
                // SAFETY: `each` does not return before `working` is 0 again, and it holds the step.
                let step = unsafe { &*round.step };
                step(piece);
            }
            end();
            let mut shared = lock(&self.shared);
            shared.working -= 1;
            if shared.working == 0 {
                self.done.notify_all();
            }
        }
    }

    /// Does a step for each file, and waits until all are done. Calls `meanwhile` each `every`, so
    /// that one file that takes long holds no other up.
    pub fn each(
        &self,
        pieces: Vec<Arc<Piece>>,
        step: Step<'_>,
        (every, meanwhile): (Duration, &mut dyn FnMut()),
    ) {
        if pieces.is_empty() {
            return;
        }
        let step: *const (dyn Fn(&Arc<Piece>) + Sync + '_) = step;
        // SAFETY: only the lifetime changes; the step is not called after this function returns.
        let step: *const (dyn Fn(&Arc<Piece>) + Sync) = unsafe { std::mem::transmute(step) };
        let count = pieces.len();
        let round = Arc::new(Round { pieces, next: AtomicUsize::new(0), step });
        let mut shared = lock(&self.shared);
        shared.round = Some(Arc::clone(&round));
        shared.number += 1;
        self.begun.notify_all();
        let mut looked = clock::monotonic();
        while round.next.load(Ordering::Relaxed) < count || shared.working > 0 {
            shared = wait_timeout(&self.done, shared, every);
            if clock::since(looked) >= every {
                drop(shared);
                meanwhile();
                looked = clock::monotonic();
                shared = lock(&self.shared);
            }
        }
        shared.round = None;
    }

    /// Lets the threads end.
    pub fn end(&self) {
        lock(&self.shared).is_over = true;
        self.begun.notify_all();
    }
}
