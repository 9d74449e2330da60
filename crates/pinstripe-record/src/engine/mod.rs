//! The engine: takes rings empty, and makes files durable.
//!
//! One [`Lane`] for each directory. Its writer (several past the page cache) goes over its copies in turn and writes what is
//! there, through the page cache, in chunks; it never waits for the disk unless the kernel makes
//! it. Its committer has several syncs in flight each second, then makes the journal durable, then
//! writes the headers. A directory that fails is given up: its copies go on in another one.
//!
//! Invariants: data, then journal, then header: none of them promises what the one before it has
//! not. A file whose sync failed is never written or synced again.

mod committer;
mod crew;
mod desk;
mod lane;
mod piece;
mod stages;
mod writer;

pub use committer::commit_lane;
pub use desk::{Desk, EngineSettings, StreamDesk, cues_within};
pub use lane::{Lane, LaneFigures};
pub use piece::{Piece, close_file, trimmed_run};
pub use stages::SlowestCommit;
pub use writer::{StreamCopy, write_lane};
