//! Threads that wait for the source, so that no one else has to wait longer than the deadline.
//!
//! A call goes to one of at most so many threads; the caller waits for its answer until the
//! deadline. A thread whose call does not return is lost until it does: when all are, further calls
//! end by their deadlines as well.
//!
//! Invariants: a call returns by the deadline, whatever the source does; a call that was not begun
//! by then is never made; ending the pool waits for no thread.

#![allow(clippy::disallowed_methods, reason = "starts the threads that wait for the source")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use crate::locks::{OverlayLock, RankedMutex};
use pinstripe_base::clock::{monotonic, since};
use pinstripe_base::error::{Error, Kind, Result};

use pinstripe_prefetch::latencies::Latencies;

type Call = Box<dyn FnOnce() + Send>;

/// The threads, and the calls that wait for one.
pub(crate) struct CallPool {
    shared: Arc<Shared>,
    threads_max: usize,
    deadline: Duration,
}

struct Shared {
    queue: RankedMutex<Queue>,
    work: Condvar,
    latencies: Latencies,
    in_flight: AtomicU64,
    late: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Shared {
            queue: RankedMutex::new(OverlayLock::Queue, Queue::default()),
            work: Condvar::new(),
            latencies: Latencies::default(),
            in_flight: AtomicU64::default(),
            late: AtomicU64::default(),
        }
    }
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Call>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

/// How the source answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceUsage {
    /// Calls that have no answer yet.
    pub in_flight: u64,
    /// Calls that had none by the deadline.
    pub late: u64,
    /// The time within which half of the answers came.
    pub median: Duration,
    /// The time within which 99 of 100 came.
    pub percentile_99: Duration,
}

/// Where the answer of one call goes.
pub(crate) struct Reply<T>(Arc<Slot<T>>);

struct Slot<T> {
    answer: RankedMutex<Stage<T>>,
    changed: Condvar,
}

enum Stage<T> {
    Waiting,
    Answered(T),
    /// The call ended without an answer.
    Broken,
    /// The caller has gone.
    Abandoned,
}

impl<T> Reply<T> {
    /// Gives the answer; the call may go on.
    pub(crate) fn give(self, answer: T) {
        self.set(Stage::Answered(answer));
    }

    fn set(&self, stage: Stage<T>) {
        let mut answer = self.0.answer.lock();
        if matches!(*answer, Stage::Waiting) {
            *answer = stage;
            self.0.changed.notify_all();
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.set(Stage::Broken);
    }
}

impl CallPool {
    /// A pool of at most so many threads, started when they are needed.
    pub(crate) fn new(threads_max: usize, deadline: Duration) -> Self {
        CallPool { shared: Arc::default(), threads_max, deadline }
    }

    /// Has a thread make a call, and waits for what it gives.
    ///
    /// # Errors
    /// [`Kind::Unanswered`] when it gave nothing by the deadline.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<T> {
        let slot = self.start(call)?;
        self.answer(&slot, self.until())
    }

    /// Makes several calls at once, with one deadline for all.
    ///
    /// # Errors
    /// Each as of [`call`](Self::call).
    pub(crate) fn call_all<T: Send + 'static, C: FnOnce(Reply<T>) + Send + 'static>(
        &self,
        calls: impl IntoIterator<Item = C>,
    ) -> Vec<Result<T>> {
        let until = self.until();
        let slots: Vec<Result<Arc<Slot<T>>>> =
            calls.into_iter().map(|call| self.start(call)).collect();
        slots.into_iter().map(|slot| self.answer(&*slot?, until)).collect()
    }

    /// How the source answers.
    pub(crate) fn usage(&self) -> SourceUsage {
        let shared = &self.shared;
        SourceUsage {
            in_flight: shared.in_flight.load(Ordering::Relaxed),
            late: shared.late.load(Ordering::Relaxed),
            median: shared.latencies.percentile(50),
            percentile_99: shared.latencies.percentile(99),
        }
    }

    /// The deadline of a call that is made now; `None` where the clock does not reach as far.
    fn until(&self) -> Option<Instant> {
        monotonic().checked_add(self.deadline)
    }

    fn start<T: Send + 'static>(
        &self,
        call: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Result<Arc<Slot<T>>> {
        let answer = RankedMutex::new(OverlayLock::Answer, Stage::Waiting);
        let slot = Arc::new(Slot { answer, changed: Condvar::new() });
        let (reply, shared) = (Reply(Arc::clone(&slot)), Arc::clone(&self.shared));
        let timed = move || {
            if matches!(*reply.0.answer.lock(), Stage::Abandoned) {
                return;
            }
            let began = monotonic();
            shared.in_flight.fetch_add(1, Ordering::Relaxed);
            // A panic is reported by the hook; the caller finds the call broken.
            let _ = catch_unwind(AssertUnwindSafe(|| call(reply)));
            shared.in_flight.fetch_sub(1, Ordering::Relaxed);
            shared.latencies.add(since(began));
        };
        let mut queue = self.shared.queue.lock();
        queue.calls.push_back(Box::new(timed));
        if queue.calls.len() <= queue.idle || queue.threads >= self.threads_max {
            self.shared.work.notify_one();
            return Ok(slot);
        }
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name("source".to_owned()).spawn(move || {
            shared.run();
        });
        match started {
            Ok(_) => queue.threads += 1,
            // Those that run already take it.
            Err(_) if queue.threads > 0 => self.shared.work.notify_one(),
            Err(error) => {
                queue.calls.pop_back();
                return Err(Error::io("cannot start a thread", "source", error));
            }
        }
        Ok(slot)
    }

    fn answer<T>(&self, slot: &Slot<T>, until: Option<Instant>) -> Result<T> {
        let mut answer = slot.answer.lock();
        while matches!(*answer, Stage::Waiting) {
            let left = until.map_or(self.deadline, |it| it.saturating_duration_since(monotonic()));
            if left.is_zero() {
                break;
            }
            answer = answer.wait_timeout(&slot.changed, left);
        }
        match std::mem::replace(&mut *answer, Stage::Abandoned) {
            Stage::Answered(answer) => Ok(answer),
            Stage::Broken => Err(Error::new(Kind::Io, "a call to the source broke off")),
            Stage::Waiting | Stage::Abandoned => {
                self.shared.late.fetch_add(1, Ordering::Relaxed);
                let seconds = self.deadline.as_secs_f64();
                let what = format!("the source did not answer within {seconds} s");
                Err(Error::new(Kind::Unanswered, what))
            }
        }
    }
}

impl Drop for CallPool {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_over = true;
        queue.calls.clear();
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_over {
            if let Some(call) = queue.calls.pop_front() {
                drop(queue);
                call();
                queue = self.queue.lock();
            } else {
                queue.idle += 1;
                queue = queue.wait(&self.work);
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn calls_are_made_at_once_by_as_many_threads_as_there_may_be() {
        let pool = CallPool::new(8, LONG);
        let barrier = Arc::new(std::sync::Barrier::new(8));
        let calls = (0..8).map(|number| {
            let barrier = Arc::clone(&barrier);
            move |reply: Reply<u64>| {
                barrier.wait();
                reply.give(number);
            }
        });
        let answers: Vec<u64> = pool.call_all(calls).into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..8).collect::<Vec<_>>());
        for number in 0..100 {
            assert_eq!(pool.call(move |reply| reply.give(number)).unwrap(), number);
        }
        assert_eq!(pool.shared.queue.lock().threads, 8);
        assert_eq!(pool.usage().late, 0);
    }

    #[test]
    fn a_call_that_hangs_ends_for_its_caller_and_one_that_waits_is_never_made() {
        let pool = CallPool::new(1, Duration::from_millis(50));
        let (release, held) = mpsc::channel::<()>();
        let hung = pool.call(move |reply: Reply<()>| {
            let _ = held.recv();
            drop(reply);
        });
        assert_eq!(hung.unwrap_err().kind(), Kind::Unanswered);
        let (made, is_made) = mpsc::channel();
        let waited = pool.call(move |reply| {
            made.send(()).unwrap();
            reply.give(());
        });
        assert_eq!(waited.unwrap_err().kind(), Kind::Unanswered);
        assert_eq!(pool.usage().late, 2);
        drop(release);
        assert!(is_made.recv().is_err(), "dropped without being made");
    }

    #[test]
    fn a_call_that_panics_is_an_error() {
        let pool = CallPool::new(1, LONG);
        let broken = pool.call(|reply: Reply<()>| {
            if monotonic() >= monotonic() - LONG {
                panic!("as it should: {}", Arc::strong_count(&reply.0));
            }
        });
        assert_eq!(broken.unwrap_err().kind(), Kind::Io);
        assert_eq!(pool.call(|reply| reply.give(5)).unwrap(), 5, "the thread goes on");
    }
}
