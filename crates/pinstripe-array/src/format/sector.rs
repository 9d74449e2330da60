//! A sector: 508 bytes that a disk writes completely or not at all, and a checksum bound to the
//! place.
//!
//! A power cut leaves each sector either old or new. The checksum does not match if the sector was
//! written to another place, was never written, or has another version than the expected one.

use super::crc32c_of;
use super::version::Version;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ArrayId, MemberId};

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;
/// Bytes of content in a sector.
pub const CONTENT_BYTES: usize = SECTOR_BYTES - 4;

/// A sector's content.
pub(crate) type SectorContent = [u8; CONTENT_BYTES];

/// The content of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TableKind {
    /// Checksums of blocks.
    Sums = 1,
    /// States of regions.
    Regions = 2,
}

/// The place that a sector belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorPlace {
    /// The array.
    pub array: ArrayId,
    /// The member.
    pub member: MemberId,
    /// The slot.
    pub slot: u16,
    /// The area.
    pub area: TableKind,
    /// The number of the sector in its area.
    pub number: u64,
    /// The version of the sector's content; the first version if versions are not counted.
    pub version: Version,
}

impl SectorPlace {
    fn checksum(&self, content: &[u8]) -> u32 {
        let mut place = [0; 45];
        place[..16].copy_from_slice(&self.array.0);
        place[16..32].copy_from_slice(&self.member.0);
        place[32..34].copy_from_slice(&self.slot.to_le_bytes());
        place[34] = self.area as u8;
        place[35..43].copy_from_slice(&self.number.to_le_bytes());
        place[43..].copy_from_slice(&self.version.to_bytes());
        crc32c_of(&[&place], content)
    }

    /// The bytes of a sector.
    pub fn encode(&self, content: &SectorContent) -> [u8; SECTOR_BYTES] {
        let mut out = [0; SECTOR_BYTES];
        out[..CONTENT_BYTES].copy_from_slice(content);
        out[CONTENT_BYTES..].copy_from_slice(&self.checksum(content).to_le_bytes());
        out
    }

    /// Reads a sector back.
    ///
    /// # Errors
    /// Fails with [`Kind::Corrupt`] when the sector is incomplete, or belongs to another place.
    pub fn decode<'a>(&self, bytes: &'a [u8; SECTOR_BYTES]) -> Result<&'a SectorContent> {
        let (content, check) = bytes.split_first_chunk().expect("a sector is longer");
        match *check == self.checksum(content).to_le_bytes() {
            true => Ok(content),
            false => {
                let what = match self.area {
                    TableKind::Sums => "table of checksums",
                    TableKind::Regions => "map of regions",
                };
                let what = format!("sector {} of the {what} is damaged", self.number);
                Err(Error::new(Kind::Corrupt, what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: SectorPlace = SectorPlace {
        array: ArrayId([7; 16]),
        member: MemberId([8; 16]),
        slot: 3,
        area: TableKind::Sums,
        number: 90,
        version: Version::FIRST,
    };

    #[test]
    fn a_sector_comes_back_and_only_where_it_belongs() {
        let content = std::array::from_fn(|n| n as u8);
        let bytes = PLACE.encode(&content);
        assert_eq!(PLACE.decode(&bytes).unwrap(), &content);
        let strangers = [
            SectorPlace { number: 91, ..PLACE },
            SectorPlace { slot: 2, ..PLACE },
            SectorPlace { area: TableKind::Regions, ..PLACE },
            SectorPlace { array: ArrayId([8; 16]), ..PLACE },
            SectorPlace { member: MemberId([7; 16]), ..PLACE },
            SectorPlace { version: PLACE.version.plus(1), ..PLACE },
        ];
        for stranger in strangers {
            assert_eq!(stranger.decode(&bytes).unwrap_err().kind(), Kind::Corrupt);
        }
        for at in 0..SECTOR_BYTES {
            let mut hurt = bytes;
            hurt[at] ^= 0x10;
            assert_eq!(PLACE.decode(&hurt).unwrap_err().kind(), Kind::Corrupt, "{at}");
        }
    }

    #[test]
    fn a_disk_of_zeros_holds_no_sector() {
        // Or all that was lost would seem never to have been written.
        assert_eq!(PLACE.decode(&[0; SECTOR_BYTES]).unwrap_err().kind(), Kind::Corrupt);
    }
}
