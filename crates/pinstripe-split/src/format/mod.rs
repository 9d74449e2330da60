//! The bytes that `split` writes: two pages in front of every output, then a log of frames.
//!
//! ```text
//! output:  head (4096) | end (4096) | log
//! log:     batch | batch | index | batch | ... | index | manifest
//! batch:   batch frame | data, zeros or hole frame, once for each block or run | pad frame
//! ```
//! The reasons are in doc/decisions/0018-split.md. The head names the split and the output; the
//! end, written last, says that the split is complete. Every frame carries its own checksums, so a
//! log is readable from its beginning even when its tail is damaged or missing.
//!
//! Not in this module: reading and writing of outputs (split/), and compression.

mod frame;
mod index;
mod pages;

pub use frame::{FRAME_BYTES, Frame, FrameKind, Tag};
pub use index::{BatchExtent, BatchPlace, LogEnd, LogIndex, Manifest, Use};
pub use pages::{End, Head, Identity, PAGE_BYTES, PAGES_BYTES, SplitLayout};

/// The unit that is read at a time, in bytes, unless a block is longer.
pub const UNIT_BYTES: u32 = 4 << 20;
/// Smallest block in bytes.
pub(crate) const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// Largest block in bytes.
pub(crate) const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// Batches begin at multiples of this many bytes in a log that is one output's own: direct writes
/// need this.
pub const ALIGN_BYTES: u64 = 4096;
/// Rows of one stripe set in a striped log; only the last set has fewer.
pub const SET_ROWS: u64 = 256;
/// Most outputs of one split.
pub(crate) const OUTPUTS_MAX: usize = 255;

/// The unit of a split with these blocks.
pub const fn unit_bytes(block_bytes: u32) -> u32 {
    if block_bytes > UNIT_BYTES { block_bytes } else { UNIT_BYTES }
}
