//! The one place that asks for the time: for people, and for telling what a backup may trust.

use std::time::Instant;

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
