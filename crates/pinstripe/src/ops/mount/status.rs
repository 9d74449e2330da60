//! What a mount is doing.

use pinstripe_prefetch::readers::ReadersOfObject;
use pinstripe_prefetch::runner::BudgetUsage;

use super::SnapshotTree;
use super::inode::Inode;

impl SnapshotTree {
    /// What the memory for content holds.
    pub fn memory(&self) -> BudgetUsage {
        self.content.usage()
    }

    /// The readers of so many files, each with the path in its snapshot and the size of the file; the
    /// file that was read last first.
    pub fn readers(&self, files: usize) -> Vec<(Vec<u8>, u64, ReadersOfObject)> {
        let named = |readers: ReadersOfObject| {
            let Inode::Entry { ordinal, number } = Inode::of(readers.object) else { return None };
            // Of a snapshot that was forgotten nothing is told any more.
            let found = self.entry(ordinal, number).ok()?;
            let entry = found.entry();
            Some((entry.path.clone(), entry.size, readers))
        };
        self.content.report(files).into_iter().filter_map(named).collect()
    }
}
