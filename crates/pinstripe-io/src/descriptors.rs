//! File descriptors of this process: how many there are, and what is done when none is left.
//!
//! The limit applies to the process, not to a store: code that keeps files open for later use
//! registers here, and closes them when another open needs a descriptor. Files that are in use are
//! closed soon, so an open that still finds no descriptor waits.
//!
//! Invariants: no file that is in use is ever closed; every wait ends. A thread that waits must
//! hold nothing for which other threads wait: work that is planned together opens at most its
//! [`share`] of files.

#![allow(clippy::disallowed_methods, reason = "this module waits until descriptors are free again")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use pinstripe_base::clock;
use pinstripe_base::sync::lock;

/// An object that keeps files open for later use.
pub trait Keeper: Send + Sync {
    /// Closes all files that are not in use.
    fn give_up(&self);
}

static KEEPERS: Mutex<Vec<Weak<dyn Keeper>>> = Mutex::new(Vec::new());
/// Whether the last wait failed: until an open succeeds, no open waits.
static IS_HOPELESS: AtomicBool = AtomicBool::new(false);

/// How long an open waits for other threads to close files.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_millis(50);
/// The number of files that every run has open: its streams, members, a database.
const SET_ASIDE: u64 = 24;

/// Registers a keeper until it is dropped.
pub fn register(keeper: &Arc<impl Keeper + 'static>) {
    let keeper: Weak<dyn Keeper> = Arc::downgrade(keeper) as Weak<dyn Keeper>;
    let mut keepers = lock(&KEEPERS);
    keepers.retain(|keeper| keeper.strong_count() > 0);
    keepers.push(keeper);
}

/// Opens something; if no descriptor is left, has files closed that are kept for later use, and
/// waits for files in use.
///
/// # Errors
/// Fails with the errors of `open`; with the error for too many open files if no descriptor becomes
/// free.
pub fn patiently<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match open() {
        Err(Errno::MFILE | Errno::NFILE) => wait(&mut open),
        opened => opened,
    }
}

#[cold]
fn wait<T>(open: &mut dyn FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let (began, mut pause) = (clock::monotonic(), PAUSE_FIRST);
    loop {
        give_up();
        match open() {
            Err(errno @ (Errno::MFILE | Errno::NFILE)) => {
                if IS_HOPELESS.load(Ordering::Relaxed) || began.elapsed() >= PATIENCE {
                    IS_HOPELESS.store(true, Ordering::Relaxed);
                    return Err(errno);
                }
            }
            opened => {
                IS_HOPELESS.store(false, Ordering::Relaxed);
                return opened;
            }
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MOST);
    }
}

fn give_up() {
    let keepers = lock(&KEEPERS).clone();
    keepers.iter().filter_map(Weak::upgrade).for_each(|keeper| keeper.give_up());
}

/// The number of files that one part of a run may have open at once: `wanted` if the limit allows
/// it, else the limit divided by `parts`, but at least a few. The limit is read once.
pub fn share(wanted: usize, parts: u64) -> usize {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    let allowed = *LIMIT.get_or_init(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    share_of(allowed, wanted, parts)
}

fn share_of(allowed: u64, wanted: usize, parts: u64) -> usize {
    const LEAST: u64 = 4;
    let share = (allowed.saturating_sub(SET_ASIDE) / parts).max(LEAST);
    usize::try_from(share).unwrap_or(usize::MAX).min(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_what_is_allowed() {
        for (allowed, wanted, parts, share) in [
            (1024, 256, 4, 250),
            (1 << 20, 256, 4, 256),
            (64, 256, 4, 10),
            (20, 256, 4, 4),
            (20, 2, 4, 2),
        ] {
            assert_eq!(share_of(allowed, wanted, parts), share, "{allowed}");
        }
    }

    struct Kept(Mutex<Vec<u8>>);

    impl Keeper for Kept {
        fn give_up(&self) {
            self.0.lock().unwrap().clear();
        }
    }

    #[test]
    fn what_is_kept_is_given_up_and_what_is_in_use_is_waited_for() {
        let kept = Arc::new(Kept(Mutex::new(vec![1, 2])));
        register(&kept);
        let mut tries = 0;
        let opened = patiently(|| {
            tries += 1;
            match (kept.0.lock().unwrap().is_empty(), tries) {
                (true, 5) => Ok(tries),
                _ => Err(Errno::MFILE),
            }
        });
        assert_eq!(opened, Ok(5));
        assert_eq!(patiently(|| Err::<(), _>(Errno::NOENT)), Err(Errno::NOENT));
    }
}
