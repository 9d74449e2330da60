//! Ends sessions of writers whose heartbeats have stopped: their hosts have failed, or cannot reach
//! the members.
//!
//! Ending a session from outside is always safe, so a wrong guess only costs that writer one run.
//! Only sessions with heartbeats are ended in this way, and never a claim: the holder of a claim
//! changes labels in place, and does not check the claim before each change.

use super::Collector;
use crate::store::{heartbeats, sessions};
use pinstripe_base::error::{Kind, Result};
use pinstripe_member::session::{Session, Work};

/// Reads the heartbeats of other sessions that may be running, and ends those that the detector
/// considers dead. Returns the number of sessions that were ended.
///
/// # Errors
/// Fails with the errors of the members.
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

/// Whether a session's silence means that its writer is dead.
pub(super) fn is_watched(session: &Session) -> bool {
    session.has_heartbeats() && session.work != Work::Rebalance
}
