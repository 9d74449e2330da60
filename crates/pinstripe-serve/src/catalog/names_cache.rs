//! Blocks of names in memory, up to a limit: a search reads all of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use pinstripe_base::sync::lock;

/// The most bytes of names in memory; what is above it is read from the database by each search.
const LIMIT_BYTES: u64 = 512 << 20;

/// The name of a block: its series, the generation of the series, its number there. A block never
/// changes; removals give the series a new generation.
pub(super) type BlockKey = (i32, i32, i32);

/// The cache.
#[derive(Default)]
pub(super) struct NamesCache {
    kept: Mutex<KeptBlocks>,
}

#[derive(Default)]
struct KeptBlocks {
    blocks: HashMap<BlockKey, Arc<[u8]>>,
    bytes: u64,
}

impl NamesCache {
    pub fn get(&self, key: BlockKey) -> Option<Arc<[u8]>> {
        lock(&self.kept).blocks.get(&key).cloned()
    }

    /// Keeps a block, if there is space.
    pub fn keep(&self, key: BlockKey, block: &[u8]) -> Arc<[u8]> {
        let block: Arc<[u8]> = block.into();
        let kept = &mut *lock(&self.kept);
        let bytes = kept.bytes + block.len() as u64;
        if bytes <= LIMIT_BYTES && kept.blocks.insert(key, Arc::clone(&block)).is_none() {
            kept.bytes = bytes;
        }
        block
    }

    /// Drops the blocks of other generations, and of series that were removed.
    pub fn retain(&self, current: &HashSet<(i32, i32)>) {
        let kept = &mut *lock(&self.kept);
        kept.blocks.retain(|(series, generation, _), _| current.contains(&(*series, *generation)));
        kept.bytes = kept.blocks.values().map(|block| block.len() as u64).sum();
    }

    /// The bytes in memory.
    pub fn bytes(&self) -> u64 {
        lock(&self.kept).bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_other_generations_are_dropped() {
        let cache = NamesCache::default();
        cache.keep((1, 0, 0), b"abc");
        cache.keep((1, 0, 0), b"abc");
        cache.keep((2, 5, 0), b"de");
        assert_eq!(cache.bytes(), 5);
        cache.retain(&HashSet::from([(1, 1), (2, 5)]));
        assert_eq!((cache.get((1, 0, 0)), cache.bytes()), (None, 2));
    }
}
