//! Finds out whether any snapshot has extended attributes that programs request for every entry.
//!
//! Backups count the entries that have ACLs or SELinux labels. Trees of snapshots from before these
//! counts are scanned, each page once, unless that would cost requests to a remote member. Until a
//! scan shows that no entry has such an attribute, each entry is read when a program requests one:
//! slow, but correct.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::SnapshotTree;
use pinstripe_base::id::{ChunkId, SnapshotId};
use pinstripe_base::monitor::Counter;
use pinstripe_base::sync::lock;
use pinstripe_member::meta::{ACL_PREFIX, LABEL};
use pinstripe_member::snapshot::Snapshot;

/// The number of pages that are remembered as scanned: if there are more, pages are scanned again.
const PAGES: usize = 1 << 18;

/// Which of the rare attributes exist on any entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct AttributePresence {
    acls: bool,
    labels: bool,
}

/// Whether no shown snapshot has ACLs, and whether none has SELinux labels.
#[derive(Default)]
pub(super) struct RareAttributes {
    no_acls: AtomicBool,
    no_labels: AtomicBool,
    scan: Mutex<RareScan>,
}

#[derive(Default)]
struct RareScan {
    /// Snapshots that were scanned; `None` for those that could not be scanned.
    scanned: HashMap<SnapshotId, Option<AttributePresence>>,
    /// Pages without ACLs and labels.
    pages: HashSet<ChunkId>,
}

impl RareAttributes {
    /// Whether no snapshot has an attribute of this name.
    pub(super) fn has_nowhere(&self, name: &[u8]) -> bool {
        if name.starts_with(ACL_PREFIX) {
            return self.no_acls.load(Ordering::Relaxed);
        }
        name == LABEL && self.no_labels.load(Ordering::Relaxed)
    }

    fn report(&self, all: Option<AttributePresence>) {
        self.no_acls.store(all.is_some_and(|all| !all.acls), Ordering::Relaxed);
        self.no_labels.store(all.is_some_and(|all| !all.labels), Ordering::Relaxed);
    }
}

impl SnapshotTree {
    /// Records the snapshots that are shown; returns whether a tree must be scanned.
    pub(super) fn note_attributes(&self) -> bool {
        let scan = lock(&self.rare.scan);
        let (mut all, mut is_open) = (Some(AttributePresence::default()), false);
        for snapshot in self.top().shown_now() {
            let scanned = scan.scanned.get(&snapshot.id);
            is_open |= counted(snapshot).is_none() && scanned.is_none();
            let known = counted(snapshot).or_else(|| scanned.copied().flatten());
            all = all.zip(known).map(|(all, known)| AttributePresence {
                acls: all.acls || known.acls,
                labels: all.labels || known.labels,
            });
        }
        drop(scan);
        self.rare.report(all);
        is_open && !self.store.is_far()
    }

    /// Scans the trees of snapshots without counts. Ends early when `stop` is set.
    pub(super) fn scan_attributes(&self, stop: &AtomicBool) {
        if !self.note_attributes() {
            return;
        }
        let shown: Vec<_> = {
            let top = self.top();
            let open = top.shown_now().filter(|snapshot| counted(snapshot).is_none());
            open.map(|snapshot| (snapshot.id, snapshot.root)).collect()
        };
        let mut scan = lock(&self.rare.scan);
        for (id, root) in shown {
            if scan.scanned.contains_key(&id) {
                continue;
            }
            let mut found = AttributePresence::default();
            let pages = &mut scan.pages;
            let is_whole = self.pages.look_through(&root, &mut |id, page| {
                let Some(entries) = page else { return !pages.contains(id) };
                let acls = entries.iter().any(|entry| entry.meta.has_acl());
                let labels = entries.iter().any(|entry| entry.meta.has_label());
                found =
                    AttributePresence { acls: found.acls || acls, labels: found.labels || labels };
                // Only what has none is the same for every snapshot that shares it.
                if !acls && !labels && pages.len() < PAGES {
                    pages.insert(*id);
                }
                !stop.load(Ordering::Relaxed)
            });
            if stop.load(Ordering::Relaxed) {
                return;
            }
            scan.scanned.insert(id, is_whole.then_some(found));
        }
        drop(scan);
        self.note_attributes();
    }
}

/// Returns a backup's own counts; `None` if it has none.
fn counted(snapshot: &Snapshot) -> Option<AttributePresence> {
    let count = |wanted: Counter| {
        let (_, name) = Counter::ALL.iter().find(|(counter, _)| *counter == wanted)?;
        snapshot.counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    };
    let (acls, labels) = (count(Counter::AclEntries)?, count(Counter::LabelEntries)?);
    Some(AttributePresence { acls: acls > 0, labels: labels > 0 })
}
