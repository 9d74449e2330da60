//! The engine: takes rings empty, and makes files durable.
//!
//! One [`Lane`] for each directory. Its writer (several past the page cache) goes over its copies in turn and writes what is
//! there, through the page cache, in chunks; it never waits for the disk unless the kernel makes
//! it. Its committer has several syncs in flight each second, then makes the journal durable, then
//! writes the headers. A directory that fails is given up: its copies go on in another one. A [`Gate`]
//! says of each stream which part of it is recorded.
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

pub use closing::{close_file, trimmed_run};
pub use committer::commit_lane;
pub use gate::{Fate, Gate, Span};
pub use headroom::keep as keep_head_room;
pub use lane::{Lane, LaneFigures};
pub use piece::Piece;
pub use roll::RollArea;
pub use shared::{EngineSettings, Losses, SharedStream, SharedTake, TakeBeginning, cues_within};
pub use stages::SlowestCommit;
pub use stream_copy::StreamCopy;
pub use writer::write_lane;

#[cfg(test)]
mod lag_tests;
