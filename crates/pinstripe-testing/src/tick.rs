//! The ticks of the clock for the time stamps of file systems.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Waits until that clock has passed the present time, some milliseconds: earlier changes then are
/// older than any later time of the clock, so that a backup may reuse them unread.
///
/// One tick is not enough. It sets the clock to the last multiple of its period, which may be
/// before a finer time stamp that was taken just before it.
pub fn await_tick() {
    let told = |clock| {
        let now = clock_gettime(clock);
        (now.tv_sec, now.tv_nsec)
    };
    let before = told(ClockId::Realtime);
    while told(ClockId::RealtimeCoarse) <= before {
        // Nothing wakes a thread at a tick; a look costs less than a tick takes.
        std::thread::sleep(Duration::from_micros(500));
    }
}
