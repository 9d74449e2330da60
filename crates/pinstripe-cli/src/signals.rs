//! Ending a backup in order: the first SIGINT, SIGTERM or SIGHUP asks the run to come to an end, the
//! second ends the process at once. The exit code is the shell's: 128 and the signal's number.
//!
//! Nothing is ever damaged by a signal, caught or not: what is in order about the end is that the
//! work done so far is kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use pinstripe::error::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit;

/// The number of the signal that was caught last.
static CAUGHT: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Catches signals from now on; the flag is set by the first.
///
/// # Errors
/// When the system does not let us.
pub fn catch() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let caught = CAUGHT.get_or_init(Arc::default);
    let refused = |error| Error::io("cannot catch signals", "/", error);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the signal that sets the flag must not find it set.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| flag::register_usize(signal, Arc::clone(caught), signal as usize))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(refused)?;
    }
    Ok(stop)
}

/// The exit code of a run that a signal ended.
pub fn exit_code() -> u8 {
    match CAUGHT.get().map_or(0, |caught| caught.load(Ordering::Relaxed)) {
        0 => exit::INTERRUPTED,
        number => 128 + number as u8,
    }
}
