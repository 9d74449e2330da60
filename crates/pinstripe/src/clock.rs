//! The one place that asks for the time: for people, and for telling what a backup may trust.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Now, by the system's clock: seconds since 1970 and nanoseconds of that second.
pub fn now() -> (i64, u32) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        // A clock before 1970: whole seconds are exact enough for a machine in that state.
        Err(before) => (-(before.duration().as_secs() as i64) - 1, 0),
    }
}

/// Now, by a clock that is never set back.
pub fn monotonic() -> Instant {
    Instant::now()
}
