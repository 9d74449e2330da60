//! The limit on bytes per second to and from one endpoint.
//!
//! A request reserves the time that its bytes take and waits until that time begins; then it is
//! sent at full line speed. So the rate is kept over any time that is long compared with one
//! request, for all threads and members together, and the time limits of requests are the same as
//! without a rate limit.

use std::time::{Duration, Instant};

use crate::locks::{BucketLock, RankedMutex};
use pinstripe_base::clock;
use pinstripe_member::goes_on;

/// The interval at which a waiting member reports progress, so that it does not count as silent.
const SIGN_OF_LIFE: Duration = Duration::from_millis(250);

/// The longest wait that is computed; a longer one counts as infinite.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// The most bytes per second to and from each endpoint; `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// To the endpoint.
    pub up: Option<u64>,
    /// From the endpoint.
    pub down: Option<u64>,
}

/// The rate limit of one direction of an endpoint.
pub(crate) struct RateLimit {
    bytes_per_second: Option<u64>,
    /// The time when all reserved bytes are sent.
    free_at: RankedMutex<Option<Instant>>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new(None)
    }
}

impl RateLimit {
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        RateLimit { bytes_per_second, free_at: RankedMutex::new(BucketLock::RateLimit, None) }
    }

    /// Whether a limit is set.
    pub fn is_limited(&self) -> bool {
        self.bytes_per_second.is_some()
    }

    /// Reserves transfer time for bytes. Returns the delay until the reserved time begins.
    fn reserve(&self, now: Instant, bytes: u64) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let seconds = bytes as f64 / rate.max(1) as f64;
        let takes = Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST);
        let mut free_at = self.free_at.lock();
        let begins = free_at.map_or(now, |free_at| free_at.max(now));
        debug_assert!(begins >= now, "no time before now is reserved");
        *free_at = begins.checked_add(takes);
        begins.saturating_duration_since(now)
    }

    /// Waits until the limit allows this number of bytes.
    pub async fn wait(&self, bytes: u64) {
        let mut left = self.reserve(clock::monotonic(), bytes);
        while !left.is_zero() {
            let part = left.min(SIGN_OF_LIFE);
            tokio::time::sleep(part).await;
            goes_on();
            left -= part;
        }
    }

    /// Charges received bytes that were not reserved before.
    pub(crate) fn spend(&self, bytes: u64) {
        self.reserve(clock::monotonic(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them_and_for_no_others() {
        let second = Duration::from_secs(1);
        let pace = RateLimit::new(Some(1000));
        let now = clock::monotonic();
        assert_eq!(pace.reserve(now, 2000), Duration::ZERO, "no other bytes are before them");
        assert_eq!(pace.reserve(now, 500), 2 * second);
        assert_eq!(pace.reserve(now + second, 500), 3 * second / 2);
        assert_eq!(pace.reserve(now + 9 * second, 500), Duration::ZERO, "time is not saved up");
        assert_eq!(pace.reserve(now + 9 * second, 0), second / 2);
        let free = RateLimit::default();
        assert_eq!(free.reserve(now, u64::MAX), Duration::ZERO);
        assert_eq!(free.reserve(now, 1), Duration::ZERO);
        assert!(pace.is_limited() && !free.is_limited());
    }

    #[test]
    fn no_rate_and_no_length_is_too_odd() {
        let now = clock::monotonic();
        for (rate, bytes) in [(0, 1 << 40), (1, u64::MAX), (u64::MAX, 1)] {
            let pace = RateLimit::new(Some(rate));
            pace.reserve(now, bytes);
            let waits = pace.reserve(now, bytes);
            assert!(!waits.is_zero() || rate == u64::MAX, "{bytes} at {rate}: {waits:?}");
        }
    }
}
