//! Ends a run cleanly: the first SIGINT, SIGTERM or SIGHUP asks the run to finish early, the second
//! ends the process at once. The exit code is 128 plus the signal's number, as in a shell. A
//! recorder ignores a second signal that comes shortly after the first: see [`ignore_doubles`].
//!
//! A signal never damages anything, whether it is caught or not: a clean end only means that the
//! work done so far is kept.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Result};
use pinstripe_base::sync::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag as hook;
use signal_hook::low_level;

use crate::exit;

/// How long an interrupted run may make no progress before it is ended.
const HUNG: Duration = Duration::from_secs(1);
/// The interval at which the progress of an interrupted run is checked.
const PROGRESS_POLL: Duration = Duration::from_millis(50);

/// Set by the first signal that is caught.
static STOP: OnceLock<Stop> = OnceLock::new();
/// The flag of `STOP`, which can be read before signals are caught.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// The number of the last signal that was caught.
static CAUGHT: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// When the first signal was caught, in nanoseconds of the monotonic clock.
static CAUGHT_AT: AtomicU64 = AtomicU64::new(0);
/// The time after the first signal in which further signals are ignored, in nanoseconds.
static DEAF: AtomicU64 = AtomicU64::new(0);

/// Ignores signals within two seconds of the first: a key that was pressed twice, or a program that
/// signals both a process and its group (as `timeout` does), is not meant to lose the last second
/// of a recording. Called before [`catch`].
pub fn ignore_doubles() {
    DEAF.store(2_000_000_000, Ordering::Relaxed);
}

/// Keeps the process running when a file reaches the limit of `ulimit -f`: the write fails with EFBIG,
/// as on a file system with that limit.
pub fn survive_size_limit() {
    // If the system refuses the handler, the signal ends the process as before.
    let _ = hook::register(SIGXFSZ, Arc::default());
}

/// Reads the monotonic clock, with a system call that a signal handler may make.
fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Handles a signal: the first one records its time; a later one ends the process, unless it comes
/// while doubles are ignored.
fn end_if_caught_before(signal: i32, flag: &AtomicBool) {
    let now = monotonic_nanos();
    if !flag.load(Ordering::SeqCst) {
        CAUGHT_AT.store(now, Ordering::Relaxed);
    } else if now.saturating_sub(CAUGHT_AT.load(Ordering::Relaxed)) >= DEAF.load(Ordering::Relaxed)
    {
        low_level::exit(128 + signal);
    }
}

/// Catches signals from now on; the first signal sets the stop.
///
/// # Errors
/// Fails when the system does not allow signals to be caught.
pub fn catch() -> Result<&'static Stop> {
    if let Some(stop) = STOP.get() {
        return Ok(stop);
    }
    catch_each(&[SIGINT, SIGTERM, SIGHUP])
}

/// Like [`catch`], for a server: SIGHUP sets the returned flag instead.
///
/// # Errors
/// Fails with the errors of [`catch`].
pub fn catch_as_server() -> Result<(&'static Stop, Arc<AtomicBool>)> {
    let reloads = Arc::new(AtomicBool::new(false));
    hook::register(SIGHUP, Arc::clone(&reloads))
        .map_err(|error| Error::io("cannot catch signals", "/", error))?;
    Ok((catch_each(&[SIGINT, SIGTERM])?, reloads))
}

fn catch_each(signals: &[i32]) -> Result<&'static Stop> {
    let stop = Stop::of_flag(flag())?;
    let stop = STOP.get_or_init(|| stop);
    let caught = CAUGHT.get_or_init(Arc::default);
    let refused = |error| Error::io("cannot catch signals", "/", error);
    for &signal in signals {
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

/// The flag that the first signal sets, if signals are caught; for code that only reads it.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(FLAG.get_or_init(Arc::default))
}

/// Whether a signal was caught.
pub fn is_caught() -> bool {
    STOP.get().is_some_and(Stop::is_set)
}

/// Ends the process if a signal was caught and there was no progress for a second: a source, or
/// something else without a time limit, does not answer. The value of `progress` changes with any
/// progress. Called after [`catch`].
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
             run the command again; it continues from the last checkpoint",
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
