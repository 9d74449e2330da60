//! Entries of the target that the snapshot lacks, and directories where it has an entry of another
//! type: these are counted or, on request, removed.
//!
//! Removal stays on the mounts of the directories that the user named: another mount in the target
//! is kept, with everything in it. A directory that the backup did not enter, or only crossed, is
//! incomplete in the snapshot: nothing is removed in it.

use std::collections::HashSet;

use super::{ChosenReader, RestorePlan};
use crate::sink::{RemovedCount, RemovedFiles, WantedNames};
use pinstripe_base::error::{Error, Kind};
use pinstripe_base::monitor::{Counter, EntryAct};
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::tree::is_at_or_below;

/// What a pass over the target does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Count, and leave the reports to the pass that removes.
    Count,
    /// Count, and report what would not be removed.
    Preview,
    /// Remove. Remove; directories in the way are removed later by what replaces them.
    Remove,
}

/// A directory of the snapshot whose names are being collected.
struct Open {
    entry: Entry,
    names: WantedNames,
    /// Whether all names below the directory could be read: if a name may be missing, nothing is
    /// removed.
    is_complete: bool,
}

/// The state of a pass.
struct Extras<'p, 'a> {
    plan: &'p RestorePlan<'a>,
    sources: Vec<&'p [u8]>,
    pass: Pass,
    removed: RemovedCount,
    /// The files that were counted and not removed.
    counted: RemovedFiles,
    show: &'p mut dyn FnMut(&[u8], RemovedCount),
    /// Mount points that were reported.
    reported: HashSet<Vec<u8>>,
}

/// Visits every directory of the snapshot at and below `sources` whose entries were all backed up,
/// and removes or counts whatever else the target has there. `show` gets each name with everything
/// at and below it; for a directory in the way, each entry.
pub(crate) fn extras<'p>(
    plan: &'p RestorePlan<'_>,
    tree: &mut ChosenReader<'_>,
    sources: &'p [Vec<u8>],
    pass: Pass,
    show: &'p mut dyn FnMut(&[u8], RemovedCount),
) -> RemovedCount {
    let trimmed = |source: &'p Vec<u8>| source.strip_prefix(b"/").unwrap_or(source);
    let sources = sources.iter().map(trimmed).collect();
    let (removed, reported) = (RemovedCount::default(), HashSet::new());
    let counted = RemovedFiles::default();
    let mut extras = Extras { plan, sources, pass, removed, counted, show, reported };
    let mut open: Vec<Open> = Vec::new();
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
        extras.close(&mut open, Some(&entry));
        let is_directory = entry.meta.kind == FileKind::Directory;
        if let Some(directory) = open.last_mut() {
            let name = entry.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&entry.path);
            directory.names.insert(name.to_vec(), is_directory);
        } else if !is_directory {
            extras.alone(plan.target_path(&entry));
        }
        if is_directory {
            open.push(Open { entry, names: WantedNames::new(), is_complete: true });
        }
    }
    extras.close(&mut open, None);
    extras.removed
}

impl Extras<'_, '_> {
    /// Handles the directories that do not contain the next entry.
    fn close(&mut self, open: &mut Vec<Open>, until: Option<&Entry>) {
        let is_done =
            |last: &Open| until.is_none_or(|entry| !is_at_or_below(&entry.path, &last.entry.path));
        while let Some(last) = open.pop_if(|last| is_done(last)) {
            self.directory(&last);
        }
    }

    /// Whether the snapshot has everything that the directory had.
    fn is_whole(&self, directory: &Open) -> bool {
        let entry = &directory.entry;
        let is_entered = entry.links > 0;
        let is_below = |source: &&[u8]| is_at_or_below(&entry.path, source);
        directory.is_complete && is_entered && self.sources.iter().any(is_below)
    }

    fn directory(&mut self, directory: &Open) {
        let path = self.plan.below(&directory.entry.path);
        let found = match self.plan.sink.strangers(path, &directory.names) {
            Ok(found) => found,
            Err(error) => {
                self.plan.report(path, error);
                return;
            }
        };
        let join = |name: &[u8]| match path {
            [] => name.to_vec(),
            _ => [path, b"/", name].concat(),
        };
        if self.pass != Pass::Remove {
            found.in_the_way.iter().for_each(|name| self.in_the_way(&join(name)));
        }
        if !self.is_whole(directory) {
            return;
        }
        if found.is_elsewhere {
            return self.stays(path, found.extra.len());
        }
        found.extra.iter().for_each(|name| self.extra(&join(name)));
    }

    /// Handles an entry that is restored without its directory.
    fn alone(&mut self, path: &[u8]) {
        if self.pass != Pass::Remove && self.plan.sink.is_directory(path) {
            self.in_the_way(path);
        }
    }

    /// Counts a directory that is in the way of an entry of another type. If the directory stays,
    /// that is a loss, which is reported with the entry that cannot replace it.
    fn in_the_way(&mut self, path: &[u8]) {
        let mut each = Vec::new();
        let mut removed = RemovedCount::default();
        let show = &mut |path: &[u8], bytes| each.push((path.to_vec(), bytes));
        let sink = self.plan.sink;
        if sink.check_clear(path).is_err()
            || sink.count(path, &mut self.counted, &mut removed, show).is_err()
        {
            return;
        }
        self.removed.add(removed);
        for (path, bytes) in each {
            (self.show)(&path, RemovedCount { entries: 1, bytes });
        }
    }

    /// Reports, once for each mount, that entries which the snapshot lacks are kept in a directory
    /// on another mount than the directories that the user named.
    fn stays(&mut self, path: &[u8], names: usize) {
        if names == 0 || self.pass == Pass::Count {
            return;
        }
        let mount_point = self.plan.sink.mount_point_above(path);
        if self.reported.insert(mount_point.clone()) {
            let what = "a file system is mounted here: --delete removes nothing below this mount \
                        point";
            let error = Error::new(Kind::Refused, what);
            let advice = "give this directory as SNAPSHOT:PATH to remove extra files below it";
            self.plan.monitor.warning(self.plan.place(&mount_point), error.advice(advice));
        }
    }

    fn extra(&mut self, path: &[u8]) {
        let (plan, pass) = (self.plan, self.pass);
        let mut removed = RemovedCount::default();
        let done = match pass {
            Pass::Remove => plan.sink.remove(path, &mut removed, &mut |path, _| {
                plan.monitor.entry(EntryAct::Removed, || plan.place(path));
            }),
            Pass::Count | Pass::Preview => {
                plan.sink.count(path, &mut self.counted, &mut removed, &mut |_, _| ())
            }
        };
        self.removed.add(removed);
        if pass == Pass::Remove {
            plan.monitor.add(Counter::RemovedEntries, removed.entries);
            plan.monitor.add(Counter::RemovedBytes, removed.bytes);
        }
        match done {
            Ok(()) => (self.show)(path, removed),
            Err(error) if error.kind() == Kind::Refused => {
                if pass != Pass::Count {
                    plan.monitor.warning(plan.place(path), error);
                }
            }
            Err(error) => drop(plan.report(path, error)),
        }
    }
}
