//! The ticks of the clock for the time stamps of file systems, in programs that may replace sleep and
//! the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long `await_tick` sleeps in a program that replaces sleep and the clock.
const REPLACED_TICK: Duration = Duration::from_millis(25);

static IS_CLOCK_REPLACED: AtomicBool = AtomicBool::new(false);

/// Has `await_tick` sleep for a fixed time. To read the system's clock in a story would make the order
/// of its threads depend on that clock; a sleep takes no time there, and lets other threads go first.
pub fn sleep_for_ticks() {
    IS_CLOCK_REPLACED.store(true, Ordering::Relaxed);
}

/// Waits until earlier changes are older than any later time of the clock.
pub fn await_tick() {
    if IS_CLOCK_REPLACED.load(Ordering::Relaxed) {
        std::thread::sleep(REPLACED_TICK);
    } else {
        pinstripe_testing::await_tick();
    }
}
