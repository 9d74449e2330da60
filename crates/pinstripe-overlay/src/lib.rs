//! Any slow directory, shown read-only through read-ahead and a local cache.
//!
//! ```text
//! kernel --> tree --> readers (which blocks come next) --> runner (budget) --> blocks --> cache
//!                                                                                \--> calls --> source
//! ```
//! Rooms, highest floor first: `tree` (the files as the kernel sees them); `blocks` (how a block is
//! had) and `listings`; `nodes` (what inode numbers name), `calls` (threads that wait for the
//! source, and deadlines) and `cache` (blocks on a local disk); `source` (the seam behind which the
//! files are). Never here: the store, and how a tree gets into the kernel.

mod blocks;
mod cache;
mod calls;
mod listings;
mod locks;
mod nodes;
mod source;
mod tree;

pub use cache::{BlockCache, CacheUsage};
#[cfg(any(test, feature = "conformance"))]
pub use source::conformance;
pub use source::{ContentVersion, DirectorySource, ListedName, RangeSource, SourceEntry};
pub use tree::{FileReaders, OverlayOptions, OverlayStatus, OverlayTree, SourceUsage};
