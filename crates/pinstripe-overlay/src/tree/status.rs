//! What an overlay is doing.

use pinstripe_prefetch::readers::ReadersOfObject;
use pinstripe_prefetch::runner::BudgetUsage;

use super::OverlayTree;
use crate::cache::CacheUsage;
use crate::calls::SourceUsage;
use crate::source::RangeSource;

/// The readers of one file.
#[derive(Debug, Clone)]
pub struct FileReaders {
    /// Its path in the source.
    pub path: Box<[u8]>,
    /// Bytes of it.
    pub size: u64,
    /// Its readers; the object is the number of its inode.
    pub readers: ReadersOfObject,
}

/// What an overlay is doing.
#[derive(Debug, Clone)]
pub struct OverlayStatus {
    /// The files that were read last, the last one first.
    pub files: Vec<FileReaders>,
    /// Files and directories that the kernel knows.
    pub nodes: usize,
    /// The memory.
    pub memory: BudgetUsage,
    /// The source.
    pub source: SourceUsage,
    /// The local cache.
    pub cache: Option<CacheUsage>,
}

impl<S: RangeSource> OverlayTree<S> {
    /// What it is doing, with at most `files` files.
    pub fn status(&self, files: usize) -> OverlayStatus {
        let file = |readers: ReadersOfObject| {
            // One that the kernel has forgotten has no path any more.
            let node = self.nodes.get(readers.object).ok()?;
            Some(FileReaders { path: node.path.clone(), size: node.entry.version.size, readers })
        };
        OverlayStatus {
            files: self.readers.report(files).into_iter().filter_map(file).collect(),
            nodes: self.nodes.len(),
            memory: self.runner.usage(),
            source: self.calls.usage(),
            cache: self.cache.as_ref().map(|cache| cache.usage()),
        }
    }
}
