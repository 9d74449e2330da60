//! Files with several names, as they are in the target before a restore in place changes it.
//!
//! A file of the target may be changed in place only if each of its names is also a name of the
//! same file in the snapshot and is restored: any other name would change with it. The content of
//! such a file is trusted by size and time only if all names are one file already: if names must be
//! linked again, a bad copy must not replace a good one.

use std::collections::HashMap;

use super::{ChosenReader, RestorePlan};
use crate::sink::Existing;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;

/// The file in the target that has the names of one file of the snapshot.
#[derive(Debug, Clone, Copy)]
struct Linked {
    /// Device and inode number under the first name.
    first: Option<(u64, u64)>,
    /// The number of names that lead to this file.
    names: u64,
    /// Every name found so far leads to the same file.
    is_one: bool,
}

/// The files of the snapshot with several names, by their device and inode number in the snapshot.
#[derive(Debug, Default)]
pub(crate) struct LinkedFiles(HashMap<(u64, u64), Linked>);

impl LinkedFiles {
    /// Looks up all names in the target.
    pub fn read(plan: &RestorePlan<'_>, tree: &mut ChosenReader<'_>) -> Self {
        let mut files = HashMap::<_, Linked>::new();
        loop {
            let entry = match tree.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => return LinkedFiles(files),
                // Reported by the first pass.
                Err(_) => continue,
            };
            let Some(key) = key(&entry) else { continue };
            let found = plan.sink.identity(plan.target_path(&entry));
            let linked = Linked { first: found, names: 0, is_one: true };
            let linked = files.entry(key).or_insert(linked);
            let is_same = found.is_some() && found == linked.first;
            linked.names += u64::from(is_same);
            linked.is_one &= is_same;
        }
    }

    /// Whether a file may be considered correct by its size and time alone.
    pub(crate) fn may_trust(&self, entry: &Entry) -> bool {
        key(entry).is_none_or(|key| self.0.get(&key).is_some_and(|it| it.is_one))
    }

    /// Whether every name of the existing file is a name of this entry's file.
    pub(crate) fn has_all_names(&self, entry: Option<(u64, u64)>, existing: &Existing) -> bool {
        let linked = entry.and_then(|key| self.0.get(&key));
        existing.names() < 2
            || linked.is_some_and(|it| {
                it.first == Some(existing.identity()) && it.names == existing.names()
            })
    }
}

/// Returns the device and inode number that identify a file with several names, or `None` if it has
/// only one.
pub fn key(entry: &Entry) -> Option<(u64, u64)> {
    let is_linked = entry.meta.kind == FileKind::File && entry.is_hard_linked();
    is_linked.then_some((entry.device, entry.inode))
}
