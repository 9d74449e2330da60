//! `forget` and `undelete`: mark snapshots as not wanted any more, and undo that.
//!
//! Forgetting deletes nothing: it puts a mark, and the snapshot is not shown any more and not used
//! as a parent. As long as the snapshot's packs exist, `undelete` reverses the mark.

mod groups;

pub use groups::{Group, Idle};

use crate::store::choice::{SnapshotChoice, SnapshotName, find};
use crate::store::deletion::decide;
use crate::store::objects::Quorum;
use crate::store::snapshots::{self, Known};
use crate::store::{Store, deletion, forgotten, sessions};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{NAME_MIN_DIGITS, SnapshotId};
use pinstripe_base::monitor::Monitor;
use pinstripe_member::ExtentKind;
use pinstripe_member::forgotten::Mark;
use pinstripe_member::session::Work;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::{Candidate, GroupBy, KeepReason, Policy, keep_reasons};

/// Which snapshots to forget.
pub enum ForgetChoice<'a> {
    /// All snapshots that no rule keeps.
    Policy {
        /// The rules.
        policy: &'a Policy,
        /// The local clock's seconds east of UTC at a moment: days begin by this clock.
        offset_at: &'a dyn Fn(i64) -> i32,
        /// The current time, as seconds since 1970 and nanoseconds: a later snapshot is from the
        /// future.
        now: (i64, u32),
    },
    /// The snapshots given by the beginning of their ids, or by `latest`.
    Named(&'a [String]),
}

/// Options of `forget`.
pub struct ForgetOptions<'a> {
    /// The choice.
    pub choice: ForgetChoice<'a>,
    /// Rules are applied to these snapshots only, and names may mean these; the others are kept.
    pub among: &'a SnapshotChoice,
    /// The rules are applied separately to each group of snapshots that have these in common.
    pub group_by: GroupBy,
    /// Decide only.
    pub dry_run: bool,
    /// Allow that no snapshot is left in the store, or of one host.
    pub allow_empty: bool,
}

impl<'a> ForgetOptions<'a> {
    /// Options that forget what is chosen among all snapshots, but not all snapshots.
    pub fn new(choice: ForgetChoice<'a>) -> Self {
        ForgetOptions {
            choice,
            among: SnapshotChoice::any(),
            group_by: GroupBy::default(),
            dry_run: false,
            allow_empty: false,
        }
    }
}

/// The decision about one snapshot.
pub struct Verdict {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The reasons why the snapshot is kept; empty if it is to be forgotten.
    pub reasons: Vec<KeepReason>,
}

impl Verdict {
    /// Whether it stays.
    pub fn stays(&self) -> bool {
        !self.reasons.is_empty()
    }
}

/// The decisions about all snapshots that were examined.
pub struct ForgetOutcome {
    /// The decisions, oldest snapshot first.
    pub verdicts: Vec<Verdict>,
    /// The groups to which the rules were applied; none if the snapshots were named.
    pub groups: Vec<Group>,
}

/// Applies the rules to the snapshots, oldest first, and marks those to be forgotten unless it is a
/// dry run.
///
/// # Errors
/// Fails with [`Kind::Usage`] when there is no rule, with [`Kind::NotFound`] when no snapshot has
/// the name or is chosen, with [`Kind::Refused`] when nothing would be left.
pub fn run(store: &Store, options: &ForgetOptions<'_>, monitor: &Monitor) -> Result<ForgetOutcome> {
    let known = snapshots::load(store, monitor)?;
    let outcome = match &options.choice {
        ForgetChoice::Policy { policy, offset_at, now } => {
            by_rules(&known, policy, options, (*now, *offset_at), monitor)?
        }
        ForgetChoice::Named(names) => {
            let verdicts = named(store, &known, names, options.among, monitor)?;
            let left = known.len().saturating_sub(verdicts.len());
            if left == 0 && !known.is_empty() && !options.allow_empty {
                return Err(Error::new(
                    Kind::Refused,
                    "this would forget all snapshots of the store",
                )
                .advice("if this is intended, add --allow-empty"));
            }
            ForgetOutcome { verdicts, groups: Vec::new() }
        }
    };
    if !options.dry_run {
        let gone = outcome.verdicts.iter().filter(|verdict| !verdict.stays());
        mark_all(store, gone.map(|verdict| verdict.snapshot.id))?;
    }
    Ok(outcome)
}

/// Applies the rules to the snapshots that are chosen among all known ones.
fn by_rules(
    known: &[Snapshot],
    policy: &Policy,
    options: &ForgetOptions<'_>,
    (now, offset_at): ((i64, u32), &dyn Fn(i64) -> i32),
    monitor: &Monitor,
) -> Result<ForgetOutcome> {
    if policy.is_empty() {
        return Err(Error::new(
            Kind::Usage,
            "there is no rule that decides which snapshots are kept",
        )
        .advice(
            "give at least one option --keep-..., write rules under [retention] in the config \
             file, or give the snapshots to forget",
        ));
    }
    let judged: Vec<_> = match known.is_empty() {
        true => Vec::new(),
        false => options.among.require(known.iter())?.into_iter().cloned().collect(),
    };
    note_unknown_tags(policy, &judged, monitor);
    snapshots::warn_of_clocks(&judged, monitor);
    let behind = snapshots::behind(&judged, now);
    let candidates: Vec<_> =
        judged.iter().map(|it| candidate(it, behind.contains(&it.id))).collect();
    let reasons = keep_reasons(policy, options.group_by, &candidates, now, offset_at);
    let verdicts = judged.into_iter().zip(reasons);
    let verdicts: Vec<_> =
        verdicts.map(|(snapshot, reasons)| Verdict { snapshot, reasons }).collect();
    let groups = groups::of(&verdicts, &candidates, options.group_by, known, now);
    if !options.allow_empty {
        groups::refuse_empty(&groups, &verdicts)?;
    }
    Ok(ForgetOutcome { verdicts, groups })
}

/// Notes the tags of the rules that no snapshot has.
fn note_unknown_tags(policy: &Policy, judged: &[Snapshot], monitor: &Monitor) {
    let is_known = |tag: &String| judged.iter().any(|it| it.tags.contains(tag));
    for tag in policy.tags.iter().filter(|tag| !is_known(tag)) {
        monitor.note(&format!("no snapshot has the tag '{tag}' of --keep-tag"));
    }
}

fn candidate(snapshot: &Snapshot, is_behind: bool) -> Candidate {
    Candidate {
        created: (snapshot.created_seconds, snapshot.created_nanos),
        host: snapshot.host.clone(),
        sources: snapshot.sources.clone(),
        tags: snapshot.tags.clone(),
        is_behind,
    }
}

fn named(
    store: &Store,
    known: &[Snapshot],
    names: &[String],
    choice: &SnapshotChoice,
    monitor: &Monitor,
) -> Result<Vec<Verdict>> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for name in names {
        let snapshot = find(known, SnapshotName { name, choice }, monitor)?;
        if verdicts.iter().all(|verdict| verdict.snapshot.id != snapshot.id) {
            // Read again from the members: a snapshot to mark must exist.
            let snapshot = snapshots::read(store, snapshot.id)?;
            verdicts.push(Verdict { snapshot, reasons: Vec::new() });
        }
    }
    Ok(verdicts)
}

/// Forgets a snapshot that has no intact object on any member, so that only its id is known.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when no member has an object of this name.
pub fn forget_damaged(store: &Store, id: SnapshotId) -> Result<()> {
    let listed = store.list(ExtentKind::Snapshots)?;
    if !listed.contains_key(&id.0) {
        return Err(Error::new(Kind::NotFound, format!("there is no snapshot '{id}'"))
            .advice("'pinstripe snapshots' lists the snapshots"));
    }
    mark_all(store, std::iter::once(id))
}

/// The number of times that marks are put. A repair sets aside the copies of a mark that it finds on
/// too few members, and restores them if the mark counts by then: so the copies are counted after
/// the mark was put, and put again if some are missing.
const MARK_TRIES: usize = 3;

/// Marks snapshots as forgotten.
fn mark_all(store: &Store, ids: impl Iterator<Item = SnapshotId>) -> Result<()> {
    store.confirm_keys()?;
    let marks = forgotten::load(store, Quorum::Backup)?;
    let ids: Vec<_> = ids.collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids = ids.into_iter().filter(|id| !marks.is_forgotten(*id));
    let put = ids.map(|id| mark(store, &marks, id));
    let mut put = put.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
    for _ in 0..MARK_TRIES {
        // Also if other processes put all marks: after an upgrade, these may not count.
        confirm_members(store)?;
        // A mark with a MAC counts on any member.
        if put.is_empty() || store.has_macs() {
            return Ok(());
        }
        let (holders, unlisted) = store.list_by_members(ExtentKind::Forgotten)?;
        let count = |mark: &Mark| holders.get(&mark.name()).map_or(0, Vec::len);
        put.retain(|(mark, took)| count(mark) + unlisted.len() < *took);
        for (mark, took) in &mut put {
            *took = forgotten::put(store, mark)?;
        }
    }
    Err(Error::new(
        Kind::Busy,
        "another process removed the marks of forgotten snapshots that were just written",
    )
    .advice("let the other process finish, then run this command again"))
}

/// Verifies that the members that have the mark are still those of the store, and that the store's
/// format is still that of the mark: a mark counts by the votes of the members in the current
/// table, and after an upgrade by its MAC.
fn confirm_members(store: &Store) -> Result<()> {
    store.confirm_takers()?;
    store.refuse_running_upgrade()?;
    store.confirm_table()
}

/// Puts marks of rising generations until one is accepted; returns it with the number of members
/// that have it, or `None` if the snapshot is forgotten already. A generation may be in use
/// ([`is_taken`]).
fn mark(
    store: &Store,
    marks: &forgotten::Marks,
    snapshot: SnapshotId,
) -> Result<Option<(Mark, usize)>> {
    let mut mark = forgotten::next_mark(store, marks, snapshot);
    if !mark.is_forgotten() {
        return Ok(None);
    }
    loop {
        match forgotten::put(store, &mark) {
            Err(error) if is_taken(&error) => mark.generation = mark.generation.saturating_add(2),
            put => return put.map(|took| Some((mark, took))),
        }
    }
}

/// Whether the name of a mark is in use: by the same mark of another process, by the void of a
/// session that was ended from outside, or on too many members by objects that count for nothing, as
/// a mark of format version 1 that was put during an upgrade.
fn is_taken(error: &Error) -> bool {
    matches!(error.kind(), Kind::Exists | Kind::Corrupt)
}

/// Makes a forgotten snapshot wanted again.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when there is no such snapshot or it is deleted, with
/// [`Kind::Busy`] when it is being deleted, with [`Kind::Usage`] when its name is ambiguous.
pub fn undelete<'n>(
    store: &Store,
    name: impl Into<SnapshotName<'n>>,
    monitor: &Monitor,
) -> Result<Snapshot> {
    let known = snapshots::load_all(store, monitor)?;
    let id = find_forgotten(&known, name.into(), monitor)?;
    let marks = forgotten::load(store, Quorum::Backup)?;
    let mut next = forgotten::next_mark(store, &marks, id);
    loop {
        // A gc lists sessions after its point of no return; this checks for that point after its
        // own session is put. So at least one of the two sees the other.
        let session = sessions::begin(store, Work::Undelete, next.name(), vec![id])?;
        refuse_reaped(store, id)?;
        let snapshot = snapshots::read(store, id).map_err(|error| match error.kind() {
            Kind::NotFound => gone(id),
            _ => error,
        })?;
        let put = if next.is_forgotten() { Ok(()) } else { forgotten::put(store, &next).map(drop) };
        if put.is_ok() {
            session.confirm_commit()?;
        }
        session.end()?;
        match put {
            Err(error) if is_taken(&error) => {
                next.generation = next.generation.saturating_add(2);
            }
            put => {
                put?;
                confirm_members(store)?;
                return Ok(snapshot);
            }
        }
    }
}

fn refuse_reaped(store: &Store, id: SnapshotId) -> Result<()> {
    let cases = deletion::load(store, Quorum::Backup)?;
    if !decide::is_too_late(id, cases.reaping_by_any(), cases.tombstones_by_any()) {
        return Ok(());
    }
    Err(gone(id))
}

fn gone(id: SnapshotId) -> Error {
    Error::new(
        Kind::NotFound,
        format!("the packs of snapshot {} were deleted or are being deleted", id.short()),
    )
    .advice("the snapshot can no longer be restored")
}

/// Finds a forgotten snapshot by the beginning of its id; `latest` means the latest forgotten one.
fn find_forgotten(
    known: &[Known],
    name: SnapshotName<'_>,
    monitor: &Monitor,
) -> Result<SnapshotId> {
    let forgotten: Vec<_> = (known.iter().filter(|known| known.is_forgotten))
        .map(|known| known.snapshot.clone())
        .collect();
    match find(&forgotten, name, monitor) {
        Ok(snapshot) => Ok(snapshot.id),
        Err(error) if error.kind() == Kind::NotFound => {
            let name = name.name;
            let is_kept = known.iter().any(|it| {
                let begins = it.snapshot.id.to_string().starts_with(name);
                !it.is_forgotten && name.len() >= NAME_MIN_DIGITS && begins
            });
            let what = if is_kept {
                format!("snapshot {name} is not forgotten")
            } else {
                format!("there is no forgotten snapshot '{name}'")
            };
            Err(Error::new(Kind::NotFound, what)
                .advice("'pinstripe snapshots --all' also lists forgotten snapshots"))
        }
        Err(error) => Err(error),
    }
}
