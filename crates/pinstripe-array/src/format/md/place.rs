//! The place of the superblock in each version of md's metadata: `super_90_load` and `super_1_load`
//! in `drivers/md/md.c`.

use std::fmt;

use super::{MdSuperblock, SECTOR_BYTES, old, unsupported};
use pinstripe_base::error::Result;

/// A version of md's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MdVersion {
    /// In the last complete 64 KiB but one of the device; numbers are in the byte order of the
    /// machine.
    V0_90,
    /// At a multiple of 4 KiB, at least 8 KiB from the end of the device.
    V1_0,
    /// At the beginning.
    V1_1,
    /// 4 KiB from the beginning of the device.
    V1_2,
}

impl fmt::Display for MdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MdVersion::V0_90 => "0.90",
            MdVersion::V1_0 => "1.0",
            MdVersion::V1_1 => "1.1",
            MdVersion::V1_2 => "1.2",
        })
    }
}

/// The place of a superblock on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MdPlace {
    /// The version whose superblocks have this place.
    pub version: MdVersion,
    /// The first sector.
    pub sector: u64,
}

impl MdPlace {
    /// The place of version 1.2, on every device.
    pub const V1_2: MdPlace = MdPlace { version: MdVersion::V1_2, sector: 8 };

    /// All places on a device of this size, the usual one first.
    pub fn all(device_bytes: u64) -> impl Iterator<Item = MdPlace> {
        let sectors = device_bytes / SECTOR_BYTES;
        let at = |version, sector| MdPlace { version, sector };
        let places = [
            Some(MdPlace::V1_2),
            Some(at(MdVersion::V1_1, 0)),
            sectors.checked_sub(16).map(|sector| at(MdVersion::V1_0, sector & !7)),
            (sectors & !127).checked_sub(128).map(|sector| at(MdVersion::V0_90, sector)),
        ];
        let is_there = move |it: &MdPlace| it.sector + 8 <= sectors;
        places.into_iter().flatten().filter(is_there)
    }

    /// The place that a superblock of version 1 names.
    pub(super) fn of_version_1(sector: u64) -> Self {
        let version = match sector {
            0 => MdVersion::V1_1,
            8 => MdVersion::V1_2,
            _ => MdVersion::V1_0,
        };
        MdPlace { version, sector }
    }

    /// The offset on the device, in bytes.
    pub fn offset(self) -> u64 {
        self.sector.saturating_mul(SECTOR_BYTES)
    }

    /// Decodes the superblock that is stored here.
    ///
    /// # Errors
    /// Fails with the errors of [`MdSuperblock::decode`]; with
    /// [`Kind::Unsupported`](pinstripe_base::error::Kind) for a superblock that names another
    /// place.
    pub fn decode(self, bytes: &[u8]) -> Result<MdSuperblock> {
        if self.version == MdVersion::V0_90 {
            return old::decode(bytes, self.sector);
        }
        let superblock = MdSuperblock::decode(bytes)?;
        match superblock.device.place.sector {
            named if named == self.sector => Ok(superblock),
            named => Err(unsupported("the md superblock is at the wrong offset")
                .expected(format!("sector {}", self.sector), format!("sector {named}"))
                .advice(
                    "give the complete device that md used; the length of the device may also have \
                     changed",
                )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_kernel() {
        let at = |bytes: u64| MdPlace::all(bytes).map(|it| it.sector).collect::<Vec<_>>();
        // MD_NEW_SIZE_SECTORS(x) = (x & ~127) - 128; 1.0: (x - 16) & ~7.
        assert_eq!(at(4 << 20), [8, 0, 8192 - 16, 8192 - 128]);
        assert_eq!(at((4 << 20) + 70 * 1024), [8, 0, (8192 + 140 - 16) & !7, 8192]);
        assert_eq!(at(4095), Vec::<u64>::new());
        assert_eq!(at(8192), [8, 0, 0]);
        assert!(at(65535).len() == 3 && at(65536).len() == 4);
    }
}
