//! Finds sessions that had no heartbeat for a timeout: their writers are presumed dead.
//!
//! Invariants: times are from one clock of this host, which is never set back, and no time of
//! another host is used. A session is suspected only if two observations, far enough apart, saw the
//! same count. A session whose count is unknown is alive. A wrong suspicion ends a session, which
//! costs its writer the work since its last checkpoint and does not harm the store.
//!
//! Not in this module: the consequences of a suspicion (`ops/gc`), reading heartbeats
//! (`heartbeats.rs`).

use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::id::SessionId;

use super::locks::{RankedMutex, StoreLock};

/// The time without a heartbeat after which a writer is presumed dead.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(2 * 3600);
/// The least number of heartbeats that must be missing, however short the timeout is.
const MISSED: u32 = 3;
/// The largest number of sightings that are kept: even a store that many hosts write to has fewer
/// sessions.
const SIGHTINGS_MAX: usize = 4096;

/// The count of a session's heartbeats as this host saw it, and when this host first saw this
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PulseSighting {
    /// The session.
    pub session: SessionId,
    /// The number of the session's heartbeats.
    pub count: u64,
    /// When this count was first seen, by the clock of the detector.
    pub since: Duration,
}

/// The heartbeats of a session, as read at one observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// The number of the session's heartbeats; `None` before the first interval has elapsed.
    pub count: u64,
    /// The interval at which the session's writer puts heartbeats.
    pub every: Duration,
}

/// Presumes writers dead whose heartbeat count has not changed for some time.
pub struct FailureDetector {
    timeout: Duration,
    /// Returns the time since a fixed moment of this boot.
    clock: fn() -> Duration,
    sightings: RankedMutex<Vec<PulseSighting>>,
}

impl Default for FailureDetector {
    fn default() -> Self {
        FailureDetector::new(TIMEOUT_DEFAULT, Vec::new(), clock::since_boot)
    }
}

impl FailureDetector {
    /// Creates a detector with earlier sightings, which must be by the same clock.
    pub fn new(timeout: Duration, sightings: Vec<PulseSighting>, clock: fn() -> Duration) -> Self {
        let sightings = RankedMutex::new(StoreLock::Sightings, sightings);
        FailureDetector { timeout, clock, sightings }
    }

    /// Returns the sightings so far, for a later detector.
    pub fn sightings(&self) -> Vec<PulseSighting> {
        self.sightings.lock().clone()
    }

    /// The time without a heartbeat after which a writer is presumed dead.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Forgets a session that has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.sightings.lock().retain(|it| it.session != session);
    }

    /// Records all sessions found, and returns those whose writers are presumed dead. A session
    /// without a pulse could not be read this time.
    pub(crate) fn observe(&self, found: &[(SessionId, Option<Pulse>)]) -> Vec<SessionId> {
        let now = (self.clock)();
        let mut sightings = self.sightings.lock();
        let mut suspected = Vec::new();
        let mut seen = Vec::with_capacity(found.len().min(SIGHTINGS_MAX));
        for (session, pulse) in found.iter().take(SIGHTINGS_MAX) {
            let Some(pulse) = pulse else { continue };
            let before = sightings.iter().find(|it| it.session == *session);
            // A time in the future is from another clock.
            let since = match before {
                Some(it) if it.count == pulse.count && it.since <= now => it.since,
                _ => now,
            };
            if now - since >= self.timeout.max(pulse.every * MISSED) {
                suspected.push(*session);
            }
            seen.push(PulseSighting { session: *session, count: pulse.count, since });
        }
        *sightings = seen;
        suspected
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn now() -> Duration {
        Duration::from_secs(NOW.get())
    }

    const SESSION: SessionId = SessionId([1; 16]);
    const EVERY: Duration = Duration::from_secs(300);

    fn pulse(count: u64) -> Option<Pulse> {
        Some(Pulse { count, every: EVERY })
    }

    fn looks(detector: &FailureDetector, looks: &[(u64, Option<Pulse>)]) -> Vec<bool> {
        let look = |(at, pulse): &(u64, Option<Pulse>)| {
            NOW.set(*at);
            !detector.observe(&[(SESSION, *pulse)]).is_empty()
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_count_that_stands_for_the_timeout_is_suspected() {
        let detector = FailureDetector::new(Duration::from_secs(3600), Vec::new(), now);
        // Between two looks it may have moved and died: only the time since the last move counts.
        let seen = [(100, pulse(0)), (3699, pulse(0)), (3700, pulse(0)), (3701, pulse(1))];
        assert_eq!(looks(&detector, &seen), [false, false, true, false]);
        let seen = [(7300, pulse(1)), (7301, pulse(1)), (90_000, pulse(2)), (90_001, pulse(2))];
        assert_eq!(looks(&detector, &seen), [false, true, false, false]);
    }

    #[test]
    fn one_look_is_never_enough_and_what_cannot_be_told_counts_as_life() {
        let detector = FailureDetector::new(Duration::from_secs(3600), Vec::new(), now);
        assert_eq!(looks(&detector, &[(1_000_000, pulse(7))]), [false]);
        let seen = [(1_003_599, None), (1_003_600, pulse(7)), (1_007_199, pulse(7))];
        assert_eq!(looks(&detector, &seen), [false; 3]);
        assert_eq!(looks(&detector, &[(1_007_200, pulse(7))]), [true]);
    }

    #[test]
    fn sightings_go_on_in_another_run_and_those_of_another_clock_do_not() {
        let detector = FailureDetector::new(Duration::from_secs(3600), Vec::new(), now);
        looks(&detector, &[(100, pulse(3))]);
        let next = || FailureDetector::new(Duration::from_secs(3600), detector.sightings(), now);
        assert_eq!(looks(&next(), &[(3700, pulse(3))]), [true]);
        // This machine was started again.
        assert_eq!(looks(&next(), &[(50, pulse(3)), (3000, pulse(3))]), [false, false]);
        NOW.set(0);
        assert!(detector.observe(&[]).is_empty());
        assert!(detector.sightings().is_empty(), "sessions that are over are forgotten");
    }

    #[test]
    fn three_heartbeats_have_to_be_missing() {
        let detector = FailureDetector::new(Duration::ZERO, Vec::new(), now);
        let seen = [(0, pulse(1)), (899, pulse(1)), (900, pulse(1))];
        assert_eq!(looks(&detector, &seen), [false, false, true]);
    }
}
