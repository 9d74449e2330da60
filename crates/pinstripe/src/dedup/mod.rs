//! Known or new: which chunks the store has, and who of many workers may store a new one.
//!
//! Invariants: of all threads that claim one id, exactly one is told that it is new; that one
//! stores the chunk or fails the whole run, so whoever was told "known" may refer to it at once.
//! The map is cut into shards by the id, which is random, so workers seldom meet.

pub mod distinct;

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;

use crate::id::ChunkId;

/// Where a chunk is: ordinals into the store's list of packs, so that a place costs 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which pack of the list.
    pub pack: u32,
    /// Which record of that pack.
    pub record: u32,
    /// First byte in the record's raw bytes.
    pub raw_offset: u32,
    /// Length.
    pub raw_bytes: u32,
}

impl Place {
    /// The place of a chunk that this run stores: known, but in no sealed pack yet.
    pub const UNDERWAY: Place =
        Place { pack: u32::MAX, record: u32::MAX, raw_offset: 0, raw_bytes: 0 };
}

const SHARDS: usize = 64;

/// Ids are hashes already: their first bytes are the map's hash (the last one picks the shard).
#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

type Shard = HashMap<ChunkId, Place, BuildHasherDefault<FirstBytes>>;

/// Every chunk of the store, by id.
pub struct ChunkIndex {
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for ChunkIndex {
    fn default() -> Self {
        ChunkIndex { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl ChunkIndex {
    fn shard(&self, id: &ChunkId) -> std::sync::MutexGuard<'_, Shard> {
        let shard = &self.shards[usize::from(id.0[ChunkId::LEN - 1]) % SHARDS];
        shard.lock().expect("no thread panics while it holds a shard")
    }

    /// Asks whether the chunk is new; if so, the caller has to store it.
    #[must_use]
    pub fn claim(&self, id: ChunkId) -> bool {
        match self.shard(&id).entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(Place::UNDERWAY);
                true
            }
        }
    }

    /// Notes where a chunk is. A chunk stored twice keeps its first place.
    pub fn insert(&self, id: ChunkId, place: Place) {
        self.shard(&id).entry(id).or_insert(place);
    }

    /// Where a chunk is, if the store has it in a sealed pack.
    pub fn get(&self, id: &ChunkId) -> Option<Place> {
        self.shard(id).get(id).copied().filter(|place| *place != Place::UNDERWAY)
    }

    /// Whether the store has the chunk, or will when this run ends well.
    pub fn has(&self, id: &ChunkId) -> bool {
        self.shard(id).contains_key(id)
    }

    /// Shows every chunk that is in a sealed pack.
    pub fn for_each(&self, mut show: impl FnMut(&ChunkId, Place)) {
        for shard in &self.shards {
            let shard = shard.lock().expect("no thread panics while it holds a shard");
            let sealed = shard.iter().filter(|(_, place)| **place != Place::UNDERWAY);
            sealed.for_each(|(id, place)| show(id, *place));
        }
    }

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().map_or(0, |shard| shard.len())).sum()
    }

    /// Whether there is no chunk.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_of_many_claims_wins() {
        let index = ChunkIndex::default();
        let wins = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for n in 0..1000u32 {
                        let mut id = [0; 32];
                        id[..4].copy_from_slice(&n.to_le_bytes());
                        id[31] = n as u8;
                        wins.fetch_add(usize::from(index.claim(ChunkId(id))), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(wins.into_inner(), 1000);
        assert_eq!(index.len(), 1000);
    }

    #[test]
    fn the_first_place_stays_and_what_is_underway_has_none() {
        let index = ChunkIndex::default();
        let place = Place { pack: 1, record: 2, raw_offset: 3, raw_bytes: 4 };
        let (a, b) = (ChunkId([1; 32]), ChunkId([2; 32]));
        index.insert(a, place);
        index.insert(a, Place { pack: 9, ..place });
        assert_eq!(index.get(&a), Some(place));
        assert!(!index.claim(a) && index.claim(b) && index.get(&b).is_none());
    }
}
