//! Recognises the content that a device already has: an object of pinstripe, a member of an md
//! array, a file system, a volume, a partition table, an image of a disk, an archive.
//!
//! Content is recognised by a few bytes at fixed places, as in blkid(8). An empty result does not
//! prove that the device is empty, only that nothing well known would be overwritten.

mod known;

use std::fmt;

use crate::format::md::{self, MdPlace, MdSuperblock, MdVersion};
use crate::format::superblock::{MAGIC, PLACES, SUPERBLOCK_BYTES, Superblock};
use known::{AT_THE_END, FAR, KNOWN};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::ArrayId;
use pinstripe_io::device::Device;

/// The recognised content of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// A member of a pinstripe array.
    Array {
        /// The array.
        array: ArrayId,
        /// The array's name for people.
        name: String,
    },
    /// A member of a Linux md array.
    Md {
        /// The array's name for people; metadata 0.90 has none.
        name: String,
        /// The metadata.
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

/// The number of bytes that are examined at the beginning of a device.
const HEAD_BYTES: u64 = 260 << 10;

/// The content of a device, if it is recognised.
///
/// # Errors
/// Fails with the errors of the device.
pub fn signature(device: &dyn Device) -> Result<Option<Signature>> {
    let len = device.len()?;
    let mut head = vec![0; len.min(HEAD_BYTES) as usize];
    device.read_at(0, &mut head)?;
    if let Some(found) = of_arrays(&head) {
        return Ok(Some(found));
    }
    // A device whose end cannot be read may carry something at its beginning anyway.
    let mut unread = None;
    match md_superblock(device) {
        Ok(found) => {
            let (name, version) = (found.name(), found.device.place.version);
            return Ok(Some(Signature::Md { name, version }));
        }
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
            return Ok(Some(Signature::Other("a member of an md array that cannot be read")));
        }
        Err(error) if error.kind() != Kind::NotFound => unread = Some(error),
        Err(_) => {}
    }
    let known = |(at, magic, what): &(usize, &[u8], &'static str)| {
        (head.get(*at..at + magic.len()) == Some(*magic)).then_some(*what)
    };
    let found = of_ours(&head).or_else(|| KNOWN.iter().find_map(known));
    let found = found.or_else(|| of_ext(&head)).or_else(|| of_lvm(&head));
    let found = found.or_else(|| of_zfs(&head)).or_else(|| of_ufs(&head));
    let found = found.or_else(|| of_minix(&head)).or_else(|| of_hfs(&head));
    let found = match found {
        None if unread.is_some() => return unread.map_or(Ok(None), Err),
        None => at_the_end(device, len)?,
        some => some,
    };
    let found = match found {
        None => far_away(device, len)?.or_else(|| of_labels(&head)).or_else(|| of_mbr(&head)),
        some => some,
    };
    Ok(found.map(Signature::Other))
}

/// The superblock of a device that is a member of an md array. If several superblocks can be read,
/// the one of the array created last is returned: a device that was moved to another array may keep
/// a superblock of another version.
///
/// # Errors
/// Fails with [`Kind::NotFound`] when the device has no md superblock; with the errors of
/// [`MdPlace::decode`] when it has one, but no copy can be decoded; with the errors of the device.
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
        (None, None) => Err(Error::new(Kind::NotFound, "has no md superblock").at(device.place())),
    }
}

/// The creation time in seconds: the low 40 bits of the field.
fn made_seconds(superblock: &MdSuperblock) -> u64 {
    superblock.array.created & ((1 << 40) - 1)
}

/// Recognises outputs of `split`, and objects of a store that were written to a device.
fn of_ours(head: &[u8]) -> Option<&'static str> {
    const FRAMED: &[u8] = b"PINSTRIP";
    const OUTPUT_PAGE_BYTES: usize = 4096;
    const SPLIT_HEAD: u8 = 10;
    const SPLIT_END: u8 = 11;
    let kind_at =
        |at: usize| head.get(at..at + 9).and_then(|it| it.starts_with(FRAMED).then_some(it[8]));
    match (kind_at(0), kind_at(OUTPUT_PAGE_BYTES)) {
        // One of the two pages is enough: the other may be damaged.
        (Some(SPLIT_HEAD), _) | (_, Some(SPLIT_END)) => Some("an output of 'pinstripe split'"),
        (Some(_), _) => Some("an object of a pinstripe store"),
        _ => None,
    }
}

/// Recognises members of pinstripe arrays.
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

/// ext2, ext3 and ext4 share a magic number; their feature flags distinguish them.
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

/// The label of LVM is in one of the first four sectors.
fn of_lvm(head: &[u8]) -> Option<&'static str> {
    let mut sectors = head.chunks_exact(512).take(4);
    let is_label = |it: &[u8]| it.starts_with(b"LABELONE") && &it[24..32] == b"LVM2 001";
    sectors.any(is_label).then_some("an LVM physical volume")
}

/// ZFS has a ring of uberblocks from 128 KiB on.
fn of_zfs(head: &[u8]) -> Option<&'static str> {
    const MAGIC: u64 = 0x00ba_b10c;
    let ring = head.get(128 << 10..head.len().min(256 << 10))?;
    let is_it = |it: &[u8]| it[..8] == MAGIC.to_le_bytes() || it[..8] == MAGIC.to_be_bytes();
    ring.chunks_exact(1024).any(is_it).then_some("a ZFS device")
}

/// The superblock of UFS is in one of four places, in either byte order.
fn of_ufs(head: &[u8]) -> Option<&'static str> {
    const MAGIC_AT: usize = 1372;
    const MAGICS: [u32; 6] =
        [0x0001_1954, 0x1954_0119, 0x0019_5612, 0x0009_5014, 0x0061_2195, 0x0523_1994];
    let is_it = |place: usize| {
        let bytes = head.get(place + MAGIC_AT..place + MAGIC_AT + 4)?.try_into().ok()?;
        let found = [u32::from_le_bytes(bytes), u32::from_be_bytes(bytes)];
        MAGICS.iter().any(|magic| found.contains(magic)).then_some("a UFS file system")
    };
    [0, 8 << 10, 64 << 10, 256 << 10].into_iter().find_map(is_it)
}

/// Minix's magic has only two bytes, which random data may also have: the zones field, which is
/// always zero, and the block counts next to it are checked too.
fn of_minix(head: &[u8]) -> Option<&'static str> {
    let word = |at: usize| -> Option<u16> {
        Some(u16::from_le_bytes(head.get(1024 + at..1024 + at + 2)?.try_into().ok()?))
    };
    let is_old =
        [0x137f, 0x138f, 0x2468, 0x2478].contains(&word(16)?) && word(10)? == 0 && word(4)? != 0;
    let is_new = word(24)? == 0x4d5a && word(12)? == 0 && word(6)? != 0;
    (is_old || is_new).then_some("a minix file system")
}

/// HFS's magic has only two bytes, too: its allocation blocks have to be a multiple of a sector.
fn of_hfs(head: &[u8]) -> Option<&'static str> {
    let block = head.get(1024 + 20..1024 + 24)?;
    let block_bytes = u32::from_be_bytes(block.try_into().ok()?);
    let is_it = &head[1024..1026] == b"BD" && block_bytes != 0 && block_bytes % 512 == 0;
    is_it.then_some("an HFS file system")
}

/// Recognises disk labels other than those of a PC.
fn of_labels(head: &[u8]) -> Option<&'static str> {
    let sector = head.get(..512)?;
    let is_sun = sector[508..510] == [0xda, 0xbe] && is_even(sector);
    let is_mac = sector.starts_with(b"ER") && head.get(512..514) == Some(b"PM");
    match () {
        () if is_sun => Some("a partition table (Sun)"),
        () if is_mac => Some("a partition table (Apple)"),
        () => None,
    }
}

/// Whether the exclusive or of all words is zero, as in Sun's checksum.
fn is_even(sector: &[u8]) -> bool {
    let words = sector.chunks_exact(2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    words.fold(0, |sum, it| sum ^ it) == 0
}

/// A boot record, with partitions or with an empty partition table.
fn of_mbr(head: &[u8]) -> Option<&'static str> {
    let table = head.get(446..512)?;
    let is_boot_record = table[64..] == [0x55, 0xaa];
    match (0..4).any(|number| table[16 * number + 4] != 0) {
        true if is_boot_record => Some("a partition table (MBR)"),
        false if is_boot_record && table[..64].iter().all(|it| *it == 0) => {
            Some("a partition table (MBR) without partitions")
        }
        _ => None,
    }
}

/// The metadata of firmware RAID is at the end of a device, and so is the copy of a partition
/// table.
fn at_the_end(device: &dyn Device, len: u64) -> Result<Option<&'static str>> {
    let sectors = len / md::SECTOR_BYTES;
    for (before_the_end, magic, what) in AT_THE_END {
        let Some(place) = (sectors * md::SECTOR_BYTES).checked_sub(*before_the_end) else {
            continue;
        };
        if is_at(device, place, magic)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// Recognises magic bytes beyond the part that is read at the beginning.
fn far_away(device: &dyn Device, len: u64) -> Result<Option<&'static str>> {
    for (place, magic, what) in FAR {
        if place + magic.len() as u64 <= len && is_at(device, *place, magic)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn is_at(device: &dyn Device, place: u64, magic: &[u8]) -> Result<bool> {
    let mut found = vec![0; magic.len()];
    device.read_at(place, &mut found)?;
    Ok(found == magic)
}

#[cfg(test)]
mod tests;
