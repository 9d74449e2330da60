//! Blocks and read-ahead for extents that are read sequentially.
//!
//! A store reads records of some hundred KiB; over a distant endpoint, each would cost a round
//! trip. A sequential reader gets complete blocks, and the next blocks are prefetched. Reads at
//! other offsets fetch only the range requested.
//!
//! Invariants: a block is fetched once, however many threads wait for it. At most [`BLOCKS_MAX`]
//! blocks are held for all members together. Opening an extent again drops its blocks, so that
//! bytes that were damaged on the way are not returned twice.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use pinstripe_member::ExtentName;

use crate::fault::Fault;
use crate::locks::{BucketLock, RankedMutex};

/// Bytes of a block: at a latency of 100 ms, 16 blocks in flight are as much as two processors can
/// handle.
pub const BLOCK_BYTES: u64 = 4 << 20;
/// The most blocks that are held.
const BLOCKS_MAX: usize = 24;
/// The most blocks that are prefetched for a sequential reader, while there is room for the blocks
/// of all readers: a prefetched block that is evicted before it is read is fetched twice.
const AHEAD_MAX: u64 = 6;
/// The number of reads within which an extent must be read again to count as being read.
const RECENT: u64 = 128;
/// A read that begins within this distance of the end of an earlier one counts as sequential:
/// several threads read the records of one pack in turns.
const NEAR_BYTES: u64 = 2 << 20;
/// The number of sequential reads after which blocks are fetched.
const RUN_MIN: u64 = 2;
/// The most extents whose readers are remembered.
const TRACKS_MAX: usize = 256;

/// A block that is fetched or being fetched.
pub type Block = Shared<BoxFuture<'static, Result<Bytes, Fault>>>;

/// An extent of a member: the member's number and the name of the extent.
pub type Extent = (u64, ExtentName);

/// The blocks of all members.
pub struct Blocks(RankedMutex<BlocksState>);

impl Default for Blocks {
    fn default() -> Self {
        Blocks(RankedMutex::new(BucketLock::Blocks, BlocksState::default()))
    }
}

#[derive(Default)]
struct BlocksState {
    blocks: BTreeMap<(Extent, u64), (u64, Block)>,
    tracks: HashMap<Extent, Track>,
    clock: u64,
}

/// The state of the readers of an extent.
#[derive(Default, Clone, Copy)]
struct Track {
    end: u64,
    /// Consecutive sequential reads.
    run: u64,
    used: u64,
    /// The extent's length, once it is known.
    extent_bytes: Option<u64>,
}

impl Blocks {
    /// The blocks that contain a range, in order, if it should be read in blocks; `fetch` begins to
    /// fetch a block.
    pub fn of(
        &self,
        extent: Extent,
        offset: u64,
        bytes: u64,
        fetch: impl Fn(u64) -> BoxFuture<'static, Result<Bytes, Fault>>,
    ) -> Option<Vec<Block>> {
        let mut state = self.0.lock();
        let track = state.note(extent, offset, bytes);
        let wanted = offset / BLOCK_BYTES..=(offset + bytes.max(1) - 1) / BLOCK_BYTES;
        let is_held = wanted.clone().all(|at| state.blocks.contains_key(&(extent, at)));
        if !is_held && track.run < RUN_MIN {
            return None;
        }
        let blocks: Vec<_> = wanted.clone().map(|at| state.block(extent, at, &fetch)).collect();
        debug_assert!(!blocks.is_empty(), "a read spans one block at least");
        if let Some(end) = track.extent_bytes.filter(|_| track.run >= RUN_MIN) {
            let next = wanted.end() + 1;
            let ahead = next..next + track.run.min(state.ahead_max());
            for at in ahead.filter(|at| at * BLOCK_BYTES < end) {
                drop(state.block(extent, at, &fetch));
            }
        }
        Some(blocks)
    }

    /// Remembers the length of an extent.
    pub fn learn(&self, extent: Extent, extent_bytes: u64) {
        self.0.lock().tracks.entry(extent).or_default().extent_bytes = Some(extent_bytes);
    }

    /// Forgets the cached blocks of an extent.
    pub fn forget(&self, extent: Extent) {
        let mut state = self.0.lock();
        state.tracks.remove(&extent);
        let held = state.blocks.range((extent, 0)..=(extent, u64::MAX)).map(|(key, _)| *key);
        for key in held.collect::<Vec<_>>() {
            state.blocks.remove(&key);
        }
    }
}

impl BlocksState {
    /// The number of blocks that are prefetched for each current reader.
    fn ahead_max(&self) -> u64 {
        let is_read = |track: &&Track| track.used + RECENT >= self.clock;
        let readers = self.tracks.values().filter(is_read).count().max(1);
        ((BLOCKS_MAX / readers) as u64).saturating_sub(1).min(AHEAD_MAX)
    }

    fn note(&mut self, extent: Extent, offset: u64, bytes: u64) -> Track {
        self.clock += 1;
        let track = self.tracks.entry(extent).or_default();
        let goes_on = offset >= track.end.saturating_sub(NEAR_BYTES)
            && offset <= track.end.saturating_add(NEAR_BYTES);
        track.run = if goes_on { track.run + 1 } else { 0 };
        track.end = if goes_on { track.end.max(offset + bytes) } else { offset + bytes };
        track.used = self.clock;
        let track = *track;
        if self.tracks.len() > TRACKS_MAX {
            let oldest = self.tracks.iter().min_by_key(|(_, track)| track.used);
            if let Some(oldest) = oldest.map(|(extent, _)| *extent) {
                self.tracks.remove(&oldest);
            }
        }
        debug_assert!(self.tracks.len() <= TRACKS_MAX, "few tracks are held");
        track
    }

    fn block(
        &mut self,
        extent: Extent,
        at: u64,
        fetch: &impl Fn(u64) -> BoxFuture<'static, Result<Bytes, Fault>>,
    ) -> Block {
        self.clock += 1;
        let clock = self.clock;
        let new = || (clock, fetch(at * BLOCK_BYTES).shared());
        let held = self.blocks.entry((extent, at)).or_insert_with(new);
        held.0 = clock;
        let block = held.1.clone();
        if self.blocks.len() > BLOCKS_MAX {
            let oldest = self.blocks.iter().min_by_key(|(_, (clock, _))| *clock);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.blocks.remove(&oldest);
            }
        }
        debug_assert!(self.blocks.len() <= BLOCKS_MAX, "few blocks are held");
        debug_assert!(self.blocks.contains_key(&(extent, at)), "the newest block is kept");
        block
    }
}

/// Copies a range from the blocks that contain it; returns `None` if the blocks end before the
/// range does.
pub fn copy(blocks: &[Bytes], offset: u64, buf: &mut [u8]) -> Option<()> {
    let mut at = usize::try_from(offset % BLOCK_BYTES).ok()?;
    let mut rest = buf;
    for block in blocks {
        let bytes = (block.len().checked_sub(at)?).min(rest.len());
        let (head, tail) = rest.split_at_mut(bytes);
        head.copy_from_slice(&block[at..at + bytes]);
        (rest, at) = (tail, 0);
    }
    rest.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_member::ExtentKind;

    const EXTENT: Extent = (0, ExtentName::In(ExtentKind::Packs, [1; 16]));

    fn fetch(_: u64) -> BoxFuture<'static, Result<Bytes, Fault>> {
        futures_util::future::ready(Ok(Bytes::new())).boxed()
    }

    fn held(blocks: &Blocks) -> Vec<u64> {
        blocks.0.lock().blocks.keys().map(|(_, at)| *at).collect()
    }

    #[test]
    fn who_goes_on_gets_blocks_and_who_jumps_does_not() {
        let blocks = Blocks::default();
        blocks.learn(EXTENT, 20 * BLOCK_BYTES);
        assert!(blocks.of(EXTENT, 5 * BLOCK_BYTES, 1000, fetch).is_none());
        assert!(blocks.of(EXTENT, 9 * BLOCK_BYTES, 1000, fetch).is_none());
        assert!(blocks.of(EXTENT, BLOCK_BYTES, 1000, fetch).is_none());
        assert!(blocks.of(EXTENT, BLOCK_BYTES + 1000, 1000, fetch).is_none());
        assert_eq!(blocks.of(EXTENT, BLOCK_BYTES + 2000, 1000, fetch).unwrap().len(), 1);
        assert_eq!(held(&blocks), [1, 2, 3]);
        let over = blocks.of(EXTENT, 2 * BLOCK_BYTES - 10, 20, fetch);
        assert!(over.is_none_or(|over| over.len() == 2));
        blocks.forget(EXTENT);
        assert!(held(&blocks).is_empty());
    }

    #[test]
    fn few_are_held_and_none_behind_the_end() {
        let blocks = Blocks::default();
        blocks.learn(EXTENT, 100 * BLOCK_BYTES);
        for at in 0..1000 {
            blocks.of(EXTENT, at * (BLOCK_BYTES / 10), BLOCK_BYTES / 10, fetch);
            assert!(held(&blocks).len() <= BLOCKS_MAX);
        }
        assert!(held(&blocks).iter().all(|at| *at < 100));
    }

    #[test]
    fn many_readers_side_by_side_fetch_each_block_once() {
        const READS: u64 = 16;
        let (blocks, fetched) = (Blocks::default(), std::cell::RefCell::new(Vec::new()));
        let extent = |number| (0, ExtentName::In(ExtentKind::Packs, [number; 16]));
        (0..16).for_each(|number| blocks.learn(extent(number), 4 * BLOCK_BYTES));
        for at in 0..4 * READS {
            for number in 0..16 {
                let fetch = |from| {
                    fetched.borrow_mut().push((number, from));
                    fetch(from)
                };
                let bytes = BLOCK_BYTES / READS;
                blocks.of(extent(number), at * bytes, bytes, fetch);
            }
        }
        let mut fetched = fetched.into_inner();
        let all = fetched.len();
        fetched.sort_unstable();
        fetched.dedup();
        assert_eq!((fetched.len(), all), (64, 64));
    }

    #[test]
    fn a_range_is_put_together_from_its_blocks() {
        let block = |byte: u8, bytes: usize| Bytes::from(vec![byte; bytes]);
        let full = BLOCK_BYTES as usize;
        let mut buf = [0; 4];
        copy(&[block(1, full), block(2, 100)], BLOCK_BYTES - 2, &mut buf).unwrap();
        assert_eq!(buf, [1, 1, 2, 2]);
        assert_eq!(copy(&[block(1, 3)], 0, &mut buf), None, "it is too short");
        assert_eq!(copy(&[block(1, 3)], 5, &mut buf), None);
    }
}
