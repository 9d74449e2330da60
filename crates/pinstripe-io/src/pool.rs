//! Threads that work in parallel: a pool of threads that wait for jobs, rounds in which the pool
//! does one step for each of many items, and threads that are started for one list.
//!
//! Invariants: each item of a round is done once; a round ends only when no thread is in one of its
//! steps. A job owns the data that it uses, so that no thread holds a reference to freed data.

#![allow(clippy::disallowed_methods, reason = "this module starts the threads that process a list")]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, LockResult, PoisonError};
use std::time::Duration;

#[cfg(loom)]
use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use pinstripe_base::clock;
use pinstripe_base::each::each_of;
use pinstripe_base::error::Result;

/// The number of threads with which a round begins: on a disk that answers quickly, a few threads
/// do all items, and waking hundreds would cost more than the round.
const FIRST_WORKERS: usize = 4;
/// If fewer items than threads are done within this time, more threads join the round.
const PATIENCE: Duration = Duration::from_millis(1);

/// A job for the threads of a pool.
pub trait Job: Send + Sync {
    /// Does it. Several threads may run it at once, if it was added several times.
    fn run(&self);
}

/// A queue of jobs for the threads that call [`work`](Self::work).
#[derive(Default)]
pub struct WorkerPool<'a> {
    waiting: Mutex<Waiting<'a>>,
    /// Notifies threads that a job was added, or that the pool ends.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting<'a> {
    jobs: VecDeque<Arc<dyn Job + 'a>>,
    is_over: bool,
}

impl<'a> WorkerPool<'a> {
    /// Adds a job.
    pub fn add(&self, job: Arc<dyn Job + 'a>) {
        held(self.waiting.lock()).jobs.push_back(job);
        self.changed.notify_one();
    }

    /// The body of a thread: does jobs until [`end`](Self::end) was called and no job waits. Calls
    /// `after` after each job.
    pub fn work(&self, after: &dyn Fn()) {
        loop {
            let mut waiting = held(self.waiting.lock());
            let job = loop {
                if let Some(job) = waiting.jobs.pop_front() {
                    break job;
                }
                if waiting.is_over {
                    return;
                }
                waiting = held(self.changed.wait(waiting));
            };
            drop(waiting);
            job.run();
            drop(job);
            after();
        }
    }

    /// Lets the threads end when no job is left.
    pub fn end(&self) {
        held(self.waiting.lock()).is_over = true;
        self.changed.notify_all();
    }

    /// Does a step for each item on the threads of the pool, and waits until all are done. Calls
    /// `meanwhile` at the interval `every`, so that one slow item does not delay other work.
    ///
    /// A few threads begin, and more join while the round makes little progress: items that wait,
    /// as for syncs, then wait in parallel.
    pub fn each<T: Send + Sync + 'a>(
        &self,
        items: Vec<T>,
        step: impl Fn(&T) + Send + Sync + 'a,
        (every, meanwhile): (Duration, &mut dyn FnMut()),
    ) {
        let count = items.len();
        if count == 0 {
            return;
        }
        let (next, working) = (AtomicUsize::new(0), Mutex::new(0));
        let round = Arc::new(PoolRound { items, step, next, working, done: Condvar::new() });
        let mut called = self.call(&round, FIRST_WORKERS.min(count));
        let (mut looked, mut before) = (clock::monotonic(), 0);
        let mut working = held(round.working.lock());
        while round.begun() < count || *working > 0 {
            let may_grow = round.begun() < count && called < count;
            let patience = if may_grow { PATIENCE.min(every) } else { every };
            working = held(round.done.wait_timeout(working, patience)).0;
            if may_grow && round.begun() - before < called {
                called += self.call(&round, called.min(count - called));
            }
            before = round.begun();
            if clock::since(looked) >= every {
                drop(working);
                meanwhile();
                looked = clock::monotonic();
                working = held(round.working.lock());
            }
        }
        drop(working);
        let is_other =
            |job: &Arc<dyn Job + 'a>| !std::ptr::addr_eq(Arc::as_ptr(job), Arc::as_ptr(&round));
        held(self.waiting.lock()).jobs.retain(is_other);
    }

    /// Asks this number of threads to join a round.
    fn call<J: Job + 'a>(&self, round: &Arc<J>, threads: usize) -> usize {
        (0..threads).for_each(|_| self.add(Arc::<J>::clone(round)));
        threads
    }
}

/// A round: a step for each of several items.
struct PoolRound<T, S> {
    items: Vec<T>,
    step: S,
    next: AtomicUsize,
    /// The number of threads that may be in a step. A thread counts itself in this number before it
    /// takes an item.
    working: Mutex<usize>,
    /// Notifies the caller that no thread is in a step any more. Only the caller waits for this, so
    /// that the threads, maybe hundreds, do not wake each other.
    done: Condvar,
}

impl<T, S> PoolRound<T, S> {
    /// The number of items that were begun. If read under the lock of `working`, every thread that
    /// began an item is counted in `working`.
    fn begun(&self) -> usize {
        self.next.load(Ordering::Relaxed).min(self.items.len())
    }
}

impl<T: Send + Sync, S: Fn(&T) + Send + Sync> Job for PoolRound<T, S> {
    fn run(&self) {
        /// Counts a thread as a member of a round, which it leaves on drop, also after a panic.
        struct RoundMember<'a>(&'a Mutex<usize>, &'a Condvar);
        impl Drop for RoundMember<'_> {
            fn drop(&mut self) {
                let mut working = held(self.0.lock());
                *working -= 1;
                if *working == 0 {
                    self.1.notify_all();
                }
            }
        }
        // With `planted="round"` this comes too late: loom has to find that.
        let early = cfg!(planted = "round").then(|| self.next.fetch_add(1, Ordering::Relaxed));
        *held(self.working.lock()) += 1;
        let _worker = RoundMember(&self.working, &self.done);
        early.and_then(|number| self.items.get(number)).into_iter().for_each(&self.step);
        while let Some(item) = self.items.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            (self.step)(item);
        }
    }
}

/// The guard of a lock, whether or not it is poisoned, as in `pinstripe_base::sync::lock`.
fn held<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Calls `task` with each of these numbers, on at most `most` threads, including the calling one.
/// Returns the number of threads used.
pub fn side_by_side(most: usize, numbers: Range<usize>, task: &(dyn Fn(usize) + Sync)) -> usize {
    let next = std::sync::atomic::AtomicUsize::new(numbers.start);
    let work = || {
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number >= numbers.end {
                break;
            }
            task(number);
        }
    };
    let threads = numbers.len().min(most).max(1);
    std::thread::scope(|scope| {
        // If the system gives no more threads, those that run do all the tasks.
        let start = || std::thread::Builder::new().spawn_scoped(scope, work);
        let _started = (1..threads).map_while(|_| start().ok()).count();
        work();
    });
    threads
}

/// Calls `work` for every item on `threads` threads; the results are in the order of the items. All
/// items are processed, even after one has failed.
///
/// # Errors
/// Fails with the first error, in the order of the items.
pub fn each<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let run = |task: &(dyn Fn(usize) + Sync)| _ = side_by_side(threads, 0..items.len(), task);
    each_of(items.len(), run, |at| work(&items[at])).into_iter().collect()
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Tries the possible orders with at most this many switches between threads during their work.
    fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(run);
    }

    /// A round of two items on two threads: when the round has ended, all of its steps have.
    #[test]
    fn loom_a_round_is_over_when_all_its_steps_are() {
        model(2, || {
            let pool = Arc::new(WorkerPool::default());
            let work = |_| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.work(&|| {}))
            };
            let threads: Vec<_> = (0..2).map(work).collect();
            let done = Arc::new(AtomicUsize::new(0));
            let steps = Arc::clone(&done);
            let step = move |item: &usize| _ = steps.fetch_add(*item, Ordering::Relaxed);
            pool.each(vec![1, 2], step, (Duration::MAX, &mut || {}));
            assert_eq!(done.load(Ordering::Relaxed), 3);
            pool.end();
            threads.into_iter().for_each(|it| it.join().unwrap());
        });
    }

    /// The threads of a pool do all waiting jobs before they end, and miss no wake.
    #[test]
    fn loom_a_job_that_was_added_before_the_end_is_done() {
        struct RoundCount(AtomicUsize);
        impl Job for RoundCount {
            fn run(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        model(3, || {
            let pool = Arc::new(WorkerPool::default());
            let count = Arc::new(RoundCount(AtomicUsize::new(0)));
            let own = Arc::clone(&pool);
            let thread = thread::spawn(move || own.work(&|| {}));
            pool.add(Arc::<RoundCount>::clone(&count));
            pool.add(Arc::<RoundCount>::clone(&count));
            pool.end();
            thread.join().unwrap();
            assert_eq!(count.0.load(Ordering::Relaxed), 2);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use pinstripe_base::error::{Error, Kind};
    use pinstripe_base::sync::{Stop, lock};
    use std::collections::HashSet;
    use std::sync::Barrier;

    const LONG: Duration = Duration::from_secs(3600);

    /// Calls `with` with a pool of this many threads, and returns its result.
    fn with<'a, R>(threads: usize, with: impl FnOnce(&WorkerPool<'a>) -> R) -> R {
        let pool = WorkerPool::default();
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| _ = scope.spawn(|| pool.work(&|| {})));
            let result = with(&pool);
            pool.end();
            result
        })
    }

    #[test]
    fn each_item_is_done_once_in_every_round() {
        let seen = Mutex::new(Vec::new());
        with(8, |pool| {
            for count in [0, 1, 3, 8, 500] {
                pool.each((0..count).collect(), |item| lock(&seen).push(*item), (LONG, &mut || {}));
                let mut seen = std::mem::take(&mut *lock(&seen));
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>());
                assert!(lock(&pool.waiting).jobs.is_empty(), "nothing keeps the items");
            }
        });
    }

    #[test]
    fn items_that_wait_for_each_other_all_get_a_thread() {
        let (all, threads) = (Barrier::new(64), Mutex::new(HashSet::new()));
        let step = |_: &usize| {
            lock(&threads).insert(std::thread::current().id());
            all.wait();
        };
        with(64, |pool| pool.each((0..64).collect(), step, (LONG, &mut || {})));
        assert_eq!(lock(&threads).len(), 64);
    }

    #[test]
    fn the_caller_looks_around_while_an_item_takes_long() {
        let (looks, goes_on) = (AtomicUsize::new(0), Stop::new().unwrap());
        let step = |_: &usize| while !goes_on.wait(LONG) {};
        let mut meanwhile = || {
            if looks.fetch_add(1, Ordering::Relaxed) == 2 {
                goes_on.set();
            }
        };
        let every = Duration::from_millis(1);
        with(2, |pool| pool.each(vec![0], step, (every, &mut meanwhile)));
        assert!(looks.load(Ordering::Relaxed) >= 3);
    }

    #[test]
    fn jobs_that_wait_at_the_end_are_still_done() {
        struct RoundCount(AtomicUsize);
        impl Job for RoundCount {
            fn run(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (count, pool) = (Arc::new(RoundCount(AtomicUsize::new(0))), WorkerPool::default());
        (0..5).for_each(|_| pool.add(Arc::<RoundCount>::clone(&count)));
        pool.end();
        let after = AtomicUsize::new(0);
        pool.work(&|| _ = after.fetch_add(1, Ordering::Relaxed));
        assert_eq!(count.0.load(Ordering::Relaxed), 5);
        assert_eq!(after.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn results_keep_the_order_and_the_first_error_wins() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(each(4, &items, |n| Ok(n * 2)).unwrap()[99], 198);
        let fail = |n: &u32| match n {
            7 | 50 => Err(Error::new(Kind::Io, n.to_string())),
            _ => Ok(()),
        };
        assert_eq!(each(4, &items, fail).unwrap_err().to_string(), "7");
        assert!(each(4, &[] as &[u32], |_| Ok(())).unwrap().is_empty());
    }
}
