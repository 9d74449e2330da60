//! Reads the blocks of files: from the local cache, else from the source.
//!
//! A read that the planner did not predict fetches the smallest block that contains it; all other
//! reads fetch large blocks. So a random read does not wait for data that it does not need, and
//! read-ahead needs few requests.

use std::ops::Range;
use std::sync::Arc;

use pinstripe_base::error::Result;
use pinstripe_prefetch::FetchSource;

use crate::cache::BlockCache;
use crate::calls::{CallPool, CallReply};
use crate::nodes::{Nodes, SourceNode};
use crate::source::RangeSource;

/// The smallest block of a local disk, which reads this many bytes in about the time of one byte.
const LEAST_BYTES: u64 = 16 << 10;
/// Bytes of a small block; the size of a cell of the cache.
const SMALL_BYTES: u64 = 64 << 10;
/// Bytes of a large block.
pub(crate) const LARGE_BYTES: u64 = 1 << 20;

/// The lengths of blocks smaller than a large one, in ascending order.
pub(crate) fn small_lengths(is_local: bool, has_cache: bool) -> &'static [u64] {
    match is_local && !has_cache {
        true => &[LEAST_BYTES, SMALL_BYTES],
        false => &[SMALL_BYTES],
    }
}

/// The bytes of a block. The object that holds the bytes also keeps them counted in the budget.
pub(crate) type Block = Arc<Vec<u8>>;

/// Names a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) inode: u64,
    /// The offset of the block in the file.
    pub(crate) at: u64,
    /// The length of the block; the last block of a file is shorter.
    pub(crate) bytes: u64,
}

impl BlockKey {
    /// The block with this length that contains an offset of a file.
    pub(crate) fn new(inode: u64, offset: u64, bytes: u64) -> Self {
        BlockKey { inode, at: offset / bytes * bytes, bytes }
    }

    /// The part of a file of `size` bytes that the block covers.
    pub(crate) fn range(&self, size: u64) -> Range<u64> {
        self.at..size.min(self.at.saturating_add(self.bytes))
    }

    /// Whether the block contains all of a range.
    pub(crate) fn holds(&self, range: &Range<u64>) -> bool {
        self.at <= range.start && range.end <= self.at.saturating_add(self.bytes)
    }
}

/// Fetches blocks.
pub(crate) struct Blocks<S> {
    pub(crate) source: Arc<S>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) calls: Arc<CallPool>,
    pub(crate) cache: Option<Arc<BlockCache>>,
}

impl<S: RangeSource> FetchSource for Blocks<S> {
    type Key = BlockKey;
    type Unit = Block;

    fn fetch(&self, key: BlockKey) -> Result<Arc<Vec<u8>>> {
        let node = self.nodes.get(key.inode)?;
        // A local read costs less than passing it to another thread.
        if let Some(bytes) = self.at_hand(&node, key) {
            return Ok(bytes);
        }
        let (source, cache) = (Arc::clone(&self.source), self.cache.clone());
        self.calls.call(move |reply| fetch(&*source, cache.as_deref(), &node, key, reply))?
    }
}

impl<S: RangeSource> Blocks<S> {
    fn at_hand(&self, node: &SourceNode, key: BlockKey) -> Option<Arc<Vec<u8>>> {
        let version = &node.entry.version;
        let mut bytes = Vec::new();
        let is_had =
            self.source.read_at_hand(&node.path, version, key.range(version.size), &mut bytes);
        is_had.then(|| Arc::new(bytes))
    }
}

/// Fetches a block; adds it to the cache after it was handed to the reader.
fn fetch<S: RangeSource>(
    source: &S,
    cache: Option<&BlockCache>,
    node: &SourceNode,
    key: BlockKey,
    reply: CallReply<Result<Arc<Vec<u8>>>>,
) {
    let (version, range) = (&node.entry.version, key.range(node.entry.version.size));
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    if cache.is_some_and(|cache| cache.get(&node.path, version, range.clone(), &mut bytes)) {
        return reply.give(Ok(Arc::new(bytes)));
    }
    bytes.clear();
    match source.read(&node.path, version, range.clone(), &mut bytes) {
        Ok(()) => {
            let bytes = Arc::new(bytes);
            reply.give(Ok(Arc::clone(&bytes)));
            if let Some(cache) = cache {
                cache.put(&node.path, version, range, &bytes);
            }
        }
        Err(error) => reply.give(Err(error)),
    }
}
