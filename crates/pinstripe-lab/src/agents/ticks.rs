//! Represents moments of this process as numbers that can be sent to another machine.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Numbers begin this long before the first moment, so that no number is negative.
const BEFORE: Duration = Duration::from_secs(3600);

fn zero() -> Instant {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    *ZERO.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(BEFORE).unwrap_or(now)
    })
}

/// A moment in nanoseconds of a clock that is never set back.
pub fn nanos(moment: Instant) -> u64 {
    moment.saturating_duration_since(zero()).as_nanos() as u64
}

/// How far the time of day, in nanoseconds since 1970, is ahead of [`nanos`] now. Several readings
/// are made, and the one that took the shortest time is used.
pub(crate) fn wall_ahead_ns() -> i64 {
    const READINGS: usize = 5;
    let reading = |_| {
        let before = nanos(Instant::now());
        let wall = SystemTime::now();
        let after = nanos(Instant::now());
        let wall_ns = match wall.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        let ahead = wall_ns - i128::from(before + (after - before) / 2);
        (after - before, ahead as i64)
    };
    (0..READINGS).map(reading).min_by_key(|(took, _)| *took).map_or(0, |(_, ahead)| ahead)
}
