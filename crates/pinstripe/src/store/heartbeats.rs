//! Heartbeats of sessions: a writer that runs for long puts them, a gc that waits for the writer
//! counts them.
//!
//! Invariants: each heartbeat is put once, under a name of its own. The previous heartbeat is
//! removed after the new one was put, so the highest count on the members is always the newest. One
//! intact copy of a heartbeat is enough, since it only keeps a session alive. Names without an
//! intact object do not count, and a session whose newer heartbeats may be hidden by such names has
//! no pulse.
//!
//! Not in this module: clocks, threads.

use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SessionId;
use pinstripe_member::heartbeat::{Heartbeat, count_of, name_of};
use pinstripe_member::session::Session;
use pinstripe_member::{ExtentKind, ExtentName};

use super::failure_detector::Pulse;
use super::objects::Quorum;
use super::sessions;
use super::{Store, read_small};

/// The interval at which a writer puts heartbeats. A backup that takes an hour puts eleven
/// heartbeats.
pub(crate) const HEARTBEAT_EVERY: Duration = Duration::from_secs(300);
/// The largest number of damaged objects that the search for the newest heartbeat of a session
/// skips.
const UNSOUND_MAX: usize = 16;

fn name(session: SessionId, count: u64) -> ExtentName {
    ExtentName::In(ExtentKind::Heartbeats, name_of(session, count))
}

/// Puts the heartbeat with this count, and removes the one before. If the credentials may not
/// delete, all heartbeats are left; a gc removes them when the session has ended.
///
/// # Errors
/// Fails with the errors of the members, when too few accepted the heartbeat.
pub(crate) fn put(store: &Store, session: SessionId, count: u64, every: Duration) -> Result<()> {
    debug_assert!(count > 0, "heartbeats count from 1");
    let every_seconds = u32::try_from(every.as_secs()).unwrap_or(u32::MAX);
    let heartbeat = Heartbeat { store: store.config.store, session, count, every_seconds };
    store.put_all(name(session, count), &heartbeat.encode(), Quorum::Backup)?;
    if count > 1 {
        remove(store, session, count - 1);
    }
    Ok(())
}

/// Removes the heartbeat with this count, if possible.
pub(crate) fn remove(store: &Store, session: SessionId, count: u64) {
    // A gc removes a heartbeat that stays.
    let _ = store.drop_all(name(session, count));
}

/// Returns the newest heartbeat of each of these sessions, or `None` for a session whose heartbeat
/// cannot be read.
///
/// # Errors
/// Fails with the errors of [`Store::names`].
pub(crate) fn pulses(
    store: &Store,
    sessions: &[Session],
) -> Result<Vec<(SessionId, Option<Pulse>)>> {
    let names = store.names(ExtentKind::Heartbeats, Quorum::Deletion)?;
    let pulse = |session: &Session| {
        let counts = names.iter().rev().filter_map(|name| count_of(session.id, name));
        (session.id, newest(store, session.id, counts))
    };
    Ok(sessions.iter().map(pulse).collect())
}

/// Returns the newest readable heartbeat among those with these counts, which descend.
fn newest(store: &Store, session: SessionId, counts: impl Iterator<Item = u64>) -> Option<Pulse> {
    let mut unsound = 0;
    for count in counts {
        let mut is_there = false;
        for (_, member) in store.present() {
            let copy = read_small(&**member, name(session, count));
            match copy.and_then(|bytes| read(store, session, count, &bytes)) {
                Ok(heartbeat) => {
                    let every = Duration::from_secs(heartbeat.every_seconds.into());
                    return Some(Pulse { count, every });
                }
                Err(error) => is_there |= error.kind() == Kind::Corrupt,
            }
        }
        unsound += 1;
        // Not there any more: a newer one is. Or not to be read now, or hidden behind others.
        if !is_there || unsound > UNSOUND_MAX {
            return None;
        }
    }
    Some(Pulse { count: 0, every: HEARTBEAT_EVERY })
}

/// Reads one heartbeat.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] if the bytes are not a heartbeat, or belong to another name.
fn read(store: &Store, session: SessionId, count: u64, bytes: &[u8]) -> Result<Heartbeat> {
    let heartbeat = Heartbeat::decode(bytes)?;
    store.verify(name(session, count), bytes)?;
    let of = (heartbeat.store, heartbeat.session, heartbeat.count);
    if of != (store.config.store, session, count) {
        return Err(Error::new(
            Kind::Corrupt,
            "the content of this heartbeat does not match its name",
        ));
    }
    Ok(heartbeat)
}

/// Removes heartbeats that belong to no existing session.
///
/// # Errors
/// Fails with the errors of the members.
pub(crate) fn remove_others(store: &Store) -> Result<()> {
    // In this order: a session is put before its heartbeats.
    let names = store.names(ExtentKind::Heartbeats, Quorum::Deletion)?;
    if names.is_empty() {
        return Ok(());
    }
    let sessions = sessions::load(store, Quorum::Deletion)?;
    let is_of_none =
        |name: &[u8; 16]| sessions.iter().all(|session| count_of(session.id, name).is_none());
    for name in names.into_iter().filter(is_of_none) {
        store.drop_all(ExtentName::In(ExtentKind::Heartbeats, name))?;
    }
    Ok(())
}
