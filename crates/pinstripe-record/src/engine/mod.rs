//! The engine: empties the rings and makes files durable.
//!
//! There is one [`Lane`] per directory. Its writer (several when the page cache is bypassed) visits
//! its copies in turn and writes the available bytes in chunks through the page cache. It never
//! waits for the disk unless the kernel makes it wait. The lane's committer has several syncs in
//! flight each second, then makes the journal durable, then writes the headers. A directory that
//! fails is given up: its copies continue in another one. A [`Gate`] decides which part of each
//! stream is recorded.
//!
//! Invariants: data, then journal, then header: none of them promises what the one before it has
//! not. A file whose sync failed is never written or synced again.

mod closing;
mod committer;
mod gate;
mod headroom;
mod lane;
mod orders;
mod piece;
mod roll;
mod shared;
mod stages;
mod stream_copy;
mod writer;

pub(crate) use closing::{close_file, trimmed_run};
pub(crate) use committer::commit_lane;
pub use gate::Gate;
pub use headroom::keep as keep_head_room;
pub use lane::Lane;
pub(crate) use lane::LaneFigures;
pub use piece::Piece;
pub(crate) use roll::RollArea;
pub use shared::EngineSettings;
pub(crate) use shared::{SharedStream, SharedTake, cues_within};
pub(crate) use stream_copy::StreamCopy;
pub(crate) use writer::write_lane;

#[cfg(test)]
mod lag_tests;
