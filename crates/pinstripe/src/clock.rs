//! The one place that asks for the time: for people, and for telling what a backup may trust.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::format::meta::Time;

/// Now, by the system's clock.
pub fn now() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
        // A clock before 1970: whole seconds are exact enough for a machine in that state.
        Err(before) => Time { seconds: -(before.duration().as_secs() as i64) - 1, nanos: 0 },
    }
}
