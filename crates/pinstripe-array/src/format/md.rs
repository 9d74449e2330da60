//! The superblock of a member of a Linux md array: decodes its 4 KiB and encodes them again.
//! Metadata 1.0, 1.1 and 1.2 differ only in where the superblock is ([`MdPlace`]); the module `old`
//! reads 0.90.
//!
//! The source is `include/uapi/linux/raid/md_p.h` and `super_1_load`, `super_1_validate` and
//! `calc_sb_1_csum` in `drivers/md/md.c` of Linux 6.1; the checks in these functions are also made
//! here. Numbers named `_sectors` are in md's units of 512 bytes.
//!
//! Invariants: a decoded superblock encodes to the same bytes, as far as these belong to the
//! superblock by md's rules; an unknown feature is refused, since it may change the place of data.
//!
//! This module does not decide which members belong together or whether they may be used: of
//! several superblocks, the one with the most events is the array's.

pub use place::{MdPlace, MdVersion};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::wire::{Reader, Writer};

/// The offset of a superblock of version 1.2 on a device, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 4096;
/// The longest superblock, in bytes.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// The unit of md's numbers, in bytes.
pub const SECTOR_BYTES: u64 = 512;
/// The most devices that a superblock has room to name.
pub(crate) const DEVICES_MAX: usize = (SUPERBLOCK_BYTES - HEAD_BYTES) / 2;
/// The largest size of a list of bad blocks, in bytes.
pub(crate) const BAD_BLOCKS_BYTES_MAX: usize = 4096;

/// The first word of every superblock; metadata 0.90 stores it in the byte order of the machine.
pub const MAGIC: u32 = 0xa92b_4efc;
const HEAD_BYTES: usize = 256;
const CHECKSUM_AT: usize = 216;

/// The array has a bitmap, `bitmap_sectors` from the superblock.
pub(crate) const FEATURE_BITMAP: u32 = 1;
/// This device holds data up to `recovery_sectors` only.
pub(crate) const FEATURE_RECOVERY: u32 = 1 << 1;
/// The array is being reshaped.
pub const FEATURE_RESHAPE: u32 = 1 << 2;
/// The list of bad blocks is not empty.
pub(crate) const FEATURE_BAD_BLOCKS: u32 = 1 << 3;
/// This device is to replace another device with the same role.
pub(crate) const FEATURE_REPLACEMENT: u32 = 1 << 4;
/// Several machines have the array open.
pub(crate) const FEATURE_CLUSTERED: u32 = 1 << 8;
/// One device is a journal, which may hold data that the other devices do not have yet.
pub const FEATURE_JOURNAL: u32 = 1 << 9;
/// Partial parity is logged.
pub(crate) const FEATURE_PPL: u32 = 1 << 10;
/// Partial parity is logged in several places in turn.
pub(crate) const FEATURE_MULTIPLE_PPLS: u32 = 1 << 11;
/// The layout gives the placement of level 0 on members of unequal size.
pub(crate) const FEATURE_RAID0_LAYOUT: u32 = 1 << 12;
/// All feature bits that this version knows.
pub(crate) const FEATURES_KNOWN: u32 = (1 << 13) - 1;

/// One superblock: array, device and state, field by field in md's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdSuperblock {
    /// The fields that are fixed for the life of the array.
    pub array: MdArrayInfo,
    /// The fields of this device only.
    pub device: MdDeviceInfo,
    /// The fields that change with every event.
    pub state: MdState,
    /// The role of every device, by device number; see [`MdSuperblock::role_of`].
    pub roles: Vec<u16>,
}

/// The fields that all superblocks of an array agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdArrayInfo {
    /// The `FEATURE_` bits that are set. Some features concern one device, some the entire array.
    pub features: u32,
    /// The array's name.
    pub set_uuid: [u8; 16],
    /// The array's name for people, often `host:name`, padded with zeros.
    pub set_name: [u8; 32],
    /// When the array was created: seconds since 1970 in the low 40 bits, microseconds above.
    pub created: u64,
    /// The level.
    pub level: i32,
    /// The number of the layout, whose meaning depends on the level.
    pub layout: u32,
    /// The used part of each device, in sectors.
    pub size_sectors: u64,
    /// The chunk size in sectors; 0 for level 1.
    pub chunk_sectors: u32,
    /// The number of members without the spares.
    pub members: u32,
    /// Bitmap or partial parity, by the features: see [`MdSuperblock::bitmap_sectors`] and
    /// [`MdSuperblock::ppl`].
    pub log: [u8; 4],
    /// The target of a reshape; meaningless if no reshape is in progress.
    pub reshape: MdReshape,
}

/// The progress of a reshape, and its target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdReshape {
    /// The level after the reshape.
    pub new_level: i32,
    /// The address in the array at which the reshape continues.
    pub position_sectors: u64,
    /// The number of members that the reshape adds; negative if it removes members.
    pub delta_members: i32,
    /// The layout after the reshape.
    pub new_layout: u32,
    /// The chunk size after the reshape.
    pub new_chunk_sectors: u32,
    /// How far this device's data moves.
    pub new_offset_sectors: i32,
}

/// The fields of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdDeviceInfo {
    /// The sector at which the device's data starts.
    pub data_offset_sectors: u64,
    /// The most sectors that data can take.
    pub data_sectors: u64,
    /// The place of this superblock, which determines the version of the metadata.
    pub place: MdPlace,
    /// The recovered part of the data, counted from its start; for a journal device, the tail of
    /// the journal.
    pub recovery_sectors: u64,
    /// The number of the device in the array, which is not its role.
    pub number: u32,
    /// Read errors that were repaired by writing again.
    pub corrected_reads: u32,
    /// The device's name.
    pub uuid: [u8; 16],
    /// Flag 1: write-mostly; flag 2: failfast, marked as failed at the first error.
    pub flags: u8,
    /// Entries of the bad block list count in `1 << shift` sectors.
    pub bad_blocks_shift: u8,
    /// The room for the list of bad blocks, in sectors.
    pub bad_blocks_sectors: u16,
    /// The place of the list of bad blocks, in sectors from the superblock.
    pub bad_blocks_offset_sectors: i32,
}

/// The fields that change with every event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdState {
    /// When the superblock changed last, in the same form as `created`.
    pub updated: u64,
    /// The number of changes of the array's state: of two superblocks, the one with the larger
    /// number is current.
    pub events: u64,
    /// The sector up to which the members agree; `u64::MAX` if they agree everywhere.
    pub resync_sectors: u64,
}

/// The role of a device in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The member with this number.
    Member(u16),
    /// The journal.
    Journal,
    /// Failed.
    Faulty,
    /// None yet.
    Spare,
}

impl Role {
    fn from_number(number: u16) -> Option<Self> {
        match number {
            0xffff => Some(Role::Spare),
            0xfffe => Some(Role::Faulty),
            0xfffd => Some(Role::Journal),
            0xff00.. => None,
            member => Some(Role::Member(member)),
        }
    }
}

/// The checksum of a superblock: the sum of its words, with the checksum field counted as 0, and
/// the carries over 32 bits added again.
fn checksum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    let own = u32::from_le_bytes(words[CHECKSUM_AT / 4]);
    // An odd number of roles leaves half a word.
    let half = rest.first_chunk().map_or(0, |half| u16::from_le_bytes(*half));
    let sum = sum - u64::from(own) + u64::from(half);
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

impl MdSuperblock {
    /// Reads a superblock of version 1 from its [`SUPERBLOCK_BYTES`]. The superblock names its own
    /// place: [`MdPlace::decode`] compares that with the place of the bytes.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] without a superblock, [`Kind::Unsupported`] for another
    /// version or unknown features, [`Kind::Corrupt`] for a wrong checksum and for impossible
    /// fields.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "md superblock");
        if bytes.len() < SUPERBLOCK_BYTES {
            return Err(reader
                .corrupt("the superblock is incomplete")
                .expected(SUPERBLOCK_BYTES, bytes.len()));
        }
        let magic = reader.u32()?;
        if magic != MAGIC {
            return Err(Error::new(Kind::NotFound, "there is no md superblock of version 1")
                .expected(format!("{MAGIC:08x}"), format!("{magic:08x}")));
        }
        let version = reader.u32()?;
        if version != 1 {
            return Err(unsupported("this version of md's metadata").expected(1, version));
        }
        let features = reader.u32()?;
        let len = check_sum(bytes)?;
        if features & !FEATURES_KNOWN != 0 {
            let unknown = features & !FEATURES_KNOWN;
            return Err(unsupported("the md array has unknown features")
                .expected("no others", format!("{unknown:#x}"))
                .advice("the array was made by a newer Linux: use a newer version of pinstripe"));
        }
        if reader.u32()? != 0 {
            return Err(unsupported("the padding of the md superblock is not zero"));
        }
        let array = MdArrayInfo::read(features, &mut reader)?;
        let device = MdDeviceInfo::read(&mut reader)?;
        let state = MdState::read(&mut reader)?;
        let count = (len - HEAD_BYTES) / 2;
        let roles = (0..count).map(|_| reader.u16()).collect::<Result<Vec<_>>>()?;
        let superblock = MdSuperblock { array, device, state, roles };
        superblock.check(len).map(|()| superblock)
    }

    /// Checks for impossible fields, as far as a single superblock shows them.
    fn check(&self, len: usize) -> Result<()> {
        let features = self.array.features;
        let has = |feature: u32| features & feature != 0;
        let ppl = FEATURE_PPL | FEATURE_MULTIPLE_PPLS;
        let device = &self.device;
        let place = device.place.offset();
        let (offset, sectors) = (device.data_offset_sectors, device.data_sectors);
        let bytes = offset.checked_add(sectors).and_then(|end| end.checked_mul(SECTOR_BYTES));
        let wrong = match () {
            () if bytes.is_none() => "the data area of the member ends at an impossible offset",
            () if sectors < 10 => "the member has no space for data",
            // Metadata 1.0 is after the data, the others before it.
            () if bytes.is_some_and(|end| end > place)
                && offset * SECTOR_BYTES < place.saturating_add(len as u64) =>
            {
                "the data area of the member would overlap its superblock"
            }
            () if has(FEATURE_RAID0_LAYOUT) && self.array.level != 0 => {
                "the superblock has a layout of level 0, but its level is not 0"
            }
            () if has(ppl) && has(FEATURE_BITMAP | FEATURE_JOURNAL) => {
                "the superblock has a partial parity log together with a bitmap or a journal"
            }
            () if features & ppl == ppl => "the superblock has partial parity logs of two kinds",
            () if has(FEATURE_BAD_BLOCKS) && device.bad_blocks_offset_sectors == 0 => {
                "the superblock says that a bad block list exists, but not at which offset"
            }
            () if device.bad_blocks_shift >= 64 => {
                "the superblock has an impossible block size for its list of bad blocks"
            }
            () if u64::from(device.bad_blocks_sectors) * SECTOR_BYTES
                > BAD_BLOCKS_BYTES_MAX as u64 =>
            {
                "the list of bad blocks is too long"
            }
            () if self.roles.iter().any(|&role| Role::from_number(role).is_none()) => {
                "the superblock lists a device with an unknown role"
            }
            () => return Ok(()),
        };
        Err(Error::new(Kind::Corrupt, format!("md superblock: {wrong}")))
    }

    /// The bytes of the superblock, padded with zeros.
    ///
    /// # Panics
    /// Panics with more than [`DEVICES_MAX`] roles, and for metadata 0.90, which is never written.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.device.place.version != MdVersion::V0_90, "metadata 0.90 is only read");
        assert!(self.roles.len() <= DEVICES_MAX, "a superblock has room for {DEVICES_MAX} roles");
        let mut bytes = Vec::with_capacity(SUPERBLOCK_BYTES);
        let mut writer = Writer::new(&mut bytes);
        writer.u32(MAGIC).u32(1).u32(self.array.features).u32(0);
        self.array.write(&mut writer);
        self.device.write(&mut writer);
        let MdState { updated, events, resync_sectors } = self.state;
        writer.u64(updated).u64(events).u64(resync_sectors);
        writer.u32(0).u32(self.roles.len() as u32).zeros(32);
        for &role in &self.roles {
            writer.u16(role);
        }
        let sum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes.resize(SUPERBLOCK_BYTES, 0);
        bytes
    }

    /// The role of this device when the superblock was written.
    pub fn role(&self) -> Role {
        self.role_of(self.device.number)
    }

    /// The role of the device with a number. A device whose number is not in the superblock is a
    /// spare.
    pub fn role_of(&self, number: u32) -> Role {
        let role = self.roles.get(number as usize);
        role.and_then(|&role| Role::from_number(role)).unwrap_or(Role::Spare)
    }

    /// Whether a feature's bit is set.
    pub fn has(&self, feature: u32) -> bool {
        self.array.features & feature != 0
    }

    /// Whether all members agree: nothing was being written and nothing has to be synced.
    pub fn is_clean(&self) -> bool {
        self.state.resync_sectors == u64::MAX
    }

    /// The array's name for people; bytes that are not UTF-8 are replaced.
    pub fn name(&self) -> String {
        let name = self.array.set_name.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// The place of the bitmap, in sectors from the superblock.
    pub fn bitmap_sectors(&self) -> Option<i32> {
        self.has(FEATURE_BITMAP).then(|| i32::from_le_bytes(self.array.log))
    }

    /// The place of the log of partial parity, in sectors from the superblock, and its length in
    /// sectors.
    pub fn ppl(&self) -> Option<(i16, u16)> {
        let [a, b, c, d] = self.array.log;
        let has = self.has(FEATURE_PPL | FEATURE_MULTIPLE_PPLS);
        has.then(|| (i16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
    }
}

/// Bad blocks as ranges of sectors of the **device**, decoded from their list: each entry has 54
/// bits of sector and 10 of length, and an entry of all ones ends the list.
pub fn bad_blocks(list: &[u8], shift: u8) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
    let entries = list.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    entries.take_while(|&entry| entry != u64::MAX).filter_map(move |entry| {
        let scaled = |count: u64| count.checked_shl(shift.into()).filter(|it| it >> shift == count);
        let start = scaled(entry >> 10)?;
        Some(start..start.checked_add(scaled(entry & 0x3ff)?)?)
    })
}

mod fields;
mod old;
mod place;
#[cfg(test)]
mod tests;

fn unsupported(what: &str) -> Error {
    Error::new(Kind::Unsupported, what)
}

/// Verifies the checksum and returns the length of the superblock in bytes.
fn check_sum(bytes: &[u8]) -> Result<usize> {
    let mut reader = Reader::new(&bytes[CHECKSUM_AT..], "md superblock");
    let (stored, devices) = (reader.u32()?, reader.u32()?);
    if devices as usize > DEVICES_MAX {
        return Err(Error::new(Kind::Corrupt, "md superblock: too many devices")
            .expected(format!("at most {DEVICES_MAX} devices"), devices));
    }
    let len = HEAD_BYTES + 2 * devices as usize;
    let computed = checksum(&bytes[..len]);
    if stored != computed {
        return Err(Error::new(Kind::Corrupt, "md superblock: the checksum is wrong")
            .expected(format!("{computed:08x}"), format!("{stored:08x}")));
    }
    Ok(len)
}
