//! Whether two files have the same bytes although their holes differ: a hole reads as zeros.
//!
//! Chunks that both have at the same place are not read; the comparison ends at the first difference.

use std::collections::VecDeque;
use std::ops::Range;

use crate::store::packs::ChunkReader;
use crate::store::tree::TreeReader;
use pinstripe_base::error::Result;
use pinstripe_base::id::ChunkId;
use pinstripe_member::entry::Entry;
use pinstripe_member::record::ChunkRow;

/// A piece of a file: a chunk, or a hole.
struct FileRange {
    range: Range<u64>,
    chunk: Option<ChunkId>,
}

/// The pieces of a file that are still to be compared, and the first one's bytes once they are read.
struct ComparedFile<'a> {
    chunks: ChunkReader<'a>,
    left: VecDeque<FileRange>,
    bytes: Option<Vec<u8>>,
}

/// Whether two files of the same size have the same bytes.
///
/// # Errors
/// When a chunk cannot be read.
pub(super) fn have_same_bytes<'a>(
    tree: &mut TreeReader<'a>,
    chunks: impl Fn() -> ChunkReader<'a>,
    one: &Entry,
    other: &Entry,
) -> Result<bool> {
    if one.size != other.size {
        return Ok(false);
    }
    let mut one = ComparedFile { chunks: chunks(), left: pieces(tree, one)?, bytes: None };
    let mut other = ComparedFile { chunks: chunks(), left: pieces(tree, other)?, bytes: None };
    let mut at = 0;
    while let (Some(a), Some(b)) = (one.left.front(), other.left.front()) {
        let end = a.range.end.min(b.range.end);
        let is_same_chunk = a.chunk == b.chunk && a.range.start == b.range.start;
        let are_holes = a.chunk.is_none() && b.chunk.is_none();
        if !is_same_chunk && !are_holes && one.part(at..end)? != other.part(at..end)? {
            return Ok(false);
        }
        at = end;
        one.pass(at);
        other.pass(at);
    }
    Ok(true)
}

impl ComparedFile<'_> {
    /// Bytes within the first piece.
    fn part(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        let piece = self.left.front().expect("the caller has seen it");
        let Some(id) = piece.chunk else {
            return Ok(vec![0; (range.end - range.start) as usize]);
        };
        if self.bytes.is_none() {
            self.bytes = Some(self.chunks.read(&id)?);
        }
        let within =
            (range.start - piece.range.start) as usize..(range.end - piece.range.start) as usize;
        let bytes = self.bytes.as_ref().and_then(|bytes| bytes.get(within));
        Ok(bytes.unwrap_or_default().to_vec())
    }

    fn pass(&mut self, at: u64) {
        if self.left.front().is_some_and(|piece| piece.range.end <= at) {
            self.left.pop_front();
            self.bytes = None;
        }
    }
}

/// The pieces of a file, from its beginning to its end. No hole is longer than the longest chunk
/// may be, so that its zeros fit in memory.
fn pieces(tree: &mut TreeReader<'_>, entry: &Entry) -> Result<VecDeque<FileRange>> {
    const HOLE_BYTES: u64 = 1 << 20;
    let mut rows = tree.content(&entry.content)?.into_iter();
    let mut pieces = VecDeque::new();
    let mut at = 0;
    let hole = |pieces: &mut VecDeque<FileRange>, mut from: u64, to: u64| {
        while from < to {
            let end = to.min(from + HOLE_BYTES);
            pieces.push_back(FileRange { range: from..end, chunk: None });
            from = end;
        }
    };
    for extent in entry.data_extents() {
        hole(&mut pieces, at, extent.start);
        at = extent.start;
        while at < extent.end {
            let Some(ChunkRow { id, raw_bytes }) = rows.next() else { break };
            let end = at + u64::from(raw_bytes);
            pieces.push_back(FileRange { range: at..end, chunk: Some(id) });
            at = end;
        }
    }
    hole(&mut pieces, at, entry.size);
    Ok(pieces)
}
