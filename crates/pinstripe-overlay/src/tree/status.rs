//! The status of an overlay.

use pinstripe_prefetch::{BudgetUsage, ReadersOfObject};

use super::OverlayTree;
use crate::cache::CacheUsage;
use crate::calls::SourceUsage;
use crate::source::RangeSource;

/// The readers of one file.
#[derive(Debug, Clone)]
pub struct FileReaders {
    /// The path in the source.
    pub path: Box<[u8]>,
    /// The length.
    pub size: u64,
    /// The readers of the file; their object is the inode number.
    pub readers: ReadersOfObject,
}

/// The status of an overlay.
#[derive(Debug, Clone)]
pub struct OverlayStatus {
    /// The last read files, the newest one first.
    pub files: Vec<FileReaders>,
    /// The number of files and directories that the kernel knows.
    pub nodes: usize,
    /// The memory.
    pub memory: BudgetUsage,
    /// The source.
    pub source: SourceUsage,
    /// The local cache.
    pub cache: Option<CacheUsage>,
}

impl<S: RangeSource> OverlayTree<S> {
    /// The status of the overlay, with at most `files` files.
    pub fn status(&self, files: usize) -> OverlayStatus {
        let file = |readers: ReadersOfObject| {
            // A file that the kernel has forgotten has no path any more.
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
