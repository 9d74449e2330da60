//! The packs that an index knows, by number, with the flags of each that deletion needs.
//!
//! Invariants: a pack keeps its number as long as the index exists; using a pack and condemning it
//! set flags in an order that lets each side see the other (see [`Pack::rely`]). Each pack takes 40
//! bytes of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use pinstripe_base::id::SetId;

/// One pack.
#[derive(Debug)]
pub struct Pack {
    /// The name.
    pub set: SetId,
    /// The length of the pack's records together, from an index run.
    pub bytes: u64,
    /// The number of extents that are needed to read the pack, D.
    pub data: u8,
    /// Further extents, P.
    pub parity: u8,
    extents: AtomicU8,
    used: AtomicBool,
    condemned: AtomicBool,
    reliable: AtomicBool,
}

impl Pack {
    pub(super) fn new(set: SetId, data: u8, parity: u8, bytes: u64, extents: usize) -> Self {
        let pack = Pack {
            set,
            bytes,
            data,
            parity,
            extents: AtomicU8::new(0),
            used: AtomicBool::new(false),
            condemned: AtomicBool::new(false),
            reliable: AtomicBool::new(true),
        };
        pack.set_extents(extents);
        pack
    }

    pub(super) fn set_extents(&self, extents: usize) {
        debug_assert!(extents <= usize::from(u8::MAX), "a set has at most 255 members");
        self.extents.store(extents.min(255) as u8, Ordering::Relaxed);
    }

    /// The number of the pack's extents on present members.
    pub fn extents(&self) -> usize {
        self.extents.load(Ordering::Relaxed).into()
    }

    /// Whether the pack has enough extents to be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.extents() >= usize::from(self.data)
    }

    /// Whether the pack lacks an extent that none of this many members can take, because each of
    /// them has another extent of it: gc rewrites such a pack.
    pub(crate) fn is_short_for(&self, members: usize) -> bool {
        let width = usize::from(self.data) + usize::from(self.parity);
        self.extents() < width && members < width
    }

    /// Whether a deletion has condemned the pack.
    pub(crate) fn is_condemned(&self) -> bool {
        self.condemned.load(Ordering::SeqCst)
    }

    pub(super) fn set_condemned(&self, condemned: bool) {
        self.condemned.store(condemned, Ordering::SeqCst);
    }

    /// Whether a writer may refer to chunks in the pack: an index run lists it, or it has all of
    /// its extents. A pack that is only readable may come from an interrupted backup, and has less
    /// parity than a new snapshot must have.
    pub(crate) fn is_reliable(&self) -> bool {
        self.reliable.load(Ordering::Relaxed)
    }

    pub(super) fn set_reliable(&self, reliable: bool) {
        self.reliable.store(reliable, Ordering::Relaxed);
    }

    /// Whether this process has relied on a chunk in the pack.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::SeqCst)
    }

    /// Marks the pack as used; returns `false` if it may not be used, because it is condemned,
    /// cannot be read or is not [reliable](Self::is_reliable). The thread that condemns sets its
    /// flag first and reads the used flags afterwards, so one of the two threads sees the other.
    #[must_use]
    pub fn rely(&self) -> bool {
        if self.is_condemned() || !self.is_readable() || !self.is_reliable() {
            return false;
        }
        self.used.store(true, Ordering::SeqCst);
        !self.is_condemned()
    }
}

/// All packs. A list of packs that grows by whole blocks, so that copying the list copies only a
/// few pointers.
#[derive(Debug, Clone, Default)]
pub struct Packs {
    /// The number of the first pack of each block, and the block, sorted by name.
    blocks: Vec<(u32, Arc<[Pack]>)>,
    len: u32,
}

impl Packs {
    /// Number of packs.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no pack.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pack with this number.
    pub fn get(&self, number: u32) -> Option<&Pack> {
        let block = self.blocks.partition_point(|(first, _)| *first <= number).checked_sub(1)?;
        let (first, packs) = &self.blocks[block];
        packs.get((number - first) as usize)
    }

    /// Returns the number of a pack.
    pub fn find(&self, set: &SetId) -> Option<u32> {
        self.blocks.iter().find_map(|(first, packs)| {
            packs.binary_search_by_key(set, |pack| pack.set).ok().map(|at| first + at as u32)
        })
    }

    /// Returns all packs with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Pack)> + '_ {
        self.blocks.iter().flat_map(|(first, packs)| (*first..).zip(packs.iter()))
    }

    /// Adds packs that are not in the list yet.
    pub(super) fn extend(&mut self, mut packs: Vec<Pack>) {
        if packs.is_empty() {
            return;
        }
        packs.sort_by_key(|pack| pack.set);
        packs.dedup_by_key(|pack| pack.set);
        let more = packs.len() as u32;
        self.blocks.push((self.len, packs.into()));
        self.len += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(first: u8, extents: usize) -> Pack {
        Pack::new(SetId([first; 16]), 3, 1, 64 << 20, extents)
    }

    #[test]
    fn packs_keep_their_numbers() {
        let mut packs = Packs::default();
        packs.extend(vec![pack(5, 4), pack(2, 3)]);
        packs.extend(Vec::new());
        let before = packs.clone();
        packs.extend(vec![pack(1, 2)]);
        let sets = |packs: &Packs| packs.iter().map(|(n, p)| (n, p.set.0[0])).collect::<Vec<_>>();
        assert_eq!(sets(&packs), [(0, 2), (1, 5), (2, 1)]);
        assert_eq!(packs.find(&SetId([1; 16])), Some(2));
        assert_eq!((packs.find(&SetId([9; 16])), packs.get(3).is_none()), (None, true));
        // A copy shares the marks.
        assert!(before.get(1).unwrap().rely() && packs.get(1).unwrap().is_used());
        assert!(!packs.get(2).unwrap().rely(), "too few extents");
    }

    #[test]
    fn a_condemned_pack_is_not_relied_upon_nor_marked() {
        let pack = pack(1, 4);
        pack.set_condemned(true);
        assert!(!pack.rely() && !pack.is_used());
        pack.set_condemned(false);
        assert!(pack.rely() && pack.is_used());
        assert!(std::mem::size_of::<Pack>() <= 40);
    }
}
