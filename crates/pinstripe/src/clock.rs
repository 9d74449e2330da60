//! The one place that asks for the time: for people, and for telling what a backup may trust.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Now, by the system's clock as file systems stamp it: seconds since 1970 and nanoseconds of that
/// second. It goes by ticks of some milliseconds, so a file changed from now on has a ctime that
/// is not below this, and two moments may be one.
pub fn now() -> (i64, u32) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec as u32)
}

/// Now, by a clock that is never set back.
pub fn monotonic() -> Instant {
    Instant::now()
}

/// How long ago somebody asked this for the first time, by the same clock: for differences.
pub fn since_first_asked() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now.saturating_duration_since(*FIRST.get_or_init(|| now))
}
