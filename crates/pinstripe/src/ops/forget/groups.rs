//! The groups to which `forget` applied its rules, and which of them get no more snapshots.

use std::time::Duration;

use super::Verdict;
use crate::store::snapshots;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::snapshot::Snapshot;
use pinstripe_stripe::{Candidate, GroupBy, GroupKey, KeepReason, retention_groups};

/// A group is idle if its newest snapshot is older than this, and the store has a newer one.
const IDLE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Snapshots to which the rules were applied together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What the snapshots have in common.
    pub key: GroupKey,
    /// Their positions in the list of verdicts, oldest snapshot first.
    pub positions: Vec<usize>,
    /// Set if the group gets no more snapshots.
    pub idle: Option<Idle>,
}

/// The last sign of a group that gets no more snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// The position of the newest snapshot in the list of verdicts.
    pub newest: usize,
    /// The age of that snapshot.
    pub age: Duration,
}

/// The groups of the snapshots that were judged; `known` has all snapshots of the store.
pub(super) fn of(
    verdicts: &[Verdict],
    candidates: &[Candidate],
    by: GroupBy,
    known: &[Snapshot],
    now: (i64, u32),
) -> Vec<Group> {
    let behind = snapshots::behind(known, now);
    let is_active = known.iter().any(|it| {
        snapshots::created(it) <= now && !behind.contains(&it.id) && age(it, now) <= IDLE_AGE
    });
    let group = |(key, positions): (GroupKey, Vec<usize>)| {
        let idle = if is_active { idle(verdicts, &positions, now) } else { None };
        Group { key, positions, idle }
    };
    retention_groups(candidates, by).into_iter().map(group).collect()
}

/// Whether the newest snapshot of a group is too old. Snapshots with a wrong time do not count. A
/// group without any kept snapshot is not idle, but gone.
fn idle(verdicts: &[Verdict], positions: &[usize], now: (i64, u32)) -> Option<Idle> {
    let is_real = |at: &usize| !verdicts[*at].reasons.iter().any(KeepReason::is_wrong_time);
    let newest = positions.iter().copied().filter(is_real).max_by_key(|&at| {
        // The later one in the list is newer if the times are equal.
        (snapshots::created(&verdicts[at].snapshot), at)
    })?;
    let age = age(&verdicts[newest].snapshot, now);
    let is_left = positions.iter().any(|&at| verdicts[at].stays());
    (age > IDLE_AGE && is_left).then_some(Idle { newest, age })
}

fn age(snapshot: &Snapshot, now: (i64, u32)) -> Duration {
    Duration::from_secs(now.0.abs_diff(snapshot.created_seconds))
}

/// Refuses rules that keep no snapshot of a group.
///
/// # Errors
/// Fails with [`Kind::Refused`], and describes the group.
pub(super) fn refuse_empty(groups: &[Group], verdicts: &[Verdict]) -> Result<()> {
    let is_empty = |group: &&Group| group.positions.iter().all(|&at| !verdicts[at].stays());
    let Some(group) = groups.iter().find(is_empty) else { return Ok(()) };
    let what = format!("these rules would forget all snapshots{}", describe(&group.key));
    Err(Error::new(Kind::Refused, what)
        .expected("at least one kept snapshot of each group", 0)
        .advice("add --keep-last 1; if this is intended, add --allow-empty"))
}

fn describe(key: &GroupKey) -> String {
    let mut text = String::new();
    if key.sources.is_some() {
        text += " of a set of paths";
    }
    if let Some(host) = &key.host {
        text += &format!(" of the host {}", String::from_utf8_lossy(host));
    }
    match key.tags.as_deref() {
        None => {}
        Some([]) => text += " without tags",
        Some(tags) => text += &format!(" with the tags {}", tags.join(", ")),
    }
    text
}
