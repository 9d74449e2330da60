//! `restore --dry-run`: lists what a restore would create, change and remove. Writes nothing.

use std::path::PathBuf;

use super::restore::{RestoreOptions, Selection};
use super::select::{Selected, select};
use crate::format::entry::Entry;
use crate::format::meta::FileKind;
use crate::format::snapshot::Snapshot;
use crate::pipeline::restore::{self, ChosenReader, FirstNames, RestorePlan, Reuse};
use crate::sink::{Removal, RemovedCount, TreeSink};
use crate::store::Store;
use crate::store::index::Index;
use crate::store::packs::PackReader;
use crate::store::tree::SEE_WHAT_IS_LOST;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::beneath::shown;

/// The action for one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It is not there.
    Make,
    /// Something else is there, or it differs in content or metadata.
    Change,
    /// It is as it should be.
    Keep,
    /// The snapshot does not have it.
    Remove,
}

/// Entries and bytes of one act.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActTally {
    /// Entries of all kinds.
    pub entries: u64,
    /// Content bytes that would be written, kept or removed.
    pub bytes: u64,
}

/// The actions of a restore, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preview {
    /// Entries that are not there.
    pub make: ActTally,
    /// Entries that differ; their bytes are those that differ.
    pub change: ActTally,
    /// Entries that stay, and bytes that stay in them and in entries that change.
    pub keep: ActTally,
    /// Entries that the snapshot does not have.
    pub remove: ActTally,
}

/// Looks, and shows every entry that would not stay as it is.
///
/// # Errors
/// Those with which the restore itself would not begin; those of `show`.
pub fn run(
    store: &Store,
    options: &RestoreOptions<'_>,
    monitor: &Monitor,
    show: &mut dyn FnMut(Act, PathBuf, u64) -> Result<()>,
) -> Result<(Snapshot, Preview)> {
    options.check()?;
    let Selected { snapshot, below } = select(store, options.snapshot, options.path, monitor)?;
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let selection =
        Selection { packs: &packs, index: &index, snapshot: &snapshot, below: &below, options };
    selection.require()?;
    let mut preview = Preview::default();
    let Some(sink) = TreeSink::look(options.to, options.rules_to_look())? else {
        let mut tree = selection.entries()?;
        while let Some(entry) = next(&mut tree, monitor) {
            let bytes = size_of(&entry);
            add(&mut preview.make, bytes);
            let place = options.to.join(shown(&entry.path));
            show(Act::Make, place, bytes)?;
        }
        return Ok((snapshot, preview));
    };
    let plan = selection.plan(&sink, store.keys()?, b"", monitor);
    look(&plan, &mut selection.entries()?, &mut preview, show)?;
    if options.delete.is_some() {
        let mut shown = Ok(());
        let mut tell = |path: &[u8], removed: RemovedCount| {
            add(&mut preview.remove, removed.bytes);
            preview.remove.entries += removed.entries.saturating_sub(1);
            if shown.is_ok() {
                shown = show(Act::Remove, plan.place(path), removed.bytes);
            }
        };
        let mut tree = selection.entries()?;
        restore::extras(&plan, &mut tree, &snapshot.sources, Removal::Counted, &mut tell);
        shown?;
    }
    Ok((snapshot, preview))
}

/// Determines the action for every entry of the snapshot.
fn look(
    plan: &RestorePlan<'_>,
    reader: &mut ChosenReader<'_>,
    preview: &mut Preview,
    show: &mut dyn FnMut(Act, PathBuf, u64) -> Result<()>,
) -> Result<()> {
    let mut first_names = FirstNames::new();
    while let Some(entry) = next(reader, plan.monitor) {
        let path = plan.target_path(&entry).to_vec();
        if entry.meta.kind == FileKind::Directory && plan.below(&entry.path).is_empty() {
            continue; // The target itself.
        }
        let (act, bytes) = judge(plan, reader, &entry, &path, &mut first_names);
        match act {
            Act::Make => add(&mut preview.make, bytes),
            Act::Keep => add(&mut preview.keep, size_of(&entry)),
            _ => {
                add(&mut preview.change, bytes);
                preview.keep.bytes += size_of(&entry).saturating_sub(bytes);
            }
        }
        if act != Act::Keep {
            show(act, plan.place(&path), bytes)?;
        }
    }
    Ok(())
}

fn add(tally: &mut ActTally, bytes: u64) {
    tally.entries += 1;
    tally.bytes += bytes;
}

fn size_of(entry: &Entry) -> u64 {
    if entry.meta.kind == FileKind::File { entry.size } else { 0 }
}

fn next(tree: &mut ChosenReader<'_>, monitor: &Monitor) -> Option<Entry> {
    loop {
        match tree.next_entry() {
            Ok(entry) => return entry,
            Err(error) => {
                monitor.add(Counter::LostEntries, tree.lost_entries());
                monitor.loss("snapshot", error.advice(SEE_WHAT_IS_LOST));
            }
        }
    }
}

/// The action for an entry, and the bytes of its content to write.
fn judge(
    plan: &RestorePlan<'_>,
    tree: &mut ChosenReader<'_>,
    entry: &Entry,
    path: &[u8],
    first_names: &mut FirstNames,
) -> (Act, u64) {
    let is_there = plan.sink.has(path);
    let or_make = |act| if is_there { act } else { Act::Make };
    if entry.is_hard_linked() {
        let first = first_names.entry((entry.device, entry.inode)).or_insert_with(|| path.to_vec());
        if first != path {
            let is_linked = plan.sink.are_linked(first, path);
            return (if is_linked { Act::Keep } else { or_make(Act::Change) }, 0);
        }
    }
    match entry.meta.kind {
        FileKind::File => {
            let Some(existing) = plan.sink.existing(path) else {
                return (or_make(Act::Change), entry.size);
            };
            let is_taken =
                plan.reuse == Some(Reuse::ByTime) && existing.looks_like(entry.size, &entry.meta);
            let bytes = match (plan.reuse, tree.content(&entry.content)) {
                _ if is_taken => 0,
                (Some(_), Ok(rows)) => restore::differing_bytes(plan, &existing, entry, &rows),
                _ => entry.size,
            };
            let is_same = bytes == 0
                && existing.size_bytes() == entry.size
                && existing.has_metadata(&entry.meta);
            (if is_same { Act::Keep } else { Act::Change }, bytes)
        }
        // Its time moves with every change in it: no change of its own.
        FileKind::Directory if plan.sink.is_directory(path) => (Act::Keep, 0),
        _ if plan.sink.is_as_wanted(path, &entry.target, &entry.meta) => (Act::Keep, 0),
        _ => (or_make(Act::Change), 0),
    }
}
