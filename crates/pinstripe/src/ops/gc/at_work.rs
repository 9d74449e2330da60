//! The sessions that a gc sees.

use crate::store::objects::Quorum;
use crate::store::{Store, sessions};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::SessionId;
use pinstripe_member::session::Session;

/// Returns all sessions. Removes session objects that no process can continue and that appeared
/// since this gc began.
///
/// # Errors
/// Fails with the errors of [`sessions::load`].
pub(super) fn all_sessions(store: &Store) -> Result<Vec<Session>> {
    match sessions::load(store, Quorum::Deletion) {
        Err(error) if error.kind() == Kind::Corrupt => {
            remove_cut_off(store)?;
            sessions::load(store, Quorum::Deletion)
        }
        loaded => loaded,
    }
}

/// Returns the sessions whose process may be running, except this gc's `own` session. A dry run has
/// no session of its own, and removes nothing.
///
/// # Errors
/// Fails with the errors of [`sessions::load`].
pub(super) fn sessions_at_work(store: &Store, own: Option<SessionId>) -> Result<Vec<Session>> {
    if own.is_none() {
        return sessions::at_work(store, None, Quorum::Deletion);
    }
    let process = store.process();
    let runs = |it: &Session| Some(it.id) != own && !sessions::is_dead(it, &process);
    Ok(all_sessions(store)?.into_iter().filter(runs).collect())
}

/// Removes session objects that no process can continue.
pub(super) fn remove_cut_off(store: &Store) -> Result<()> {
    let mut names = sessions::cut_off(store, Quorum::Deletion)?.into_iter();
    names.try_for_each(|name| store.delete_all(name))
}
