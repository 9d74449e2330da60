//! The table of checksums of a member: a sum for each 4 KiB of its data, in leaves of 512 bytes.
//!
//! ```text
//! leaf:  sums of 127 blocks, 4 each | CRC-32C 4, of array, member, number of the leaf, sums
//! ```
//! A leaf is what a disk writes whole or not at all, so that a power cut leaves each one old or new. The
//! sum 0 means that the block was never written: it reads as zeros, whatever the disk has there.
//!
//! Invariant: a leaf that does not match says nothing of its blocks, and is none that were never written.

use super::{crc32c, crc32c_of};
use crate::error::{Error, Kind, Result};
use crate::id::ArrayId;

/// Bytes of a leaf.
pub const LEAF_BYTES: usize = 512;
/// Blocks that a leaf speaks of.
pub const LEAF_BLOCKS: usize = LEAF_BYTES / 4 - 1;

/// What is known of a block: nothing was ever written to it, or the checksum of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u32);

impl Sum {
    /// Of a block that was never written.
    pub const UNWRITTEN: Sum = Sum(0);

    /// Of a block's bytes. What would come to 0 is called 1.
    pub fn of(block: &[u8]) -> Self {
        Sum(crc32c(block).max(1))
    }

    /// Whether the block was ever written.
    pub fn is_written(self) -> bool {
        self != Self::UNWRITTEN
    }

    /// Whether a block with these bytes may have this sum.
    pub fn suits(self, block: &[u8]) -> bool {
        self == Self::of(block)
    }

    /// As it is stored.
    pub(super) fn to_bits(self) -> u32 {
        self.0
    }

    /// From what is stored.
    pub(super) fn from_bits(bits: u32) -> Self {
        Sum(bits)
    }
}

/// Where a leaf belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafPlace {
    /// The array.
    pub array: ArrayId,
    /// The member's slot.
    pub slot: u16,
    /// Number of the leaf on the member.
    pub leaf: u64,
}

impl LeafPlace {
    fn checksum(&self, sums: &[u8]) -> u32 {
        crc32c_of(&[&self.array.0, &self.slot.to_le_bytes(), &self.leaf.to_le_bytes()], sums)
    }

    /// The bytes of a leaf.
    pub fn encode(&self, sums: &[Sum; LEAF_BLOCKS]) -> [u8; LEAF_BYTES] {
        let mut out = [0; LEAF_BYTES];
        let (body, check) = out.split_at_mut(4 * LEAF_BLOCKS);
        for (to, sum) in body.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
            *to = sum.0.to_le_bytes();
        }
        check.copy_from_slice(&self.checksum(body).to_le_bytes());
        out
    }

    /// Reads a leaf back.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] when it is not whole, or belongs elsewhere.
    pub fn decode(&self, bytes: &[u8; LEAF_BYTES]) -> Result<[Sum; LEAF_BLOCKS]> {
        let (body, check) = bytes.split_at(4 * LEAF_BLOCKS);
        if *check != self.checksum(body).to_le_bytes() {
            let what = format!("leaf {} of the table of checksums is damaged", self.leaf);
            return Err(Error::new(Kind::Corrupt, what));
        }
        let mut sums = [Sum::UNWRITTEN; LEAF_BLOCKS];
        for (sum, bytes) in sums.iter_mut().zip(body.as_chunks::<4>().0) {
            *sum = Sum(u32::from_le_bytes(*bytes));
        }
        Ok(sums)
    }
}

/// Leaf of a block, and its place in there.
pub fn leaf_of(block: u64) -> (u64, usize) {
    (block / LEAF_BLOCKS as u64, (block % LEAF_BLOCKS as u64) as usize)
}

/// Leaves that a member with so many blocks of data needs.
pub fn leaves(blocks: u64) -> u64 {
    blocks.div_ceil(LEAF_BLOCKS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: LeafPlace = LeafPlace { array: ArrayId([7; 16]), slot: 3, leaf: 90 };

    #[test]
    fn a_leaf_comes_back_and_only_where_it_belongs() {
        let sums = std::array::from_fn(|n| Sum::of(&[n as u8; 9]));
        let bytes = PLACE.encode(&sums);
        assert_eq!(PLACE.decode(&bytes).unwrap(), sums);
        let strangers = [
            LeafPlace { leaf: 91, ..PLACE },
            LeafPlace { slot: 2, ..PLACE },
            LeafPlace { array: ArrayId([8; 16]), ..PLACE },
        ];
        for stranger in strangers {
            assert_eq!(stranger.decode(&bytes).unwrap_err().kind(), Kind::Corrupt);
        }
        for at in 0..LEAF_BYTES {
            let mut hurt = bytes;
            hurt[at] ^= 0x10;
            assert_eq!(PLACE.decode(&hurt).unwrap_err().kind(), Kind::Corrupt, "{at}");
        }
    }

    #[test]
    fn a_disk_of_zeros_holds_no_leaf() {
        // Or all that was lost would seem never to have been written.
        assert_eq!(PLACE.decode(&[0; LEAF_BYTES]).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn no_content_seems_never_written() {
        assert!(Sum::of(&[0; 4096]).is_written() && Sum::of(&[]).is_written());
        assert!(Sum::of(&[]).suits(&[]) && !Sum::UNWRITTEN.suits(&[]));
    }

    #[test]
    fn each_block_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for block in 0..1000 {
            assert_eq!(leaf_of(block), next);
            next = if next.1 + 1 == LEAF_BLOCKS { (next.0 + 1, 0) } else { (next.0, next.1 + 1) };
            assert_eq!(leaves(block + 1), leaf_of(block).0 + 1);
        }
        assert_eq!(leaves(0), 0);
    }
}
