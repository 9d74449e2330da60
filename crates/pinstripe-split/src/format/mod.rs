//! The bytes that `split` writes: two pages at the beginning of every output, then a log of frames.
//!
//! ```text
//! output:  head (4096) | end (4096) | log
//! log:     batch | batch | index | batch | ... | index | manifest
//! batch:   batch frame | data, zeros or hole frame, once for each block or run | pad frame
//! ```
//!
//! The reasons for this format are in doc/decisions/0018-split.md. The head page identifies the
//! split and the output; the end page, written last, says that the split is complete. Every frame
//! carries its own checksums, so a log can be read from its beginning even when its end is damaged
//! or missing.
//!
//! Not in this module: the reading and writing of outputs (split/), and compression.

mod frame;
mod index;
mod pages;

pub use frame::{FRAME_BYTES, Frame, FrameKind, Tag};
pub use index::{BatchExtent, BatchPlace, LogEnd, LogIndex, Manifest, Use};
pub use pages::{End, Head, Identity, PAGE_BYTES, PAGES_BYTES, SplitLayout};

/// The length of the unit that is read at a time, in bytes, unless a block is longer.
pub const UNIT_BYTES: u32 = 4 << 20;
/// Smallest block in bytes.
pub(crate) const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// Largest block in bytes.
pub(crate) const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// In a log that has an output of its own, batches begin at multiples of this many bytes, because
/// direct writes need this.
pub const ALIGN_BYTES: u64 = 4096;
/// The number of rows of each stripe set in a striped log; only the last set has fewer.
pub const SET_ROWS: u64 = 256;
/// The largest number of outputs of one split.
pub(crate) const OUTPUTS_MAX: usize = 255;

/// Returns the length of a unit in a split with blocks of this length.
pub const fn unit_bytes(block_bytes: u32) -> u32 {
    if block_bytes > UNIT_BYTES { block_bytes } else { UNIT_BYTES }
}
