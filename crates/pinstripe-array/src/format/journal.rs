//! The journal of a stretch that is moved in place: the new bytes of a member, at the beginning of
//! its log, which is empty during the move.
//!
//! ```text
//! magic 4 | CRC-32C 4, of where it belongs and the sums | per chunk, in the order of the member's data, and
//!   each 4 KiB: the checksum to be 4 | zeros up to a multiple of 4 KiB
//! per chunk: the bytes of the column
//! ```
//!
//! The superblock names the stretch and the column; the journal of another one does not match.

use super::sums::Sum;
use super::{BLOCK_BYTES, crc32c_of};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ArrayId;

const MAGIC: &[u8; 4] = b"PSaj";
const HEAD_BYTES: usize = 8;

/// The place that a journal belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalPlace {
    /// The array.
    pub array: ArrayId,
    /// The member's slot.
    pub slot: u16,
    /// The number of the stretch that is moved.
    pub stretch: u64,
    /// The first byte of the column in each chunk.
    pub start: u32,
    /// The number of bytes of the column in each chunk, a multiple of the block size.
    pub width: u32,
    /// The number of chunks of the member that the journal holds.
    pub chunks: u32,
}

impl JournalPlace {
    fn sums(&self) -> usize {
        self.chunks as usize * (u64::from(self.width) / BLOCK_BYTES) as usize
    }

    /// Bytes of the journal before those of the chunks.
    pub(crate) fn head_bytes(&self) -> u64 {
        ((HEAD_BYTES + 4 * self.sums()) as u64).next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.head_bytes() + u64::from(self.chunks) * u64::from(self.width)
    }

    fn checksum(&self, sums: &[u8]) -> u32 {
        let slot = self.slot.to_le_bytes();
        let (stretch, start) = (self.stretch.to_le_bytes(), self.start.to_le_bytes());
        let (width, chunks) = (self.width.to_le_bytes(), self.chunks.to_le_bytes());
        crc32c_of(&[MAGIC, &self.array.0, &slot, &stretch, &start, &width, &chunks], sums)
    }

    /// The head, which precedes the bytes of the chunks.
    ///
    /// # Panics
    /// Panics if the number of sums is not the number of blocks.
    pub fn encode(&self, sums: &[Sum]) -> Vec<u8> {
        assert_eq!(sums.len(), self.sums(), "a sum for each block");
        let mut out = vec![0; HEAD_BYTES];
        sums.iter().for_each(|sum| out.extend_from_slice(&sum.to_bits().to_le_bytes()));
        let check = self.checksum(&out[HEAD_BYTES..]);
        out[..4].copy_from_slice(MAGIC);
        out[4..HEAD_BYTES].copy_from_slice(&check.to_le_bytes());
        out.resize(self.head_bytes() as usize, 0);
        out
    }

    /// Reads the checksums back from a head.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the head is incomplete, or belongs to another place.
    pub fn decode(&self, bytes: &[u8]) -> Result<Vec<Sum>> {
        let damaged = || Error::new(Kind::Corrupt, "the journal of the reshape is damaged");
        let sums = bytes.get(HEAD_BYTES..HEAD_BYTES + 4 * self.sums()).ok_or_else(damaged)?;
        let check = self.checksum(sums).to_le_bytes();
        if bytes[..4] != *MAGIC || bytes[4..HEAD_BYTES] != check {
            return Err(damaged());
        }
        let bits = sums.as_chunks::<4>().0.iter().map(|bits| u32::from_le_bytes(*bits));
        Ok(bits.map(Sum::from_bits).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_comes_back_and_only_where_it_belongs() {
        let place = JournalPlace {
            array: ArrayId([3; 16]),
            slot: 2,
            stretch: 5,
            start: 8192,
            width: 8192,
            chunks: 3,
        };
        let sums: Vec<Sum> = (0..6u8).map(|n| Sum::from_block(&[n])).collect();
        let bytes = place.encode(&sums);
        assert_eq!((bytes.len() as u64, place.bytes()), (4096, 4096 + 3 * 8192));
        assert_eq!(place.decode(&bytes).unwrap(), sums);
        let strangers = [
            JournalPlace { slot: 1, ..place },
            JournalPlace { stretch: 4, ..place },
            JournalPlace { start: 0, ..place },
            JournalPlace { chunks: 2, ..place },
            JournalPlace { array: ArrayId([4; 16]), ..place },
        ];
        for stranger in strangers {
            assert_eq!(stranger.decode(&bytes).unwrap_err().kind(), Kind::Corrupt);
        }
        for at in 0..32 {
            let mut hurt = bytes.clone();
            hurt[at] ^= 1;
            assert!(place.decode(&hurt).is_err(), "{at}");
        }
        assert!(place.decode(&bytes[..9]).is_err() && place.decode(&[0; 4096]).is_err());
    }
}
