//! The ticks of the clock by which file systems stamp changes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Waits until that clock has passed the present time, some milliseconds: what was changed before is
/// older than what the clock tells from then on, so that a backup may take it over unread.
///
/// One tick is not enough. It sets the clock to the last multiple of its period, which may lie
/// behind a time stamp that was taken finely just before it.
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
