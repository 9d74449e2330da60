//! pinstripe: deduplicating backup over many disks, with parity.
//!
//! Bytes take one path: `source` and `walk` find them, `chunk` cuts them, `dedup` decides which are
//! new, `codec` compresses them, `seal` encrypts them, `stripe` distributes them over the members
//! with parity, `member` stores them. `store` manages packs, index and snapshots; `pipeline` starts
//! the threads; `catalog` makes all snapshots searchable; `ops` has one file per verb. `sink`
//! writes restored bytes.
//!
//! The library prints nothing, never exits the process and reads no environment variables: it
//! reports events to the [`Monitor`](pinstripe_base::monitor::Monitor), and failures as an
//! [`Error`](pinstripe_base::error::Error). Arrays and servers are in crates of their own.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod catalog;
mod ops;
mod pipeline;
mod sink;
mod source;
mod store;
mod walk;

pub use catalog::{Catalog, FILE_NAME as CATALOG_FILE};
pub use ops::catalog::{
    current as current_catalog, rebuild as rebuild_catalog, status as catalog_status,
};
pub use ops::{
    analyze, backup, beside, cat, check, diff, dump, find, forget, gc, history, init, key, ls,
    member, members, mount, preview, repair, restore, scrub, seen, shared, snapshots, stats, tag,
    upgrade,
};
pub use pinstripe_member::{FoundVersion, Glob, Holder, Query, Version};
pub use pipeline::backup::{Wanted, write_tree};
pub use pipeline::heartbeat::beat_while;
pub use pipeline::limits::{LARGE_BYTES, Limits, MEMORY_DEFAULT_BYTES};
pub use pipeline::member_writers::MemberWriters;
pub use pipeline::pack::{FinishedRecord, Laying, ToPacker, run as run_packer};
pub use pipeline::publish::Publisher;
pub use pipeline::restore::{Owners, PathFilter, Reuse};
pub use pipeline::scratch_pool::ScratchPool;
pub use pipeline::survey::{LENGTHS as SURVEY_LENGTHS, Survey};
pub use sink::{RemovedCount, Rules, TreeSink};
pub use source::{SourceFile, read_link, xattrs_at};
pub use store::choice::{SnapshotChoice, SnapshotName, find as find_snapshot};
pub use store::deletion::acknowledge::Acknowledger;
pub use store::failure_detector::{FailureDetector, PulseSighting, TIMEOUT_DEFAULT};
pub use store::objects::Quorum;
pub use store::packs::{ChunkReader, PackReader};
pub use store::redundancy::redundancy;
pub use store::snapshots::{
    Known, is_void, load as load_snapshot, load_all as load_snapshots, read as read_snapshot,
};
pub use store::tree::{TreeReader, TreeWriter};
pub use store::{
    Claim, MemberSlot, OpenOptions, OtherHalf, Store, UnlockLimits, checkpoints, forgotten, index,
    read_small, sessions,
};
pub use walk::{
    DirectoryTag, Exclude, Explanation, FileLimits, IgnoreFile, Reason, RuleOrigin, WalkItem,
    WalkOptions, Walker, WrittenRule, pattern_lines, recommended_threads,
};
