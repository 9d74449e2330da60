//! Calls with a time limit, made by threads that can be left behind: a call that the kernel or a
//! remote end does not answer can only be abandoned.
//!
//! A call is given to one of the threads, and the caller waits for its answer as long as it wants.
//! A thread whose call does not return is not available until it does; if no thread is available,
//! further calls wait.
//!
//! Invariants: a caller waits no longer than it asked for; a call that was abandoned before it was
//! begun is never made; ending the threads does not wait for any of them. A thread counts as idle
//! before its answer is available, so that the next call of the same caller finds it idle.

#![allow(clippy::disallowed_methods, reason = "this module starts the threads that make the calls")]

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar};
use std::time::Duration;

use pinstripe_base::ranked::RankedMutex;

pinstripe_base::lock_ranks! {
    /// The locks of this module. No thread takes one of these locks while it holds another.
    enum CallLock {
        /// Protects the calls that wait for a thread.
        Queue,
        /// Protects the answer of one call.
        Answer,
    }
}

type CallTask = Box<dyn FnOnce(&CallQueue) + Send>;

/// The threads, and the calls that wait for a thread.
pub struct CallThreads {
    queue: Arc<CallQueue>,
    threads_max: usize,
    name: &'static str,
}

struct CallQueue {
    waiting: RankedMutex<CallLock, WaitingCall>,
    work: Condvar,
}

#[derive(Default)]
struct WaitingCall {
    tasks: VecDeque<CallTask>,
    threads: usize,
    /// The number of threads that make no call.
    idle: usize,
    is_over: bool,
}

/// A call that was given to a thread.
pub struct Call<T>(Arc<CallSlot<T>>);

/// The place where a thread stores the answer of a call.
pub struct CallReply<T>(Arc<CallSlot<T>>);

struct CallSlot<T> {
    stage: RankedMutex<CallLock, CallStage<T>>,
    changed: Condvar,
}

enum CallStage<T> {
    Waiting,
    /// The result, or the panic of the call.
    Answered(std::thread::Result<T>),
    /// The answer was taken.
    Taken,
    /// The caller no longer waits.
    Abandoned,
}

impl CallThreads {
    /// A pool of at most this many threads with this name, started when they are needed.
    pub fn new(threads_max: usize, name: &'static str) -> Self {
        let waiting = RankedMutex::new(CallLock::Queue, WaitingCall::default());
        let queue = Arc::new(CallQueue { waiting, work: Condvar::new() });
        CallThreads { queue, threads_max, name }
    }

    /// Makes a call in a thread; the answer is what the call returns.
    ///
    /// # Errors
    /// Fails if no thread is idle and none can be started.
    pub fn start<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Call<T>> {
        let (slot, to) = CallSlot::new();
        let task = move |queue: &CallQueue| {
            let done = to.is_awaited().then(|| catch_unwind(AssertUnwindSafe(call)));
            queue.waiting.lock().idle += 1;
            if let Some(done) = done {
                to.give(done);
            }
        };
        self.queue(Box::new(task))?;
        Ok(Call(slot))
    }

    /// Makes a call in a thread; the call gives its answer before it ends.
    ///
    /// # Errors
    /// Fails with the errors of [`start`](Self::start).
    pub fn start_with_reply<T: Send + 'static>(
        &self,
        call: impl FnOnce(CallReply<T>) + Send + 'static,
    ) -> io::Result<Call<T>> {
        let (slot, to) = CallSlot::new();
        let task = move |queue: &CallQueue| {
            if to.is_awaited() {
                // A panic is reported by the hook; the reply that it drops is the answer.
                let _ = catch_unwind(AssertUnwindSafe(|| call(CallReply(to))));
            }
            queue.waiting.lock().idle += 1;
        };
        self.queue(Box::new(task))?;
        Ok(Call(slot))
    }

    /// Gives a task to an idle thread, to a new one, or to the first thread that ends its call.
    fn queue(&self, task: CallTask) -> io::Result<()> {
        let mut waiting = self.queue.waiting.lock();
        waiting.tasks.push_back(task);
        if waiting.tasks.len() <= waiting.idle || waiting.threads >= self.threads_max {
            self.queue.work.notify_one();
            return Ok(());
        }
        let queue = Arc::clone(&self.queue);
        let started =
            std::thread::Builder::new().name(self.name.to_owned()).spawn(move || queue.run());
        match started {
            Ok(_) => {
                waiting.threads += 1;
                waiting.idle += 1;
            }
            // Those that run already take it.
            Err(_) if waiting.threads > 0 => self.queue.work.notify_one(),
            Err(error) => {
                waiting.tasks.pop_back();
                return Err(error);
            }
        }
        Ok(())
    }

    /// The number of threads that were started.
    pub fn started(&self) -> usize {
        self.queue.waiting.lock().threads
    }
}

impl Drop for CallThreads {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting.lock();
        waiting.is_over = true;
        waiting.tasks.clear();
        self.queue.work.notify_all();
    }
}

impl CallQueue {
    /// The body of a thread: makes calls until the pool ends.
    fn run(&self) {
        let mut waiting = self.waiting.lock();
        while !waiting.is_over {
            if let Some(task) = waiting.tasks.pop_front() {
                waiting.idle -= 1;
                drop(waiting);
                task(self);
                waiting = self.waiting.lock();
            } else {
                waiting = waiting.wait(&self.work);
            }
        }
    }
}

impl<T> Call<T> {
    /// Waits for the answer or the panic of the call; returns `None` if it does not come within
    /// `timeout`. `wait` may also return `None` before the timeout. The answer is returned only
    /// once.
    pub fn wait(&self, timeout: Duration) -> Option<std::thread::Result<T>> {
        let mut stage = self.0.stage.lock();
        if matches!(*stage, CallStage::Waiting) {
            stage = stage.wait_timeout(&self.0.changed, timeout);
        }
        match std::mem::replace(&mut *stage, CallStage::Taken) {
            CallStage::Answered(answer) => Some(answer),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Waits no more. Abandons the call; if it was not begun, it is never made.
    pub fn abandon(self) {
        *self.0.stage.lock() = CallStage::Abandoned;
    }
}

impl<T> CallReply<T> {
    /// Gives the answer to the caller; the call may continue afterwards.
    pub fn give(self, answer: T) {
        self.0.give(Ok(answer));
    }
}

impl<T> Drop for CallReply<T> {
    /// A call that ends without an answer counts as failed.
    fn drop(&mut self) {
        self.0.give(Err(Box::new("the thread of this call ended without a result")));
    }
}

impl<T> CallSlot<T> {
    /// A slot for the answer of a call, as two handles: one for the caller and one for the thread.
    fn new() -> (Arc<Self>, Arc<Self>) {
        let stage = RankedMutex::new(CallLock::Answer, CallStage::Waiting);
        let slot = Arc::new(CallSlot { stage, changed: Condvar::new() });
        (Arc::clone(&slot), slot)
    }

    fn is_awaited(&self) -> bool {
        !matches!(*self.stage.lock(), CallStage::Abandoned)
    }

    fn give(&self, answer: std::thread::Result<T>) {
        let mut stage = self.stage.lock();
        if matches!(*stage, CallStage::Waiting) {
            *stage = CallStage::Answered(answer);
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn answer<T: Send + 'static>(
        threads: &CallThreads,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let call = threads.start(call).unwrap();
        loop {
            if let Some(answer) = call.wait(LONG) {
                return answer.unwrap();
            }
        }
    }

    #[test]
    fn calls_are_made_at_once_by_as_many_threads_as_there_may_be() {
        let threads = CallThreads::new(8, "test");
        let barrier = Arc::new(Barrier::new(8));
        let start = |number: u64| {
            let barrier = Arc::clone(&barrier);
            threads.start(move || (barrier.wait(), number).1).unwrap()
        };
        let calls: Vec<_> = (0..8).map(start).collect();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.wait(LONG).unwrap().unwrap(), number as u64);
        }
        (0..100).for_each(|number| assert_eq!(answer(&threads, move || number), number));
        assert_eq!(threads.started(), 8);
    }

    #[test]
    fn calls_one_after_the_other_are_made_by_one_thread() {
        let threads = CallThreads::new(usize::MAX, "test");
        (0..1000).for_each(|number| assert_eq!(answer(&threads, move || number), number));
        assert_eq!(threads.started(), 1);
    }

    #[test]
    fn a_call_that_hangs_can_be_left_and_one_that_waits_is_never_made() {
        let threads = CallThreads::new(1, "test");
        let (release, held) = mpsc::channel::<()>();
        let hung = threads.start(move || held.recv().is_err()).unwrap();
        assert!(hung.wait(Duration::from_millis(50)).is_none());
        let (made, is_made) = mpsc::channel();
        let waits = threads.start(move || made.send(()).is_ok()).unwrap();
        assert!(waits.wait(Duration::ZERO).is_none());
        waits.abandon();
        drop(release);
        assert!(hung.wait(LONG).unwrap().unwrap(), "its answer still comes");
        assert!(is_made.recv().is_err(), "dropped without being made");
    }

    #[test]
    fn an_answer_may_come_before_the_end_of_its_call() {
        let threads = CallThreads::new(1, "test");
        let (release, held) = mpsc::channel::<()>();
        let early = move |reply: CallReply<u8>| {
            reply.give(1);
            let _ = held.recv();
        };
        assert_eq!(threads.start_with_reply(early).unwrap().wait(LONG).unwrap().unwrap(), 1);
        let broken = threads.start_with_reply(|reply: CallReply<u8>| drop(reply)).unwrap();
        assert!(broken.wait(Duration::ZERO).is_none(), "the thread is at its call");
        drop(release);
        assert!(broken.wait(LONG).unwrap().is_err());
    }

    #[test]
    fn a_panic_is_an_answer_and_its_thread_makes_the_next_call() {
        let threads = CallThreads::new(1, "test");
        let broken = threads.start(|| panic!("as it should")).unwrap();
        let answer: Option<std::thread::Result<()>> = broken.wait(LONG);
        assert!(answer.unwrap().is_err());
        assert_eq!(super::tests::answer(&threads, || 5), 5);
    }
}
