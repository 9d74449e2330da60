//! The engine: empties the rings and makes files durable.
//!
//! Each directory of a take has one [`TakeDirectory`]. A directory's writer (several writers with direct I/O)
//! visits the copies in turn and writes the available bytes in chunks through the page cache. The
//! writer never waits for the disk unless the kernel makes it wait. The directory's committer makes the
//! data durable each second by several syncs in parallel, then makes the journal durable, then
//! writes the headers. A directory that fails is given up: its copies continue in another one. A
//! [`Gate`] decides which part of each stream is recorded.
//!
//! Invariants: data is made durable first, then the journal, then the header; none of these
//! promises more than the previous one. A file whose sync failed is never written or synced again.

mod closing;
mod committer;
mod directory;
mod gate;
mod headroom;
mod orders;
mod roll;
mod shared;
mod stages;
mod stream_copy;
mod stream_file;
mod writer;

pub(crate) use closing::{close_file, trimmed_run};
pub(crate) use committer::commit_directory;
pub(crate) use directory::DirectoryFigures;
pub(crate) use directory::TakeDirectory;
pub use gate::Gate;
pub use headroom::keep as keep_head_room;
pub(crate) use roll::RollArea;
pub use shared::EngineSettings;
pub(crate) use shared::{SharedStream, SharedTake, cues_within};
pub(crate) use stream_copy::StreamCopy;
pub(crate) use stream_file::StreamFile;
pub(crate) use writer::write_directory;

#[cfg(test)]
mod lag_tests;
