//! The thread that puts the heartbeats of a session while the session's work is done.
//!
//! Invariant: the thread stops when the work ends or another process has ended the session; if a
//! heartbeat cannot be put, the next one is tried after an interval.

use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};

use crate::store::Store;
use crate::store::heartbeats::{self, HEARTBEAT_EVERY};
use crate::store::sessions::OpenSession;

/// Runs `work` while a thread puts heartbeats.
pub fn beside<T>(store: &Store, session: &OpenSession<'_>, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        // Dropped when the work ends, in success or failure: that wakes the thread.
        let (_end, end) = bounded::<()>(0);
        scope.spawn(move || {
            beat_while(store, session, |every| {
                end.recv_timeout(every) == Err(RecvTimeoutError::Timeout)
            });
        });
        work()
    })
}

/// Puts a heartbeat each time that `goes_on` returns true after waiting for an interval.
pub fn beat_while(
    store: &Store,
    session: &OpenSession<'_>,
    mut goes_on: impl FnMut(Duration) -> bool,
) {
    let id = session.session.id;
    let mut count = 0;
    while goes_on(HEARTBEAT_EVERY) {
        // Asked at each interval only: a writer whose session was ended meets that at its commit.
        if !session.stands() {
            break;
        }
        if heartbeats::put(store, id, count + 1, HEARTBEAT_EVERY).is_ok() {
            count += 1;
        }
    }
    if count > 0 {
        heartbeats::remove(store, id, count);
    }
}
