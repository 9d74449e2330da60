//! Files that are read one after the other in the order of the tree: the following files are
//! prefetched.
//!
//! Several programs may walk at once, or one program may walk through two snapshots (`diff -r`), so
//! each walk has its own position. The number of walks is bounded; files that are read in no order
//! begin walks that do not advance, and these are evicted before walks that do.

use super::SnapshotTree;
use pinstripe_base::sync::lock;
use pinstripe_member::meta::FileKind;
use pinstripe_member::snapshot::TreeRoot;
use std::ops::Range;

/// The number of files that must be read one after the other in the order of the tree before the
/// following files are prefetched.
const FILES_IN_ORDER: u32 = 3;
/// The largest distance, in entries, between two files that still count as read in the order of the
/// tree.
const NEAR_ENTRIES: u64 = 64;
/// The number of entries whose content is prefetched.
const ENTRIES_AHEAD: u64 = 256;
/// The number of walks that are tracked at once.
const WALKS: usize = 32;
/// The reader to which prefetching of unopened files is attributed.
const FILES_AHEAD: u64 = u64::MAX;

/// One way through a snapshot.
#[derive(Debug, Clone, Copy)]
struct SnapshotWalk {
    ordinal: u64,
    /// The entry that was read last.
    last: u64,
    /// The number of files read in order so far.
    files: u32,
    /// The first entry that was not prefetched yet.
    next: u64,
    /// The walk has advanced since the clock hand last passed it.
    is_recent: bool,
}

/// The current walks through snapshots, in which files are read one after the other.
#[derive(Debug, Default)]
pub(super) struct ReadOrder {
    walks: Vec<SnapshotWalk>,
    hand: usize,
}

impl ReadOrder {
    /// Records that a file is read; returns the entries to prefetch, if any.
    fn read(&mut self, ordinal: u64, number: u64) -> Option<Range<u64>> {
        let is_near = |walk: &SnapshotWalk| {
            walk.ordinal == ordinal && walk.last <= number && number - walk.last <= NEAR_ENTRIES
        };
        // The furthest of the walks near each other advances.
        let near = self.walks.iter_mut().filter(|walk| is_near(walk));
        let Some(walk) = near.max_by_key(|walk| walk.last) else {
            let next = number + 1;
            self.begin(SnapshotWalk { ordinal, last: number, files: 0, next, is_recent: false });
            return None;
        };
        walk.is_recent = true;
        // Reading the same file again does not advance.
        walk.files += u32::from(walk.last < number);
        walk.last = number;
        if walk.files < FILES_IN_ORDER {
            walk.next = number + 1;
            return None;
        }
        let ahead = walk.next.max(number + 1)..number + ENTRIES_AHEAD;
        if ahead.start + ENTRIES_AHEAD / 2 > ahead.end {
            return None;
        }
        walk.next = ahead.end;
        Some(ahead)
    }

    /// Stores a walk in a free slot, or in place of the first walk that has not advanced recently.
    fn begin(&mut self, walk: SnapshotWalk) {
        if self.walks.len() < WALKS {
            self.walks.push(walk);
            return;
        }
        while std::mem::take(&mut self.walks[self.hand].is_recent) {
            self.hand = (self.hand + 1) % WALKS;
        }
        self.walks[self.hand] = walk;
        self.hand = (self.hand + 1) % WALKS;
    }
}

impl SnapshotTree {
    /// Prefetches the content of the next files, when files are read in the order of the tree:
    /// copying a directory is then as fast as a restore.
    pub(super) fn fetch_next_files(&self, root: &TreeRoot, ordinal: u64, number: u64) {
        let Some(Range { start: from, end: to }) = lock(&self.order).read(ordinal, number) else {
            return;
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
            next = found
                .next()
                .or_else(|| self.pages.at(root, found.number().saturating_add(1)).ok().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_walks_gets_its_next_files() {
        let mut order = ReadOrder::default();
        // One goes through two snapshots, one through another directory of the first.
        let walks = [(1, 1000), (2, 1000), (1, 90_000)];
        let mut fetched = vec![0; walks.len()];
        for step in 0..1000 {
            for (at, (ordinal, begin)) in walks.into_iter().enumerate() {
                let number = begin + 2 * step;
                if let Some(ahead) = order.read(ordinal, number) {
                    assert!(ahead.start > number && ahead.end == number + ENTRIES_AHEAD);
                    assert!(fetched[at] == 0 || ahead.start == fetched[at], "nothing is left out");
                    fetched[at] = ahead.end;
                }
                let is_ahead = fetched[at] > number + ENTRIES_AHEAD / 4;
                assert_eq!(is_ahead, step >= u64::from(FILES_IN_ORDER), "walk {at}, step {step}");
            }
        }
    }

    #[test]
    fn files_in_no_order_end_no_walk_and_take_bounded_memory() {
        let mut order = ReadOrder::default();
        let mut sends = 0;
        for step in 0..2000_u64 {
            sends += u64::from(order.read(7, step).is_some());
            for other in 0..5 {
                let far = 1_000_000 + (step * 5 + other) * 7919 % 900_000 * 1000;
                assert_eq!(order.read(7, far), None);
            }
        }
        assert!(sends >= 2000 / ENTRIES_AHEAD, "{sends}");
        assert!(order.walks.len() <= WALKS);
        // Read repeatedly, a file begins nothing.
        let mut order = ReadOrder::default();
        assert!((0..100).all(|_| order.read(1, 5).is_none()) && order.walks.len() == 1);
    }
}
