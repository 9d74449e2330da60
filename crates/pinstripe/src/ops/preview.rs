//! `restore --dry-run`: lists what a restore would create, change and remove. Writes nothing.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::restore::{Delete, RestoreOptions, Selection, refuse_beyond_reason, refuse_losses};
use super::select::{Selected, select};
use crate::pipeline::restore::{
    self, ChosenReader, FoundDirectory, LinkedFiles, Pass, RestorePlan, Reuse,
};
use crate::sink::{RemovedCount, TreeSink};
use crate::store::Store;
use crate::store::index::Index;
use crate::store::packs::PackReader;
use crate::store::tree::SEE_WHAT_IS_LOST;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::beneath::shown;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::snapshot::Snapshot;

/// What a restore does with one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It is missing.
    Make,
    /// The target has an entry that differs in kind, content or metadata.
    Change,
    /// The target has the same entry already.
    Keep,
    /// The target has an entry that the snapshot does not have.
    Remove,
}

/// The number of entries and bytes of one kind of action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActTally {
    /// Entries of all kinds.
    pub entries: u64,
    /// Bytes of content that would be written, kept or removed.
    pub bytes: u64,
}

/// The actions of a restore, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preview {
    /// Entries that the target lacks.
    pub make: ActTally,
    /// Entries that differ; the bytes are those that would be written.
    pub change: ActTally,
    /// Entries that are kept, and bytes that are kept in them and in entries that change.
    pub keep: ActTally,
    /// Entries that the snapshot does not have.
    pub remove: ActTally,
}

/// Gets the action for an entry, its path in the target, the bytes to write or remove, and the entry
/// of the snapshot, if it has one.
pub(crate) type ShowAct<'a> = &'a mut dyn FnMut(Act, PathBuf, u64, Option<&Entry>) -> Result<()>;

/// Compares the target with the snapshot, and passes every entry that a restore would change to
/// `show`. The preview refuses what a restore would refuse, and reports what a restore could not
/// restore as a loss in the ledger.
///
/// # Errors
/// Fails with the errors that would keep the restore from beginning, or with the errors of `show`.
pub fn run(
    store: &Store,
    options: &RestoreOptions<'_>,
    monitor: &Monitor,
    show: ShowAct<'_>,
) -> Result<(Snapshot, Preview)> {
    options.check()?;
    let named = select(store, options.snapshot, options.path, monitor)?;
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let Selected { snapshot, below } = named.settle(&packs, &index, monitor);
    let selection =
        Selection { packs: &packs, index: &index, snapshot: &snapshot, below: &below, options };
    selection.require()?;
    if options.delete == Some(Delete::WithinReason) {
        refuse_losses(&snapshot)?;
    }
    let mut preview = Preview::default();
    let Some(sink) = TreeSink::inspect(options.to, options.rules_to_look())? else {
        make_all(&selection, monitor, &mut preview, show)?;
        options.filter.report_unmet(monitor)?;
        return Ok((snapshot, preview));
    };
    let sink = sink.with_named(selection.named());
    selection.check_above(&sink)?;
    let mut plan = selection.plan(&sink, store.keys()?, b"", monitor);
    if options.reuse.is_some() {
        plan.linked = LinkedFiles::read(&plan, &mut selection.entries(Some(&sink))?);
    }
    look(&plan, &mut selection.entries(Some(&sink))?, &mut preview, show)?;
    options.filter.report_unmet(monitor)?;
    if options.delete.is_some() {
        let removed = remove(&plan, &selection, &mut preview, show)?;
        if options.delete == Some(Delete::WithinReason) {
            refuse_beyond_reason(&selection, removed)?;
        }
    }
    Ok((snapshot, preview))
}

/// Handles a target that does not exist: everything would be created.
fn make_all(
    selection: &Selection<'_>,
    monitor: &Monitor,
    preview: &mut Preview,
    show: ShowAct<'_>,
) -> Result<()> {
    let mut tree = selection.entries(None)?;
    let mut linked = HashSet::new();
    while let Some(entry) = next(&mut tree, monitor) {
        let path = restore::target_path(selection.strip(), &entry);
        if path.is_empty() {
            continue; // The target itself.
        }
        let is_first = !entry.is_hard_linked() || linked.insert((entry.device, entry.inode));
        let bytes = if is_first { data_of(&entry) } else { 0 };
        add(&mut preview.make, bytes);
        show(Act::Make, selection.options.to.join(shown(path)), bytes, Some(&entry))?;
    }
    Ok(())
}

/// Counts what would be removed, and passes it to `show`.
fn remove(
    plan: &RestorePlan<'_>,
    selection: &Selection<'_>,
    preview: &mut Preview,
    show: ShowAct<'_>,
) -> Result<RemovedCount> {
    let mut shown = Ok(());
    let mut tell = |path: &[u8], removed: RemovedCount| {
        preview.remove.entries += removed.entries;
        preview.remove.bytes += removed.bytes;
        if shown.is_ok() {
            shown = show(Act::Remove, plan.place(path), removed.bytes, None);
        }
    };
    let (mut tree, sources) = (selection.entries(Some(plan.sink))?, &selection.snapshot.sources);
    let removed = restore::extras(plan, &mut tree, sources, Pass::Preview, &mut tell);
    shown.map(|()| removed)
}

/// Determines the action for every entry of the snapshot.
fn look(
    plan: &RestorePlan<'_>,
    reader: &mut ChosenReader<'_>,
    preview: &mut Preview,
    show: ShowAct<'_>,
) -> Result<()> {
    let mut firsts = HashMap::new();
    while let Some(entry) = next(reader, plan.monitor) {
        let path = plan.target_path(&entry).to_vec();
        let (act, bytes) = match judge(plan, reader, &entry, &path, &mut firsts) {
            Ok(Some(judged)) => judged,
            Ok(None) => continue,
            Err(error) => {
                plan.lose(&path, error);
                continue;
            }
        };
        match act {
            Act::Make => add(&mut preview.make, bytes),
            Act::Keep => add(&mut preview.keep, size_of(&entry)),
            _ => {
                add(&mut preview.change, bytes);
                preview.keep.bytes += size_of(&entry).saturating_sub(bytes);
            }
        }
        if act != Act::Keep {
            show(act, plan.place(&path), bytes, Some(&entry))?;
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

/// The number of bytes to write for a complete file: its length without holes.
fn data_of(entry: &Entry) -> u64 {
    entry.data_extents().iter().map(|range| range.end - range.start).sum()
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

/// The first name of a file, to which its later names would be linked.
struct PreviewName {
    path: Vec<u8>,
    /// The restore would make a new file: the present one has other names or other content.
    is_new: bool,
}

type PreviewNames = HashMap<(u64, u64), PreviewName>;

/// Returns the action for an entry, and the number of content bytes to write. Returns `None` for
/// the target directory itself, if it is not changed.
///
/// # Errors
/// Fails with the reason why the entry would be lost.
fn judge(
    plan: &RestorePlan<'_>,
    tree: &mut ChosenReader<'_>,
    entry: &Entry,
    path: &[u8],
    firsts: &mut PreviewNames,
) -> Result<Option<(Act, u64)>> {
    if entry.meta.kind == FileKind::Directory {
        return Ok(directory(plan, entry, path).map(|act| (act, 0)));
    }
    let otherwise = if plan.sink.has(path) { Act::Change } else { Act::Make };
    if plan.sink.is_directory(path) {
        plan.sink.check_clear(path)?;
    }
    let key = (entry.device, entry.inode);
    if let Some(first) = firsts.get(&key).filter(|_| entry.is_hard_linked()) {
        let stays = plan.reuse.is_some() && !first.is_new;
        let is_linked = stays && plan.sink.are_linked(&first.path, path);
        return Ok(Some((if is_linked { Act::Keep } else { otherwise }, 0)));
    }
    let (act, bytes, is_new) = match entry.meta.kind {
        FileKind::File => file(plan, tree, entry, path, otherwise),
        _ => {
            let is_as_wanted =
                plan.reuse.is_some() && plan.sink.is_as_wanted(path, &entry.target, &entry.meta);
            (if is_as_wanted { Act::Keep } else { otherwise }, 0, !is_as_wanted)
        }
    };
    if entry.is_hard_linked() {
        firsts.insert(key, PreviewName { path: path.to_vec(), is_new });
    }
    Ok(Some((act, bytes)))
}

fn directory(plan: &RestorePlan<'_>, entry: &Entry, path: &[u8]) -> Option<Act> {
    if path.is_empty() && !plan.sink.may_hold_anything() {
        return None;
    }
    match plan.find_directory(entry)? {
        FoundDirectory::Missing if plan.sink.has(path) => Some(Act::Change),
        FoundDirectory::Missing => Some(Act::Make),
        FoundDirectory::Different => Some(Act::Change),
        // The target directory is not an entry of the snapshot.
        FoundDirectory::Same => (!path.is_empty()).then_some(Act::Keep),
    }
}

/// Returns the action for a file under its first name, the number of bytes to write, and whether a
/// new file is made.
fn file(
    plan: &RestorePlan<'_>,
    tree: &mut ChosenReader<'_>,
    entry: &Entry,
    path: &[u8],
    otherwise: Act,
) -> (Act, u64, bool) {
    let Some(reuse) = plan.reuse else { return (otherwise, data_of(entry), true) };
    let Some(existing) = plan.sink.existing(path) else { return (otherwise, data_of(entry), true) };
    let is_taken = reuse == Reuse::ByTime
        && existing.looks_like(entry.size, &entry.meta)
        && plan.linked.may_trust(entry);
    let bytes = match tree.content(&entry.content) {
        _ if is_taken => 0,
        Ok(rows) => restore::differing_bytes(plan, &existing, entry, &rows),
        Err(_) => data_of(entry),
    };
    let has_content = is_taken
        || (bytes == 0
            && existing.size_bytes() == entry.size
            && existing.is_zero_outside(&entry.data_extents()));
    let has_metadata = existing.has_metadata(&entry.meta);
    let key = entry.is_hard_linked().then_some((entry.device, entry.inode));
    let is_new = !has_content || (!has_metadata && !plan.linked.has_all_names(key, &existing));
    (if has_content && has_metadata { Act::Keep } else { Act::Change }, bytes, is_new)
}
