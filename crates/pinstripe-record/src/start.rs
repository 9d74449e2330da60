//! The common beginning of a take that is played and a take that is recorded at the same time.
//!
//! Inputs that have a clock register and wait. The player begins when all of them are ready, and
//! announces the moment, by this machine's clock and, if it plays to a JACK server, by that
//! server's clock. Input data before that moment is dropped, so that the first recorded frame
//! belongs to the first frame that is heard.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::sync::{Stop, wait_readable};
use std::os::fd::AsFd;

/// The value of `frame` before the beginning; values of real frames are greater.
const NOT_BEGUN: u64 = 0;
const WITHOUT_FRAME: u64 = 1;
const WITH_FRAME: u64 = 1 << 32;
/// The longest wait for an input to become ready.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// The moment at which playback and recording begin together.
pub struct CommonStart {
    missing: AtomicUsize,
    ready: Stop,
    begun: Stop,
    at: OnceLock<Instant>,
    frame: AtomicU64,
}

/// The beginning by the clock of a JACK server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JackStart {
    /// Not yet.
    Later,
    /// Begin with the next block, because nothing is played on this server.
    Now,
    /// Begin at the frame at which the first sample is heard.
    At(u32),
}

impl CommonStart {
    /// Creates a beginning for which no input waits yet.
    ///
    /// # Errors
    /// Fails if no file descriptor is available.
    pub fn new() -> Result<Self> {
        Ok(CommonStart {
            missing: AtomicUsize::new(0),
            ready: Stop::new()?,
            begun: Stop::new()?,
            at: OnceLock::new(),
            frame: AtomicU64::new(NOT_BEGUN),
        })
    }

    /// Registers an input. All inputs must be registered before any input is ready.
    pub fn join(&self) {
        self.missing.fetch_add(1, Ordering::AcqRel);
    }

    /// Reports that a registered input is ready.
    pub(crate) fn be_ready(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ready.set();
        }
    }

    /// Waits until all registered inputs are ready, but only for some seconds; returns false if
    /// `stop` is set.
    pub(crate) fn wait_for_all(&self, stop: &Stop) -> bool {
        let began = clock::monotonic();
        while self.missing.load(Ordering::Acquire) > 0 && !self.ready.is_set() {
            let left = READY_WITHIN.saturating_sub(clock::since(began));
            let fds = [self.ready.as_fd(), stop.as_fd()];
            if left.is_zero() || wait_readable(&fds, Some(left)).is_err() || stop.is_set() {
                break;
            }
        }
        !stop.is_set()
    }

    /// Sets the moment of the beginning; `frame` is by the clock of the JACK server that plays.
    pub fn begin(&self, at: Instant, frame: Option<u32>) {
        self.at.get_or_init(|| at);
        let frame = frame.map_or(WITHOUT_FRAME, |it| WITH_FRAME | u64::from(it));
        self.frame.store(frame, Ordering::Release);
        self.begun.set();
    }

    /// The moment of the beginning, once it is known.
    pub(crate) fn begun_at(&self) -> Option<Instant> {
        self.at.get().copied()
    }

    /// Waits until the beginning is known; `None` if `halt` is set first.
    pub fn wait(&self, halt: &Stop) -> Option<Instant> {
        while !self.begun.is_set() && !halt.is_set() {
            if wait_readable(&[self.begun.as_fd(), halt.as_fd()], None).is_err() {
                halt.wait(Duration::from_millis(10));
            }
        }
        self.at.get().copied().filter(|_| self.begun.is_set())
    }

    /// Returns the beginning by the clock of a JACK server. The function does not lock, allocate or
    /// make a system call.
    pub(crate) fn by_jack(&self) -> JackStart {
        match self.frame.load(Ordering::Acquire) {
            NOT_BEGUN => JackStart::Later,
            WITHOUT_FRAME => JackStart::Now,
            frame => JackStart::At(frame as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_when_all_that_joined_are_ready_and_not_before() {
        let (start, stop) = (CommonStart::new().unwrap(), Stop::new().unwrap());
        start.join();
        start.join();
        assert_eq!(start.by_jack(), JackStart::Later);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| start.wait(&stop));
            let ready = scope.spawn(|| {
                let is_ready = start.wait_for_all(&stop);
                (is_ready, start.missing.load(Ordering::Acquire))
            });
            start.be_ready();
            start.be_ready();
            assert_eq!(ready.join().unwrap(), (true, 0));
            let at = clock::monotonic();
            start.begin(at, Some(u32::MAX));
            assert_eq!(waits.join().unwrap(), Some(at));
        });
        assert_eq!(start.by_jack(), JackStart::At(u32::MAX));
    }

    #[test]
    fn a_take_that_ends_before_it_begins_waits_for_nothing() {
        let (start, stop) = (CommonStart::new().unwrap(), Stop::new().unwrap());
        start.join();
        stop.set();
        assert!(!start.wait_for_all(&stop));
        assert_eq!(start.wait(&stop), None);
        start.begin(clock::monotonic(), None);
        assert_eq!(start.by_jack(), JackStart::Now);
    }
}
