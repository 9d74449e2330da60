//! File descriptors of this process: how many there may be, and what to do when none is left.
//!
//! They are the process's, not a store's: whoever keeps files open for later says so here, and gives
//! them up when another opening finds none left. What is open for work that goes on is closed soon,
//! so an opening that still finds none waits.
//!
//! Invariants: nothing that is in use is ever closed; a wait ends. Who waits must hold nothing that
//! the others wait for: what is planned together opens no more than its [`share`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::clock;

/// Keeps files open for later.
pub trait Keeper: Send + Sync {
    /// Closes all that is not in use.
    fn give_up(&self);
}

static KEEPERS: Mutex<Vec<Weak<dyn Keeper>>> = Mutex::new(Vec::new());
/// The last wait was in vain: until one is not, nobody waits.
static IS_HOPELESS: AtomicBool = AtomicBool::new(false);

/// How long an opening waits for others to close something.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_millis(50);
/// Files that a run has open whatever it does: its streams, members, a database.
const SET_ASIDE: u64 = 24;

/// Takes note of a keeper, for as long as it lives.
pub fn register(keeper: &Arc<impl Keeper + 'static>) {
    let keeper: Weak<dyn Keeper> = Arc::downgrade(keeper) as Weak<dyn Keeper>;
    let mut keepers = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
    keepers.retain(|keeper| keeper.strong_count() > 0);
    keepers.push(keeper);
}

/// Opens something; when no descriptor is left, has those closed that are kept for later, and waits
/// for those in use.
///
/// # Errors
/// Those of `open`; the lack of descriptors when it lasts.
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
    let keepers = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    keepers.iter().filter_map(Weak::upgrade).for_each(|keeper| keeper.give_up());
}

/// How many files one of the parts of a run may have open at once: `wanted` where so many are
/// allowed, else one in so many `parts` of what is allowed, and a few at least. The limit is asked
/// for once.
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
