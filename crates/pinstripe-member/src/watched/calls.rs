//! The calls of one member, and the callers that wait for their answers.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::deadlines::{Deadlines, MemberCallsLock, Query};
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::ranked::RankedMutex;
use pinstripe_io::calls::{Call, CallThreads};

/// The interval at which a waiting caller checks the deadline and the interrupt flag, because a
/// call that hangs in the kernel wakes no waiter.
const LOOK: Duration = Duration::from_millis(50);
/// The number of read buffers that are kept for reuse, and the largest size of such a buffer.
const BUFFERS_KEPT: usize = 4;
const BUFFER_MAX_BYTES: usize = 512 << 10;

/// The thread pool and buffers for the calls of one member.
pub(super) struct MemberCalls {
    place: Arc<Path>,
    patience: Deadlines,
    silent: AtomicBool,
    threads: CallThreads,
    buffers: RankedMutex<MemberCallsLock, Vec<Vec<u8>>>,
}

thread_local! {
    static PULSE: RefCell<Option<Arc<AtomicU64>>> = const { RefCell::new(None) };
}

/// Reports that the current thread's call makes progress: for calls that consist of many small
/// steps.
pub fn goes_on() {
    PULSE.with_borrow(|pulse| {
        if let Some(pulse) = pulse {
            pulse.fetch_add(1, Ordering::Relaxed);
        }
    });
}

impl MemberCalls {
    pub fn new(place: &Path, patience: Deadlines) -> Arc<Self> {
        Arc::new(MemberCalls {
            place: place.into(),
            silent: AtomicBool::new(patience.is_silent(place)),
            patience,
            threads: CallThreads::new(usize::MAX, "member"),
            buffers: RankedMutex::new(MemberCallsLock::Buffers, Vec::new()),
        })
    }

    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether the member missed a deadline.
    pub fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// Runs `work`, which transfers this many bytes, in a thread and waits for the result.
    ///
    /// # Errors
    /// Fails with [`Kind::Unanswered`] when `work` does not return in time or the member is silent
    /// already, or with the errors of `work`.
    pub fn call<T: Send + 'static>(
        self: &Arc<Self>,
        bytes: u64,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.silent.load(Ordering::Acquire) {
            return Err(self.silence());
        }
        let (calls, pulse) = (Arc::downgrade(self), Arc::<AtomicU64>::default());
        let own = Arc::clone(&pulse);
        let (patience, place) = (self.patience.clone(), Arc::clone(&self.place));
        let started = self.threads.start(move || {
            PULSE.set(Some(own));
            let done = work();
            if done.is_ok() && patience.allows_return() {
                has_answered(&calls, &patience, &place);
            }
            done
        });
        let call = started.map_err(|error| {
            Error::io("cannot start a thread for this member", &self.place, error)
        })?;
        self.wait(&call, &pulse, bytes)
    }

    /// Runs a query without effects. If the member is silent and may be used again, this function
    /// fails at once, and the query runs in a thread, one at a time: its success brings the member back.
    ///
    /// # Errors
    /// Fails with the errors of [`call`](Self::call).
    pub fn query<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.is_silent() || !self.patience.allows_return() {
            return self.call(0, work);
        }
        if !self.patience.is_silent(&self.place) {
            // A query through another opening of this member was answered.
            self.silent.store(false, Ordering::Release);
            return self.call(0, work);
        }
        if self.patience.set_query(&self.place, Query::Waiting) {
            let (calls, patience) = (Arc::downgrade(self), self.patience.clone());
            let place = Arc::clone(&self.place);
            let started = self.threads.start(move || match work() {
                Ok(_) => has_answered(&calls, &patience, &place),
                Err(_) => drop(patience.set_query(&place, Query::Idle)),
            });
            if started.is_err() {
                self.patience.set_query(&self.place, Query::Idle);
            }
        }
        Err(self.silence())
    }

    /// Waits for the answer; a panic of the call continues in the caller.
    fn wait<T>(&self, call: &Call<Result<T>>, pulse: &AtomicU64, bytes: u64) -> Result<T> {
        let mut since: Option<(Instant, u64, bool)> = None;
        loop {
            match call.wait(LOOK) {
                Some(Ok(done)) => {
                    self.judge(&done);
                    return done;
                }
                Some(Err(panic)) => resume_unwind(panic),
                None => {}
            }
            if self.silent.load(Ordering::Acquire) {
                return Err(self.silence());
            }
            // The clock is read only when an answer takes longer than `LOOK`.
            let now = (pulse.load(Ordering::Relaxed), self.patience.is_interrupted());
            let (began, pulse, interrupted) =
                *since.get_or_insert_with(|| (clock::monotonic(), now.0, now.1));
            if (pulse, interrupted) != now {
                since = Some((clock::monotonic(), now.0, now.1));
            } else if clock::since(began) + LOOK > self.patience.now(bytes) {
                self.give_up();
                return Err(self.silence());
            }
        }
    }

    /// The error for a member that does not answer.
    pub fn silence(&self) -> Error {
        let until = if self.patience.allows_return() { "it answers" } else { "this run ends" };
        Error::new(Kind::Unanswered, "the member does not answer")
            .at(&self.place)
            .expected(
                format!("an answer within {} s", self.patience.for_bytes(0).as_secs_f64()),
                "none",
            )
            .advice(format!(
                "the member counts as failed until {until}; check its disk or network; with \
                 --without-member N, the member is not used at all; --member-timeout changes the \
                 time limit"
            ))
    }

    fn give_up(&self) {
        if !self.silent.swap(true, Ordering::AcqRel) {
            self.patience.give_up(&self.place, self.silence());
        }
    }

    /// An endpoint with deadlines of its own returns [`Kind::Unanswered`] itself. A verb that only
    /// reads keeps using such a member, since no abandoned call could bring it back.
    fn judge<T>(&self, done: &Result<T>) {
        let is_unanswered = done.as_ref().is_err_and(|it| it.kind() == Kind::Unanswered);
        if is_unanswered && !self.patience.allows_return() {
            self.give_up();
        }
    }

    /// Returns a buffer of this length for a read.
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.buffers.lock().pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// Keeps a buffer for the next read.
    pub fn keep(&self, buffer: Vec<u8>) {
        let mut kept = self.buffers.lock();
        if kept.len() < BUFFERS_KEPT && buffer.capacity() <= BUFFER_MAX_BYTES {
            kept.push(buffer);
        }
    }
}

impl Deadlines {
    /// Runs a query about a place that may not answer, with a deadline. The query has no effects: at
    /// a silent place, a thread that is abandoned at once runs it.
    ///
    /// # Errors
    /// Fails with [`Kind::Unanswered`](pinstripe_base::error::Kind::Unanswered) when the place does
    /// not answer, or with the error of `work`.
    pub fn ask<T: Send + 'static>(
        &self,
        place: &Path,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        MemberCalls::new(place, self.clone()).query(work)
    }
}

/// Records that a call succeeded. A silent member is used again; no caller waited for this call. A
/// member that was closed meanwhile can be opened again.
fn has_answered(calls: &Weak<MemberCalls>, patience: &Deadlines, place: &Path) {
    let was_silent = |calls: Arc<MemberCalls>| calls.silent.swap(false, Ordering::AcqRel);
    if calls.upgrade().is_none_or(was_silent) {
        patience.take_back(place);
    }
}
