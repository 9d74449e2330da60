//! The beginning of every backup: it puts a session, then loads an index without condemned packs.

use super::ancestry::Ancestry;
use crate::ops::stale;
use crate::store::deletion::acknowledge::Acknowledger;
use crate::store::index::{self, Index};
use crate::store::sessions::{self, OpenSession};
use crate::store::{Store, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::session::Work;
use pinstripe_member::{ExtentKind, PrefetchHint};

/// The number of parents that are tried if the chosen one was just forgotten.
const PARENTS_TRIED: usize = 16;

/// The rooms that are read after the session was put, in any order.
const BEGINNING: [PrefetchHint; 6] = [
    PrefetchHint::new(ExtentKind::Keys, 3),
    PrefetchHint::maybe(ExtentKind::Snapshots, 0),
    PrefetchHint::new(ExtentKind::Forgotten, 1),
    PrefetchHint::new(ExtentKind::Gc, 6),
    PrefetchHint::new(ExtentKind::Index, 2),
    PrefetchHint::maybe(ExtentKind::Packs, 1),
];

/// The same, with what the commit of a backup that wrote nothing needs: a server lists
/// it together with the put of the session.
const WITH_SESSION: [PrefetchHint; 6] = [
    PrefetchHint { label: true, ..PrefetchHint::new(ExtentKind::Keys, 5) },
    BEGINNING[1],
    BEGINNING[2],
    BEGINNING[3],
    PrefetchHint::new(ExtentKind::Index, 3),
    BEGINNING[5],
];

/// A running writer.
pub(in crate::ops) struct Writer<'a> {
    pub session: OpenSession<'a>,
    pub acknowledger: Acknowledger,
    pub index: Index<'a>,
    /// An index run that could not be read was removed, so its rows may be lost.
    pub is_doubtful: bool,
}

impl<'a> Writer<'a> {
    /// Begins a session that relies only on the chunks that its writer stores or looks up.
    ///
    /// # Errors
    /// Fails with the errors of the members.
    pub fn begin(store: &'a Store, snapshot: SnapshotId, monitor: &'a Monitor) -> Result<Self> {
        let session = begin_session(store, snapshot, Vec::new())?;
        store.prefetch(&BEGINNING);
        Self::with(store, session, None, monitor)
    }

    /// Begins a session that builds on an earlier snapshot, and returns that snapshot. The session
    /// is put first; then the parent is checked to be still wanted. A verb that forgets and deletes
    /// does these two steps in the opposite order, so at least one of the two processes sees the
    /// other.
    ///
    /// # Errors
    /// Fails with the errors of the members and of `find`, or with [`Kind::Busy`] when each chosen
    /// parent had just been forgotten.
    pub(crate) fn begin_after(
        store: &'a Store,
        snapshot: SnapshotId,
        monitor: &'a Monitor,
        find: impl Fn() -> Result<Ancestry>,
    ) -> Result<(Self, Ancestry)> {
        // A far index is opened before the session is put, by what opening the store has asked
        // already: afterwards it only has to be brought up to date.
        let mut ahead = store.is_far().then(|| Index::load(store, monitor)).transpose()?;
        for _ in 0..PARENTS_TRIED {
            let earlier = find()?;
            let parents = earlier.base_ids();
            let session = begin_session(store, snapshot, parents.clone())?;
            store.prefetch(&BEGINNING);
            if snapshots::are_wanted(store, &parents)? {
                return Ok((Self::with(store, session, ahead.take(), monitor)?, earlier));
            }
            session.end()?;
        }
        Err(Error::new(
            Kind::Busy,
            "other processes forget snapshots faster than this backup can start",
        )
        .advice("run this command again"))
    }

    fn with(
        store: &'a Store,
        session: OpenSession<'a>,
        ahead: Option<Index<'a>>,
        monitor: &'a Monitor,
    ) -> Result<Self> {
        store.refuse_older_keys()?;
        let is_doubtful = drop_superseded(store, &session, monitor);
        let index = match ahead {
            Some(index) => {
                index.refresh_packs()?;
                index
            }
            None => Index::load(store, monitor)?,
        };
        let mut acknowledger = Acknowledger::new(session.session.id);
        acknowledger.poll(store, &index)?;
        Ok(Writer { session, acknowledger, index, is_doubtful })
    }
}

fn begin_session(
    store: &Store,
    snapshot: SnapshotId,
    parents: Vec<SnapshotId>,
) -> Result<OpenSession<'_>> {
    sessions::begin_then(store, Work::Backup, snapshot.0, parents, Some(&WITH_SESSION))
}

/// Removes the superseded index runs that a member brought back after an absence, and reports that
/// member. Returns whether the removed runs may have been the only ones to record some lost packs.
fn drop_superseded(store: &Store, session: &OpenSession<'_>, monitor: &Monitor) -> bool {
    if store.is_append_only() {
        return false;
    }
    let dropped = index::drop_superseded(store, Some(session.session.id)).and_then(|dropped| {
        if !dropped.is_empty() {
            stale::report(store, &index::stale_members(store, &dropped)?, stale::REMOVED, monitor);
        }
        Ok(dropped)
    });
    match dropped {
        Ok(dropped) => dropped.iter().any(|run| run.is_unreadable),
        Err(error) => {
            monitor.warning(
                "index runs",
                error.advice("the index runs were not removed; no data is lost"),
            );
            false
        }
    }
}
