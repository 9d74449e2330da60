//! Ending a backup in order: the first SIGINT, SIGTERM or SIGHUP asks the run to reach an end, the
//! second ends the process at once. The exit code is the shell's: 128 and the signal's number. A
//! recorder takes no notice of a second one that comes within a moment: see [`ignore_doubles`].
//!
//! A signal never damages anything, caught or not: an orderly end only means that the work done so
//! far is kept.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag as hook;
use signal_hook::low_level;

use crate::exit;

/// The time that an interrupted run may show no sign of life.
const HUNG: Duration = Duration::from_secs(1);
/// The interval of that check.
const PROGRESS_POLL: Duration = Duration::from_millis(50);

/// Set by the first signal that is caught.
static STOP: OnceLock<Stop> = OnceLock::new();
/// The flag of `STOP`, which may be asked for before signals are caught.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// The number of the signal that was caught last.
static CAUGHT: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// When the first signal was caught, in nanoseconds of the monotonic clock.
static CAUGHT_AT: AtomicU64 = AtomicU64::new(0);
/// The time after the first signal in which others do nothing, in nanoseconds.
static DEAF: AtomicU64 = AtomicU64::new(0);

/// Ignores signals within two seconds of the first: a key that was pressed twice, or a program that
/// signals both a process and its group (as `timeout` does), does not mean to lose the last second
/// of a recording. Called before [`catch`].
pub fn ignore_doubles() {
    DEAF.store(2_000_000_000, Ordering::Relaxed);
}

/// Keeps the process running when a file reaches the limit of `ulimit -f`: the write fails with EFBIG,
/// as on a file system with that limit.
pub fn survive_size_limit() {
    // Without the handler the signal ends the process, which is all that can be said about a refusal.
    let _ = hook::register(SIGXFSZ, Arc::default());
}

/// A system call that a signal handler may make.
fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What any signal does before the first has set the flag, and what later ones do.
fn end_if_caught_before(signal: i32, flag: &AtomicBool) {
    let now = monotonic_nanos();
    if !flag.load(Ordering::SeqCst) {
        CAUGHT_AT.store(now, Ordering::Relaxed);
    } else if now.saturating_sub(CAUGHT_AT.load(Ordering::Relaxed)) >= DEAF.load(Ordering::Relaxed)
    {
        low_level::exit(128 + signal);
    }
}

/// Catches signals from now on; the first sets the stop.
///
/// # Errors
/// When the system does not let us.
pub fn catch() -> Result<&'static Stop> {
    if let Some(stop) = STOP.get() {
        return Ok(stop);
    }
    let stop = Stop::of_flag(flag())?;
    let stop = STOP.get_or_init(|| stop);
    let caught = CAUGHT.get_or_init(Arc::default);
    let refused = |error| Error::io("cannot catch signals", "/", error);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the signal that sets the flag must not find it set.
        let is_caught = flag();
        let check = move || end_if_caught_before(signal, &is_caught);
        // SAFETY: `check` reads a clock, loads and stores atomics and may call _exit(2).
        unsafe { low_level::register(signal, check) }
            .and_then(|_| hook::register_usize(signal, Arc::clone(caught), signal as usize))
            // SAFETY: `Stop::set` does nothing that a signal handler may not: it stores into an
            // atomic and calls write(2); it neither locks, nor allocates, nor panics.
            .and_then(|_| unsafe { low_level::register(signal, || stop.set()) })
            .map_err(refused)?;
    }
    Ok(stop)
}

/// The flag that the first signal sets, if signals are caught, for code that only reads it.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(FLAG.get_or_init(Arc::default))
}

/// Whether a signal was caught.
pub fn is_caught() -> bool {
    STOP.get().is_some_and(Stop::is_set)
}

/// Ends the process if a signal was caught and there was no progress for a second since: a source,
/// or something else without a deadline, does not answer. `progress` changes with any progress.
/// Called after [`catch`].
pub fn end_what_hangs(
    progress: impl Fn() -> u64 + Send + 'static,
    complain: impl Fn(&str) + Send + 'static,
) {
    // Without it no signal is caught, so that the first one ends the process.
    let Some(stop) = STOP.get() else { return };
    std::thread::spawn(move || {
        stop.wait(Duration::MAX);
        let (mut last, mut since) = (progress(), Instant::now());
        while since.elapsed() < HUNG {
            std::thread::sleep(PROGRESS_POLL);
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
