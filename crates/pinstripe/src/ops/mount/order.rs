//! Files that are read one after the other in the order of the tree: the next ones are fetched ahead.

use super::SnapshotTree;
use crate::format::meta::FileKind;
use crate::format::snapshot::TreeRoot;
use pinstripe_base::sync::lock;

/// Files in the order of the tree that were read one after the other, until the next ones are
/// fetched ahead.
const FILES_IN_ORDER: u32 = 3;
/// Entries between two files that are still read in the order of the tree.
const NEAR_ENTRIES: u64 = 64;
/// Entries of which the content is fetched ahead.
const ENTRIES_AHEAD: u64 = 256;
/// The object in whose name files are fetched that no one has opened.
const FILES_AHEAD: u64 = u64::MAX;

/// The way in which files are read one after the other.
#[derive(Default)]
pub(super) struct ReadOrder {
    ordinal: u64,
    last: u64,
    files: u32,
    /// The first entry that was not fetched ahead.
    next: u64,
}

impl SnapshotTree {
    /// Sends for the content of the files that come next, when files are read in the order of the
    /// tree: a copy of a directory becomes a restore.
    pub(super) fn fetch_next_files(&self, root: &TreeRoot, ordinal: u64, number: u64) {
        let (from, to) = {
            let mut order = lock(&self.order);
            let is_next = order.ordinal == ordinal
                && number > order.last
                && number - order.last <= NEAR_ENTRIES;
            order.files = if is_next { order.files + 1 } else { 0 };
            (order.ordinal, order.last) = (ordinal, number);
            if order.files < FILES_IN_ORDER {
                order.next = number + 1;
                return;
            }
            let from = order.next.max(number + 1);
            let to = number + ENTRIES_AHEAD;
            if from + ENTRIES_AHEAD / 2 > to {
                return;
            }
            order.next = to;
            (from, to)
        };
        let mut bytes = 0;
        let mut next = self.pages.at(root, from).ok().flatten();
        while let Some(found) = next
            && found.number() < to
            && bytes < self.options.budget / 8
        {
            let entry = found.entry();
            if entry.meta.kind == FileKind::File && entry.size > 0 {
                let length = entry.size.min(1 << 20);
                self.content.fetch_ahead(&self.pages, FILES_AHEAD, entry, 0..length);
                bytes += length;
            }
            next = found.next().or_else(|| self.pages.at(root, found.number() + 1).ok().flatten());
        }
    }
}
