//! The metadata of an array's member, which precedes its data.
//!
//! ```text
//! superblock 4 KiB | ... | superblock 4 KiB | regions | bad blocks | log | checksums | data ...
//! 0                        64 KiB             as the superblock says, all at multiples of 4 KiB
//! ```
//!
//! The two superblocks are written in turn, so that one of them is complete whatever happens to the
//! other. All bytes are checked by CRC-32C, seeded with the kind and the place of the bytes: a
//! write that went to another place, or to another member, is detected like a flipped bit.

pub mod journal;
pub mod log;
pub mod md;
pub mod regions;
pub mod sector;
pub mod sums;
pub mod superblock;
mod version;

/// The unit of a checksum, and the smallest piece of a member that is read or written.
pub const BLOCK_BYTES: u64 = 4096;

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of some bytes, preceded by the place to which they belong.
fn crc32c_of(place: &[&[u8]], bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    place.iter().for_each(|part| digest.update(part));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_is_pinned() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c_of(&[&ascending[..7], &ascending[7..9]], &ascending[9..]), 0x46dd_794e);
    }
}
