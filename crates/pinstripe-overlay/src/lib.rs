//! Shows any slow directory read-only, through read-ahead and a local cache.
//!
//! ```text
//! kernel --> tree --> readers (which blocks come next) --> runner (budget) --> blocks --> cache
//!                                                                                \--> calls --> source
//! ```
//!
//! Rooms, highest floor first: `tree` (the files as the kernel sees them); `blocks` (where blocks
//! come from) and `listings`; `nodes` (the files behind inode numbers), `calls` (threads that wait
//! for the source, and deadlines) and `cache` (blocks on a local disk); `source` (the interface to
//! the files). Not in this crate: the store, and the mounting of a tree.

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
pub use source::conformance::{SourceFixture, check as check_conformance};
pub use source::{ContentVersion, DirectorySource, ListedName, RangeSource, SourceEntry};
pub use tree::{FileReaders, OverlayOptions, OverlayStatus, OverlayTree, SourceUsage};
