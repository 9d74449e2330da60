//! The superblock of metadata 0.90: `mdp_super_t` in `include/uapi/linux/raid/md_p.h`,
//! `super_90_load` and `super_90_validate` in `drivers/md/md.c`.
//!
//! The superblock has 1024 words in the byte order of the machine that made it. The fields are
//! given in terms of version 1, so that readers of superblocks need not distinguish the versions. A
//! superblock of metadata 0.90 is never written.

use super::{
    FEATURE_BITMAP, FEATURE_RESHAPE, MAGIC, MdArrayInfo, MdDeviceInfo, MdPlace, MdReshape, MdState,
    MdSuperblock, MdVersion, SUPERBLOCK_BYTES, unsupported,
};
use pinstripe_base::error::{Error, Kind, Result};

/// The most devices that the superblock has room for.
const DEVICES_MAX: usize = 27;
/// The first word of the table of devices, and the words of an entry.
const TABLE: (usize, usize) = (128, 32);
const THIS_DEVICE: usize = 992;
const CHECKSUM: usize = 38;
const CLEAN: u32 = 1;
const BITMAP: u32 = 1 << 8;
const DISK_FAULTY: u32 = 1;
const DISK_SYNC: u32 = 1 << 2;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;
/// Sectors from the superblock to the bitmap.
const BITMAP_SECTORS: i32 = 8;

struct Words {
    words: Vec<u32>,
    is_big_endian: bool,
}

impl Words {
    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < SUPERBLOCK_BYTES {
            return Err(
                corrupt("the superblock is incomplete").expected(SUPERBLOCK_BYTES, bytes.len())
            );
        }
        let (words, _) = bytes[..SUPERBLOCK_BYTES].as_chunks::<4>();
        let is_big_endian = u32::from_be_bytes(words[0]) == MAGIC;
        let word = |it: &[u8; 4]| match is_big_endian {
            true => u32::from_be_bytes(*it),
            false => u32::from_le_bytes(*it),
        };
        Ok(Words { words: words.iter().map(word).collect(), is_big_endian })
    }

    fn at(&self, word: usize) -> u32 {
        self.words[word]
    }

    /// Two words as one number; their order is the byte order of the machine.
    fn long(&self, word: usize) -> u64 {
        let [first, second] = [self.at(word), self.at(word + 1)].map(u64::from);
        if self.is_big_endian { first << 32 | second } else { second << 32 | first }
    }

    fn check(&self) -> Result<()> {
        let own = self.at(CHECKSUM);
        let sum: u64 = self.words.iter().copied().map(u64::from).sum::<u64>() - u64::from(own);
        let computed = (sum as u32).wrapping_add((sum >> 32) as u32);
        // Machines differ in how they carry; md compares what is left of it in 16 bits.
        match fold(computed) == fold(own) {
            true => Ok(()),
            false => Err(corrupt("the checksum is wrong")
                .expected(format!("{computed:08x}"), format!("{own:08x}"))),
        }
    }
}

fn fold(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}

/// Decodes a superblock that is stored at `sector`.
///
/// # Errors
/// Fails with [`Kind::NotFound`] without a superblock; with [`Kind::Unsupported`] for another
/// version; with [`Kind::Corrupt`] for a wrong checksum and for impossible fields.
pub(super) fn decode(bytes: &[u8], sector: u64) -> Result<MdSuperblock> {
    let words = Words::from_bytes(bytes)?;
    if words.at(0) != MAGIC {
        return Err(Error::new(Kind::NotFound, "there is no md superblock of version 0.90")
            .expected(format!("{MAGIC:08x}"), format!("{:08x}", words.at(0))));
    }
    let version = (words.at(1), words.at(2));
    if !matches!(version, (0, 90 | 91)) {
        return Err(unsupported("this version of md's metadata")
            .expected("0.90", format!("{}.{}", version.0, version.1)));
    }
    words.check()?;
    let (members, number) = (words.at(10), words.at(THIS_DEVICE));
    let size_sectors = u64::from(words.at(8)) * 2;
    let level = words.at(7) as i32;
    let wrong = match () {
        () if members as usize > DEVICES_MAX => "the superblock has too many members",
        () if number as usize >= DEVICES_MAX => "the superblock has an impossible device number",
        () if level > 0 && size_sectors > sector => {
            "the data area of the member would overlap its superblock"
        }
        () => return Ok(fields(&words, sector)),
    };
    Err(corrupt(wrong))
}

fn fields(words: &Words, sector: u64) -> MdSuperblock {
    let state = words.at(33);
    let is_reshaped = words.at(2) == 91 && words.long(44) != u64::MAX;
    let features = [(state & BITMAP != 0, FEATURE_BITMAP), (is_reshaped, FEATURE_RESHAPE)];
    let features = features.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
    let members = words.at(10);
    let role = |device: usize| {
        let at = TABLE.0 + device * TABLE.1;
        let (role, state) = (words.at(at + 3), words.at(at + 4));
        match () {
            () if state & DISK_FAULTY != 0 => 0xfffe,
            () if state & DISK_SYNC != 0 && role < members => role as u16,
            () => 0xffff,
        }
    };
    let own = words.at(THIS_DEVICE + 4);
    let mut set_uuid = [0; 16];
    let id = [5, 13, 14, 15].map(|word| words.at(word).to_be_bytes());
    set_uuid.as_chunks_mut::<4>().0.copy_from_slice(&id);
    MdSuperblock {
        array: MdArrayInfo {
            features,
            set_uuid,
            set_name: [0; 32],
            created: words.at(6).into(),
            level: words.at(7) as i32,
            layout: words.at(64),
            size_sectors: u64::from(words.at(8)) * 2,
            chunk_sectors: words.at(65) / 512,
            members,
            log: if state & BITMAP != 0 { BITMAP_SECTORS.to_le_bytes() } else { [0; 4] },
            reshape: MdReshape::default(),
        },
        device: MdDeviceInfo {
            data_offset_sectors: 0,
            data_sectors: sector,
            place: MdPlace { version: MdVersion::V0_90, sector },
            recovery_sectors: 0,
            number: words.at(THIS_DEVICE),
            corrected_reads: 0,
            uuid: [0; 16],
            flags: u8::from(own & DISK_WRITE_MOSTLY != 0),
            bad_blocks_shift: 0,
            bad_blocks_sectors: 0,
            bad_blocks_offset_sectors: 0,
        },
        state: MdState {
            updated: words.at(32).into(),
            events: words.long(39),
            resync_sectors: match () {
                () if state & CLEAN != 0 => u64::MAX,
                // Where a resync stopped, if that is of the same event.
                () if words.long(39) == words.long(41) => words.at(43).into(),
                () => 0,
            },
        },
        roles: (0..DEVICES_MAX).map(role).collect(),
    }
}

fn corrupt(what: &str) -> Error {
    Error::new(Kind::Corrupt, format!("md superblock: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a clean mirror of two, as device 1 has them.
    fn mirror() -> Vec<u32> {
        let mut words = vec![0_u32; 1024];
        let first = [MAGIC, 0, 90, 0, 0, 0x1111_2222, 1_700_000_000, 1, 1024, 2, 2];
        words[..first.len()].copy_from_slice(&first);
        (words[33], words[39], words[64]) = (CLEAN, 7, 0);
        for (device, at) in [(0, 128), (1, 160), (1, THIS_DEVICE)] {
            (words[at], words[at + 3], words[at + 4]) = (device, device, 6);
        }
        words
    }

    fn bytes(mut words: Vec<u32>, is_big_endian: bool) -> Vec<u8> {
        let sum: u64 = words.iter().copied().map(u64::from).sum();
        words[CHECKSUM] = (sum as u32).wrapping_add((sum >> 32) as u32);
        let word = |it: &u32| if is_big_endian { it.to_be_bytes() } else { it.to_le_bytes() };
        words.iter().flat_map(word).collect()
    }

    #[test]
    fn both_byte_orders_say_the_same() {
        let little = decode(&bytes(mirror(), false), 4096).unwrap();
        let mut words = mirror();
        // The high half stands first there.
        words.swap(39, 40);
        assert_eq!(decode(&bytes(words, true), 4096).unwrap(), little);
        assert_eq!((little.state.events, little.array.members), (7, 2));
        assert_eq!(little.array.set_uuid[..4], [0x11, 0x11, 0x22, 0x22]);
        assert!(little.is_clean() && little.role() == super::super::Role::Member(1));
        assert_eq!(little.role_of(2), super::super::Role::Spare);
    }

    #[test]
    fn a_dirty_one_says_how_far_it_was_synced() {
        let with = |state: u32, synced: (u32, u32)| {
            let mut words = mirror();
            (words[33], words[41], words[43]) = (state, synced.0, synced.1);
            decode(&bytes(words, false), 4096).unwrap().state.resync_sectors
        };
        assert_eq!((with(CLEAN, (0, 0)), with(0, (7, 100)), with(0, (6, 100))), (u64::MAX, 100, 0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let kind = |change: &dyn Fn(&mut Vec<u32>)| {
            let mut words = mirror();
            change(&mut words);
            decode(&bytes(words, false), 4096).err().map(|it| it.kind())
        };
        assert_eq!(kind(&|_| {}), None);
        assert_eq!(kind(&|words| words[0] = 1), Some(Kind::NotFound));
        assert_eq!(kind(&|words| words[2] = 89), Some(Kind::Unsupported));
        assert_eq!(kind(&|words| words[10] = 28), Some(Kind::Corrupt));
        assert_eq!(kind(&|words| words[THIS_DEVICE] = 27), Some(Kind::Corrupt));
        assert_eq!(kind(&|words| words[8] = 4096), Some(Kind::Corrupt));
        let mut broken = bytes(mirror(), false);
        broken[100] ^= 1;
        assert_eq!(decode(&broken, 4096).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(decode(&broken[..4000], 4096).unwrap_err().kind(), Kind::Corrupt);
    }
}
