//! Decides whether a connection's requests are worth a hand-over to a worker.
//!
//! Waking a worker costs more than copying a page, and a device may take a microsecond or a tenth
//! of a second. So the time is measured: after a number of quick requests in a row, the reader of
//! the connection carries out the next requests itself, until one is slow. A slow request may thus
//! delay others of its connection, but at most one request in [`CONFIDENCE`] does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::protocol::{Command, Request, flag};
use pinstripe_base::clock;

/// The limit for a quick request: a few times the cost of a hand-over, and less than any disk
/// takes.
const QUICK: Duration = Duration::from_micros(50);
/// The number of quick requests in a row after which the next one is expected to be quick.
const CONFIDENCE: u32 = 64;
/// Longer requests are always handed over, because copying them takes as long as a hand-over.
const SHORT_BYTES: u32 = 64 << 10;

/// Measured times of a connection's requests, separately for reads and writes.
#[derive(Default)]
pub(super) struct InlineHeuristic {
    quick_reads: AtomicU32,
    quick_writes: AtomicU32,
}

impl InlineHeuristic {
    /// Whether a request is expected to be quick.
    pub fn is_quick(&self, request: &Request) -> bool {
        self.counter(request).is_some_and(|quick| quick.load(Ordering::Relaxed) >= CONFIDENCE)
    }

    /// Calls `execute` and measures how long the request takes.
    pub fn measure<T>(&self, request: &Request, execute: impl FnOnce() -> T) -> T {
        let Some(quick) = self.counter(request) else { return execute() };
        let before = clock::monotonic();
        let result = execute();
        self.learn(quick, before, clock::monotonic());
        result
    }

    fn learn(&self, quick: &AtomicU32, before: Instant, after: Instant) {
        let so_far = quick.load(Ordering::Relaxed);
        if after - before > QUICK {
            quick.store(0, Ordering::Relaxed);
        } else if so_far < CONFIDENCE {
            // If several workers count at once, one count may be lost.
            quick.store(so_far + 1, Ordering::Relaxed);
        }
    }

    /// The count of quick requests of this kind; `None` for kinds that are always handed over.
    fn counter(&self, request: &Request) -> Option<&AtomicU32> {
        let is_short = request.len <= SHORT_BYTES && !request.has(flag::FUA);
        match request.command {
            Command::Read if is_short => Some(&self.quick_reads),
            Command::Write if is_short => Some(&self.quick_writes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_ones_make_confident_and_a_slow_one_careful() {
        let request = |command, flags, len| Request { command, flags, cookie: 0, offset: 0, len };
        let read = request(Command::Read, 0, 4096);
        let heuristic = InlineHeuristic::default();
        let quick = heuristic.counter(&read).unwrap();
        let now = clock::monotonic();
        for _ in 0..CONFIDENCE {
            assert!(!heuristic.is_quick(&read));
            heuristic.learn(quick, now, now + QUICK);
        }
        assert!(heuristic.is_quick(&read));
        for other in [
            request(Command::Write, 0, 4096),
            request(Command::Read, 0, SHORT_BYTES + 1),
            request(Command::Read, flag::FUA, 1),
            request(Command::Flush, 0, 0),
        ] {
            assert!(!heuristic.is_quick(&other), "{other:?}");
        }
        heuristic.learn(quick, now, now + QUICK + Duration::from_nanos(1));
        assert!(!heuristic.is_quick(&read));
        assert_eq!(heuristic.measure(&read, || 5), 5);
    }
}
