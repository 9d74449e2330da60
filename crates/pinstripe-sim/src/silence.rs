//! A backup of another host that stops in the middle: the host is gone, or hangs for hours and then
//! continues. No process on this host can tell which; gc ends its session after a time, and no
//! promise may be broken.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pinstripe::{FailureDetector, TIMEOUT_DEFAULT};
use pinstripe_base::error::Kind;
use pinstripe_member::session::Process;
use pinstripe_member::{DiskStep, Steps};

use crate::deletion::gc_for;
use crate::look::look;
use crate::process::Who;
use crate::support::{ELSEWHERE, Ledger, NoWait, backup};
use crate::world::World;

thread_local! {
    static NOW_SECONDS: Cell<u64> = const { Cell::new(0) };
}

fn clock() -> Duration {
    Duration::from_secs(NOW_SECONDS.get())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Hangs,
    GoesOn,
    Dead,
}

/// A host all of whose processes hang before a step, until the host continues or is gone.
struct Host {
    left: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Host {
    fn new(after: u64) -> Self {
        let (state, changed) = (Mutex::new(State::Runs), Condvar::new());
        Host { left: AtomicU64::new(after), state, changed }
    }

    fn set(&self, to: State) {
        *self.state.lock().unwrap() = to;
        self.changed.notify_all();
    }

    /// Waits until the host hangs, or until `is_over` returns true.
    fn await_hang(&self, is_over: impl Fn() -> bool) {
        let mut state = self.state.lock().unwrap();
        while *state == State::Runs && !is_over() {
            // Who is over tells nobody.
            state = self.changed.wait_timeout(state, Duration::from_millis(5)).unwrap().0;
        }
    }
}

impl Steps for Host {
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let taken =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
        if taken.is_err() {
            let mut state = self.state.lock().unwrap();
            if *state == State::Runs {
                *state = State::Hangs;
                self.changed.notify_all();
            }
            while *state == State::Hangs {
                state = self.changed.wait(state).unwrap();
            }
            if *state == State::Dead {
                return Err(io::Error::other("the host is gone"));
            }
        }
        NoWait.take(step, act)
    }
}

impl World {
    /// A backup of another host hangs before a step. Two gcs of this host see that, the second one
    /// long after the first. Then the backup continues, or is killed.
    pub fn silent_backup(&mut self, source: usize, after: u64, wakes: bool, waste: u64) {
        // No session is ended while a member is away.
        if self.absent() > 0 || self.ghosts() > 0 {
            return;
        }
        self.written();
        let tree = look(&self.sources[source]);
        let host = Arc::new(Host::new(after));
        let process = Process { pid: 1 + after as u32, ..ELSEWHERE };
        let who = Who::elsewhere(Arc::clone(&host) as Arc<dyn Steps>, process);
        let ledgers = [Ledger::new(), Ledger::new(), Ledger::new()];
        let world = &*self;
        let (ended, hung, saved) = std::thread::scope(|scope| {
            let writer =
                scope.spawn(|| backup(&world.open("", &who)?, &world.sources[source], &ledgers[0]));
            host.await_hang(|| writer.is_finished());
            let hung = *host.state.lock().unwrap() == State::Hangs;
            let detector = Arc::new(FailureDetector::new(TIMEOUT_DEFAULT, Vec::new(), clock));
            let collect = |ledger| gc_for(&world.store(), waste, Duration::ZERO, &detector, ledger);
            let first = collect(&ledgers[1]);
            NOW_SECONDS.set(NOW_SECONDS.get() + TIMEOUT_DEFAULT.as_secs());
            let second = collect(&ledgers[2]);
            host.set(if wakes { State::GoesOn } else { State::Dead });
            let saved = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ([first, second], hung, saved)
        });
        let [backed_up, of_first, of_second] = &ledgers;
        self.untidy |= hung;
        let [first, second] = ended;
        let fenced = [&first, &second].map(|it| it.as_ref().map_or(0, |it| it.fenced_sessions));
        assert_eq!(fenced[0], 0, "ended at the first look");
        match saved {
            Err(_) if hung => self.adopt(&[(source, &tree)]),
            saved => {
                // It had committed on the first member before it hung.
                assert!(
                    saved.is_err() || fenced[1] == 0,
                    "its session was ended, and it says done"
                );
                self.take_note(source, tree, saved, false, backed_up);
            }
        }
        self.expose(true);
        self.take_note_of_gc(&first, false, true, of_first);
        if let Err(error) = &second {
            assert_ne!(error.kind(), Kind::Busy, "nobody is left to wait for: {error}");
        }
        let is_done = self.take_note_of_gc(&second, false, true, of_second);
        // A session that could not be ended any more keeps its parent.
        self.meet_deletion(is_done && (!hung || fenced[1] > 0));
    }
}
