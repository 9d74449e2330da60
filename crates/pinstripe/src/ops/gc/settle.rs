//! Settles what other processes left: condemnations of dead gcs are finished or withdrawn, sessions
//! of dead writers are ended. This module also does the deletion itself, which is the same for a
//! condemnation of this gc and one that this gc takes over.

use std::collections::BTreeSet;

use super::Collector;
use super::at_work::{all_sessions, remove_cut_off};
use super::roots::names;
use super::survey::bytes_of;
use crate::store::deletion::decide::{self, CaseAction, Go};
use crate::store::objects::Quorum;
use crate::store::{Store, checkpoints, deletion, forgotten, heartbeats, sessions, snapshots};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::id::{CondemnationId, SessionId, SnapshotId, find_by_name};
use pinstripe_io::pool::each;
use pinstripe_member::gc::{DeletionStep, Lists};
use pinstripe_member::session::{Session, Work};
use pinstripe_member::{ExtentName, SharedMember, is_of_an_earlier_boot};

/// Settles what dead gcs left. Returns the condemnations that had been carried out already.
///
/// # Errors
/// Fails with [`Kind::Busy`] when another process is about to undelete what one of them was
/// deleting, or with the errors of the members.
pub(super) fn inherit(gc: &Collector<'_>) -> Result<BTreeSet<CondemnationId>> {
    remove_cut_off(gc.store)?;
    end_those_of_earlier_boots(gc.store)?;
    gc.end_silent()?;
    let own = gc.session.session.id;
    let cases = deletion::load(gc.store, Quorum::Deletion)?;
    // No other gc is running, or loading would have said so.
    for name in deletion::unreadable(gc.store)? {
        gc.store.delete_all(name)?;
    }
    let working: BTreeSet<SessionId> =
        gc.others_at_work()?.into_iter().map(|session| session.id).collect();
    let mut done = BTreeSet::new();
    for (id, case) in cases.0 {
        let is_left = case.condemned.is_some() || case.reaping.is_some() || !case.acks.is_empty();
        if case.tombstone.is_some() {
            done.insert(id);
        }
        if !is_left {
            continue;
        }
        let is_at_work = case.by.is_some_and(|by| working.contains(&by));
        let has = (case.condemned.is_some(), case.reaping.is_some(), case.tombstone.is_some());
        match decide::judge(has.0, has.1, has.2, is_at_work) {
            CaseAction::Leave => {}
            CaseAction::Clear => deletion::clear(gc.store, id, &case)?,
            CaseAction::Withdraw => deletion::withdraw(gc.store, id, &case)?,
            CaseAction::Resume => {
                let lists = case.reaping.clone().unwrap_or_default();
                if may_reap(gc, id, &lists)? {
                    carry_out(gc, id, case.by.unwrap_or(own), &lists)?;
                    done.insert(id);
                } else {
                    deletion::withdraw(gc.store, id, &case)?;
                }
            }
        }
    }
    Ok(done)
}

/// The last check, after REAPING: returns `false` if another process has undeleted a snapshot of
/// the lists in time.
///
/// # Errors
/// Fails with [`Kind::Busy`] when another process is about to undelete one, for longer than the
/// wait allows.
pub(super) fn may_reap(gc: &Collector<'_>, id: CondemnationId, lists: &Lists) -> Result<bool> {
    let mut go = Go::Wait;
    gc.wait(|| {
        gc.store.refuse_older_keys()?;
        // In this order: sessions, marks, the condemnation.
        let sessions = gc.others_at_work()?;
        let marks = forgotten::load(gc.store, Quorum::Deletion)?;
        let stands = deletion::stands(gc.store, id)?;
        go = decide::last_look(lists, &sessions, &marks, stands);
        let wants = |it: &Session| lists.snapshots.iter().any(|(id, _)| it.parents.contains(id));
        Ok(match go {
            Go::Wait => sessions.into_iter().filter(wants).collect(),
            _ => Vec::new(),
        })
    })?;
    Ok(go == Go::Reap)
}

/// Deletes what a condemnation lists, records that it is deleted, and removes the objects of the
/// condemnation; `by` is the session that began it. Returns the bytes that were freed. Several
/// processes may do this at once, with the same result.
///
/// # Errors
/// Fails with the errors of the members; the next gc continues.
pub(super) fn carry_out(
    gc: &Collector<'_>,
    id: CondemnationId,
    by: SessionId,
    lists: &Lists,
) -> Result<u64> {
    let bytes = bytes_of(gc.store, &lists.packs);
    let members: Vec<&SharedMember> = gc.store.present().map(|(_, member)| member).collect();
    each(members.len(), &members, |member| {
        let packs = lists.packs.iter().map(|set| ExtentName::pack(*set));
        let snapshots = lists.snapshots.iter().map(|(id, _)| *id).chain(lists.abandoned.clone());
        let mut names = packs.chain(snapshots.map(ExtentName::snapshot));
        let deleted = names.try_for_each(|name| member.delete(name)).and_then(|()| member.sync());
        gc.store.or_without(member, deleted)
    })?;
    deletion::put(gc.store, id, by, DeletionStep::Tombstone(lists.clone()), Quorum::Deletion)?;
    // A member that joined meanwhile has REAPING and lacks the tombstone: a later gc deletes there, too.
    gc.store.confirm_table()?;
    let cases = deletion::load(gc.store, Quorum::Deletion)?;
    let case = cases.0.get(&id).cloned().unwrap_or_default();
    deletion::clear(gc.store, id, &case)?;
    Ok(bytes)
}

/// Whether a session's process has certainly ended. This process ends its own sessions itself.
fn is_dead(store: &Store, session: &Session) -> bool {
    let own = store.process();
    session.process != own && sessions::is_dead(session, &own)
}

/// Returns the sessions whose process has certainly ended, or that have ended themselves.
fn ended(store: &Store) -> Result<Vec<Session>> {
    let sessions = all_sessions(store)?;
    let names = names(store)?;
    let is_ended = |it: &Session| is_dead(store, it) || decide::is_over(it, &names);
    Ok(sessions.into_iter().filter(is_ended).collect())
}

/// Writes each snapshot that is kept to every present member that lacks it. If its writer died
/// during the commit, a snapshot may be on a single member; if that member were absent at the next
/// gc, the snapshot would be unknown there, and its data would be deleted. Members without space
/// for the snapshot are skipped if enough members have it that every later gc finds one: gc itself
/// frees space.
///
/// # Errors
/// Fails with the errors of the members.
pub(super) fn spread(store: &Store, roots: &BTreeSet<SnapshotId>) -> Result<()> {
    for name in roots.iter().map(|id| ExtentName::snapshot(*id)) {
        let lacks = |member: &&SharedMember| matches!(member.len(name), Err(error) if error.kind() == Kind::NotFound);
        let lacking: Vec<_> = store.present().map(|(_, member)| member).filter(lacks).collect();
        if lacking.is_empty() {
            continue;
        }
        let sound = |bytes: &[u8]| {
            checkpoints::refuse(&snapshots::open(store, bytes)?).map(|()| bytes.to_vec())
        };
        let bytes = store.read_object(name, sound)?;
        let mut holders = store.present().count() - lacking.len();
        let mut full = None;
        for member in lacking {
            match member.put(name, &bytes) {
                Ok(()) => holders += 1,
                Err(error) if error.kind() == Kind::Exists => holders += 1,
                Err(error) if error.kind() == Kind::NoSpace => full = full.or(Some(error)),
                Err(error) => store.or_without(member, Err(error))?,
            }
        }
        let may_be_absent = store.all_members() - store.least_members(Quorum::Deletion);
        if let Some(error) = full.filter(|_| holders <= may_be_absent) {
            return Err(error);
        }
    }
    Ok(())
}

/// Snapshots that dead writers would have made and that no present member has, although an absent
/// member may have them.
///
/// # Errors
/// Fails with the errors of [`sessions::load`].
pub(super) fn abandoned(store: &Store) -> Result<Vec<SnapshotId>> {
    if store.absent().next().is_none() {
        return Ok(Vec::new());
    }
    let mut sessions = all_sessions(store)?;
    sessions.retain(|session| session.work == Work::Backup && is_dead(store, session));
    // In this order: a writer that was dead before has put all that it ever will.
    let names = names(store)?;
    let commits = sessions.into_iter().map(|session| SnapshotId(session.commit));
    Ok(commits.filter(|id| !names.contains(id)).collect::<BTreeSet<_>>().into_iter().collect())
}

/// Removes sessions that have no effect any more; returns their number.
///
/// # Errors
/// Fails with the errors of the members.
pub(super) fn remove_ended(gc: &Collector<'_>) -> Result<u64> {
    let mut removed = 0;
    remove_cut_off(gc.store)?;
    for session in ended(gc.store)? {
        if session.id != gc.session.session.id {
            gc.store.delete_all(sessions::name_of(session.id))?;
            removed += 1;
        }
    }
    heartbeats::remove_others(gc.store)?;
    Ok(removed)
}

/// Ends the sessions of processes that ran before this machine was last booted: they have ended, if
/// the machine id is not a copy. A session is ended as if from outside, which is harmless even if
/// its process does run.
fn end_those_of_earlier_boots(store: &Store) -> Result<()> {
    let own = store.process();
    for session in all_sessions(store)? {
        let is_old = is_of_an_earlier_boot(&session.process, &own);
        if is_old && store.absent().next().is_none() {
            match sessions::fence(store, &session) {
                // It ended before it died, or another process ends it now.
                Err(error) if error.kind() == Kind::Busy => {}
                fenced => fenced?,
            }
        }
    }
    Ok(())
}

/// Ends the session whose id begins with this text, even if its process is running.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no id begins with this text, with [`Kind::Usage`] when
/// several do, or with the errors of [`sessions::fence`].
pub fn fence(store: &Store, name: &str) -> Result<Session> {
    store.refuse_older_keys()?;
    let list = sessions::load(store, Quorum::Deletion)?;
    let found = find_by_name(&list, |session| session.id, name, "session");
    let session = found.map_err(|error| match error.kind() {
        Kind::NotFound => error.advice("this session has already ended; run 'pinstripe gc' again"),
        _ => error.advice("give more digits of the session's id"),
    })?;
    sessions::fence(store, session)?;
    Ok(session.clone())
}
