//! Calls of the source with a time limit.
//!
//! A call is made by one of a limited number of threads; the caller waits for the answer until the
//! deadline. While all threads wait in calls that do not return, further calls also end at their
//! deadlines.
//!
//! Invariant: a call returns by its deadline, even if the source never answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::clock::{monotonic, since};
use pinstripe_base::error::{Error, Kind, Result};
pub(crate) use pinstripe_io::calls::CallReply;
use pinstripe_io::calls::{Call, CallThreads};
use pinstripe_prefetch::Latencies;

/// The threads that make the calls, and counters of the answers.
pub(crate) struct CallPool {
    threads: CallThreads,
    answers: Arc<Answers>,
    deadline: Duration,
}

#[derive(Default)]
struct Answers {
    latencies: Latencies,
    in_flight: AtomicU64,
    late: AtomicU64,
}

/// Counters and latencies of the source's answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceUsage {
    /// The number of calls that have no answer yet.
    pub in_flight: u64,
    /// The number of calls that had no answer by the deadline.
    pub late: u64,
    /// The median latency.
    pub median: Duration,
    /// The latency within which 99 % of the answers came.
    pub percentile_99: Duration,
}

impl CallPool {
    /// A pool of at most `threads_max` threads, started when they are needed.
    pub(crate) fn new(threads_max: usize, deadline: Duration) -> Self {
        CallPool {
            threads: CallThreads::new(threads_max, "source"),
            answers: Arc::default(),
            deadline,
        }
    }

    /// Makes a call in another thread, and waits for its answer.
    ///
    /// # Errors
    /// Fails with [`Kind::Unanswered`] if the call does not return by the deadline.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(CallReply<T>) + Send + 'static,
    ) -> Result<T> {
        let call = self.start(call)?;
        self.answer(call, self.until())
    }

    /// Makes several calls in parallel, with one deadline for all.
    ///
    /// # Errors
    /// Each call fails with the errors of [`call`](Self::call).
    pub(crate) fn call_all<T: Send + 'static, C: FnOnce(CallReply<T>) + Send + 'static>(
        &self,
        calls: impl IntoIterator<Item = C>,
    ) -> Vec<Result<T>> {
        let until = self.until();
        let calls: Vec<Result<Call<T>>> = calls.into_iter().map(|call| self.start(call)).collect();
        calls.into_iter().map(|call| self.answer(call?, until)).collect()
    }

    /// The counters and latencies so far.
    pub(crate) fn usage(&self) -> SourceUsage {
        let answers = &self.answers;
        SourceUsage {
            in_flight: answers.in_flight.load(Ordering::Relaxed),
            late: answers.late.load(Ordering::Relaxed),
            median: answers.latencies.percentile(50),
            percentile_99: answers.latencies.percentile(99),
        }
    }

    /// The deadline of a call that is made now; `None` if the clock cannot represent it.
    fn until(&self) -> Option<Instant> {
        monotonic().checked_add(self.deadline)
    }

    fn start<T: Send + 'static>(
        &self,
        call: impl FnOnce(CallReply<T>) + Send + 'static,
    ) -> Result<Call<T>> {
        let answers = Arc::clone(&self.answers);
        let timed = move |reply| {
            let _timed = Timed { answers: &answers, began: monotonic() };
            answers.in_flight.fetch_add(1, Ordering::Relaxed);
            call(reply);
        };
        let started = self.threads.start_with_reply(timed);
        started.map_err(|error| Error::io("cannot start a thread", "source", error))
    }

    fn answer<T>(&self, call: Call<T>, until: Option<Instant>) -> Result<T> {
        loop {
            let left = until.map_or(self.deadline, |it| it.saturating_duration_since(monotonic()));
            match call.wait(left) {
                Some(Ok(answer)) => return Ok(answer),
                // The panic was reported by the hook.
                Some(Err(_)) => {
                    return Err(Error::new(
                        Kind::Io,
                        "a call to the source ended without a result",
                    ));
                }
                None if !left.is_zero() => {}
                None => {
                    call.abandon();
                    self.answers.late.fetch_add(1, Ordering::Relaxed);
                    let seconds = self.deadline.as_secs_f64();
                    let what = format!("the source did not answer within {seconds} s");
                    return Err(Error::new(Kind::Unanswered, what));
                }
            }
        }
    }
}

/// A call that is being made; ends the measurement of its time, also after a panic.
struct Timed<'a> {
    answers: &'a Answers,
    began: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.answers.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.answers.latencies.add(since(self.began));
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "channels hold the calls up")]
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
            move |reply: CallReply<u64>| {
                barrier.wait();
                reply.give(number);
            }
        });
        let answers: Vec<u64> = pool.call_all(calls).into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..8).collect::<Vec<_>>());
        for number in 0..100 {
            assert_eq!(pool.call(move |reply| reply.give(number)).unwrap(), number);
        }
        assert_eq!(pool.threads.started(), 8);
        assert_eq!(pool.usage().late, 0);
    }

    #[test]
    fn a_call_that_hangs_ends_for_its_caller_and_one_that_waits_is_never_made() {
        let pool = CallPool::new(1, Duration::from_millis(50));
        let (release, held) = mpsc::channel::<()>();
        let hung = pool.call(move |reply: CallReply<()>| {
            let _ = held.recv();
            drop(reply);
        });
        assert_eq!(hung.unwrap_err().kind(), Kind::Unanswered);
        assert_eq!(pool.usage().in_flight, 1);
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
        let broken = pool.call(|_: CallReply<()>| {
            if monotonic() >= monotonic() - LONG {
                panic!("as it should");
            }
        });
        assert_eq!(broken.unwrap_err().kind(), Kind::Io);
        assert_eq!(pool.call(|reply| reply.give(5)).unwrap(), 5, "the thread goes on");
    }
}
