//! The only module that reads the clock: for times that are shown, and for deciding what a backup
//! may trust.

#![allow(clippy::disallowed_methods, reason = "only this module reads the clock")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The function that replaces the system's clock, if a test has set one.
static TELLER: OnceLock<fn() -> (i64, u32)> = OnceLock::new();

/// Replaces the time that [`now`] returns, for tests; the replacement holds for the entire process
/// until it ends.
pub fn be_told_by(teller: fn() -> (i64, u32)) {
    TELLER.get_or_init(|| teller);
}

/// The present time, by the clock that file systems use for time stamps: seconds since 1970 and
/// nanoseconds of that second. The clock advances in ticks of some milliseconds. So a file that is
/// changed after this call has a ctime that is not earlier than the result, and two calls may
/// return the same time.
pub fn now() -> (i64, u32) {
    if let Some(teller) = TELLER.get() {
        return teller();
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Through libc, so that a preloaded library such as libfaketime can set the time.
    // SAFETY: `now` is a timespec that may be written, and clock_gettime(2) keeps no pointer.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    assert_eq!(status, 0, "Linux has had this clock since version 2.6.32");
    (now.tv_sec, now.tv_nsec as u32)
}

/// The present time, by a clock that is never set back.
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The time since an instant that [`monotonic`] returned.
pub fn since(instant: Instant) -> Duration {
    monotonic().saturating_duration_since(instant)
}

/// Waits.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// The time since the first call, by the clock of [`monotonic`]; to be used only for differences.
pub fn since_first_asked() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now.saturating_duration_since(*FIRST.get_or_init(|| now))
}

/// The time since this machine was started, without times of suspension: the same for all
/// processes, and never set back.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32)
}
