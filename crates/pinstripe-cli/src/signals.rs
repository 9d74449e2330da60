//! Ending a backup in order: the first SIGINT, SIGTERM or SIGHUP asks the run to come to an end, the
//! second ends the process at once. The exit code is the shell's: 128 and the signal's number.
//!
//! A signal never damages anything, caught or not: an orderly end only means that the work done so
//! far is kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag as hook;

use crate::exit;

/// The time that an interrupted run may show no sign of life.
const HUNG: Duration = Duration::from_secs(1);
/// The interval of that check.
const LOOK: Duration = Duration::from_millis(50);

/// Set by the first signal that is caught.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// The number of the signal that was caught last.
static CAUGHT: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Catches signals from now on; the flag is set by the first.
///
/// # Errors
/// When the system does not let us.
pub fn catch() -> Result<Arc<AtomicBool>> {
    let stop = flag();
    let caught = CAUGHT.get_or_init(Arc::default);
    let refused = |error| Error::io("cannot catch signals", "/", error);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the signal that sets the flag must not find it set.
        hook::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| hook::register_usize(signal, Arc::clone(caught), signal as usize))
            .and_then(|_| hook::register(signal, Arc::clone(&stop)))
            .map_err(refused)?;
    }
    Ok(stop)
}

/// The flag that the first signal sets, if signals are caught; code that waits may poll it.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(STOP.get_or_init(Arc::default))
}

/// Whether a signal was caught.
pub fn is_caught() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// Ends the process when a signal was caught and nothing went on for a second since: a source, or
/// whatever else has no deadline, does not answer. `progress` changes whenever something goes on.
pub fn end_what_hangs(
    progress: impl Fn() -> u64 + Send + 'static,
    complain: impl Fn(&str) + Send + 'static,
) {
    let stop = flag();
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        let (mut last, mut since) = (progress(), Instant::now());
        while since.elapsed() < HUNG {
            std::thread::sleep(LOOK);
            let now = progress();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        complain(
            "pinstripe: error: interrupted while a member or device did not answer\n  what to do: \
             run it again: it continues from the last checkpoint",
        );
        std::process::exit(exit_code().into());
    });
}

/// The exit code of a run that a signal ended.
pub fn exit_code() -> u8 {
    match CAUGHT.get().map_or(0, |caught| caught.load(Ordering::Relaxed)) {
        0 => exit::INTERRUPTED,
        number => 128 + number as u8,
    }
}
