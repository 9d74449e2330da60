//! A copy of a stream in its directory.

use std::sync::Arc;

use super::roll::RollArea;
use super::stream_file::StreamFile;
use crate::ring::RingConsumer;

/// One copy of a stream, from the ring to its file.
pub(crate) struct StreamCopy {
    /// The stream.
    pub stream: u32,
    /// The number of the copy: 0, or 1 for the second copy of a mirror.
    pub copy: u32,
    /// The consumer's side of the ring.
    pub consumer: RingConsumer,
    /// The file that is being written.
    pub piece: Arc<StreamFile>,
    /// The current place in the stream, in bytes since the input was opened.
    pub at: u64,
    /// The place at which the current span began.
    pub span: Option<u64>,
    /// The area in which the samples are kept until the take begins.
    pub roll: Option<RollArea>,
    /// Bytes of the next gap that were already processed.
    pub gap_done: u64,
    /// Bytes of the next gap that were recorded but not reported yet.
    pub gap_recorded: u64,
    /// The bytes of the last, incomplete frame; the next file begins with them.
    pub partial: Vec<u8>,
}
