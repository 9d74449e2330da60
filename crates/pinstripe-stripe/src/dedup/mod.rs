//! The claims of a run on the chunks that it stores, and filters that show quickly that a chunk is
//! not in a part of the index.
//!
//! Invariants: of all threads that claim one id, exactly one gets the answer that the chunk is new;
//! that thread stores the chunk or makes the whole run fail, so a thread that gets the answer
//! "known" may refer to the chunk at once. A claim is released only when the index has the chunk.
//! The set is divided into shards by the id, which is random, so workers rarely wait for each
//! other. Not in this module: I/O, and where chunks are stored.

pub mod distinct;
pub mod filter;

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard};

use pinstripe_base::id::ChunkId;
use pinstripe_base::sync::lock;

const SHARDS: usize = 64;

/// Ids are hashes already: their first bytes serve as the hash in the set (the last byte selects
/// the shard).
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

type Shard = HashSet<ChunkId, BuildHasherDefault<FirstBytes>>;

/// The chunks that a run stores, or is about to look up.
pub struct Claims {
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for Claims {
    fn default() -> Self {
        Claims { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Claims {
    fn shard(&self, id: &ChunkId) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[usize::from(id.0[ChunkId::LEN - 1]) % SHARDS];
        lock(shard)
    }

    /// Claims a chunk; returns `false` when the chunk is claimed already.
    #[must_use]
    pub fn take(&self, id: &ChunkId) -> bool {
        self.shard(id).insert(*id)
    }

    /// Releases the claim on a chunk, because the index has it now.
    pub fn release(&self, id: &ChunkId) {
        self.shard(id).remove(id);
    }

    /// Whether the chunk is claimed.
    pub fn has(&self, id: &ChunkId) -> bool {
        self.shard(id).contains(id)
    }

    /// Frees memory after many releases.
    pub fn shrink(&self) {
        for shard in &self.shards {
            lock(shard).shrink_to_fit();
        }
    }

    /// Number of claims.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().map_or(0, |shard| shard.len())).sum()
    }

    /// Whether there is no claim.
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
        let claims = Claims::default();
        let wins = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for n in 0..1000u32 {
                        let mut id = [0; 32];
                        id[..4].copy_from_slice(&n.to_le_bytes());
                        id[31] = n as u8;
                        wins.fetch_add(usize::from(claims.take(&ChunkId(id))), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(wins.into_inner(), 1000);
        assert_eq!(claims.len(), 1000);
    }

    #[test]
    fn what_was_given_back_can_be_claimed_again() {
        let claims = Claims::default();
        let (a, b) = (ChunkId([1; 32]), ChunkId([2; 32]));
        assert!(claims.take(&a) && claims.take(&b) && !claims.take(&a));
        claims.release(&a);
        claims.shrink();
        assert!(!claims.has(&a) && claims.has(&b));
        assert!(claims.take(&a) && claims.len() == 2 && !claims.is_empty());
    }
}
