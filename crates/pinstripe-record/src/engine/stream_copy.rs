//! A copy of a stream, as its lane has it.

use std::sync::Arc;

use super::piece::Piece;
use super::roll::RollArea;
use crate::ring::RingConsumer;

/// One copy of a stream, from the ring to its file.
pub(crate) struct StreamCopy {
    /// The stream.
    pub stream: u32,
    /// 0, or 1 of a mirror.
    pub copy: u32,
    /// The side of the ring.
    pub consumer: RingConsumer,
    /// The file that is being written.
    pub piece: Arc<Piece>,
    /// The place in the stream that it is at, since the input was opened.
    pub at: u64,
    /// Where the span began that it is in.
    pub span: Option<u64>,
    /// Where it is kept while the take is awaited.
    pub roll: Option<RollArea>,
    /// Bytes of the next gap that were already processed, and those of them that were recorded but
    /// not reported yet.
    pub gap_done: u64,
    /// See `gap_done`.
    pub gap_recorded: u64,
    /// The bytes of the last frame that is not whole: with them the next file begins.
    pub partial: Vec<u8>,
}
