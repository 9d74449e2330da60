//! Threads that do one step for each of many files at once: syncs wait, and several of them in
//! flight wait for the disk together.
//!
//! A step begins with few of them, and more join as long as it hardly moves: on a disk that answers
//! quickly a few do all, and waking hundreds would cost more than the step.

#![allow(clippy::disallowed_methods, reason = "the threads of a commit are started here")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Scope;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::sync::{lock, wait, wait_timeout};

/// What is done for each file.
pub(super) type Step<'a, T> = &'a (dyn Fn(&T) + Sync);

/// The threads that a step begins with.
const FIRST_WORKERS: usize = 4;
/// The time in which each of a step's threads does one file at least, or more of them join.
const PATIENCE: Duration = Duration::from_millis(1);

/// A step as its workers see it, for all of its files.
struct Round<T> {
    files: Vec<T>,
    next: AtomicUsize,
    /// The step. Only called while [`WorkerPool::each`] waits, which holds what it borrows.
    step: *const (dyn Fn(&T) + Sync),
}

// SAFETY: the step is `Sync`, and is only called while its owner waits for the round's end.
unsafe impl<T: Send + Sync> Send for Round<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Round<T> {}

struct Shared<T> {
    round: Option<Arc<Round<T>>>,
    number: u64,
    /// Threads that this step has, and those that it may have.
    joined: usize,
    wanted: usize,
    working: usize,
    is_over: bool,
}

/// Threads that wait for a step.
pub(super) struct WorkerPool<T> {
    shared: Mutex<Shared<T>>,
    /// A step may have one more thread, or there are no steps any more. Workers wait for it.
    called: Condvar,
    /// All workers of a step are done. Only [`WorkerPool::each`] waits for it: the workers, of which there
    /// may be hundreds, are not woken by each other.
    done: Condvar,
}

impl<T> Default for WorkerPool<T> {
    fn default() -> Self {
        let shared =
            Shared { round: None, number: 0, joined: 0, wanted: 0, working: 0, is_over: false };
        WorkerPool {
            shared: Mutex::new(shared),
            called: Condvar::default(),
            done: Condvar::default(),
        }
    }
}

impl<T: Send + Sync + 'static> WorkerPool<T> {
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
                let is_called = |it: &Shared<T>| it.number != seen && it.joined < it.wanted;
                while !is_called(&shared) && !shared.is_over {
                    shared = wait(&self.called, shared);
                }
                if shared.is_over {
                    return;
                }
                seen = shared.number;
                let Some(round) = shared.round.clone() else { continue };
                shared.joined += 1;
                shared.working += 1;
                round
            };
            while let Some(file) = round.files.get(round.next.fetch_add(1, Ordering::Relaxed)) {
                // SAFETY: `each` does not return before `working` is 0 again, and it holds the step.
                let step = unsafe { &*round.step };
                step(file);
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
        files: Vec<T>,
        step: Step<'_, T>,
        (every, meanwhile): (Duration, &mut dyn FnMut()),
    ) {
        if files.is_empty() {
            return;
        }
        let step: *const (dyn Fn(&T) + Sync + '_) = step;
        // SAFETY: only the lifetime changes; the step is not called after this function returns.
        let step: *const (dyn Fn(&T) + Sync) = unsafe { std::mem::transmute(step) };
        let count = files.len();
        let round = Arc::new(Round { files, next: AtomicUsize::new(0), step });
        let mut shared = lock(&self.shared);
        shared.round = Some(Arc::clone(&round));
        shared.number += 1;
        (shared.joined, shared.wanted) = (0, 0);
        self.call(&mut shared, FIRST_WORKERS.min(count));
        let begun = || round.next.load(Ordering::Relaxed).min(count);
        let (mut looked, mut before) = (clock::monotonic(), 0);
        while begun() < count || shared.working > 0 {
            let may_grow = begun() < count && shared.wanted < count;
            let patience = if may_grow { PATIENCE.min(every) } else { every };
            shared = wait_timeout(&self.done, shared, patience);
            if may_grow && begun() - before < shared.wanted {
                let more = shared.wanted.min(count - shared.wanted);
                self.call(&mut shared, more);
            }
            before = begun();
            if clock::since(looked) >= every {
                drop(shared);
                meanwhile();
                looked = clock::monotonic();
                shared = lock(&self.shared);
            }
        }
        shared.round = None;
    }

    /// Lets so many more threads join the step.
    fn call(&self, shared: &mut Shared<T>, more: usize) {
        shared.wanted += more;
        (0..more).for_each(|_| self.called.notify_one());
    }

    /// Lets the threads end.
    pub fn end(&self) {
        lock(&self.shared).is_over = true;
        self.called.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    const LONG: Duration = Duration::from_secs(3600);

    /// What `with` gives, called with this many threads.
    fn with<R>(threads: usize, with: impl FnOnce(&WorkerPool<usize>) -> R) -> R {
        let (pool, nothing) = (WorkerPool::default(), || {});
        std::thread::scope(|scope| {
            pool.start(scope, threads, &nothing, &nothing);
            let result = with(&pool);
            pool.end();
            result
        })
    }

    #[test]
    fn each_file_is_done_once_in_every_step() {
        with(8, |pool| {
            for count in [0, 1, 3, 8, 500] {
                let seen = Mutex::new(Vec::new());
                pool.each(
                    (0..count).collect(),
                    &|file| lock(&seen).push(*file),
                    (LONG, &mut || {}),
                );
                let mut seen = lock(&seen).clone();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>());
            }
        });
    }

    #[test]
    fn files_that_wait_for_each_other_all_get_a_thread() {
        let (all, threads) = (Barrier::new(64), Mutex::new(HashSet::new()));
        let step = |_: &usize| {
            lock(&threads).insert(std::thread::current().id());
            all.wait();
        };
        with(64, |pool| pool.each((0..64).collect(), &step, (LONG, &mut || {})));
        assert_eq!(lock(&threads).len(), 64);
    }

    #[test]
    fn the_caller_looks_around_while_a_file_takes_long() {
        let (looks, goes_on) = (AtomicUsize::new(0), pinstripe_base::sync::Stop::new().unwrap());
        let step = |_: &usize| while !goes_on.wait(LONG) {};
        let mut meanwhile = || {
            if looks.fetch_add(1, Ordering::Relaxed) == 2 {
                goes_on.set();
            }
        };
        let every = Duration::from_millis(1);
        with(2, |pool| pool.each(vec![0], &step, (every, &mut meanwhile)));
        assert!(looks.load(Ordering::Relaxed) >= 3);
    }
}
