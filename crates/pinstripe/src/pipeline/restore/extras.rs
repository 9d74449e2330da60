//! Entries of the target that the snapshot lacks: counted or, when that was asked for, removed.

use std::collections::HashSet;

use super::{ChosenReader, RestorePlan};
use crate::format::entry::Entry;
use crate::format::meta::FileKind;
use crate::format::tree::is_at_or_below;
use crate::sink::{Removal, RemovedCount};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;

/// A directory of the snapshot whose names are being gathered.
struct Open {
    entry: Entry,
    names: HashSet<Vec<u8>>,
    /// Whether all names below it could be read: where one is missing, nothing is removed.
    is_complete: bool,
}

/// Goes through every directory of the snapshot at and below `sources`, where what was backed up is
/// all that there was, and removes or counts what else the target has there. `show` is given each
/// name with all that was at and below it.
pub fn extras(
    plan: &RestorePlan<'_>,
    tree: &mut ChosenReader<'_>,
    sources: &[Vec<u8>],
    removal: Removal,
    show: &mut dyn FnMut(&[u8], RemovedCount),
) -> RemovedCount {
    let mut removed = RemovedCount::default();
    let mut open: Vec<Open> = Vec::new();
    let is_whole = |entry: &Entry| {
        let trimmed = |source: &Vec<u8>| source.strip_prefix(b"/").unwrap_or(source).to_vec();
        sources.iter().any(|source| is_at_or_below(&entry.path, &trimmed(source)))
    };
    let mut close = |open: &mut Vec<Open>, until: Option<&Entry>| {
        let is_done =
            |last: &Open| until.is_none_or(|entry| !is_at_or_below(&entry.path, &last.entry.path));
        while let Some(last) = open.pop_if(|last| is_done(last)) {
            if last.is_complete && is_whole(&last.entry) {
                in_directory(plan, &last, removal, &mut removed, show);
            }
        }
    };
    loop {
        let entry = match tree.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            // Reported by the first pass.
            Err(_) => {
                open.iter_mut().for_each(|directory| directory.is_complete = false);
                continue;
            }
        };
        close(&mut open, Some(&entry));
        if let Some(directory) = open.last_mut() {
            let name = entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&entry.path);
            directory.names.insert(name.to_vec());
        }
        if entry.meta.kind == FileKind::Directory {
            open.push(Open { entry, names: HashSet::new(), is_complete: true });
        }
    }
    close(&mut open, None);
    removed
}

fn in_directory(
    plan: &RestorePlan<'_>,
    directory: &Open,
    removal: Removal,
    all: &mut RemovedCount,
    show: &mut dyn FnMut(&[u8], RemovedCount),
) {
    let path = plan.below(&directory.entry.path);
    let names = match plan.sink.extra(path, &directory.names) {
        Ok(names) => names,
        Err(error) => {
            plan.tell(path, error);
            return;
        }
    };
    for name in names {
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        let extra = [path, slash, &name].concat();
        let mut removed = RemovedCount::default();
        let done = plan.sink.remove(&extra, removal, &mut removed);
        all.entries += removed.entries;
        all.bytes += removed.bytes;
        if removal == Removal::Done {
            plan.monitor.add(Counter::RemovedEntries, removed.entries);
            plan.monitor.add(Counter::RemovedBytes, removed.bytes);
        }
        match done {
            Ok(()) => show(&extra, removed),
            Err(error) if removal == Removal::Counted && error.kind() != Kind::Refused => {
                plan.tell(&extra, error);
            }
            Err(error) if error.kind() == Kind::Refused => {
                if removal == Removal::Done {
                    plan.monitor.warning(plan.place(&extra), error);
                }
            }
            Err(error) => drop(plan.tell(&extra, error)),
        }
    }
}
