//! Waits for the clock ticks that file systems use for time stamps, in programs that may replace
//! sleep and the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long `await_tick` sleeps in a program that replaces sleep and the clock.
const REPLACED_TICK: Duration = Duration::from_millis(25);

static IS_CLOCK_REPLACED: AtomicBool = AtomicBool::new(false);

/// Makes `await_tick` sleep for a fixed time. If a story read the system's clock, the order of its
/// threads would depend on that clock; a sleep takes no real time in a story, and lets other
/// threads run first.
pub fn sleep_for_ticks() {
    IS_CLOCK_REPLACED.store(true, Ordering::Relaxed);
}

/// Waits until any later change will have a later time stamp than all earlier changes.
pub fn await_tick() {
    if IS_CLOCK_REPLACED.load(Ordering::Relaxed) {
        std::thread::sleep(REPLACED_TICK);
    } else {
        pinstripe_testing::await_tick();
    }
}
