//! The table of checksums of a member: a sum for each 4 KiB of its data, in leaves of one sector.
//!
//! ```text
//! leaf:  a sector, whose content is the sums of 127 blocks, 4 bytes each
//! page:  eight leaves, 4 KiB, which the map of regions has a state for
//! ```
//!
//! The sum ffffffff means that the content of the block is unknown: it is an erasure. The sum 0
//! means that the block was never written: it reads as zeros, whatever is on the disk. A page that
//! was never written is not stored; its region and all of its blocks count as unwritten.
//!
//! A page is written as a unit, under a version that is hashed into each of its leaves and stored
//! in the map. So the checksum of a leaf does not match if the disk lost the last write of that
//! leaf.
//!
//! Invariant: a leaf that does not match says nothing about its blocks; in particular, it does not
//! say that they were never written.

use super::crc32c;
use super::sector::{CONTENT_BYTES, SECTOR_BYTES, SectorContent};

/// The number of blocks that a leaf covers.
pub(crate) const LEAF_BLOCKS: usize = CONTENT_BYTES / 4;
/// The number of leaves in a page.
pub(crate) const PAGE_LEAVES: usize = 8;
/// Bytes of a page.
pub const PAGE_BYTES: usize = PAGE_LEAVES * SECTOR_BYTES;
/// The number of blocks that a page covers: one region.
pub(crate) const PAGE_BLOCKS: u64 = (PAGE_LEAVES * LEAF_BLOCKS) as u64;

/// The state of a block: never written, or the checksum of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u32);

impl Sum {
    /// The sum of a block that was never written.
    pub(crate) const UNWRITTEN: Sum = Sum(0);
    /// The sum of a block that was written and is lost: no bytes match this sum.
    pub const LOST: Sum = Sum(u32::MAX);

    /// The sum of a block's bytes. Two values are reserved: a checksum of 0 is replaced by 1, and
    /// one equal to [`Sum::LOST`] by the next lower number.
    pub(crate) fn from_block(block: &[u8]) -> Self {
        Sum(crc32c(block).clamp(1, u32::MAX - 1))
    }

    /// Whether the block was ever written.
    pub fn is_written(self) -> bool {
        self != Self::UNWRITTEN
    }

    /// Whether a block with these bytes matches this sum.
    pub fn suits(self, block: &[u8]) -> bool {
        self == Self::from_block(block)
    }

    /// The sum in its stored form.
    pub(super) fn to_bits(self) -> u32 {
        self.0
    }

    /// Reads a sum from its stored form.
    pub(super) fn from_bits(bits: u32) -> Self {
        Sum(bits)
    }
}

/// The sums of one leaf.
pub(crate) type Leaf = [Sum; LEAF_BLOCKS];

/// The content of a leaf.
pub fn encode(sums: &Leaf) -> SectorContent {
    let mut out = [0; CONTENT_BYTES];
    for (to, sum) in out.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
        *to = sum.0.to_le_bytes();
    }
    out
}

/// Reads the content of a leaf back.
pub fn decode(content: &SectorContent) -> Leaf {
    let mut sums = [Sum::UNWRITTEN; LEAF_BLOCKS];
    for (sum, bytes) in sums.iter_mut().zip(content.as_chunks::<4>().0) {
        *sum = Sum(u32::from_le_bytes(*bytes));
    }
    sums
}

/// The page of a block, and the index of the block in the page.
pub(crate) fn page_of(block: u64) -> (u64, usize) {
    (block / PAGE_BLOCKS, (block % PAGE_BLOCKS) as usize)
}

/// The number of pages that a member with this many blocks of data needs.
pub fn pages(blocks: u64) -> u64 {
    blocks.div_ceil(PAGE_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_comes_back() {
        let sums = std::array::from_fn(|n| Sum::from_block(&[n as u8; 9]));
        assert_eq!(decode(&encode(&sums)), sums);
        assert_eq!(encode(&[Sum::UNWRITTEN; LEAF_BLOCKS]), [0; CONTENT_BYTES]);
    }

    #[test]
    fn no_content_seems_never_written() {
        assert!(Sum::from_block(&[0; 4096]).is_written() && Sum::from_block(&[]).is_written());
        assert!(Sum::from_block(&[]).suits(&[]) && !Sum::UNWRITTEN.suits(&[]));
        assert!(Sum::LOST.is_written() && !Sum::LOST.suits(&[]));
    }

    #[test]
    fn each_block_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for block in 0..3000 {
            assert_eq!(page_of(block), next);
            assert_eq!(pages(block + 1), next.0 + 1);
            let is_last = next.1 as u64 + 1 == PAGE_BLOCKS;
            next = if is_last { (next.0 + 1, 0) } else { (next.0, next.1 + 1) };
        }
        assert_eq!(pages(0), 0);
    }
}
