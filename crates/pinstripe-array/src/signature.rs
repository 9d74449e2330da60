//! The content that a device already carries: an array of ours or of md, a file system, a volume, a
//! partition table.
//!
//! Recognised by a few bytes at fixed places, as blkid(8) does it. Finding nothing is no proof that
//! nothing is there: it only says that nothing well known would be overwritten.

use std::fmt;

use crate::format::md::{self, MdPlace, MdSuperblock, MdVersion};
use crate::format::superblock::{MAGIC, PLACES, SUPERBLOCK_BYTES, Superblock};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ArrayId;
use pinstripe_io::device::Device;

/// The content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// A member of an array of ours.
    Array {
        /// Which.
        array: ArrayId,
        /// Its name for people.
        name: String,
    },
    /// A member of a Linux md array.
    Md {
        /// Its name for people; metadata 0.90 has none.
        name: String,
        /// Its metadata.
        version: MdVersion,
    },
    /// Something else that is well known, as in "an ext4 file system".
    Other(&'static str),
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Signature::Array { array, name } => {
                write!(f, "a member of the array '{name}' ({})", array.short())
            }
            Signature::Md { name, version } if name.is_empty() => {
                write!(f, "a member of an md array (metadata {version})")
            }
            Signature::Md { name, .. } => write!(f, "a member of the md array '{name}'"),
            Signature::Other(what) => f.write_str(what),
        }
    }
}

/// Magic bytes with where they stand, from the beginning.
const KNOWN: &[(usize, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (1024, &[2, 0, 0, 0, 0, 0, 0x34, 0x34], "a NILFS2 file system"),
    (32768, b"JFS1", "a JFS file system"),
    (8192 + 52, b"ReIsEr", "a Reiser file system"),
    (65536 + 52, b"ReIsEr", "a Reiser file system"),
    (65536, b"ReIsEr4", "a Reiser4 file system"),
    (4096 + 24, &[0xc6, 0x85, 0x73, 0xf6], "a bcachefs file system, or a part of a bcache"),
    (8192, b"OCFSV2", "an OCFS2 file system"),
    (65536, &[0x01, 0x16, 0x19, 0x70], "a GFS2 file system"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS file system"),
    (1024, b"H+\0\x04", "an HFS+ file system"),
    (1024, b"HX\0\x05", "an HFSX file system"),
    (32, b"NXSB", "an APFS file system"),
    (4096 - 10, b"SWAPSPACE2", "swap space"),
    (4096 - 10, b"SWAP-SPACE", "swap space"),
    (4096 - 10, b"S1SUSPEND", "swap space with a suspended system"),
    // On systems with larger pages.
    (8192 - 10, b"SWAPSPACE2", "swap space"),
    (16384 - 10, b"SWAPSPACE2", "swap space"),
    (65536 - 10, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0x4000, b"SKUL\xba\xbe", "an encrypted volume (LUKS)"),
    (3, b"-FVE-FS-", "an encrypted volume (BitLocker)"),
    (4096 + 4, b"!Stra0tis", "a member of a Stratis pool"),
    (0, b"dmvdo001", "a VDO volume"),
    (0, b"bluestore block device", "a Ceph device"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x52, b"FAT32   ", "a FAT file system"),
    (0x36, b"FAT16   ", "a FAT file system"),
    (0x36, b"FAT12   ", "a FAT file system"),
    (32769, b"CD001", "an ISO 9660 file system"),
    (32769, b"BEA01", "a UDF file system"),
    (0, b"hsqs", "a squashfs file system"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
];
/// Magic bytes at so many sectors from the end.
const AT_THE_END: &[(u64, &[u8], &str)] = &[
    (1, b"EFI PART", "the copy of a partition table (GPT)"),
    (1, &[0xde, 0x11, 0xde, 0x11], "a member of a RAID by firmware (DDF)"),
    (2, b"Intel Raid ISM Cfg Sig. ", "a member of a RAID by firmware (Intel)"),
];
/// The bytes examined at the beginning.
const HEAD_BYTES: u64 = 256 << 10;

/// The content of a device, if it is well known.
///
/// # Errors
/// Those of the device.
pub fn signature(device: &dyn Device) -> Result<Option<Signature>> {
    let len = device.len()?;
    let mut head = vec![0; len.min(HEAD_BYTES) as usize];
    device.read_at(0, &mut head)?;
    if let Some(found) = of_arrays(&head) {
        return Ok(Some(found));
    }
    match md_superblock(device) {
        Ok(found) => {
            let (name, version) = (found.name(), found.device.place.version);
            return Ok(Some(Signature::Md { name, version }));
        }
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
            return Ok(Some(Signature::Other("a member of an md array that cannot be read")));
        }
        Err(error) if error.kind() != Kind::NotFound => return Err(error),
        Err(_) => {}
    }
    let known = |(at, magic, what): &(usize, &[u8], &'static str)| {
        (head.get(*at..at + magic.len()) == Some(*magic)).then_some(*what)
    };
    let found = KNOWN.iter().find_map(known).or_else(|| of_ext(&head));
    let found = found.or_else(|| of_lvm(&head)).or_else(|| of_zfs(&head));
    let found = match found {
        None => at_the_end(device, len)?.or_else(|| of_mbr(&head)),
        some => some,
    };
    Ok(found.map(Signature::Other))
}

/// The superblock of md that a device carries. Of several that can be read it is that of the array
/// made last: a device that was given to another array may keep the superblock of another version.
///
/// # Errors
/// [`Kind::NotFound`] where there is none; those of [`MdPlace::decode`] when none can be read; those
/// of the device.
pub fn md_superblock(device: &dyn Device) -> Result<MdSuperblock> {
    let mut newest: Option<MdSuperblock> = None;
    let mut failed = None;
    for place in MdPlace::all(device.len()?) {
        let mut bytes = vec![0; md::SUPERBLOCK_BYTES];
        // Where another version has its superblock may be a bad sector of data.
        let read = device.read_at(place.offset(), &mut bytes);
        match read.and_then(|()| place.decode(&bytes)) {
            Ok(found) => {
                if newest.as_ref().is_none_or(|it| made_seconds(it) < made_seconds(&found)) {
                    newest = Some(found);
                }
            }
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => _ = failed.get_or_insert(error.at(device.place())),
        }
    }
    match (newest, failed) {
        (Some(newest), _) => Ok(newest),
        (None, Some(error)) => Err(error),
        (None, None) => {
            Err(Error::new(Kind::NotFound, "carries no superblock of md").at(device.place()))
        }
    }
}

/// Seconds are the low 40 bits.
fn made_seconds(superblock: &MdSuperblock) -> u64 {
    superblock.array.created & ((1 << 40) - 1)
}

/// Members of arrays of ours.
fn of_arrays(head: &[u8]) -> Option<Signature> {
    let ours = PLACES.iter().filter_map(|place| {
        let at = *place as usize;
        head.get(at..at + SUPERBLOCK_BYTES)?.try_into().ok()
    });
    let mut newest: Option<Superblock> = None;
    let mut damaged = None;
    for bytes in ours {
        match Superblock::decode(bytes) {
            Ok(found) if newest.as_ref().is_none_or(|it| it.generation < found.generation) => {
                newest = Some(found);
            }
            Ok(_) => {}
            Err(_) if bytes.starts_with(MAGIC) => {
                let what = "a member of an array of pinstripe that cannot be read";
                damaged = Some(Signature::Other(what));
            }
            Err(_) => {}
        }
    }
    if let Some(superblock) = newest {
        return Some(Signature::Array { array: superblock.array, name: superblock.name });
    }
    damaged
}

/// ext2, ext3 and ext4 share a magic number; what they can do tells them apart.
fn of_ext(head: &[u8]) -> Option<&'static str> {
    let superblock = head.get(1024..2048)?;
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().expect("four"));
    const HAS_JOURNAL: u32 = 4;
    // Extents, 64 bit, flexible groups: none of them is in ext3.
    const OF_EXT4: u32 = 0x40 | 0x80 | 0x200;
    Some(match (word(0x5c) & HAS_JOURNAL != 0, word(0x60) & OF_EXT4 != 0) {
        (_, true) => "an ext4 file system",
        (true, false) => "an ext3 file system",
        (false, false) => "an ext2 file system",
    })
}

/// The label is in one of the first four sectors.
fn of_lvm(head: &[u8]) -> Option<&'static str> {
    let mut sectors = head.chunks_exact(512).take(4);
    let is_label = |it: &[u8]| it.starts_with(b"LABELONE") && &it[24..32] == b"LVM2 001";
    sectors.any(is_label).then_some("an LVM physical volume")
}

/// A ring of uberblocks from 128 KiB on.
fn of_zfs(head: &[u8]) -> Option<&'static str> {
    const MAGIC: u64 = 0x00ba_b10c;
    let ring = head.get(128 << 10..)?;
    let is_it = |it: &[u8]| it[..8] == MAGIC.to_le_bytes() || it[..8] == MAGIC.to_be_bytes();
    ring.chunks_exact(1024).any(is_it).then_some("a ZFS device")
}

/// A boot record that has at least one partition.
fn of_mbr(head: &[u8]) -> Option<&'static str> {
    let is_boot_record = head.get(510..512) == Some(&[0x55, 0xaa]);
    let has_partition = is_boot_record && (0..4).any(|number| head[446 + 16 * number + 4] != 0);
    has_partition.then_some("a partition table (MBR)")
}

/// The metadata of RAID by firmware stands at the end of a device, and so does the copy of a
/// partition table.
fn at_the_end(device: &dyn Device, len: u64) -> Result<Option<&'static str>> {
    let sectors = len / md::SECTOR_BYTES;
    for (sectors_before, magic, what) in AT_THE_END {
        let Some(place) = sectors.checked_sub(*sectors_before) else { continue };
        let mut found = vec![0; magic.len()];
        device.read_at(place * md::SECTOR_BYTES, &mut found)?;
        if found == *magic {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_io::device::MemoryDevice;

    const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

    /// Bytes at a place.
    type Piece<'a> = (u64, &'a [u8]);

    fn with(pieces: &[Piece<'_>]) -> Option<String> {
        let device = MemoryDevice::new("memory");
        device.set_len(1 << 20).unwrap();
        for (at, bytes) in pieces {
            device.write_at(*at, bytes).unwrap();
        }
        signature(&device).unwrap().map(|it| it.to_string())
    }

    #[test]
    fn what_is_well_known_is_named() {
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[(512, b"EFI PARE")]), None);
        let cases: &[(&[Piece<'_>], &str)] = &[
            (&[(0, b"XFSB")], "an XFS file system"),
            (&[(0x10040, b"_BHRfS_M")], "a btrfs file system"),
            (&[(4086, b"SWAPSPACE2")], "swap space"),
            (&[(512, b"LABELONE"), (536, b"LVM2 001")], "an LVM physical volume"),
            (
                &[(512, b"EFI PART"), (450, &[0xee]), (510, &[0x55, 0xaa])],
                "a partition table (GPT)",
            ),
            (&[(450, &[0x83]), (510, &[0x55, 0xaa])], "a partition table (MBR)"),
            (&[(1080, &[0x53, 0xef])], "an ext2 file system"),
            (&[(1080, &[0x53, 0xef]), (1116, &[4])], "an ext3 file system"),
            (&[(1080, &[0x53, 0xef]), (1116, &[4]), (1120, &[0x40])], "an ext4 file system"),
            (&[(132 << 10, &[0x0c, 0xb1, 0xba])], "a ZFS device"),
            (&[(0, &MD_MAGIC)], "a member of an md array that cannot be read"),
            (&[(4096, &MD_MAGIC)], "a member of an md array that cannot be read"),
            (&[((1 << 20) - 8192, &MD_MAGIC)], "a member of an md array that cannot be read"),
            (&[((1 << 20) - 65536, &MD_MAGIC)], "a member of an md array that cannot be read"),
            (
                &[((1 << 20) - 512, &[0xde, 0x11, 0xde, 0x11])],
                "a member of a RAID by firmware (DDF)",
            ),
            (&[(0, MAGIC)], "a member of an array of pinstripe that cannot be read"),
            (&[(1024, &[2, 0, 0, 0, 0, 0, 0x34, 0x34])], "a NILFS2 file system"),
            (&[(32768, b"JFS1")], "a JFS file system"),
            (&[(65588, b"ReIsEr2Fs")], "a Reiser file system"),
            (&[(16374, b"SWAPSPACE2")], "swap space"),
            (&[((1 << 20) - 512, b"EFI PART")], "the copy of a partition table (GPT)"),
            (
                &[((1 << 20) - 1024, b"Intel Raid ISM Cfg Sig. ")],
                "a member of a RAID by firmware (Intel)",
            ),
        ];
        for (pieces, what) in cases {
            assert_eq!(with(pieces).as_deref(), Some(*what));
        }
    }

    #[test]
    fn short_devices_carry_nothing() {
        for bytes in [0, 1, 511, 1025, 4097, 66_000] {
            let device = MemoryDevice::new("memory");
            device.set_len(bytes).unwrap();
            assert_eq!(signature(&device).unwrap(), None, "{bytes}");
        }
    }
}
