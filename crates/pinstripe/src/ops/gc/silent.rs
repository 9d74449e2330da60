//! Ending sessions of writers that put heartbeats and have stopped: their hosts are gone, or cannot
//! reach the members.
//!
//! Ending a session from outside is safe regardless of its writer, so a wrong guess costs that
//! writer one run. Only sessions that promise heartbeats are ended in this way, and never a claim:
//! the holder of a claim changes labels in place, and does not check before each change.

use super::Collector;
use crate::store::{heartbeats, sessions};
use pinstripe_base::error::{Kind, Result};
use pinstripe_member::session::{Session, Work};

/// Looks for heartbeats of the others that may be running, and ends the sessions of those that the
/// detector takes for dead. Returns how many were ended.
///
/// # Errors
/// The errors of the members.
pub(super) fn end(gc: &Collector<'_>, at_work: &[Session]) -> Result<u64> {
    let watched: Vec<Session> = at_work.iter().filter(|it| is_watched(it)).cloned().collect();
    let pulses = match watched.is_empty() {
        true => Vec::new(),
        false => heartbeats::pulses(gc.store, &watched)?,
    };
    let suspected = gc.options.detector.observe(&pulses);
    let mut ended = 0;
    for session in watched.iter().filter(|session| suspected.contains(&session.id)) {
        match sessions::fence(gc.store, session) {
            Ok(()) => {
                gc.options.detector.forget(session.id);
                ended += 1;
            }
            // It ended first, or members are absent: then it stays as it is.
            Err(error) if matches!(error.kind(), Kind::Busy | Kind::Refused) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ended)
}

/// Whether a session's silence means that its writer is gone.
pub(super) fn is_watched(session: &Session) -> bool {
    session.has_heartbeats() && session.work != Work::Rebalance
}
