//! `tag`: gives a snapshot other tags or another comment.
//!
//! Snapshot objects never change. A new snapshot of the same tree is committed, then the old one is
//! forgotten. A run that ends between the two steps leaves both.

use super::backup::{Ancestry, Writer, end, prepare};
use super::forget::{self, ForgetChoice, ForgetOptions};
use crate::pipeline;
use crate::pipeline::backup::{BackupPlan, Ending, Tree};
use crate::pipeline::heartbeat;
use crate::pipeline::limits::Limits;
use crate::store::choice::{SnapshotName, find};
use crate::store::{Store, snapshots};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::SnapshotId;
use pinstripe_base::monitor::Monitor;
use pinstripe_member::snapshot::Snapshot;
use std::sync::atomic::AtomicBool;

/// A change of the tags of a snapshot.
#[derive(Debug, Clone, Copy)]
pub enum TagEdit<'a> {
    /// These tags are added.
    Add(&'a [String]),
    /// These tags are removed.
    Remove(&'a [String]),
    /// The snapshot has these tags only.
    Set(&'a [String]),
}

impl TagEdit<'_> {
    /// The tags after the change, without duplicates.
    fn apply(self, tags: &[String]) -> Vec<String> {
        let (kept, added): (&[String], &[String]) = match self {
            TagEdit::Add(added) => (tags, added),
            TagEdit::Remove(_) => (tags, &[]),
            TagEdit::Set(set) => (&[], set),
        };
        let is_removed = |tag: &String| matches!(self, TagEdit::Remove(tags) if tags.contains(tag));
        let mut after = Vec::new();
        for tag in kept.iter().filter(|tag| !is_removed(tag)).chain(added) {
            if !after.contains(tag) {
                after.push(tag.clone());
            }
        }
        after
    }
}

/// The change of a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct TagOptions<'a> {
    /// The tags.
    pub tags: TagEdit<'a>,
    /// The new comment; none if it is empty; `None` keeps the old one.
    pub comment: Option<&'a str>,
    /// Decide only.
    pub dry_run: bool,
}

/// The snapshot before and after the change.
#[derive(Debug)]
pub struct Tagged {
    /// The snapshot as it was, which is forgotten now.
    pub before: Snapshot,
    /// The snapshot that took its place; `None` if nothing was to change. In a dry run, it has the
    /// id of `before`.
    pub after: Option<Snapshot>,
}

/// Gives a snapshot other tags or another comment.
///
/// # Errors
/// Fails with [`Kind::NotFound`] if there is no such snapshot, with [`Kind::NotAllowed`] for a host
/// that may only append, and with the errors of a backup and of [`forget::run`].
pub fn run<'n>(
    store: &Store,
    name: impl Into<SnapshotName<'n>>,
    options: &TagOptions<'_>,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Tagged> {
    refuse_append_only(store)?;
    let name = name.into();
    let known = snapshots::load(store, monitor)?;
    let before = find(&known, name, monitor)?.clone();
    let tags = options.tags.apply(&before.tags);
    let comment = options.comment.unwrap_or(&before.comment).to_owned();
    if tags == before.tags && comment == before.comment {
        return Ok(Tagged { before, after: None });
    }
    let after = Snapshot { tags, comment, parent: Some(before.id), ..before.clone() };
    if options.dry_run {
        return Ok(Tagged { before, after: Some(after) });
    }
    // A run that was killed may have committed it.
    let is_it = |it: &&Snapshot| Snapshot { id: before.id, ..(*it).clone() } == after;
    let after = match known.iter().find(is_it) {
        Some(there) => there.clone(),
        None => commit(store, &before, after, limits, monitor)?,
    };
    let old = [before.id.to_string()];
    let options =
        ForgetOptions { allow_empty: true, ..ForgetOptions::new(ForgetChoice::Named(&old)) };
    forget::run(store, &options, monitor).map_err(|error| {
        let (old, new) = (before.id.short(), after.id.short());
        error.advice(format!(
            "snapshot {new} was made; forget the old one with 'pinstripe forget {old}'"
        ))
    })?;
    Ok(Tagged { before, after: Some(after) })
}

fn refuse_append_only(store: &Store) -> Result<()> {
    if !store.is_append_only() {
        return Ok(());
    }
    Err(Error::new(Kind::NotAllowed, "this token may only append: it cannot replace a snapshot")
        .advice("give tags and a comment to 'pinstripe backup', or use a token of another role"))
}

/// Commits `after`, a snapshot of the tree of `before`, under a new id.
fn commit(
    store: &Store,
    before: &Snapshot,
    after: Snapshot,
    limits: &Limits,
    monitor: &Monitor,
) -> Result<Snapshot> {
    prepare(store, monitor);
    let after = Snapshot { id: SnapshotId(store.new_name()?), ..after };
    let (cutter, codec) = pipeline::backup::cutting(store)?;
    let find = || {
        let known = snapshots::load(store, monitor)?;
        let found = find(&known, &*before.id.to_string(), monitor)?;
        Ok(Ancestry::of(found.clone()))
    };
    let (Writer { session, mut acknowledger, index, .. }, _) =
        Writer::begin_after(store, after.id, monitor, find)?;
    let stop = AtomicBool::new(false);
    let plan = BackupPlan {
        store,
        index: &index,
        tree: Tree::Stored(after.root),
        cutter: &cutter,
        codec,
        limits: limits.for_chunks(cutter.max_bytes()),
        checkpoint_due: None,
        checkpoint_waits: false,
        stop: &stop,
        ending: Ending { session: session.name(), superseded: Vec::new(), unless: None },
    };
    let describe = |_, _| after.clone();
    let (after, _) = heartbeat::beside(store, &session, || {
        pipeline::backup::run(plan, &mut acknowledger, monitor, &describe)
    })?;
    end(store, session, monitor)?;
    Ok(after)
}
