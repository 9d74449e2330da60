//! The sessions of writers: a session is put before the writer reads anything, and removed after
//! its commit.
//!
//! A session is not a lock. A session lists the snapshots on which its writer depends, so that a
//! collector keeps these and waits for an answer before it deletes anything else. A session that
//! its writer did not remove has ended if its commit object exists, if its process has certainly
//! ended, or if a void has the name of the commit object ([`fence`]).

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{CondemnationId, SessionId, SnapshotId};
use pinstripe_member::gc::{DeletionStep, GcObject};
use pinstripe_member::session::{Process, Session, Work, id_with_heartbeats};
use pinstripe_member::{
    ExtentKind, ExtentName, PrefetchHint, SharedMember, is_of_an_earlier_boot, process_is_gone,
};

use super::Store;
use super::objects::{Belief, KindObjects, Quorum};

/// A session of this process. Dropping it removes the session, as far as the members allow.
pub struct OpenSession<'a> {
    store: &'a Store,
    /// The content of the session object.
    pub session: Session,
    is_open: bool,
}

/// Returns the name of a session's object.
pub fn name_of(id: SessionId) -> ExtentName {
    ExtentName::In(ExtentKind::Sessions, id.0)
}

/// Begins a session. After this, every collector waits for the session's answer, so anything that
/// the writer relies on must be read later. `commit` is the name of the object that is put at the
/// end. A session that lasts more than some minutes has heartbeats (`pipeline/heartbeat.rs`); the
/// session's id announces them, so a short session puts no object for that.
///
/// # Errors
/// Fails with the errors of the members, when too few accepted the session.
pub fn begin<'a>(
    store: &'a Store,
    work: Work,
    commit: [u8; 16],
    parents: Vec<SnapshotId>,
) -> Result<OpenSession<'a>> {
    begin_then(store, work, commit, parents, None)
}

/// Begins a session as [`begin`] does. The caller then prefetches the listings of `then`, or some of
/// them.
///
/// # Errors
/// Fails with the errors of [`begin`].
pub(crate) fn begin_then<'a>(
    store: &'a Store,
    work: Work,
    commit: [u8; 16],
    parents: Vec<SnapshotId>,
    then: Option<&[PrefetchHint]>,
) -> Result<OpenSession<'a>> {
    let session = Session {
        store: store.config.store,
        id: id_with_heartbeats(store.new_name()?),
        work,
        commit,
        parents,
        process: store.process(),
    };
    let name = name_of(session.id);
    let put = store.put_all_then(name, &session.encode(), Quorum::Backup, then);
    // Built before the error is returned, so that dropping it removes the copies that were put.
    let open = OpenSession { store, session, is_open: true };
    put?;
    // A rotation puts its ring before it lists sessions: of the two at least one sees the other. A
    // backup checks the keys with its first listings, before it removes or seals anything.
    if work != Work::Backup {
        store.confirm_keys()?;
    }
    store.refuse_running_upgrade()?;
    if store.has_one_writer() {
        refuse_others(store, &open.session)?;
    }
    Ok(open)
}

/// Refuses a writer while another one is running, in a store that allows one writer at a time. Each
/// writer puts its session before it lists the others, so at least one of two writers sees the
/// other. A backup or an undelete does not prevent a gc, which waits for running writers and ends
/// the sessions of dead ones.
///
/// # Errors
/// Fails with [`Kind::Busy`] when another writer is running, or may be running.
pub(super) fn refuse_others(store: &Store, own: &Session) -> Result<()> {
    let is_in_the_way = |other: &Session| {
        let is_waited_for = matches!(other.work, Work::Backup | Work::Undelete);
        let is_gone = is_of_an_earlier_boot(&other.process, &own.process);
        let is_ours = other.process == own.process;
        !(is_gone || is_ours || own.work == Work::Collect && is_waited_for)
    };
    let mut others = at_work(store, Some(own.id), Quorum::Backup)?.into_iter();
    let Some(other) = others.find(is_in_the_way) else { return Ok(()) };
    let is_near = own.process.machine != [0; 16] && other.process.machine == own.process.machine;
    let what = format!(
        "session {} (process {} on {} machine) is writing to this store, which allows only one \
         writer at a time, because a member's endpoint does not support create-if-absent",
        other.id.short(),
        other.process.pid,
        if is_near { "this" } else { "another" },
    );
    Err(Error::new(Kind::Busy, what).advice(format!(
        "let the session finish, then run this command again; if its machine has stopped, run \
         'pinstripe gc --fence {}'",
        other.id.short()
    )))
}

impl OpenSession<'_> {
    /// The name of its object.
    pub(crate) fn name(&self) -> ExtentName {
        name_of(self.session.id)
    }

    /// Ends it.
    ///
    /// # Errors
    /// Fails with a member's own error; the session then remains on that member until its process
    /// has ended.
    pub fn end(mut self) -> Result<()> {
        self.is_open = false;
        self.store.drop_all(name_of(self.session.id))
    }

    /// Verifies that the session's commit object is on the members. A void that ended this session
    /// has the same name, and an endpoint without create-if-absent may have overwritten it with the
    /// commit object: then this call removes the commit object again.
    ///
    /// # Errors
    /// Fails with [`Kind::Busy`] when the session was ended, or with the errors of the members.
    pub(crate) fn confirm_commit(&self) -> Result<()> {
        if !self.store.has_one_writer() || self.stands() {
            return Ok(());
        }
        self.store.delete_all(commit_of(&self.session))?;
        Err(Error::new(Kind::Busy, "'pinstripe gc' ended this session while it was writing")
            .advice("run this command again: it continues from its last checkpoint"))
    }

    /// Whether any member still has the session; if none does, another process ended it.
    pub fn stands(&self) -> bool {
        let name = name_of(self.session.id);
        self.store.present().any(|(_, member)| member.len(name).is_ok())
    }
}

impl Drop for OpenSession<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // A session that cannot be removed now has ended when this process ends.
            let _ = self.store.drop_all(name_of(self.session.id));
        }
    }
}

/// The name of the object that a session puts last.
fn commit_of(session: &Session) -> ExtentName {
    let kind = match session.work {
        Work::Backup => ExtentKind::Snapshots,
        Work::Undelete => ExtentKind::Forgotten,
        Work::Collect | Work::Rebalance => ExtentKind::Gc,
    };
    ExtentName::In(kind, session.commit)
}

/// Returns all sessions. A session without an intact copy counts only if enough members have it
/// that its writer may have continued; otherwise the write or the removal was interrupted.
///
/// # Errors
/// Fails with the errors of [`Store::objects`], or with [`Kind::Corrupt`] when a session that
/// counts has no intact copy, because the snapshots on which it depends are unknown.
pub fn load(store: &Store, quorum: Quorum) -> Result<Vec<Session>> {
    let found = list(store, quorum)?;
    let mut unsound = found.unsound.into_iter();
    if let Some((name, error)) = unsound.find(|(name, _)| !is_cut_off(store, *name)) {
        return Err(error.at(name.path()).advice(
            "this file describes a running backup, and the data that this backup needs is unknown; \
             if no backup is running, remove this file from all members",
        ));
    }
    Ok(found.sound.into_values().collect())
}

/// Returns the sessions whose process may be running, except `own`.
///
/// # Errors
/// Fails with the errors of [`load`].
pub(crate) fn at_work(
    store: &Store,
    own: Option<SessionId>,
    quorum: Quorum,
) -> Result<Vec<Session>> {
    let process = store.process();
    let runs = |it: &Session| Some(it.id) != own && !is_dead(it, &process);
    Ok(load(store, quorum)?.into_iter().filter(runs).collect())
}

/// Returns the sessions whose process may be running, without those that no member can read. This
/// function is for callers that remove unreadable sessions.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub(crate) fn readable_at_work(
    store: &Store,
    own: Option<SessionId>,
    quorum: Quorum,
) -> Result<Vec<Session>> {
    let process = store.process();
    let runs = |it: &Session| Some(it.id) != own && !is_dead(it, &process);
    Ok(list(store, quorum)?.sound.into_values().filter(runs).collect())
}

/// Returns the names of sessions that cannot be read and that no process can continue: all members
/// are present, and none has an intact copy. More copies of such a session are damaged than parity
/// replaces.
///
/// # Errors
/// Fails with the errors of [`Store::objects`].
pub fn cut_off(store: &Store, quorum: Quorum) -> Result<Vec<ExtentName>> {
    let found = list(store, quorum)?;
    let is_all_there = store.absent().next().is_none();
    let names = found.unsound.into_iter().map(|(name, _)| name);
    let cut_off = names.filter(|_| is_all_there);
    Ok(cut_off.chain(found.strays.into_iter().map(|(name, _)| name)).collect())
}

/// A session only makes other processes more cautious, so one member that has it is enough.
fn list(store: &Store, quorum: Quorum) -> Result<KindObjects<Session>> {
    store.objects(ExtentKind::Sessions, quorum, Belief::One, |id, bytes| read(store, id, bytes))
}

/// Whether fewer members have an object than its writer needed to continue, with all members
/// present.
fn is_cut_off(store: &Store, name: ExtentName) -> bool {
    let has = |member: &SharedMember| !matches!(member.len(name), Err(error) if error.kind() == Kind::NotFound);
    let holders = store.present().filter(|(_, member)| has(member)).count();
    store.absent().next().is_none() && holders < store.least_members(Quorum::Backup)
}

/// Reads one session.
///
/// # Errors
/// Fails with [`Kind::Corrupt`] if the bytes are not a session, or belong to another name.
pub fn read(store: &Store, id: [u8; 16], bytes: &[u8]) -> Result<Session> {
    let session = Session::decode(bytes)?;
    store.verify(name_of(SessionId(id)), bytes)?;
    if session.id.0 != id || session.store != store.config.store {
        return Err(Error::new(
            Kind::Corrupt,
            "the content of this session object does not match its name",
        ));
    }
    Ok(session)
}

/// Whether a session's process has certainly ended.
pub(crate) fn is_dead(session: &Session, own: &Process) -> bool {
    process_is_gone(&session.process, own)
}

/// Ends a session from outside, whether or not its process is running: its commit object cannot be
/// put any more. Nothing that was committed is changed. A collector past its point of no return
/// loses only its session: the next collector finishes its list.
///
/// # Errors
/// Fails with [`Kind::Refused`] while a member is absent, since the writer might put its commit
/// object there, or with [`Kind::Busy`] when the writer was faster and has finished.
pub fn fence(store: &Store, session: &Session) -> Result<()> {
    if store.absent().next().is_some() {
        return Err(Error::new(
            Kind::Refused,
            "a session cannot be ended while a member is absent",
        )
        .advice("attach all members, then try again"));
    }
    let void = GcObject {
        store: store.config.store,
        condemnation: CondemnationId(session.commit),
        by: session.id,
        step: DeletionStep::Void { session: session.id },
    };
    let put = store.put_all(commit_of(session), &void.encode(), Quorum::Deletion);
    match put {
        // The reaping object exists: all agreed to its list, and every gc that deletes it deletes
        // the same.
        Err(error) if error.kind() == Kind::Exists && session.work == Work::Collect => {}
        Err(error) if error.kind() == Kind::Exists => {
            let what = format!(
                "session {} finished its work before this command could end it",
                session.id.short()
            );
            return Err(Error::new(Kind::Busy, what).advice("run this command again"));
        }
        put => put?,
    }
    store.delete_all(name_of(session.id))
}
